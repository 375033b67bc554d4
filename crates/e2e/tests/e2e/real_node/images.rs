//! The two images that the node needs in addition to pod-affinity's, pushed to the registry as `cargo ship` does.

use flate2::read::GzDecoder;
use oci_client::Client;
use oci_client::client::{ClientConfig, ClientProtocol, Config, ImageData, ImageLayer};
use oci_client::manifest::IMAGE_LAYER_GZIP_MEDIA_TYPE;
use oci_client::secrets::RegistryAuth;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// pod-affinity's image, pulled from a registry.
pub(crate) async fn pull(name: &str) -> ImageData {
    let accepted = vec![IMAGE_LAYER_GZIP_MEDIA_TYPE];
    let name = name.parse().unwrap();
    client()
        .pull(&name, &RegistryAuth::Anonymous, accepted)
        .await
        .unwrap()
}

/// Extracts the image's only program into a folder.
pub(crate) fn unpack(pulled: &ImageData, folder: &Path) -> PathBuf {
    let layer = GzDecoder::new(&*pulled.layers[0].data);
    tar::Archive::new(layer).unpack(folder).unwrap();
    folder.join("pod-affinity")
}

/// Pushes pod-affinity's image with `placeholder` as its command, so that it can hold a pod's namespaces as the sandbox
/// image. Returns its name.
pub(crate) async fn push_sandbox(registry: &str, pulled: &ImageData) -> String {
    let mut config: Value = serde_json::from_slice(&pulled.config.data).unwrap();
    config["config"]["Cmd"] = json!(["placeholder"]);
    let name = format!("{registry}/sandbox:test");
    push(&name, &pulled.layers, &config).await;
    name
}

/// Pushes an image with only one program. Returns the image's name.
pub(crate) async fn push_program(registry: &str, name: &str, program: &Path, path: &str) -> String {
    let layer = ImageLayer::oci_v1(archive(program, path), None);
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [format!("/{path}")]},
        "rootfs": {"type": "layers", "diff_ids": [layer.sha256_digest()]},
    });
    let name = format!("{registry}/{name}:test");
    push(&name, &[layer], &config).await;
    name
}

fn archive(program: &Path, path: &str) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_path_with_name(program, path).unwrap();
    archive.into_inner().unwrap()
}

async fn push(name: &str, layers: &[ImageLayer], config: &Value) {
    let config = Config::oci_v1(config.to_string(), None);
    let name = name.parse().unwrap();
    client()
        .push(&name, layers, config, &RegistryAuth::Anonymous, None)
        .await
        .unwrap();
}

fn client() -> Client {
    Client::new(ClientConfig {
        protocol: ClientProtocol::Http,
        ..ClientConfig::default()
    })
}

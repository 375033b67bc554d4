//! Pulls an image without code of `ship`: requests written by hand, digests by sha256sum, layers by tar.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An image as a registry returned it.
pub(crate) struct Pulled {
    pub(crate) manifest: Value,
    pub(crate) config: Value,
    pub(crate) layer: Vec<u8>,
}

/// Pulls by a reference such as `127.0.0.1:5000/pod-affinity@sha256:...`, and checks every digest.
pub(crate) fn pull(reference: &str) -> Pulled {
    let (image, digest) = reference.trim().split_once('@').unwrap();
    let (registry, repository) = image.split_once('/').unwrap();
    let fetch = |kind: &str, digest: &str| {
        let body = get(registry, &format!("/v2/{repository}/{kind}/{digest}"));
        assert_eq!(format!("sha256:{}", sha256(&body)), digest, "{kind}");
        body
    };
    let manifest = json(&fetch("manifests", digest));
    let config = json(&fetch("blobs", manifest["config"]["digest"].as_str().unwrap()));
    let layer = fetch("blobs", manifest["layers"][0]["digest"].as_str().unwrap());
    assert_eq!(manifest["layers"][0]["size"], layer.len());
    Pulled {
        manifest,
        config,
        layer,
    }
}

impl Pulled {
    /// Extracts the layer into a new folder, and returns the folder.
    pub(crate) fn unpacked(&self, folder: &Path) -> PathBuf {
        let root = folder.join("root");
        std::fs::create_dir_all(&root).unwrap();
        filter(
            Command::new("tar")
                .args(["--extract", "--gzip", "--no-same-owner", "--directory"])
                .arg(&root),
            &self.layer,
        );
        root
    }

    /// The layer's archive, uncompressed.
    pub(crate) fn archive(&self) -> Vec<u8> {
        decompressed(&self.layer)
    }
}

pub(crate) fn decompressed(layer: &[u8]) -> Vec<u8> {
    filter(Command::new("gzip").args(["--decompress", "--stdout"]), layer)
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let answer = filter(&mut Command::new("sha256sum"), bytes);
    String::from_utf8(answer)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_owned()
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn get(registry: &str, path: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(registry).unwrap();
    let accept = "application/vnd.oci.image.manifest.v1+json";
    // HTTP/1.0: the server sends the response in one piece, and then closes the connection.
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {registry}\r\nAccept: {accept}, */*\r\n\r\n"
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    assert!(head.lines().next().unwrap().contains(" 200 "), "{path}: {head}");
    answer.split_off(end + 4)
}

/// Sends `input` to a program's standard input, and returns its standard output.
fn filter(command: &mut Command, input: &[u8]) -> Vec<u8> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || pipe.write_all(&input).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    output.stdout
}

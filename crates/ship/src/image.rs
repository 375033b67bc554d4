//! Assembles an image in memory. The result depends only on the binary and its metadata, so the same input has the same
//! digest on every machine.

mod blob;
pub(crate) mod layer;

pub(crate) use blob::{Blob, hex};

use crate::platform::Processor;
use jiff::Timestamp;
use oci_spec::image::{
    Config, ConfigBuilder, Descriptor, History, HistoryBuilder, ImageConfiguration,
    ImageConfigurationBuilder, ImageIndexBuilder, ImageManifest, ImageManifestBuilder, MediaType,
    PlatformBuilder, RootFsBuilder,
};
use std::collections::{BTreeMap, HashMap};

/// The path of the binary in the image.
pub(crate) const ENTRYPOINT: &str = "/pod-affinity";
/// A numeric user id, so that the kubelet can verify that the user is not root. No file of the image belongs to this user.
pub(crate) const USER: &str = "65532:65532";
/// The largest allowed layer in bytes: every node with a placeholder pulls it.
pub(crate) const LIMIT: usize = 12_000_000;

/// The inputs of an image.
#[derive(Clone, Debug)]
pub(crate) struct Content<'a> {
    pub(crate) binary: &'a [u8],
    pub(crate) processor: Processor,
    pub(crate) time: Timestamp,
    /// Values by OCI key, which become labels and annotations.
    pub(crate) labels: BTreeMap<String, String>,
}

/// An assembled image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) processor: Processor,
    pub(crate) layer: Blob,
    pub(crate) config: Blob,
    pub(crate) manifest: Blob,
    /// Size of the binary.
    pub(crate) unpacked: usize,
}

/// The image cannot be assembled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the layer cannot be written: {0}")]
    Layer(#[from] std::io::Error),
    #[error("the image's description is not what OCI asks for: {0}")]
    Spec(#[from] oci_spec::OciSpecError),
    #[error("the image's description cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    #[error(
        "the image is {:.1} MB compressed, more than the {:.0} MB limit: find the reason with `cargo bloat` or `cargo \
         tree`",
        megabytes(*.0),
        megabytes(LIMIT)
    )]
    TooLarge(usize),
}

/// Assembles an image.
pub(crate) fn assemble(content: &Content<'_>) -> Result<Image, Error> {
    let layer = layer::pack(ENTRYPOINT, content.binary, content.time)?;
    if layer.blob.size() > LIMIT {
        return Err(Error::TooLarge(layer.blob.size()));
    }
    let config = configuration(content, &layer.diff_id)?;
    let config = Blob::json(MediaType::ImageConfig, &config)?;
    let manifest = manifest(content, config.descriptor()?, layer.blob.descriptor()?)?;
    Ok(Image {
        manifest: Blob::json(MediaType::ImageManifest, &manifest)?,
        config,
        layer: layer.blob,
        unpacked: content.binary.len(),
        processor: content.processor,
    })
}

/// The index from which a client chooses the image of its platform.
pub(crate) fn index(images: &[Image]) -> Result<Blob, Error> {
    let manifests: Result<Vec<Descriptor>, Error> = images.iter().map(for_platform).collect();
    let index = ImageIndexBuilder::default()
        .schema_version(2_u32)
        .media_type(MediaType::ImageIndex)
        .manifests(manifests?)
        .build()?;
    Ok(Blob::json(MediaType::ImageIndex, &index)?)
}

fn for_platform(image: &Image) -> Result<Descriptor, Error> {
    let platform = PlatformBuilder::default()
        .os("linux")
        .architecture(image.processor.oci())
        .build()?;
    let mut descriptor = image.manifest.descriptor()?;
    descriptor.set_platform(Some(platform));
    Ok(descriptor)
}

impl Image {
    /// The digest by which the image is referenced.
    pub(crate) fn digest(&self) -> &str {
        &self.manifest.digest
    }

    /// All blobs, in the order in which they are pushed.
    pub(crate) fn blobs(&self) -> [&Blob; 3] {
        let Self {
            layer,
            config,
            manifest,
            unpacked: _,
            processor: _,
        } = self;
        [layer, config, manifest]
    }
}

/// Megabytes, in the unit of registries and `docker images`.
#[allow(clippy::cast_precision_loss, reason = "a size in megabytes with one decimal")]
pub(crate) fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

fn configuration(content: &Content<'_>, diff_id: &str) -> Result<ImageConfiguration, Error> {
    let rootfs = RootFsBuilder::default()
        .typ("layers")
        .diff_ids([diff_id.to_owned()])
        .build()?;
    let configuration = ImageConfigurationBuilder::default()
        .created(content.time.to_string())
        .architecture(content.processor.oci())
        .os("linux")
        .config(process(content)?)
        .rootfs(rootfs)
        .history([history(content.time)?])
        .build()?;
    Ok(configuration)
}

fn process(content: &Content<'_>) -> Result<Config, Error> {
    let config = ConfigBuilder::default()
        .user(USER)
        .entrypoint([ENTRYPOINT.to_owned()])
        .working_dir("/")
        .labels(labels(content))
        .build()?;
    Ok(config)
}

fn history(time: Timestamp) -> Result<History, Error> {
    let history = HistoryBuilder::default()
        .created(time.to_string())
        .created_by("cargo ship")
        .comment(format!("{ENTRYPOINT}, statically linked"))
        .build()?;
    Ok(history)
}

fn manifest(content: &Content<'_>, config: Descriptor, layer: Descriptor) -> Result<ImageManifest, Error> {
    let manifest = ImageManifestBuilder::default()
        .schema_version(2_u32)
        .media_type(MediaType::ImageManifest)
        .config(config)
        .layers([layer])
        .annotations(labels(content))
        .build()?;
    Ok(manifest)
}

fn labels(content: &Content<'_>) -> HashMap<String, String> {
    content.labels.clone().into_iter().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::Value;

    pub(crate) fn content(binary: &[u8]) -> Content<'_> {
        let labels = ["title", "version", "revision", "licenses", "created"];
        let label = |name: &&str| (format!("org.opencontainers.image.{name}"), format!("the {name}"));
        Content {
            binary,
            processor: Processor::Amd64,
            time: Timestamp::from_second(1_700_000_000).unwrap(),
            labels: labels.iter().map(label).collect(),
        }
    }

    pub(crate) fn image() -> Image {
        assemble(&content(b"the binary")).unwrap()
    }

    fn json(blob: &Blob) -> Value {
        serde_json::from_slice(&blob.bytes).unwrap()
    }

    #[test]
    fn the_same_content_gives_the_same_digest_every_time() {
        let first = image();
        for _ in 0..20 {
            assert_eq!(image(), first);
        }
    }

    #[test]
    fn the_digest_of_a_known_image_has_not_changed() {
        // This digest changes if a library writes other bytes. Then the digests of all old commits change, and CHANGELOG.md
        // should mention it.
        assert_eq!(image().config.digest, json(&image().manifest)["config"]["digest"]);
        assert_eq!(
            image().digest(),
            "sha256:4ad07d73e746736d5b4798be8f1a72a711be174e6449d8225f670c3a2e58381a"
        );
    }

    #[test]
    fn another_binary_time_or_label_gives_another_digest() {
        let other_time = Content {
            time: Timestamp::UNIX_EPOCH,
            ..content(b"the binary")
        };
        let mut other_label = content(b"the binary");
        other_label.labels.insert("a".into(), "b".into());
        let others = [content(b"another"), other_time, other_label];
        for other in others {
            assert_ne!(assemble(&other).unwrap().digest(), image().digest());
        }
    }

    #[test]
    fn the_process_is_the_binary_with_an_unprivileged_user() {
        let config = json(&image().config);
        assert_eq!(
            config["config"]["Entrypoint"],
            serde_json::json!(["/pod-affinity"])
        );
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(
            (config["os"].as_str(), config["architecture"].as_str()),
            (Some("linux"), Some("amd64"))
        );
        assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    }

    #[test]
    fn labels_are_in_the_configuration_and_in_the_manifest() {
        let key = "org.opencontainers.image.revision";
        assert_eq!(json(&image().config)["config"]["Labels"][key], "the revision");
        assert_eq!(json(&image().manifest)["annotations"][key], "the revision");
    }

    #[test]
    fn the_manifest_names_every_blob_by_digest_and_size() {
        let (image, manifest) = (image(), json(&image().manifest));
        for (named, blob) in [
            (&manifest["config"], &image.config),
            (&manifest["layers"][0], &image.layer),
        ] {
            assert_eq!(named["digest"], blob.digest);
            assert_eq!(named["size"], blob.size());
        }
        assert_eq!(
            manifest["mediaType"],
            "application/vnd.oci.image.manifest.v1+json"
        );
    }

    #[test]
    fn an_index_names_each_image_with_its_platform() {
        let arm64 = Content {
            processor: Processor::Arm64,
            ..content(b"the other binary")
        };
        let images = [image(), assemble(&arm64).unwrap()];
        let index = json(&index(&images).unwrap());
        for (number, image) in images.iter().enumerate() {
            let entry = &index["manifests"][number];
            assert_eq!(entry["digest"], image.digest());
            assert_eq!(entry["platform"]["architecture"], image.processor.oci());
        }
    }

    #[test]
    fn a_layer_above_the_limit_is_refused_with_its_size() {
        // Pseudorandom numbers, because repetitive data would be compressed below the limit.
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()[7]
        };
        let noise: Vec<u8> = (0..LIMIT + 100_000).map(|_| next()).collect();
        let error = assemble(&content(&noise)).unwrap_err().to_string();
        assert!(
            error.contains("12.1 MB compressed, more than the 12 MB"),
            "{error}"
        );
    }
}

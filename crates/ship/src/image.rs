//! Assembles images with crane in an empty registry on this machine. The result depends only on the binary and its labels, so the
//! same input has the same digest on every machine.

use crate::archive::{file, packed, program, tar};
use crate::crane::Crane;
use crate::source::{PRODUCT, Source};
use crate::tool::{self, read, read_bytes, scratch, write};
use crate::values::Platform;
use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};
use tempfile::TempDir;

/// A numeric user id, so that the kubelet can verify that the user is not root. No file of the image belongs to this user.
const USER: &str = "--user=65532:65532";
/// The annotations from which containerd and other runtimes read the name of an imported image.
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// A registry that ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct LocalRegistry {
    crane: Crane,
    child: Child,
    /// The reader of the log stays open: without a reader, the process ends when it writes a line.
    log: Option<BufReader<ChildStderr>>,
    address: String,
    scratch: TempDir,
}

impl LocalRegistry {
    pub(crate) fn start(root: &Path) -> Result<Self> {
        let crane = Crane::new(root, false)?;
        let mut serve = crane
            .program
            .command(&["registry", "serve", "--address=127.0.0.1:0"]);
        serve
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = serve.spawn().context("crane does not run")?;
        let mut registry = Self {
            log: child.stderr.take().map(BufReader::new),
            crane,
            child,
            address: String::new(),
            scratch: scratch()?,
        };
        let lines = registry
            .log
            .iter_mut()
            .flat_map(BufRead::lines)
            .map_while(Result::ok);
        let address = lines.into_iter().find_map(|line| address(&line));
        registry.address = address.context("crane registry serve reports no address")?;
        Ok(registry)
    }

    fn named(&self, tag: &str) -> String {
        format!("{}/{PRODUCT}:{tag}", self.address)
    }

    /// Assembles the image of a binary, and returns its reference by digest.
    pub(crate) fn image(&self, source: &Source, platform: Platform, binary: Vec<u8>) -> Result<String> {
        let layer = packed(&[program(PRODUCT, binary)], source.commit.time)?;
        status!("the image for {platform} has {} kB", layer.len() / 1000);
        let path = self.scratch.path().join("layer.tar.gz");
        write(&path, &layer)?;
        let base = self.crane.run(&[
            "append",
            "--oci-empty-base",
            "--new_layer",
            &path.display().to_string(),
            "--new_tag",
            &self.named("layer"),
        ])?;
        // crane splits a value with several labels at commas, except in quotes.
        let labels = source.labels().into_iter().map(|label| format!("\"{label}\""));
        let labels = labels.flat_map(|label| [format!("--label={label}"), format!("--annotation={label}")]);
        let (labels, entrypoint) = (labels.collect::<Vec<_>>(), format!("--entrypoint=/{PRODUCT}"));
        let platform = format!("--set-platform={platform}");
        let mutate = ["mutate", &base, USER, &entrypoint, &platform, "--workdir=/"];
        let labels = labels.iter().map(String::as_str);
        self.crane
            .run(&mutate.into_iter().chain(labels).collect::<Vec<_>>())
    }

    /// Creates the index from which a client chooses the image of its platform, and returns its reference by digest.
    pub(crate) fn index(&self, images: &[String]) -> Result<String> {
        let name = self.named("index");
        let images = images.iter().flat_map(|image| ["--manifest", image]);
        let append = ["index", "append", "--tag", &name];
        self.crane
            .run(&append.into_iter().chain(images).collect::<Vec<_>>())
    }

    /// The archive of an image or an index as an OCI layout with these names.
    pub(crate) fn archive(&self, image: &str, names: &[String], time: Timestamp) -> Result<Vec<u8>> {
        let layout = self.scratch.path().join("layout");
        self.crane
            .run(&["pull", "--format=oci", image, &layout.display().to_string()])?;
        let index = serde_json::from_str(&read(&layout.join("index.json"))?)?;
        let mut files = vec![
            file("oci-layout", read(&layout.join("oci-layout"))?),
            file("index.json", with_names(index, names).to_string()),
        ];
        for blob in tool::files(&layout.join("blobs/sha256"))? {
            let path = blob.strip_prefix(&layout)?.display().to_string();
            files.push(file(path, read_bytes(&blob)?));
        }
        tar(&files, time).context("the archive of the image cannot be written")
    }

    /// Checks all blobs of an archive, and returns the digest of the image.
    pub(crate) fn validated(&self, archive: &Path) -> Result<String> {
        let layout = self.scratch.path().join("unpacked");
        let unpacked = std::fs::File::open(archive).and_then(|file| tar::Archive::new(file).unpack(&layout));
        unpacked.with_context(|| format!("{} cannot be read", archive.display()))?;
        let copy = self.named("copy");
        self.crane.run(&["push", &layout.display().to_string(), &copy])?;
        self.crane.run(&["validate", "--remote", &copy])?;
        self.crane.run(&["digest", &copy])
    }
}

/// The index of a layout with one entry for each name.
fn with_names(mut index: Value, names: &[String]) -> Value {
    let named = |name: &String| {
        let mut image = index["manifests"][0].clone();
        image["annotations"] = NAMES
            .map(|key| (key.to_owned(), json!(name)))
            .into_iter()
            .collect();
        image
    };
    index["manifests"] = names.iter().map(named).collect();
    index
}

/// The digest in a reference.
pub(crate) fn digest(reference: &str) -> &str {
    reference.split_once('@').unwrap_or_default().1
}

/// The address in crane's line `serving on port 1234`.
fn address(line: &str) -> Option<String> {
    let (_, port) = line.rsplit_once("serving on port ")?;
    Some(format!("127.0.0.1:{}", port.trim()))
}

impl Drop for LocalRegistry {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_line_of_crane() {
        let line = "2026/01/01 10:00:00 serving on port 41234";
        assert_eq!(address(line).as_deref(), Some("127.0.0.1:41234"));
        assert_eq!(address("other"), None);
    }

    #[test]
    fn every_name_is_in_the_index_as_containerd_looks_for_it() {
        let names = ["localhost:5000/x:latest", "localhost:5000/x:v1"].map(str::to_owned);
        let index = with_names(json!({"manifests": [{"digest": "sha256:0"}]}), &names);
        for (number, name) in names.iter().enumerate() {
            let image = &index["manifests"][number];
            assert_eq!(image["digest"], "sha256:0");
            assert_eq!(image["annotations"]["io.containerd.image.name"], **name);
        }
    }
}

//! Writes an image as an OCI layout into a folder or a tar archive. The archive also contains Docker's older manifest, so
//! that `ctr images import`, `kind load image-archive`, `podman load` and `docker load` can read it.

use crate::image::{Blob, Image};
use oci_spec::image::{Descriptor, ImageIndex, ImageIndexBuilder, MediaType, OciLayout, OciLayoutBuilder};
use serde_json::json;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// The annotations from which containerd and other runtimes read the name of an imported image.
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// Path and content of a file in a layout.
pub(crate) type File = (String, Vec<u8>);

/// The image cannot be written to a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the image's table of contents is not what OCI asks for: {0}")]
    Spec(#[from] oci_spec::OciSpecError),
    #[error("the image's table of contents cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{} cannot be written ({source}): choose a writable path", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Writes the layout into a folder, and overwrites the files of an earlier image.
pub(crate) fn write_layout(folder: &Path, image: &Image, names: &[String]) -> Result<(), Error> {
    for (path, bytes) in layout(&image.manifest, &image.blobs(), names)? {
        write(&folder.join(path), &bytes)?;
    }
    Ok(())
}

/// Writes the archive.
pub(crate) fn write_tarball(path: &Path, image: &Image, names: &[String]) -> Result<(), Error> {
    let mut files = layout(&image.manifest, &image.blobs(), names)?;
    files.push(("manifest.json".to_owned(), docker_contents(image, names)?));
    let bytes = tarball(&files).map_err(unwritable(path))?;
    write(path, &bytes)
}

/// The archive of an index with its images, without Docker's manifest, which has no platforms.
pub(crate) fn bundle(index: &Blob, images: &[Image], names: &[String]) -> Result<Vec<u8>, Error> {
    let blobs: Vec<&Blob> = images.iter().flat_map(Image::blobs).chain([index]).collect();
    let files = layout(index, &blobs, names)?;
    tarball(&files).map_err(unwritable(Path::new("the archive")))
}

/// Writes a file, and creates its parent folders.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(folder).map_err(unwritable(path))?;
    std::fs::write(path, bytes).map_err(unwritable(path))
}

fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Write { path, source }
}

/// The layout of an image or an index, and of everything to which it refers.
fn layout(top: &Blob, blobs: &[&Blob], names: &[String]) -> Result<Vec<File>, Error> {
    let version: OciLayout = OciLayoutBuilder::default()
        .image_layout_version("1.0.0")
        .build()?;
    let mut files = vec![
        ("oci-layout".to_owned(), serde_json::to_vec(&version)?),
        (
            "index.json".to_owned(),
            Blob::json(MediaType::ImageIndex, &index(top, names)?)?.bytes,
        ),
    ];
    files.extend(blobs.iter().map(|blob| (path(blob), blob.bytes.clone())));
    Ok(files)
}

/// The index, with one entry for each name.
fn index(top: &Blob, names: &[String]) -> Result<ImageIndex, Error> {
    let manifests: Result<Vec<Descriptor>, _> = names.iter().map(|name| named(top, name)).collect();
    let index = ImageIndexBuilder::default()
        .schema_version(2_u32)
        .media_type(MediaType::ImageIndex)
        .manifests(manifests?)
        .build()?;
    Ok(index)
}

fn named(top: &Blob, name: &str) -> Result<Descriptor, oci_spec::OciSpecError> {
    let mut descriptor = top.descriptor()?;
    let annotations: HashMap<_, _> = NAMES.map(|key| (key.to_owned(), name.to_owned())).into();
    descriptor.set_annotations(Some(annotations));
    Ok(descriptor)
}

fn docker_contents(image: &Image, names: &[String]) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&json!([{
        "Config": path(&image.config),
        "RepoTags": names,
        "Layers": [path(&image.layer)],
    }]))
}

fn path(blob: &Blob) -> String {
    format!("blobs/sha256/{}", blob.hex())
}

fn tarball(files: &[File]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, path, bytes.as_slice())?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::tests::image;
    use serde_json::Value;

    fn names() -> Vec<String> {
        [
            "localhost:5000/pod-affinity:latest",
            "localhost:5000/pod-affinity:v1",
        ]
        .map(str::to_owned)
        .into()
    }

    fn read(folder: &Path, path: &str) -> Value {
        serde_json::from_slice(&std::fs::read(folder.join(path)).unwrap()).unwrap()
    }

    #[test]
    fn a_layout_leads_from_its_index_to_every_blob() {
        let folder = tempfile::tempdir().unwrap();
        write_layout(folder.path(), &image(), &names()).unwrap();
        assert_eq!(read(folder.path(), "oci-layout")["imageLayoutVersion"], "1.0.0");
        let index = read(folder.path(), "index.json");
        assert_eq!(index["manifests"][0]["digest"], image().digest());
        for blob in image().blobs() {
            assert_eq!(std::fs::read(folder.path().join(path(blob))).unwrap(), blob.bytes);
        }
    }

    #[test]
    fn every_name_is_in_the_index_as_containerd_looks_for_it() {
        let index = serde_json::to_value(index(&image().manifest, &names()).unwrap()).unwrap();
        for (number, name) in names().iter().enumerate() {
            let annotations = &index["manifests"][number]["annotations"];
            assert_eq!(annotations["io.containerd.image.name"], **name);
        }
    }

    #[test]
    fn an_archive_is_the_layout_with_dockers_table_of_contents() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/image.tar");
        write_tarball(&path, &image(), &names()).unwrap();
        let mut archive = tar::Archive::new(std::fs::File::open(&path).unwrap());
        archive.unpack(folder.path().join("unpacked")).unwrap();
        let contents = read(&folder.path().join("unpacked"), "manifest.json");
        assert_eq!(contents[0]["RepoTags"], json!(names()));
        let layer = contents[0]["Layers"][0].as_str().unwrap();
        assert_eq!(
            std::fs::read(folder.path().join("unpacked").join(layer)).unwrap(),
            image().layer.bytes
        );
    }

    #[test]
    fn the_same_image_gives_the_same_archive() {
        let files = || layout(&image().manifest, &image().blobs(), &names()).unwrap();
        assert_eq!(tarball(&files()).unwrap(), tarball(&files()).unwrap());
    }

    #[test]
    fn a_path_below_a_file_cannot_be_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = write_tarball(&file.path().join("x.tar"), &image(), &names()).unwrap_err();
        assert!(error.to_string().contains("choose a writable path"), "{error}");
    }
}

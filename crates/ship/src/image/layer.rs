//! Compressed tar archives: the only layer of an image, which contains one file, and the archives of a release. Order, times,
//! owners and compression are fixed, so that builds are reproducible.

use super::blob::{self, Blob};
use flate2::{Compression, GzBuilder};
use jiff::Timestamp;
use oci_spec::image::MediaType;
use std::io::{self, Write};

/// A compressed layer.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) blob: Blob,
    /// Digest of the uncompressed tar archive.
    pub(crate) diff_id: String,
}

/// A file in an archive, which belongs to root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) path: &'a str,
    pub(crate) mode: u32,
    pub(crate) content: &'a [u8],
}

/// Packs one file that belongs to root and that all users may execute.
pub(crate) fn pack(path: &str, content: &[u8], time: Timestamp) -> io::Result<Layer> {
    let file = Entry {
        path,
        mode: 0o755,
        content,
    };
    let archive = archive(&[file], time)?;
    let compressed = compress(&archive)?;
    Ok(Layer {
        diff_id: blob::digest(&archive),
        blob: Blob::new(MediaType::ImageLayerGzip, compressed),
    })
}

/// Packs several files into a compressed archive.
pub(crate) fn pack_files(files: &[Entry<'_>], time: Timestamp) -> io::Result<Vec<u8>> {
    compress(&archive(files, time)?)
}

fn archive(files: &[Entry<'_>], time: Timestamp) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for file in files {
        let mut header = tar::Header::new_ustar();
        header.set_mode(file.mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(seconds(time));
        header.set_size(file.content.len() as u64);
        archive.append_data(&mut header, file.path.trim_start_matches('/'), file.content)?;
    }
    archive.into_inner()
}

/// Seconds since 1970. Tar cannot store earlier times.
pub(crate) fn seconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_second()).unwrap_or_default()
}

// The header contains no time, no file name and no operating system.
fn compress(archive: &[u8]) -> io::Result<Vec<u8>> {
    const UNKNOWN_SYSTEM: u8 = 255;
    let builder = GzBuilder::new().mtime(0).operating_system(UNKNOWN_SYSTEM);
    let mut encoder = builder.write(Vec::new(), Compression::best());
    encoder.write_all(archive)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read;

    fn packed() -> Layer {
        pack(
            "/pod-affinity",
            b"content",
            Timestamp::from_second(1_700_000_000).unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn the_layer_holds_one_file_that_everybody_may_run_and_nobody_but_root_may_change() {
        let layer = packed();
        let mut archive = tar::Archive::new(GzDecoder::new(layer.blob.bytes.as_slice()));
        let mut entries = archive.entries().unwrap();
        let mut file = entries.next().unwrap().unwrap();
        let header = file.header().clone();
        assert_eq!(file.path().unwrap().to_str(), Some("pod-affinity"));
        assert_eq!(
            (
                header.mode().unwrap(),
                header.uid().unwrap(),
                header.gid().unwrap()
            ),
            (0o755, 0, 0)
        );
        assert_eq!(header.mtime().unwrap(), 1_700_000_000);
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "content");
        drop(file);
        assert!(entries.next().is_none());
    }

    #[test]
    fn the_archive_contains_no_user_names() {
        let file = Entry {
            path: "/x",
            mode: 0o644,
            content: b"",
        };
        let archive = archive(&[file], Timestamp::UNIX_EPOCH).unwrap();
        let header = tar::Header::from_byte_slice(&archive[..512]);
        assert_eq!(
            (header.username().unwrap(), header.groupname().unwrap()),
            (Some(""), Some(""))
        );
    }

    #[test]
    fn the_compressed_layer_names_neither_time_nor_system() {
        assert_eq!(packed().blob.bytes[4..10], [0, 0, 0, 0, 2, 255]);
    }

    #[test]
    fn the_diff_id_is_the_digest_of_the_archive_itself() {
        let layer = packed();
        let mut archive = Vec::new();
        GzDecoder::new(layer.blob.bytes.as_slice())
            .read_to_end(&mut archive)
            .unwrap();
        assert_eq!(blob::digest(&archive), layer.diff_id);
    }

    #[test]
    fn a_time_before_1970_is_stored_as_1970() {
        assert_eq!(seconds(Timestamp::from_second(-5).unwrap()), 0);
    }
}

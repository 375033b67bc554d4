//! Archives. The same content gives the same bytes: order, times, owners and compression are fixed.

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::io::{self, Write};

/// Path, mode and content of a file that belongs to root.
pub(crate) type Entry = (String, u32, Vec<u8>);

/// A file that all users may execute.
pub(crate) fn program(path: &str, content: Vec<u8>) -> Entry {
    (path.to_owned(), 0o755, content)
}

/// A file that all users may read.
pub(crate) fn file(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Entry {
    (path.into(), 0o644, content.into())
}

/// Packs files with this time into a compressed archive.
pub(crate) fn packed(files: &[Entry], time: Timestamp) -> Result<Vec<u8>> {
    tar(files, time)
        .and_then(|archive| compressed(&archive))
        .context("an archive cannot be written")
}

/// Packs files with this time.
pub(crate) fn tar(files: &[Entry], time: Timestamp) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, mode, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        // Tar has no time before 1970.
        header.set_mtime(u64::try_from(time.as_second()).unwrap_or_default());
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content.as_slice())?;
    }
    archive.into_inner()
}

/// The header of the result has no time, no file name and no operating system.
fn compressed(archive: &[u8]) -> io::Result<Vec<u8>> {
    const UNKNOWN_SYSTEM: u8 = 255;
    let builder = GzBuilder::new().mtime(0).operating_system(UNKNOWN_SYSTEM);
    let mut encoder = builder.write(Vec::new(), Compression::best());
    encoder.write_all(archive)?;
    encoder.finish()
}

/// The SHA-256 of these bytes in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read;

    fn example() -> Vec<u8> {
        let files = [
            program("pod-affinity", b"content".to_vec()),
            file("LICENSE", "free"),
        ];
        packed(&files, Timestamp::from_second(1_700_000_000).unwrap()).unwrap()
    }

    #[test]
    fn an_archive_has_files_of_root_with_their_modes_and_one_time() {
        let archive = example();
        let mut archive = tar::Archive::new(GzDecoder::new(archive.as_slice()));
        let files = archive.entries().unwrap().map(|file| {
            let mut file = file.unwrap();
            let mut content = String::new();
            file.read_to_string(&mut content).unwrap();
            let header = file.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(
                (header.username().unwrap(), header.groupname().unwrap()),
                (Some(""), Some(""))
            );
            assert_eq!(header.mtime().unwrap(), 1_700_000_000);
            let path = file.path().unwrap().display().to_string();
            (path, header.mode().unwrap(), content.into_bytes())
        });
        let expected = [
            program("pod-affinity", b"content".to_vec()),
            file("LICENSE", "free"),
        ];
        assert_eq!(files.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_header_of_a_compressed_archive_has_no_time_and_no_system() {
        assert_eq!(example()[4..10], [0, 0, 0, 0, 2, 255]);
    }

    #[test]
    fn the_digest_of_a_known_archive_has_not_changed() {
        // This digest changes if a library writes other bytes. Then the digests of all old commits change, and CHANGELOG.md
        // should mention it.
        assert_eq!(
            sha256(&example()),
            "9f565384656cdd54bec1d3eccf6a62ac41c141399d42afcee142b0af9a07b8b8"
        );
    }
}

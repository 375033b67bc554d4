//! Bytes that are identified by their digest.

use oci_spec::image::{Descriptor, MediaType, Sha256Digest};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::str::FromStr;

/// A blob in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) media_type: MediaType,
    /// `sha256:` and 64 hexadecimal digits.
    pub(crate) digest: String,
    pub(crate) bytes: Vec<u8>,
}

impl Blob {
    pub(crate) fn new(media_type: MediaType, bytes: Vec<u8>) -> Self {
        Self {
            digest: digest(&bytes),
            media_type,
            bytes,
        }
    }

    /// JSON with sorted keys: some types contain hash maps without a fixed order.
    pub(crate) fn json(media_type: MediaType, content: &impl Serialize) -> Result<Self, serde_json::Error> {
        let mut value = serde_json::to_value(content)?;
        value.sort_all_objects();
        Ok(Self::new(media_type, serde_json::to_vec(&value)?))
    }

    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The digest without its algorithm, which is the name of the file in a layout.
    pub(crate) fn hex(&self) -> &str {
        self.digest.trim_start_matches("sha256:")
    }

    pub(crate) fn descriptor(&self) -> Result<Descriptor, oci_spec::OciSpecError> {
        let digest = Sha256Digest::from_str(self.hex())?;
        Ok(Descriptor::new(
            self.media_type.clone(),
            self.size() as u64,
            digest,
        ))
    }
}

/// `sha256:` and the digest of these bytes.
pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(bytes))
}

/// The SHA-256 of these bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_blob_is_identified_by_the_digest_of_its_bytes() {
        let blob = Blob::new(MediaType::ImageLayer, b"abc".to_vec());
        assert_eq!(
            blob.digest,
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(blob.descriptor().unwrap().size(), 3);
    }

    #[test]
    fn json_is_written_with_its_keys_in_order() {
        let unordered: HashMap<String, u8> = ('a'..='z').rev().map(|key| (key.to_string(), 1)).collect();
        let blob = Blob::json(MediaType::ImageConfig, &unordered).unwrap();
        assert!(blob.bytes.starts_with(b"{\"a\":1,\"b\":1,\"c\":1"));
    }
}

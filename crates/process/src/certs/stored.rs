//! The keys of the Secret as one value. The values are not interpreted.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use std::collections::BTreeMap;
use std::fmt;

/// Key of the CA's certificate.
pub const CA_CERTIFICATE: &str = "ca.crt";
/// Key of the CA's private key.
pub const CA_KEY: &str = "ca.key";
/// Key of all CAs that may have signed a served certificate: the current CA first.
pub const CA_BUNDLE: &str = "ca-bundle.crt";
/// Key of the serving certificate.
pub const CERTIFICATE: &str = "tls.crt";
/// Key of the serving certificate's private key.
pub const KEY: &str = "tls.key";

/// The content of the Secret, each part as PEM; a missing part is empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// [`CA_CERTIFICATE`].
    pub ca: String,
    /// [`CA_KEY`].
    pub ca_key: String,
    /// [`CA_BUNDLE`].
    pub bundle: String,
    /// [`CERTIFICATE`].
    pub leaf: String,
    /// [`KEY`].
    pub leaf_key: String,
}

impl Stored {
    /// Reads a Secret. Bytes that are not UTF-8 count as missing, because PEM is text.
    pub fn of(secret: &Secret) -> Self {
        let text = |key: &str| {
            secret
                .data
                .as_ref()
                .and_then(|data| text(data, key))
                .unwrap_or_default()
        };
        Self {
            ca: text(CA_CERTIFICATE),
            ca_key: text(CA_KEY),
            bundle: text(CA_BUNDLE),
            leaf: text(CERTIFICATE),
            leaf_key: text(KEY),
        }
    }

    /// The Secret's `data`. Other keys are dropped.
    pub fn into_data(self) -> BTreeMap<String, ByteString> {
        let Self {
            ca,
            ca_key,
            bundle,
            leaf,
            leaf_key,
        } = self;
        [
            (CA_CERTIFICATE, ca),
            (CA_KEY, ca_key),
            (CA_BUNDLE, bundle),
            (CERTIFICATE, leaf),
            (KEY, leaf_key),
        ]
        .into_iter()
        .filter(|(_, pem)| !pem.is_empty())
        .map(|(key, pem)| (key.to_owned(), ByteString(pem.into_bytes())))
        .collect()
    }
}

/// Shows the length of each part and hides the content.
impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("ca", &self.ca.len())
            .field("ca_key", &self.ca_key.len())
            .field("bundle", &self.bundle.len())
            .field("leaf", &self.leaf.len())
            .field("leaf_key", &self.leaf_key.len())
            .finish()
    }
}

fn text(data: &BTreeMap<String, ByteString>, key: &str) -> Option<String> {
    String::from_utf8(data.get(key)?.0.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Stored {
        let part = |name: &str| format!("pem of {name}");
        Stored {
            ca: part("ca"),
            ca_key: part("key"),
            bundle: part("bundle"),
            leaf: part("leaf"),
            leaf_key: part("leaf key"),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let secret = Secret {
            data: Some(full().into_data()),
            ..Secret::default()
        };
        assert_eq!(Stored::of(&secret), full());
    }

    #[test]
    fn an_empty_secret_and_bytes_that_are_no_text_count_as_missing() {
        let binary = BTreeMap::from([(CERTIFICATE.to_owned(), ByteString(vec![0xff, 0xfe]))]);
        assert_eq!(Stored::of(&Secret::default()), Stored::default());
        assert_eq!(
            Stored::of(&Secret {
                data: Some(binary),
                ..Secret::default()
            }),
            Stored::default()
        );
    }

    #[test]
    fn debug_output_shows_no_key() {
        assert!(!format!("{:?}", full()).contains("pem of"));
    }
}

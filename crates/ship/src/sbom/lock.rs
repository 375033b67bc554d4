//! Reads checksums of packages from Cargo.lock.

use super::Error;
use super::tree::Id;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Lock {
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// The SHA-256 of each package that has a checksum, in hexadecimal.
pub(super) fn checksums(lock: &str) -> Result<BTreeMap<Id, String>, Error> {
    let lock: Lock = toml::from_str(lock)?;
    let checksums = lock.package.into_iter().filter_map(|package| {
        let Package {
            name,
            version,
            checksum,
        } = package;
        Some((Id { name, version }, checksum?))
    });
    Ok(checksums.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sbom::tree::tests::id;

    #[test]
    fn packages_of_a_registry_have_a_checksum_and_ours_have_none() {
        let lock = "version = 4\n[[package]]\nname = \"a\"\nversion = \"1\"\nchecksum = \"ab\"\n\n[[package]]\nname = \"b\"\nversion = \"2\"\n";
        let checksums = checksums(lock).unwrap();
        assert_eq!(checksums.get(&id("a", "1")).map(String::as_str), Some("ab"));
        assert_eq!(checksums.get(&id("b", "2")), None);
    }

    #[test]
    fn a_lock_file_of_another_form_is_refused() {
        assert!(matches!(checksums("packages = 1"), Err(Error::LockFormat(_))));
    }
}

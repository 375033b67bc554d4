//! Kubeconfig files, with a client certificate for the parts and with a token for ServiceAccounts.

use crate::error::{Error, Result};
use crate::pki::Identity;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The credentials of a kubeconfig's user.
pub(crate) enum Proof<'a> {
    Certificate(&'a Identity),
    Token(&'a str),
}

/// Writes a kubeconfig for the API server at `port`.
pub(crate) fn write(path: &Path, port: u16, authority: &Path, proof: &Proof<'_>) -> Result<PathBuf> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testbed",
        "clusters": [{"name": "testbed", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": authority,
        }}],
        "users": [{"name": "testbed", "user": user(proof)}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}],
    });
    // JSON is valid YAML, so every reader of kubeconfigs accepts it.
    replace(path, &format!("{config:#}\n")).map_err(Error::io("writing", path))?;
    Ok(path.to_owned())
}

/// Replaces the file atomically, because another replica of the same ServiceAccount may read it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut file = NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

fn user(proof: &Proof<'_>) -> Value {
    match proof {
        Proof::Certificate(Identity { certificate, key }) => {
            json!({"client-certificate": certificate, "client-key": key})
        }
        Proof::Token(token) => json!({"token": token}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_reads_a_kubeconfig_that_is_written_again_reads_it_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let write = || write(&path, 1, Path::new("ca"), &Proof::Token("token")).unwrap();
        write();
        std::thread::scope(|scope| {
            let writes = scope.spawn(|| (0..500).for_each(|_| drop(write())));
            while !writes.is_finished() {
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(text.contains("current-context"), "{text:?}");
            }
        });
        assert_eq!(
            folder.path().read_dir().unwrap().count(),
            1,
            "nothing else is left"
        );
    }
}

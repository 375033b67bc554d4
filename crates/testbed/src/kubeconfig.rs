//! Kubeconfig files: with a client certificate for the parts, with a token for ServiceAccounts.

use crate::error::{Error, Result};
use crate::pki::Identity;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// How a kubeconfig's user proves who it is.
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
    // JSON is YAML, and every reader of a kubeconfig takes it.
    std::fs::write(path, format!("{config:#}\n")).map_err(Error::io("writing", path))?;
    Ok(path.to_owned())
}

fn user(proof: &Proof<'_>) -> Value {
    match proof {
        Proof::Certificate(Identity { certificate, key }) => {
            json!({"client-certificate": certificate, "client-key": key})
        }
        Proof::Token(token) => json!({"token": token}),
    }
}

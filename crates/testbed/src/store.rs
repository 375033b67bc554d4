//! Reads and restores objects in etcd directly, without the API server.

use crate::error::{Error, Result};
use k8s_openapi::ByteString;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The API server stores all objects under this prefix, and before its end.
const PREFIX: &str = "/registry/";
const PREFIX_END: &str = "/registry0";

/// A stored object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Stored {
    /// The revision of the object's last change.
    #[serde(rename = "mod_revision")]
    pub(crate) revision: String,
    /// The object in the API server's encoding; empty if only keys were requested.
    #[serde(default)]
    pub(crate) value: ByteString,
}

/// Stored objects by key.
pub(crate) type Contents = BTreeMap<String, Stored>;

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Put(String, ByteString),
    Delete(String),
}

#[derive(Debug, Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Pair>,
}

#[derive(Debug, Deserialize)]
struct Done {
    header: Header,
}

#[derive(Debug, Deserialize)]
struct Header {
    revision: String,
}

#[derive(Debug, Deserialize)]
struct Pair {
    key: ByteString,
    #[serde(flatten)]
    stored: Stored,
}

/// A client of etcd's JSON gateway.
pub(crate) struct Store(Client);

impl Store {
    /// A client with the permissions of the API server.
    pub(crate) fn new(client: Client) -> Self {
        Self(client)
    }

    /// All objects with their values.
    pub(crate) async fn contents(&self) -> Result<Contents> {
        self.range(false).await
    }

    /// All objects without their values, which is enough to detect changes.
    pub(crate) async fn revisions(&self) -> Result<Contents> {
        self.range(true).await
    }

    async fn range(&self, keys_only: bool) -> Result<Contents> {
        let query = json!({"key": bytes(PREFIX), "range_end": bytes(PREFIX_END), "keys_only": keys_only});
        let range: Range = self.ask("range", &query).await?;
        let pair = |pair: Pair| (String::from_utf8_lossy(&pair.key.0).into_owned(), pair.stored);
        Ok(range.kvs.into_iter().map(pair).collect())
    }

    /// Writes a change and returns its revision. Each change needs its own revision, so a transaction of several changes is not
    /// possible: a watch that resumes from a revision would miss the other changes of this revision.
    pub(crate) async fn change(&self, change: &Change) -> Result<String> {
        let (what, query) = change.call();
        let done: Done = self.ask(what, &query).await?;
        Ok(done.header.revision)
    }

    async fn ask<T: serde::de::DeserializeOwned>(&self, what: &str, query: &Value) -> Result<T> {
        let action = || format!("asking etcd for a {what}");
        let request = http::Request::post(format!("/v3/kv/{what}")).body(query.to_string().into_bytes());
        let request = request.map_err(|error| Error::NotRunning(error.to_string()))?;
        self.0.request(request).await.map_err(Error::api(action()))
    }
}

impl Change {
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Put(key, _) | Self::Delete(key) => key,
        }
    }

    fn call(&self) -> (&'static str, Value) {
        match self {
            Self::Put(key, value) => ("put", json!({"key": bytes(key), "value": value})),
            Self::Delete(key) => ("deleterange", json!({"key": bytes(key)})),
        }
    }
}

fn bytes(key: &str) -> ByteString {
    ByteString(key.as_bytes().to_vec())
}

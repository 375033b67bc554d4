//! etcd itself, past the API server: what is stored under which key, and a way to put it back.

use crate::error::{Error, Result};
use k8s_openapi::ByteString;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Everything that the API server stores lies under this prefix, and before its end.
const PREFIX: &str = "/registry/";
const PREFIX_END: &str = "/registry0";

/// A stored object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Stored {
    /// The revision of its last change.
    #[serde(rename = "mod_revision")]
    pub(crate) revision: String,
    /// As the API server encoded it; empty if only keys were asked for.
    #[serde(default)]
    pub(crate) value: ByteString,
}

/// What is stored, by key.
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
    /// With the rights of the API server.
    pub(crate) fn of(client: Client) -> Self {
        Self(client)
    }

    /// Everything, with its values.
    pub(crate) async fn contents(&self) -> Result<Contents> {
        self.range(false).await
    }

    /// Everything, without its values: enough to see what has changed.
    pub(crate) async fn revisions(&self) -> Result<Contents> {
        self.range(true).await
    }

    async fn range(&self, keys_only: bool) -> Result<Contents> {
        let query = json!({"key": bytes(PREFIX), "range_end": bytes(PREFIX_END), "keys_only": keys_only});
        let range: Range = self.ask("range", &query).await?;
        let pair = |pair: Pair| (String::from_utf8_lossy(&pair.key.0).into_owned(), pair.stored);
        Ok(range.kvs.into_iter().map(pair).collect())
    }

    /// Makes a change, and returns its revision. No two may have the same, as they would in one transaction: whoever watches and
    /// goes on from a revision that it has seen never hears of the rest of it.
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

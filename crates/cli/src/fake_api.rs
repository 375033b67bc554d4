//! The fake API server as the cluster of a command.

use crate::client::Cluster;
use crate::requests::Server;
use std::time::Duration;
pub(crate) use testing::FakeApi;

/// The path of a run in namespace `ci`.
pub(crate) fn run_path(name: &str) -> String {
    format!("/apis/tekton.dev/v1/namespaces/ci/pipelineruns/{name}")
}

/// Connects a command to the fake API server.
pub(crate) trait AsCluster {
    /// The server with the current namespace `ci`.
    fn cluster(&self) -> Cluster;
}

impl AsCluster for FakeApi {
    fn cluster(&self) -> Cluster {
        Cluster {
            server: Server {
                client: self.client(),
                limit: Some(Duration::from_secs(5)),
            },
            namespace: "ci".into(),
            url: "https://fake".into(),
        }
    }
}

//! The configuration in force. Follows the ConfigMap; a version that is refused changes nothing, except at the start,
//! when nothing is in force yet: then the process waits, not ready, until the ConfigMap is mended.

use crate::{metrics::Leading, readiness::Condition, words};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::{
    Api, Client, Resource,
    runtime::{WatchStreamExt, watcher},
};
use placement::{
    config::{Config, ConfigErrors},
    keys,
};
use std::{collections::BTreeMap, future::pending, pin::pin, sync::Arc};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Name of the readiness condition, for those who create it.
pub const CONDITION: &str = "configuration";

/// A ConfigMap version that was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// What is wrong with it, one sentence a fault.
    pub message: String,
    /// The ConfigMap, as an event refers to it.
    pub config_map: ObjectReference,
}

/// A watch of the ConfigMap that runs in the background.
#[derive(Debug)]
pub struct ConfigWatch {
    first: oneshot::Receiver<watch::Receiver<Arc<Config>>>,
    rejections: watch::Receiver<Option<Rejection>>,
    task: JoinHandle<()>,
}

impl ConfigWatch {
    /// Starts to follow the ConfigMap of this namespace.
    pub fn start(client: Client, namespace: &str, condition: Condition, metrics: Leading) -> Self {
        let api = Api::<ConfigMap>::namespaced(client, namespace);
        let versions = watcher::watch_object(api, keys::CONFIG_MAP).default_backoff();
        Self::of(versions, condition, metrics)
    }

    fn of(
        versions: impl Stream<Item = Result<Option<ConfigMap>, watcher::Error>> + Send + 'static,
        condition: Condition,
        metrics: Leading,
    ) -> Self {
        let (announce, first) = oneshot::channel();
        let (rejected, rejections) = watch::channel(None);
        let follower = Follower {
            in_force: InForce::Nothing(announce),
            rejected,
            condition,
            metrics,
        };
        let task = tokio::spawn(follower.follow(versions));
        Self {
            first,
            rejections,
            task,
        }
    }

    /// The latest version that was refused, if the latest was.
    pub fn rejections(&self) -> watch::Receiver<Option<Rejection>> {
        self.rejections.clone()
    }

    /// Resolves with the configuration once there is a valid one.
    pub async fn in_force(&mut self) -> watch::Receiver<Arc<Config>> {
        match (&mut self.first).await {
            Ok(config) => config,
            Err(_) => pending().await,
        }
    }
}

impl Drop for ConfigWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a ConfigMap says; none at all says the defaults.
pub fn read(config_map: Option<&ConfigMap>) -> Result<Config, ConfigErrors> {
    let empty = BTreeMap::new();
    let data = config_map.and_then(|map| map.data.as_ref()).unwrap_or(&empty);
    Config::parse(data)
}

/// For metrics only: a ConfigMap has no generation, and every server of today counts its resource versions.
fn generation(config_map: Option<&ConfigMap>) -> i64 {
    let version = config_map.and_then(|map| map.metadata.resource_version.as_deref());
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

enum InForce {
    Nothing(oneshot::Sender<watch::Receiver<Arc<Config>>>),
    Some(watch::Sender<Arc<Config>>),
}

struct Follower {
    in_force: InForce,
    rejected: watch::Sender<Option<Rejection>>,
    condition: Condition,
    metrics: Leading,
}

impl Follower {
    async fn follow(mut self, versions: impl Stream<Item = Result<Option<ConfigMap>, watcher::Error>>) {
        let mut versions = pin!(versions);
        while let Some(version) = versions.next().await {
            match version {
                Ok(config_map) => self = self.take(config_map.as_ref()),
                Err(error) => self.unreadable(&error),
            }
        }
    }

    fn take(self, config_map: Option<&ConfigMap>) -> Self {
        match read(config_map) {
            Ok(config) => self.accept(config, generation(config_map)),
            Err(errors) => self.refuse(config_map, &errors),
        }
    }

    fn accept(self, config: Config, generation: i64) -> Self {
        self.metrics.configuration_accepted(generation);
        self.rejected
            .send_if_modified(|rejection| rejection.take().is_some());
        self.condition.met();
        Self {
            in_force: self.in_force.replaced_by(config),
            ..self
        }
    }

    fn refuse(self, config_map: Option<&ConfigMap>, errors: &ConfigErrors) -> Self {
        let message = errors.to_string();
        self.metrics.configuration_refused();
        let consequence = self.in_force.consequence();
        tracing::error!(%message, "ConfigMap {} is refused; {consequence}", keys::CONFIG_MAP);
        if let InForce::Nothing(_) = self.in_force {
            self.condition
                .unmet(format!("ConfigMap {} is refused: {message}", keys::CONFIG_MAP));
        }
        let config_map = config_map.map(|map| map.object_ref(&())).unwrap_or_default();
        self.rejected
            .send_replace(Some(Rejection { message, config_map }));
        self
    }

    fn unreadable(&self, error: &watcher::Error) {
        let error = words::of_watch(error);
        tracing::warn!(
            error,
            "ConfigMap {} cannot be read; trying again",
            keys::CONFIG_MAP
        );
        if let InForce::Nothing(_) = self.in_force {
            self.condition
                .unmet(format!("ConfigMap {} cannot be read: {error}", keys::CONFIG_MAP));
        }
    }
}

impl InForce {
    fn replaced_by(self, config: Config) -> Self {
        match self {
            Self::Nothing(announce) => {
                let (sender, receiver) = watch::channel(Arc::new(config));
                // Nobody waits for it only when the process is about to end.
                let _ = announce.send(receiver);
                Self::Some(sender)
            }
            Self::Some(sender) => {
                sender.send_if_modified(|current| changed(current, config));
                Self::Some(sender)
            }
        }
    }

    fn consequence(&self) -> &'static str {
        match self {
            Self::Nothing(_) => "this process waits until it is corrected",
            Self::Some(_) => "the last valid configuration stays active",
        }
    }
}

fn changed(current: &mut Arc<Config>, config: Config) -> bool {
    let differs = **current != config;
    if differs {
        tracing::info!(?config, "a changed configuration is active");
        *current = Arc::new(config);
    }
    differs
}

#[cfg(test)]
#[path = "config_watch_tests.rs"]
mod tests;

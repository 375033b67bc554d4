//! Watches the ConfigMap and provides the active configuration. A refused version leaves the active configuration unchanged. If
//! the first version is refused, the process stays unready until the ConfigMap is corrected. A deletion restores the defaults after
//! 30 seconds, because some tools replace a ConfigMap by a deletion and a creation, and a hold that a default ends is over for good.
//!
//! This module is hand-written, because kube's reflector stores the current ConfigMap, and this module keeps the last valid one.

use crate::install;
use crate::{api, metrics::Leading, readiness::ReadinessCondition};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::{
    Api, Client, Resource,
    runtime::{WatchStreamExt, watcher},
};
use placement::config::{Config, ConfigErrors};
use std::{collections::BTreeMap, future::pending, pin::pin, sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, error::Elapsed, timeout_at};

/// Name of the readiness condition.
pub const CONDITION: &str = "configuration";

/// A ConfigMap that is created again within this time was replaced.
const REPLACED_WITHIN: Duration = Duration::from_secs(30);

/// The faults of a ConfigMap version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigFaults {
    /// The version was refused. Otherwise the version is active, except for keys that this release does not know.
    pub is_refused: bool,
    /// One sentence for each fault.
    pub message: String,
    /// The ConfigMap, as an event refers to it.
    pub config_map: ObjectReference,
}

/// A watch of the ConfigMap that runs in the background.
#[derive(Debug)]
pub struct ConfigWatch {
    active: watch::Receiver<Arc<Config>>,
    faults: watch::Receiver<Option<ConfigFaults>>,
    task: JoinHandle<()>,
}

impl ConfigWatch {
    /// Starts to watch the ConfigMap in this namespace.
    pub fn start(client: Client, namespace: &str, condition: ReadinessCondition, metrics: Leading) -> Self {
        let api = Api::<ConfigMap>::namespaced(client, namespace);
        let versions = watcher::watch_object(api, install::CONFIG_MAP).default_backoff();
        Self::of_versions(versions, condition, metrics)
    }

    fn of_versions(
        versions: impl Stream<Item = Result<Option<ConfigMap>, watcher::Error>> + Send + 'static,
        condition: ReadinessCondition,
        metrics: Leading,
    ) -> Self {
        let (activated, active) = watch::channel(Arc::default());
        let (reported, faults) = watch::channel(None);
        let follower = Follower {
            active: activated,
            is_active: false,
            reported,
            condition,
            metrics,
        };
        let task = tokio::spawn(follower.follow(versions));
        Self { active, faults, task }
    }

    /// The faults of the latest version; `None` if the version has no faults.
    pub fn faults(&self) -> watch::Receiver<Option<ConfigFaults>> {
        self.faults.clone()
    }

    /// Resolves when a valid configuration is active. The receiver has already seen this configuration.
    pub async fn active(&self) -> watch::Receiver<Arc<Config>> {
        let mut active = self.active.clone();
        match active.changed().await {
            Ok(()) => active,
            Err(_) => pending().await,
        }
    }
}

impl Drop for ConfigWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The data of a ConfigMap; without a ConfigMap, the defaults apply.
fn data(config_map: Option<&ConfigMap>) -> BTreeMap<String, String> {
    config_map.and_then(|map| map.data.clone()).unwrap_or_default()
}

/// The resourceVersion as a number, for metrics only: a ConfigMap has no generation, and in practice API servers use numbers.
fn generation(config_map: Option<&ConfigMap>) -> i64 {
    let version = config_map.and_then(|map| map.metadata.resource_version.as_deref());
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

struct Follower {
    active: watch::Sender<Arc<Config>>,
    /// Whether the process has read a valid version; before that, `active` has the default.
    is_active: bool,
    reported: watch::Sender<Option<ConfigFaults>>,
    condition: ReadinessCondition,
    metrics: Leading,
}

impl Follower {
    async fn follow(mut self, versions: impl Stream<Item = Result<Option<ConfigMap>, watcher::Error>>) {
        let mut versions = pin!(versions);
        let (mut exists, mut defaults_at) = (false, None);
        loop {
            let next = match defaults_at {
                Some(at) => timeout_at(at, versions.next()).await,
                None => Ok(versions.next().await),
            };
            match next {
                Ok(Some(Ok(None))) if exists => {
                    (exists, defaults_at) = (false, Some(Instant::now() + REPLACED_WITHIN));
                }
                Ok(Some(Ok(None))) if defaults_at.is_some() => {}
                Ok(Some(Ok(config_map))) => {
                    (exists, defaults_at) = (config_map.is_some(), None);
                    self.on_version(config_map.as_ref());
                }
                Ok(Some(Err(error))) => self.on_error(&error),
                Ok(None) => return,
                Err(Elapsed { .. }) => {
                    defaults_at = None;
                    self.on_version(None);
                }
            }
        }
    }

    fn on_version(&mut self, config_map: Option<&ConfigMap>) {
        let data = data(config_map);
        let unknown = Config::unknown_keys(&data);
        match Config::parse(&data) {
            Ok(config) => self.accept(config, &unknown, config_map),
            Err(errors) => self.refuse(config_map, &errors),
        }
    }

    fn accept(&mut self, config: Config, unknown: &ConfigErrors, config_map: Option<&ConfigMap>) {
        self.metrics.configuration_accepted(generation(config_map));
        let faults = (!unknown.0.is_empty()).then(|| faults(config_map, unknown, false));
        if let Some(ConfigFaults { message, .. }) = &faults {
            tracing::warn!(%message, "ConfigMap {} has keys without effect", install::CONFIG_MAP);
        }
        self.reported.send_if_modified(|reported| {
            let is_new = *reported != faults;
            *reported = faults;
            is_new
        });
        self.condition.met();
        if self.is_active {
            self.active.send_if_modified(|current| changed(current, config));
        } else {
            self.active.send_replace(Arc::new(config));
        }
        self.is_active = true;
    }

    fn refuse(&self, config_map: Option<&ConfigMap>, errors: &ConfigErrors) {
        let faults = faults(config_map, errors, true);
        let message = &faults.message;
        self.metrics.configuration_refused();
        let consequence = if self.is_active {
            "the last valid configuration stays active"
        } else {
            "this process waits for a valid version"
        };
        tracing::error!(%message, "ConfigMap {} is refused; {consequence}", install::CONFIG_MAP);
        self.waits_because(&format!("is refused: {message}"));
        self.reported.send_replace(Some(faults));
    }

    fn on_error(&self, error: &watcher::Error) {
        let error = api::watch_error_text(error);
        tracing::warn!(
            error,
            "ConfigMap {} cannot be read; retrying",
            install::CONFIG_MAP
        );
        self.waits_because(&format!("cannot be read: {error}"));
    }

    /// Makes the process unready if no configuration is active yet.
    fn waits_because(&self, what: &str) {
        if !self.is_active {
            self.condition
                .unmet(format!("ConfigMap {} {what}", install::CONFIG_MAP));
        }
    }
}

fn faults(config_map: Option<&ConfigMap>, errors: &ConfigErrors, is_refused: bool) -> ConfigFaults {
    ConfigFaults {
        is_refused,
        message: errors.to_string(),
        config_map: config_map.map(|map| map.object_ref(&())).unwrap_or_default(),
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
mod tests;

//! The watch of Tekton's feature flag `coschedule`. In two modes, Tekton itself places the pods of all runs, and each labelled run gets
//! a warning. In another mode, Tekton creates no affinity assistants. An operator can reset the flag at any time (tektoncd/pipeline#9174).

use crate::index::{Index, Reduced};
use crate::lists;
use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::{self, Config, Event};
use kube::{Api, Client};
use placement::coschedule::{Coschedule, FEATURE_FLAGS};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The mode, by the name of the ConfigMap. Empty in Tekton's default mode.
pub(crate) type TektonFlags = Index<String, Coschedule>;

/// The ConfigMap of the flags, with the fields that this module reads.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = ConfigMap)]
#[serde(default)]
pub(crate) struct WatchedFlags {
    #[serde(deserialize_with = "tekton::metadata::read")]
    metadata: ObjectMeta,
    data: BTreeMap<String, String>,
}

/// Watches the flags, as soon as the namespace of Tekton is known. The controller has the right to this ConfigMap only.
pub(crate) fn watch(
    client: Client,
    namespace: impl Future<Output = String> + Send + 'static,
) -> impl Stream<Item = watcher::Result<Event<WatchedFlags>>> + Send {
    stream::once(namespace).flat_map(move |namespace| {
        let flags = Config::default().fields(&format!("metadata.name={FEATURE_FLAGS}"));
        lists::watch(Api::namespaced(client.clone(), &namespace), flags)
    })
}

/// Reduces the ConfigMap.
pub(crate) fn mode(flags: &WatchedFlags) -> Option<Reduced<String, Coschedule>> {
    let name = flags.metadata.name.clone()?;
    let mode = Coschedule::from_flags(&flags.data);
    Some((name, (mode != Coschedule::default()).then_some(mode)))
}

/// The mode; Tekton's default before the first list, and with an older `ClusterRole`.
pub(crate) fn coschedule(flags: &TektonFlags) -> Coschedule {
    flags.read().values().next().copied().unwrap_or_default()
}

//! The testbeds that tests share, and words that many of them use.

use crate::pool::{self, Lent};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota, Secret};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use placement::keys;
use placement::names::PlaceholderName;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use testbed::kwok::OUTCOME;
use testbed::product::NAMESPACE;
use testbed::runs::{self, RunSpec};
use testbed::{Admission, Nodes, Part, Testbed};
use tokio::sync::Mutex;

/// Longest wait for anything that should take seconds; only a failing test takes this long.
pub(crate) const SOON: Duration = Duration::from_secs(90);
/// Enough nodes that two pods hardly ever meet by chance, and that no test waits for another's.
const PLENTY: usize = 60;
/// Where those nodes are, in equal parts.
pub(crate) const ZONES: [&str; 2] = ["east", "west"];

/// A testbed that tests have at the same time, for as long as one of them has it.
struct Shared(Mutex<Weak<Lent>>);

impl Shared {
    const fn new() -> Self {
        Self(Mutex::const_new(Weak::new()))
    }

    async fn get(&self, new: impl AsyncFnOnce() -> Lent) -> Arc<Lent> {
        let mut shared = self.0.lock().await;
        if let Some(bed) = shared.upgrade() {
            return bed;
        }
        let bed = Arc::new(new().await);
        add_plenty(&bed).await;
        *shared = Arc::downgrade(&bed);
        bed
    }
}

/// Tekton and nodes, without pod-affinity.
pub(crate) async fn plain() -> Arc<Lent> {
    static BED: Shared = Shared::new();
    BED.get(pool::bare).await
}

/// Tekton, nodes and pod-affinity with its default configuration.
pub(crate) async fn installed() -> Arc<Lent> {
    static BED: Shared = Shared::new();
    BED.get(pool::installed).await
}

pub(crate) async fn add_plenty(bed: &Testbed) {
    for zone in ZONES {
        bed.add_nodes(&Nodes::new(zone, PLENTY / ZONES.len()).zone(zone))
            .await
            .expect("nodes");
    }
}

/// As `installed`, for a test that disturbs others.
pub(crate) async fn fresh(nodes: usize) -> Lent {
    with_nodes(pool::installed().await, nodes).await
}

/// As `fresh`, for a test that is about one way of admission.
pub(crate) async fn fresh_by(way: Admission, nodes: usize) -> Lent {
    with_nodes(pool::installed_by(way).await, nodes).await
}

async fn with_nodes(bed: Lent, nodes: usize) -> Lent {
    bed.add_nodes(&Nodes::new("node", nodes)).await.expect("nodes");
    bed
}

/// Until they are started again, nobody leads.
pub(crate) fn stop_controllers(bed: &Testbed) {
    for replica in 0..2 {
        bed.stop(Part::Controller(replica)).unwrap();
    }
}

/// Starts what `stop_controllers` stopped.
pub(crate) async fn start_controllers(bed: &Testbed) {
    for replica in 0..2 {
        bed.start_again(Part::Controller(replica)).await.unwrap();
    }
}

/// Until they are started again, no webhook answers.
pub(crate) fn kill_webhooks(bed: &Testbed) {
    for replica in 0..2 {
        bed.kill(Part::Webhook(replica)).unwrap();
    }
}

/// Creates a run as the administrator.
pub(crate) async fn create(bed: &Testbed, spec: &RunSpec) -> DynamicObject {
    spec.create(&bed.client().await.unwrap()).await.unwrap()
}

/// Has the pods of a run that hangs succeed, those that are there and those of tasks to come. A task that Tekton is just making
/// may miss it: see `let_end_once_bound`.
pub(crate) async fn let_end(bed: &Testbed, spec: &RunSpec) {
    let api = runs::runs(&bed.client().await.unwrap(), spec.namespace());
    api.patch(spec.name(), &PatchParams::default(), &succeeds())
        .await
        .unwrap();
    let_pods_end(bed, spec.namespace(), &runs::task_pods(spec.name())).await;
}

/// Has the pods of tasks that hang succeed, those that are there.
pub(crate) async fn let_pods_end(bed: &Testbed, namespace: &str, selector: &str) {
    let api = pods(&bed.client().await.unwrap(), namespace);
    for pod in api.list(&ListParams::default().labels(selector)).await.unwrap() {
        api.patch(&pod.name_any(), &PatchParams::default(), &succeeds())
            .await
            .unwrap();
    }
}

fn succeeds() -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"annotations": {OUTCOME: "succeed"}}}))
}

/// Creates a run that no node takes, and waits until it says so.
pub(crate) async fn held_for_good(bed: &Testbed, namespace: &str, name: &str) -> RunSpec {
    let nowhere = json!({"podTemplate": {"nodeSelector": {"nowhere": "true"}}});
    let run = RunSpec::new(namespace, name)
        .task("only", &[])
        .opted_in("true")
        .spec("taskRunTemplate", nowhere);
    create(bed, &run).await;
    until_told(bed, &run, "WaitingForNode").await;
    run
}

/// Lets so many of a resource into a namespace, by a quota of the name `tight`. It is in force on return: before its
/// first status, the API server refuses with other words.
pub(crate) async fn quota(bed: &Testbed, namespace: &str, resource: &str, most: &str) -> Api<ResourceQuota> {
    let quotas: Api<ResourceQuota> = Api::namespaced(bed.client().await.unwrap(), namespace);
    let quota = json!({"metadata": {"name": "tight"}, "spec": {"hard": {resource: most}}});
    quotas
        .create(&PostParams::default(), &serde_json::from_value(quota).unwrap())
        .await
        .unwrap();
    bed.until("the quota to be in force", SOON, async || {
        let quota = quotas.get("tight").await.map_err(|error| error.to_string())?;
        quota
            .status
            .and_then(|status| status.hard)
            .ok_or_else(|| "no status".to_owned())
    })
    .await
    .unwrap();
    quotas
}

/// Empties the webhook's Secret, so that the leader makes all that is in it anew.
pub(crate) async fn lose_certificates(client: &Client) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let lost = Patch::Merge(json!({"data": null}));
    secrets
        .patch(keys::CERTIFICATE_SECRET, &PatchParams::default(), &lost)
        .await
        .unwrap();
}

/// The nodes of the pods that a run's tasks had.
pub(crate) async fn nodes_of(bed: &Testbed, spec: &RunSpec) -> BTreeSet<String> {
    runs::nodes(
        &runs::pods(&bed.client().await.unwrap(), spec.namespace(), spec.name())
            .await
            .unwrap(),
    )
}

/// Creates a run, waits until it has succeeded, and tells the nodes of its pods.
pub(crate) async fn nodes_after(bed: &Testbed, spec: &RunSpec) -> BTreeSet<String> {
    create(bed, spec).await;
    bed.until_succeeded(spec, SOON).await.unwrap();
    nodes_of(bed, spec).await
}

pub(crate) fn placeholder_name(run: &DynamicObject) -> PlaceholderName {
    PlaceholderName::of_uid(&run.uid().unwrap())
}

pub(crate) fn sets(client: &Client, namespace: &str) -> Api<StatefulSet> {
    Api::namespaced(client.clone(), namespace)
}

pub(crate) fn pods(client: &Client, namespace: &str) -> Api<Pod> {
    Api::namespaced(client.clone(), namespace)
}

/// The placeholder pod of a run, once it is bound.
pub(crate) async fn bound_placeholder(bed: &Testbed, run: &DynamicObject) -> Pod {
    let api = pods(&bed.client().await.unwrap(), &run.namespace().unwrap());
    let name = placeholder_name(run).pod();
    bed.until(format!("placeholder {name} to be bound"), SOON, async || {
        let pod = api.get(&name).await.map_err(|error| error.to_string())?;
        if runs::node(&pod).is_some() {
            Ok(pod)
        } else {
            Err(format!("{:?}", pod.status))
        }
    })
    .await
    .unwrap()
}

/// Waits until a namespace holds no placeholder, neither set nor pod.
pub(crate) async fn until_no_placeholder(bed: &Testbed, namespace: &str) {
    let client = bed.client().await.unwrap();
    let (sets, pods) = (sets(&client, namespace), pods(&client, namespace));
    let selector = ListParams::default().labels(&format!("{}={}", keys::COMPONENT, keys::PLACEHOLDER));
    bed.until(
        format!("no placeholder to be left in {namespace}"),
        SOON,
        async || {
            let sets = sets
                .list(&selector)
                .await
                .map_err(|error| error.to_string())?
                .items;
            let pods = pods
                .list(&selector)
                .await
                .map_err(|error| error.to_string())?
                .items;
            if sets.is_empty() && pods.is_empty() {
                Ok(())
            } else {
                Err(format!("{} sets and {} pods", sets.len(), pods.len()))
            }
        },
    )
    .await
    .unwrap();
}

/// Notes of the events on a run, whatever their reason.
pub(crate) async fn notes(client: &Client, run: &RunSpec) -> Vec<(String, String)> {
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(client.clone(), run.namespace());
    let listed = events.list(&ListParams::default()).await.unwrap();
    let of_run = listed.items.into_iter().filter(|event| {
        event
            .regarding
            .as_ref()
            .is_some_and(|object| object.name.as_deref() == Some(run.name()))
    });
    of_run
        .map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default()))
        .collect()
}

/// Reasons of the events on a run.
pub(crate) async fn reasons(client: &Client, run: &RunSpec) -> Vec<String> {
    let notes = notes(client, run).await;
    notes.into_iter().map(|(reason, _)| reason).collect()
}

/// Waits for an event with this reason on a run, and returns its note.
pub(crate) async fn until_told(bed: &Testbed, run: &RunSpec, reason: &str) -> String {
    let client = bed.client().await.unwrap();
    bed.until(format!("an event {reason} on {}", run.name()), SOON, async || {
        let notes = notes(&client, run).await;
        notes
            .iter()
            .find(|(found, _)| found == reason)
            .map(|(_, note)| note.clone())
            .ok_or(notes)
    })
    .await
    .unwrap()
}

/// A pod of another application, which asks for as much as to make its node the least attractive one, or for nothing.
pub(crate) async fn another_pod(bed: &Testbed, node: &str, app: &str, cpu: &str) {
    let pod = json!({
        "metadata": {"name": format!("{app}-{node}"), "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [{
            "name": "main", "image": "testbed.invalid/main", "resources": {"requests": {"cpu": cpu}},
        }]},
    });
    let pods = pods(&bed.client().await.unwrap(), "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
        .await
        .unwrap();
}

/// Creates what a manifest says. The untyped API goes by the name, and some have none before they are made.
pub(crate) async fn create_manifest(
    client: &Client,
    namespace: &str,
    mut manifest: Value,
) -> Result<DynamicObject, String> {
    let metadata = &mut manifest["metadata"];
    metadata["namespace"] = namespace.into();
    if let Some(prefix) = metadata["generateName"].as_str() {
        metadata["name"] = prefix.trim_end_matches('-').into();
    }
    let (api, _) = testbed::apply::api_of(client, &manifest).ok_or("it has no kind or no name")?;
    let object = serde_json::from_value(manifest).map_err(|error| error.to_string())?;
    let created = api.create(&PostParams::default(), &object).await;
    created.map_err(|error| error.to_string())
}

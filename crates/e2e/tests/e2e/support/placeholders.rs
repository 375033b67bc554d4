//! Placeholders of runs: StatefulSets and pods.

use super::SOON;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use placement::keys;
use placement::names::PlaceholderName;
use testbed::Testbed;
use testbed::runs;

pub(crate) fn placeholder_name(run: &DynamicObject) -> PlaceholderName {
    PlaceholderName::of_uid(&run.uid().unwrap())
}

pub(crate) fn sets(client: &Client, namespace: &str) -> Api<StatefulSet> {
    Api::namespaced(client.clone(), namespace)
}

pub(crate) fn pods(client: &Client, namespace: &str) -> Api<Pod> {
    Api::namespaced(client.clone(), namespace)
}

/// Whether the scheduler found no node for the pod.
pub(crate) fn is_unschedulable(pod: &Pod) -> bool {
    unschedulable(pod).is_some()
}

/// The condition of a pod for which the scheduler found no node.
pub(crate) fn unschedulable(pod: &Pod) -> Option<&PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.as_ref()?.iter();
    conditions.find(|condition| condition.reason.as_deref() == Some("Unschedulable"))
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

/// Waits until a namespace has no StatefulSet and no pod of a placeholder.
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

//! The placeholder: a StatefulSet with one pod, which finds a node for a run and reserves it.
//!
//! The placeholder's pod is a member of the run's group like a task pod, so a recreated pod is scheduled on the node of
//! the run. The placeholder has only a few of the run's labels, and those that the configuration adds, because other
//! controllers react to labels of the run: Kueue would queue the placeholder, and webhooks would inject sidecars.
//!
//! While the run is held, the placeholder requests the run's reserve, so that its node has room for the tasks. Then the
//! placeholder gets the usual size: the pod is resized in place, or replaced by a small pod if it cannot be resized.

use crate::config::Config;
use crate::image_pull::Images;
use crate::keys;
use crate::names::RunKey;
use crate::run::{PodTemplate, Run};
use crate::strategy::Enrolment;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, LocalObjectReference, PersistentVolumeClaimVolumeSource, PodSecurityContext,
    PodSpec, PodTemplateSpec, SeccompProfile, SecurityContext, Toleration, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use std::collections::{BTreeMap, BTreeSet};

mod affinity;
pub mod size;
pub mod spec;

type Strings = BTreeMap<String, String>;

/// The run's placeholder, ready for server-side apply. `copied` are the labels of the run that the configuration names, and `images` the
/// images that its node pulls ahead.
///
/// Fields with a default of the API server are left out, so that the apply owns only the fields that the design needs.
pub fn stateful_set(
    run: &Run,
    enrolment: Enrolment,
    copied: &Strings,
    images: &Images,
    config: &Config,
    image: &str,
) -> StatefulSet {
    let labels = labels(run, enrolment, copied, config);
    let size = size::for_new(run, config);
    StatefulSet {
        metadata: ObjectMeta {
            name: Some(run.key.placeholder().as_str().to_owned()),
            namespace: Some(run.key.namespace.clone()),
            labels: Some(labels.clone()),
            annotations: Some(config.placeholder_annotations.clone()).filter(|added| !added.is_empty()),
            owner_references: Some(vec![owner(&run.key)]),
            ..ObjectMeta::default()
        },
        spec: Some(StatefulSetSpec {
            replicas: Some(1),
            pod_management_policy: Some("Parallel".to_owned()),
            update_strategy: Some(on_delete()),
            selector: LabelSelector {
                match_labels: Some(selector(&run.key)),
                match_expressions: None,
            },
            template: PodTemplateSpec {
                metadata: Some(pod_metadata(labels, &size, config)),
                spec: Some(pod_spec(run, enrolment, &size, images, config, image)),
            },
            ..StatefulSetSpec::default()
        }),
        status: None,
    }
}

/// A changed template must not restart the pod: the pod would give up its node.
fn on_delete() -> StatefulSetUpdateStrategy {
    StatefulSetUpdateStrategy {
        type_: Some("OnDelete".to_owned()),
        rolling_update: None,
    }
}

/// A selector is immutable, so it has only labels that never change, and `kept-by`, whose removal releases the pod from
/// the StatefulSet.
fn selector(key: &RunKey) -> Strings {
    strings([
        (keys::GROUP, key.uid.as_str()),
        (keys::COMPONENT, keys::PLACEHOLDER),
        (keys::KEPT_BY, keys::STATEFUL_SET),
    ])
}

/// Labels of the run replace configured labels, which are defaults for runs without the label. Labels of pod-affinity
/// replace both.
fn labels(run: &Run, enrolment: Enrolment, copied: &Strings, config: &Config) -> Strings {
    let mut labels = config.placeholder_labels.clone();
    labels.extend(copied.clone());
    labels.extend(selector(&run.key));
    labels.extend(strings([
        (keys::APP, keys::APP_NAME),
        (keys::MANAGED_BY, keys::FIELD_MANAGER),
        (keys::STRATEGY, enrolment.strategy.as_str()),
        (keys::ISOLATION, enrolment.isolation.as_str()),
        (keys::TEKTON_PIPELINE_RUN, run.key.name.as_str()),
    ]));
    labels
}

/// Garbage collection deletes the placeholder after the run. `blockOwnerDeletion` is left out, because it needs a right
/// on finalizers.
pub(crate) fn owner(key: &RunKey) -> OwnerReference {
    OwnerReference {
        api_version: "tekton.dev/v1".to_owned(),
        kind: "PipelineRun".to_owned(),
        name: key.name.clone(),
        uid: key.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// No autoscaler may remove the node while the run is active.
fn pod_metadata(labels: Strings, size: &size::Size, config: &Config) -> ObjectMeta {
    let mut annotations = config.placeholder_annotations.clone();
    annotations.extend(strings([
        (keys::SAFE_TO_EVICT, "false"),
        (keys::DO_NOT_DISRUPT, "true"),
    ]));
    annotations.extend(
        size.annotation_value()
            .map(|mark| (keys::RESERVE.to_owned(), mark)),
    );
    ObjectMeta {
        labels: Some(labels),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    }
}

fn pod_spec(
    run: &Run,
    enrolment: Enrolment,
    size: &size::Size,
    images: &Images,
    config: &Config,
    image: &str,
) -> PodSpec {
    let template = &run.template;
    PodSpec {
        affinity: Some(affinity::build(run, enrolment)),
        volumes: non_empty(volumes(&run.claims, images)),
        node_selector: Some(node_selector(template, config)).filter(|selector| !selector.is_empty()),
        tolerations: non_empty(tolerations_with(run, &config.placeholder_tolerations)),
        scheduler_name: template.scheduler_name.clone(),
        priority_class_name: template.priority_class_name.clone(),
        runtime_class_name: template.runtime_class_name.clone(),
        service_account_name: template.service_account.clone(),
        image_pull_secrets: non_empty(pull_secrets(template, config)),
        ..idle_pod(Container {
            resources: Some(size.resources()),
            ..idle_container(keys::PLACEHOLDER, image)
        })
    }
}

/// The fields of the StatefulSet that are copied from the run's podTemplate, and that Kubernetes validates in a task's pod as well.
const COPIED: [&str; 8] = [
    "nodeSelector",
    "tolerations",
    "affinity.nodeAffinity",
    "affinity.podAffinity.preferred",
    "schedulerName",
    "priorityClassName",
    "runtimeClassName",
    "serviceAccountName",
];

/// Whether the value of this field of the StatefulSet is copied from the run's podTemplate.
pub fn is_copied(field: &str) -> bool {
    let field = field.strip_prefix("spec.template.spec.");
    field.is_some_and(|field| COPIED.iter().any(|copied| field.starts_with(copied)))
}

/// Labels that the run's podTemplate requires replace configured labels.
pub(crate) fn node_selector(template: &PodTemplate, config: &Config) -> Strings {
    let mut selector = config.placeholder_node_selector.clone();
    selector.extend(template.node_selector.clone());
    selector
}

/// Without duplicates: server-side apply rejects a list that has the same name twice.
fn pull_secrets(template: &PodTemplate, config: &Config) -> Vec<LocalObjectReference> {
    let of_run = template.image_pull_secrets.iter().map(|secret| &secret.name);
    let names: BTreeSet<_> = of_run.chain(&config.placeholder_image_pull_secrets).collect();
    names
        .into_iter()
        .map(|name| LocalObjectReference { name: name.clone() })
        .collect()
}

/// A pod that only waits, and passes the restricted Pod Security Standard.
pub(crate) fn idle_pod(container: Container) -> PodSpec {
    PodSpec {
        containers: vec![container],
        security_context: Some(pod_security()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(0),
        ..PodSpec::default()
    }
}

/// A container that runs `pod-affinity placeholder`.
pub(crate) fn idle_container(name: &str, image: &str) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        args: Some(vec![keys::PLACEHOLDER.to_owned()]),
        security_context: Some(container_security()),
        ..Container::default()
    }
}

/// The image names its user by number, so that the kubelet can verify that the user is not root. The cluster may choose
/// another user: OpenShift would reject a number in the pod.
fn pod_security() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        ..PodSecurityContext::default()
    }
}

fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            add: None,
        }),
        ..SecurityContext::default()
    }
}

/// The scheduler reads the PVCs: a volume of a zone decides the zone of the run. No container mounts them, because
/// SELinux might relabel the files while a task uses them.
fn volumes(claims: &[String], images: &Images) -> Vec<Volume> {
    let volume = |(index, claim): (usize, &String)| Volume {
        name: volume_name(index),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.clone(),
            read_only: None,
        }),
        ..Volume::default()
    };
    let of_claims = claims.iter().enumerate().map(volume);
    of_claims.chain(images.volumes()).collect()
}

fn volume_name(index: usize) -> String {
    format!("workspace-{index}")
}

/// The tolerations of the run's pod template, and the others.
pub(crate) fn tolerations_with(run: &Run, others: &[Toleration]) -> Vec<Toleration> {
    let mut tolerations = run.template.tolerations.clone();
    let others = others.iter().filter(|it| !run.template.tolerations.contains(it));
    tolerations.extend(others.cloned());
    tolerations
}

fn non_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn strings<const N: usize>(pairs: [(&str, &str); N]) -> Strings {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests;

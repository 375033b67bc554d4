//! Fixtures that several test modules of this crate use.

use crate::names::RunKey;
use crate::placeholder::spec::Spec;
use crate::run::{HeldFrom, PodTemplate, Run, SpecStatus};
use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::Value;

/// A run that pod-affinity holds, without a placeholder.
pub(crate) fn run() -> Run {
    Run {
        key: RunKey {
            namespace: "ns".to_owned(),
            name: "build".to_owned(),
            uid: "u1".to_owned(),
        },
        created: None,
        started: None,
        deleting: false,
        done: false,
        succeeded: false,
        status: SpecStatus::Pending,
        managed_elsewhere: false,
        child: false,
        queued_by_kueue: false,
        opt_in: Some("true".to_owned()),
        group: None,
        strategy: None,
        isolation: None,
        hold: true,
        held_from: HeldFrom::Creation,
        node: None,
        reserve: None,
        used: None,
        warm: None,
        keep_node_for: None,
        pull_images: None,
        pipeline: None,
        template: PodTemplate::default(),
        claims: Vec::new(),
        over_limit: None,
        other_claims: 0,
        templates: 0,
        opted_out_tasks: false,
    }
}

/// The [`Spec`] that the controller would observe for this StatefulSet.
pub(crate) fn spec_of(set: &Value) -> Spec {
    let set: StatefulSet = serde_json::from_value(set.clone()).unwrap();
    let set = set.spec.unwrap();
    let container = &set.template.spec.as_ref().unwrap().containers[0];
    let resources = container.resources.as_ref().unwrap();
    assert_eq!(resources.requests, resources.limits);
    Spec::from_statefulset(&set)
}

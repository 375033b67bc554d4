//! The affinity of a placeholder: near its group, and on a node that the scheduler would choose for the tasks.
//!
//! The tasks follow the placeholder, so the placeholder has the node affinity and the preferences of the tasks.
//! Required anti-affinity to other pods is only preferred for the placeholder: Kubernetes before 1.37 retries a pod
//! with two required anti-affinity terms only when a pod ends that matches both.

use crate::run::{PodTemplate, Run};
use crate::strategy::Enrolment;
use crate::terms::terms;
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, PodAffinity, PodAffinityTerm, PodAntiAffinity, WeightedPodAffinityTerm,
};

/// The highest weight of a preferred term.
const HIGHEST_WEIGHT: i32 = 100;

pub(super) fn build(run: &Run, enrolment: Enrolment) -> Affinity {
    let terms = terms(&run.key.group(), enrolment.strategy, enrolment.isolation);
    let away = preferred_away(&run.template);
    Affinity {
        node_affinity: node_affinity(&run.template),
        pod_affinity: Some(PodAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![terms.affinity]),
            preferred_during_scheduling_ignored_during_execution: preferred_near(&run.template),
        }),
        pod_anti_affinity: (terms.anti_affinity.is_some() || away.is_some()).then(|| PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: terms.anti_affinity.map(|term| vec![term]),
            preferred_during_scheduling_ignored_during_execution: away,
        }),
    }
}

pub(super) fn node_affinity(template: &PodTemplate) -> Option<NodeAffinity> {
    template.affinity.as_ref()?.node_affinity.clone()
}

/// A required podAffinity of the run was rejected when the run was created.
fn preferred_near(template: &PodTemplate) -> Option<Vec<WeightedPodAffinityTerm>> {
    let near = template.affinity.as_ref()?.pod_affinity.as_ref()?;
    near.preferred_during_scheduling_ignored_during_execution.clone()
}

fn preferred_away(template: &PodTemplate) -> Option<Vec<WeightedPodAffinityTerm>> {
    let PodAntiAffinity {
        preferred_during_scheduling_ignored_during_execution: preferred,
        required_during_scheduling_ignored_during_execution: required,
    } = template.affinity.as_ref()?.pod_anti_affinity.clone()?;
    let required = required.into_iter().flatten().map(with_highest_weight);
    let away: Vec<_> = required.chain(preferred.into_iter().flatten()).collect();
    (!away.is_empty()).then_some(away)
}

fn with_highest_weight(term: PodAffinityTerm) -> WeightedPodAffinityTerm {
    WeightedPodAffinityTerm {
        pod_affinity_term: term,
        weight: HIGHEST_WEIGHT,
    }
}

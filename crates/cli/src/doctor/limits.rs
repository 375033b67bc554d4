//! Do the quotas and limits of the namespaces with labelled runs leave room for placeholders?

use super::{Exam, Finding};
use crate::view::{RunView, full_name};
use crate::words::{count, list};
use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use placement::quantity::Quantity;
use std::collections::{BTreeMap, BTreeSet};

const CHECK: &str = "limits";
const NAMED: usize = 5;
/// What a quota may count that a labelled run takes one more of.
const COUNTED: [&str; 3] = ["pods", "count/pods", "count/statefulsets.apps"];

type Amounts = BTreeMap<String, Text>;

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    let (quotas, ranges) = match (&exam.quotas, &exam.limits) {
        (Ok(quotas), Ok(ranges)) => (quotas, ranges),
        (Err(gap), _) | (_, Err(gap)) => return vec![Finding::unseen(CHECK, gap)],
    };
    let namespaces = namespaces(exam);
    let mut found = Vec::new();
    let is_here = |namespace: &Option<String>| namespace.as_ref().is_some_and(|it| namespaces.contains(it));
    found.extend(tight(quotas.iter().filter(|it| is_here(&it.metadata.namespace))));
    let ranges = ranges.iter().filter(|it| is_here(&it.metadata.namespace));
    found.extend(too_small(exam, ranges));
    if found.is_empty() {
        let sentence = format!(
            "No quota or limit rejects placeholders in the {} with labelled runs.",
            count(namespaces.len(), "namespace")
        );
        found.push(Finding::ok(CHECK, sentence));
    }
    found
}

/// Those with labelled runs that are not done.
fn namespaces(exam: &Exam) -> BTreeSet<String> {
    let runs = exam.runs.as_deref().unwrap_or_default();
    let views = runs.iter().filter_map(RunView::of).filter(|view| !view.run.done);
    views.map(|view| view.run.key.namespace).collect()
}

fn tight<'a>(quotas: impl Iterator<Item = &'a ResourceQuota>) -> Option<Finding> {
    let full: Vec<_> = quotas.flat_map(used_up).collect();
    (!full.is_empty()).then(|| {
        Finding::warning(
            CHECK,
            format!("Used up, while there are labelled runs: {}.", list(&full, NAMED)),
            "Each labelled run needs one more pod and one more StatefulSet. Raise the quota by the number of runs at a time; \
             until then, runs wait for each other.",
        )
    })
}

fn used_up(quota: &ResourceQuota) -> Vec<String> {
    let status = quota.status.clone().unwrap_or_default();
    let (hard, used) = (status.hard.unwrap_or_default(), status.used.unwrap_or_default());
    let is_full = |key: &&str| match (amount(&hard, key), amount(&used, key)) {
        (Some(hard), Some(used)) => used >= hard,
        _ => false,
    };
    let name = full_name(&quota.metadata);
    let full = COUNTED.iter().filter(|key| is_full(key));
    full.map(|key| format!("{key} of ResourceQuota {name}")).collect()
}

/// The API server would refuse the placeholder's pod.
fn too_small<'a>(exam: &Exam, ranges: impl Iterator<Item = &'a LimitRange>) -> Option<Finding> {
    let config = super::runs::config(exam);
    let ours = [
        ("cpu", "placeholder-cpu", config.placeholder_cpu),
        ("memory", "placeholder-memory", config.placeholder_memory),
    ];
    let mut found = Vec::new();
    for (range, minimum) in ranges.flat_map(|range| minima(range).map(move |minimum| (range, minimum))) {
        for (resource, key, ours) in &ours {
            let least = amount(minimum, resource);
            if least > ours.parse().ok() {
                let (name, least) = (full_name(&range.metadata), &minimum[*resource].0);
                found.push(format!(
                    "{resource} {least} in LimitRange {name} ({key} is {ours})"
                ));
            }
        }
    }
    (!found.is_empty()).then(|| {
        Finding::bad(
            CHECK,
            format!("A LimitRange minimum is higher than the placeholder's requests: {}.", list(&found, NAMED)),
            "Set placeholder-cpu and placeholder-memory in the ConfigMap config-pod-affinity to the minimum; until then, labelled \
             runs in the namespace get no placeholder, and are held until hold-deadline.",
        )
    })
}

fn minima(range: &LimitRange) -> impl Iterator<Item = &Amounts> {
    let items = range.spec.iter().flat_map(|spec| &spec.limits);
    let items = items.filter(|item| item.type_ == "Container" || item.type_ == "Pod");
    items.filter_map(|item| item.min.as_ref())
}

fn amount(amounts: &Amounts, key: &str) -> Option<Quantity> {
    amounts.get(key)?.0.parse().ok()
}

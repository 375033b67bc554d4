//! Do the quotas of the namespaces with placeholders have room for them?

use super::tenants::{tenants, text};
use super::{Exam, Finding};
use crate::view::full_name;
use crate::words::{count, list};
use k8s_openapi::api::core::v1::ResourceQuota;
use placement::resources::Resources;

const CHECK: &str = "quotas";
const NAMED: usize = 5;
/// What a quota may count that a labelled run takes one more of.
const COUNTED: [&str; 3] = ["pods", "count/pods", "count/statefulsets.apps"];
/// A placeholder has requests and no deadline, so quotas of these scopes do not count it.
const OTHER_SCOPES: [&str; 2] = ["BestEffort", "Terminating"];

/// One resource that a quota counts, in numbers.
struct Counted {
    text: String,
    is_used_up: bool,
}

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    let quotas = match &exam.quotas {
        Err(gap) => return vec![Finding::unseen(CHECK, gap)],
        Ok(quotas) => quotas,
    };
    let tenants = tenants(exam);
    let runs = |quota: &ResourceQuota| tenants.get(quota.metadata.namespace.as_deref()?).copied();
    let counted = quotas.iter().filter(|quota| counts_placeholders(quota));
    let counted = counted.filter_map(|quota| runs(quota).map(|runs| counted_by(quota, runs)));
    let (full, roomy): (Vec<_>, Vec<_>) = counted.flatten().partition(|it| it.is_used_up);
    let found: Vec<_> = used_up(&full).into_iter().chain(limited(&roomy)).collect();
    if found.is_empty() {
        let sentence = format!("No ResourceQuota counts placeholders in {}.", text(&tenants));
        return vec![Finding::ok(CHECK, sentence)];
    }
    found
}

fn used_up(full: &[Counted]) -> Option<Finding> {
    (!full.is_empty()).then(|| {
        Finding::bad(
            CHECK,
            format!("Used up, so that no further placeholder can be created: {}.", texts(full)),
            "Each labelled run needs one more pod and one more StatefulSet. Raise the quota by the number of labelled runs at a \
             time; until then, runs wait for each other.",
        )
    })
}

fn limited(roomy: &[Counted]) -> Option<Finding> {
    (!roomy.is_empty()).then(|| {
        Finding::warning(
            CHECK,
            format!("Quotas that count placeholders: {}.", texts(roomy)),
            "Each labelled run adds one pod and one StatefulSet while it is not done. If the quota is too small for the labelled \
             runs at a time, raise it by their number; otherwise, nothing needs to be done.",
        )
    })
}

fn texts(counted: &[Counted]) -> String {
    let texts: Vec<_> = counted.iter().map(|it| it.text.clone()).collect();
    list(&texts, NAMED)
}

fn counts_placeholders(quota: &ResourceQuota) -> bool {
    let spec = quota.spec.as_ref();
    let selector = spec.and_then(|spec| spec.scope_selector.as_ref());
    let selected = selector
        .into_iter()
        .flat_map(|it| it.match_expressions.iter().flatten());
    let named = spec.into_iter().flat_map(|spec| spec.scopes.iter().flatten());
    let mut scopes = named.chain(selected.map(|it| &it.scope_name));
    !scopes.any(|scope| OTHER_SCOPES.contains(&scope.as_str()))
}

fn counted_by(quota: &ResourceQuota, runs: usize) -> Vec<Counted> {
    let (hard, used) = Resources::limit_and_usage(quota);
    let (name, runs) = (full_name(&quota.metadata), count(runs, "labelled run"));
    let counted = hard.iter().filter(|(key, _)| COUNTED.contains(key));
    counted
        .map(|(key, hard)| Counted {
            text: format!(
                "{key} of ResourceQuota {name} ({} of {hard} used, {runs})",
                used.get(key)
            ),
            is_used_up: used.get(key) >= hard,
        })
        .collect()
}

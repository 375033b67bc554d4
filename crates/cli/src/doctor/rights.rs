//! Whether pod-affinity's ServiceAccounts have the rights that the release's roles give them.

use super::Snapshot;
use super::finding::{Check, CheckResult, NAMED};
use super::manifests::{CONTROLLER, Right};
use crate::admission::Mechanism;
use crate::words::list;
use std::collections::{BTreeMap, BTreeSet};

const RIGHTS: Check = Check("rights");

/// The answer of the API server to a review of access.
#[derive(Clone, Debug)]
pub(crate) struct Review {
    pub(crate) right: Right,
    pub(crate) allowed: bool,
}

pub(super) fn service_accounts(snapshot: &Snapshot) -> CheckResult {
    let reviews = RIGHTS.read(&snapshot.rights)?;
    let needed: Vec<_> = reviews
        .iter()
        .filter(|it| !is_unneeded(snapshot, &it.right))
        .collect();
    let accounts: BTreeSet<_> = needed.iter().map(|review| &review.right.account).collect();
    let namespace = &snapshot.installation.namespace;
    let findings = accounts.into_iter().filter_map(|account| {
        let rights = missing(needed.iter().copied().filter(|it| it.right.account == *account))?;
        Some(RIGHTS.bad(
            format!("ServiceAccount {account} of namespace {namespace} may not {rights}."),
            "Apply the release's manifests again (200 to 202).",
        ))
    });
    Ok(RIGHTS.or_ok(
        findings,
        "Our ServiceAccounts have all the rights that they need.",
    ))
}

/// Whether an overlay may take this right away, because no process needs it.
fn is_unneeded(snapshot: &Snapshot, right: &Right) -> bool {
    match snapshot.mechanism() {
        Mechanism::Policies => right.is_for_webhook(),
        Mechanism::Webhook | Mechanism::Both => {
            right.account == CONTROLLER
                && right.resource == "secrets"
                && snapshot.installation.has_external_certificates()
        }
    }
}

/// The rights that are not there, as `get/list pods and patch nodes`; `None` if all are there.
pub(super) fn missing<'a>(reviews: impl IntoIterator<Item = &'a Review>) -> Option<String> {
    let mut missing: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for Review { right, allowed: _ } in reviews.into_iter().filter(|review| !review.allowed) {
        let verbs = missing.entry(object(right)).or_default();
        if !verbs.contains(&right.verb.as_str()) {
            verbs.push(&right.verb);
        }
    }
    let rights = missing
        .iter()
        .map(|(object, verbs)| format!("{} {object}", verbs.join("/")));
    let rights: Vec<_> = rights.collect();
    (!rights.is_empty()).then(|| list(&rights, NAMED))
}

fn object(right: &Right) -> String {
    let group = Some(&right.group).filter(|group| !group.is_empty());
    let group = group.map(|group| format!(".{group}")).unwrap_or_default();
    let name = right
        .name
        .as_ref()
        .map(|name| format!(" {name}"))
        .unwrap_or_default();
    format!("{}{group}{name}", right.resource)
}

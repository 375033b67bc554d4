//! Have our accounts the rights that the release's roles give them?

use super::manifests::{CONTROLLER, Right};
use super::{Exam, Finding};
use crate::way::Way;
use crate::words::list;
use process::certs::publish::injector;
use std::collections::BTreeMap;

const CHECK: &str = "rights";
const NAMED: usize = 6;
/// Where certificates are.
const CERTIFICATES: &str = "secrets";

/// A right, and whether its account has it.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) right: Right,
    pub(crate) allowed: bool,
}

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    let answers = match &exam.rights {
        Err(gap) => return vec![Finding::unseen(CHECK, gap)],
        Ok(answers) => answers,
    };
    let mut missing: BTreeMap<&str, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    let needed = answers.iter().filter(|answer| !is_spared(exam, &answer.right));
    for Answer { right, allowed: _ } in needed.filter(|answer| !answer.allowed) {
        let of_account = missing.entry(&right.account).or_default();
        of_account
            .entry(object(right))
            .or_default()
            .push(right.verb.clone());
    }
    if missing.is_empty() {
        return vec![Finding::ok(
            CHECK,
            "Our ServiceAccounts have all the rights that they need.",
        )];
    }
    missing
        .iter()
        .map(|(account, objects)| lacking(exam, account, objects))
        .collect()
}

/// Rights that an overlay takes away, because nothing needs them.
fn is_spared(exam: &Exam, right: &Right) -> bool {
    match exam.way() {
        Way::Policies => right.is_for_webhook(),
        Way::Webhook | Way::Both => is_for_certificates_of_others(exam, right),
    }
}

/// Where somebody else cares for the certificates, the controller needs no right to them.
fn is_for_certificates_of_others(exam: &Exam, right: &Right) -> bool {
    let mut configurations = exam
        .admission
        .webhooks
        .iter()
        .filter_map(|(_, seen)| seen.as_ref().ok()?.as_ref());
    right.account == CONTROLLER
        && right.resource == CERTIFICATES
        && configurations.any(|found| injector(found).is_some())
}

fn lacking(exam: &Exam, account: &str, objects: &BTreeMap<String, Vec<String>>) -> Finding {
    let rights: Vec<_> = objects
        .iter()
        .map(|(object, verbs)| format!("{} {object}", verbs.join("/")))
        .collect();
    Finding::bad(
        CHECK,
        format!(
            "ServiceAccount {account} of namespace {} may not {}.",
            exam.scope.namespace,
            list(&rights, NAMED)
        ),
        "Apply the release's manifests again (200 to 202).",
    )
}

pub(super) fn object(right: &Right) -> String {
    let group = if right.group.is_empty() {
        String::new()
    } else {
        format!(".{}", right.group)
    };
    let name = right
        .name
        .as_ref()
        .map(|name| format!(" {name}"))
        .unwrap_or_default();
    format!("{}{group}{name}", right.resource)
}

//! Do the labels of Namespaces opt their runs in, as their administrators want?

use super::{Exam, Finding};
use crate::view::label;
use crate::words::{count, list};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use placement::keys;
use placement::opt_in::is_unknown;
use placement::opt_in::{DECLINED, OptIn};
use placement::strategy::Strategy;

const CHECK: &str = "namespaces";
const NAMED: usize = 5;

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    let namespaces = match &exam.namespaces {
        Err(gap) => return vec![Finding::unseen(CHECK, gap)],
        Ok(namespaces) => namespaces,
    };
    let unknown: Vec<_> = namespaces.iter().filter_map(unknown).collect();
    vec![match unknown.first() {
        None => Finding::ok(CHECK, opted_in(namespaces)),
        Some((first, _)) => mistaken(first, &unknown),
    }]
}

/// Names of Namespaces whose label gives their runs one.
pub(super) fn opting_in(exam: &Exam) -> impl Iterator<Item = String> {
    let opts_in = |it: &&Namespace| {
        let label = OptIn::parse(value(it));
        label.is_ok_and(|label| label.strategy(Strategy::default()).is_some())
    };
    let namespaces = exam.namespaces.as_deref().unwrap_or_default().iter();
    namespaces.filter(opts_in).map(ResourceExt::name_any)
}

fn opted_in(namespaces: &[Namespace]) -> String {
    let opting = namespaces.iter().filter(|it| value(it) != Some(DECLINED)).count();
    format!("Runs are opted in by {}.", count(opting, "Namespace"))
}

fn mistaken(first: &str, unknown: &[(String, String)]) -> Finding {
    let names: Vec<_> = unknown
        .iter()
        .map(|(name, value)| format!("{name} ({value:?})"))
        .collect();
    Finding::warning(
        CHECK,
        format!(
            "Label {} has an unknown value and opts no run in: {}. Valid values are \"\", true, {} and {DECLINED}.",
            keys::OPT_IN,
            list(&names, NAMED),
            Strategy::NAMES.join(", ")
        ),
        format!(
            "`kubectl label namespace {first} --overwrite {}=true`",
            keys::OPT_IN
        ),
    )
}

/// Name and value of a label that means nothing.
fn unknown(namespace: &Namespace) -> Option<(String, String)> {
    let value = value(namespace).filter(|value| is_unknown(value))?;
    Some((namespace.name_any(), value.to_owned()))
}

fn value(namespace: &Namespace) -> Option<&str> {
    label(&namespace.metadata, keys::OPT_IN)
}

//! The namespaces where placeholders are created: those with labelled runs, and those whose label will give their runs one.

use super::{Exam, namespaces};
use crate::view::RunView;
use crate::words::count;
use placement::opt_in::OptIn;
use placement::strategy::Strategy;
use std::collections::BTreeMap;

/// Names of namespaces, each with the number of its labelled runs that are not done.
pub(super) fn tenants(exam: &Exam) -> BTreeMap<String, usize> {
    let mut found: BTreeMap<_, _> = namespaces::opting_in(exam).map(|name| (name, 0)).collect();
    let runs = exam.runs.as_deref().unwrap_or_default();
    for view in runs.iter().filter_map(RunView::of).filter(has_placeholder) {
        *found.entry(view.run.key.namespace).or_default() += 1;
    }
    found
}

/// As a part of a sentence.
pub(super) fn text(tenants: &BTreeMap<String, usize>) -> String {
    format!(
        "the {} with labelled runs or with the label",
        count(tenants.len(), "namespace")
    )
}

fn has_placeholder(view: &RunView) -> bool {
    let run = &view.run;
    let opt_in = OptIn::parse(run.opt_in.as_deref());
    let opts_in = opt_in.is_ok_and(|it| it.strategy(Strategy::default()).is_some());
    opts_in && !(run.done || run.child || run.managed_elsewhere)
}

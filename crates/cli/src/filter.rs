//! Selectors of the runs that are listed and watched. Pure.

use crate::args::ListArgs;
use crate::target::Target;
use kube::api::ListParams;
use kube::runtime::watcher;
use placement::keys;

/// A label selector and a field selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    labels: Vec<String>,
    fields: Vec<String>,
}

impl Filter {
    /// Selects labelled runs, or the named run, and adds the selectors of the user.
    pub(crate) fn of(args: &ListArgs, target: Option<&Target>) -> Self {
        let labelled = target.is_none().then(|| keys::OPT_IN.to_owned());
        let named = target.map(|target| name_is(&target.name));
        Self {
            labels: labelled.into_iter().chain(args.selector.clone()).collect(),
            fields: named.into_iter().chain(args.field_selector.clone()).collect(),
        }
    }

    /// Selects objects with these labels.
    pub(crate) fn labels(selector: &str) -> Self {
        Self {
            labels: vec![selector.to_owned()],
            fields: Vec::new(),
        }
    }

    /// Selects the object with this name.
    pub(crate) fn name(name: &str) -> Self {
        Self {
            labels: Vec::new(),
            fields: vec![name_is(name)],
        }
    }

    /// For lists.
    pub(crate) fn list(&self) -> ListParams {
        ListParams {
            label_selector: joined(&self.labels),
            field_selector: joined(&self.fields),
            ..ListParams::default()
        }
    }

    /// For watches.
    pub(crate) fn watch(&self) -> watcher::Config {
        watcher::Config {
            label_selector: joined(&self.labels),
            field_selector: joined(&self.fields),
            ..watcher::Config::default()
        }
    }
}

fn name_is(name: &str) -> String {
    format!("metadata.name={name}")
}

fn joined(selectors: &[String]) -> Option<String> {
    (!selectors.is_empty()).then(|| selectors.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Caller, Verb, parse};

    fn asked(line: &str) -> (Option<String>, Option<String>) {
        let words = std::iter::once("x").chain(line.split(' ')).map(Into::into);
        let Verb::List(args) = parse(Caller::of("x"), words).unwrap().command else {
            panic!()
        };
        let filter = Filter::of(&args, args.target().unwrap().as_ref());
        let (list, watch) = (filter.list(), filter.watch());
        assert_eq!(list.label_selector, watch.label_selector);
        assert_eq!(list.field_selector, watch.field_selector);
        (list.label_selector, list.field_selector)
    }

    #[test]
    fn only_labelled_runs_are_asked_for_unless_one_is_named() {
        let labelled = Some(keys::OPT_IN.to_owned());
        let build = Some("metadata.name=build".to_owned());
        assert_eq!(asked("list"), (labelled.clone(), None));
        assert_eq!(asked("get pr"), (labelled, None));
        assert_eq!(asked("get pr build"), (None, build.clone()));
        assert_eq!(asked("list pr/build"), (None, build));
    }

    #[test]
    fn selectors_are_passed_on() {
        let (labels, fields) = asked("list -l team=a,!old --field-selector metadata.namespace=ci");
        assert_eq!(labels, Some(format!("{},team=a,!old", keys::OPT_IN)));
        assert_eq!(fields.as_deref(), Some("metadata.namespace=ci"));
    }
}

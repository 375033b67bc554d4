//! Whether the labels, the `ResourceQuota` and `LimitRange` objects of namespaces let runs have placeholders.

use super::finding::{Check, CheckResult, Finding, Level, NAMED};
use super::{Snapshot, trial};
use crate::view::{RunView, full_name, label};
use crate::words::{count, list};
use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem, Namespace};
use kube::ResourceExt;
use placement::config::Config;
use placement::cross_namespace_quota;
use placement::keys;
use placement::opt_in::is_unknown;
use placement::opt_in::{DECLINED, OptIn};
use placement::placeholder::size;
use placement::quantity::Quantity;
use placement::quota_room::{counts_placeholders, used_by_placeholder};
use placement::resources::Resources;
use placement::strategy::Strategy;
use std::collections::BTreeMap;

const NAMESPACES: Check = Check("namespaces");
const QUOTAS: Check = Check("quotas");
const LIMITS: Check = Check("limits");
/// The resources of a quota that count objects: a placeholder is one pod and one StatefulSet.
const COUNTED: [&str; 3] = ["pods", "count/pods", "count/statefulsets.apps"];

pub(super) fn labels(snapshot: &Snapshot) -> CheckResult {
    let namespaces = NAMESPACES.read(&snapshot.namespaces)?;
    let unknown = namespaces.iter().filter(|it| value(it).is_some_and(is_unknown));
    let unknown: Vec<_> = unknown.collect();
    let names = unknown.iter();
    let names = names.map(|it| format!("{} ({:?})", it.name_any(), value(it).unwrap_or_default()));
    let names: Vec<_> = names.collect();
    let mistaken = unknown.first().map(|first| {
        let first = first.name_any();
        let (key, values) = (keys::OPT_IN, Strategy::NAMES.join(", "));
        let names = list(&names, NAMED);
        NAMESPACES.warning(
            format!(
                "Label {key} has an unknown value and no effect: {names}. Valid values are \"\", true, {values} and \
                 {DECLINED}."
            ),
            format!("`kubectl label namespace {first} --overwrite {key}=true`"),
        )
    });
    let opting = namespaces.iter().filter(|it| value(it) != Some(DECLINED)).count();
    Ok(NAMESPACES.or_ok(
        mistaken,
        format!("Runs are opted in by {}.", count(opting, "Namespace")),
    ))
}

fn value(namespace: &Namespace) -> Option<&str> {
    label(&namespace.metadata, keys::OPT_IN)
}

fn opts_in(label: Option<&str>) -> bool {
    OptIn::parse(label).is_ok_and(|it| it.strategy(Strategy::default()).is_some())
}

/// The namespaces with placeholders: the names, each with the number of labelled runs that are not done. A Namespace with the
/// opt-in label counts without runs.
struct Tenants(BTreeMap<String, usize>);

impl Tenants {
    fn new(snapshot: &Snapshot) -> Self {
        let namespaces = snapshot.namespaces.iter().flatten();
        let labelled = namespaces.filter(|it| opts_in(value(it)));
        let mut found: BTreeMap<_, _> = labelled.map(|it| (it.name_any(), 0)).collect();
        for RunView { run, .. } in snapshot.runs.iter().flatten() {
            if opts_in(run.opt_in.as_deref()) && !(run.done || run.child || run.managed_elsewhere) {
                *found.entry(run.key.namespace.clone()).or_default() += 1;
            }
        }
        Self(found)
    }

    /// The number of labelled runs in the namespace of this object; `None` without placeholders in this namespace.
    fn runs(&self, object: &impl ResourceExt) -> Option<usize> {
        self.0.get(&object.namespace()?).copied()
    }

    fn well(&self, what: &str) -> String {
        let namespaces = count(self.0.len(), "namespace");
        format!("No {what} placeholders in the {namespaces} with labelled runs or with the label.")
    }
}

pub(super) fn quotas(snapshot: &Snapshot) -> CheckResult {
    let quotas = QUOTAS.read(&snapshot.quotas)?;
    let (tenants, size) = (Tenants::new(snapshot), size::usual(&snapshot.config()).requests());
    let (mut full, mut roomy, mut narrowing) = (Vec::new(), Vec::new(), Vec::new());
    for quota in quotas
        .iter()
        .filter(|quota| quota.spec.as_ref().is_none_or(counts_placeholders))
    {
        let Some(runs) = tenants.runs(quota) else { continue };
        let (name, runs) = (full_name(&quota.metadata), count(runs, "labelled run"));
        if cross_namespace_quota::is_full(quota) {
            narrowing.push(format!("ResourceQuota {name} ({runs})"));
            continue;
        }
        let (hard, used) = Resources::limit_and_usage(quota);
        for (key, hard) in hard.iter() {
            let (used, needed) = (used.get(key), used_by_placeholder(key, &size));
            let texts = if needed > Quantity::default() && used + needed > hard {
                &mut full
            } else if COUNTED.contains(&key) {
                &mut roomy
            } else {
                continue;
            };
            texts.push(format!(
                "{key} of ResourceQuota {name} ({used} of {hard} used, {runs})"
            ));
        }
    }
    let findings = [used_up(&full), counting(&roomy), narrowing_terms(&narrowing)];
    Ok(QUOTAS.or_ok(
        findings.into_iter().flatten(),
        tenants.well("ResourceQuota counts"),
    ))
}

fn used_up(found: &[String]) -> Option<Finding> {
    QUOTAS.about(
        Level::Bad,
        "Used up, so that no further placeholder can be created",
        found,
        "Each labelled run needs one more pod and one more StatefulSet, with the requests placeholder-cpu and placeholder-memory of \
         the ConfigMap config-pod-affinity. Raise the quota by the number of labelled runs at a time; until then, runs wait for \
         each other.",
    )
}

fn counting(found: &[String]) -> Option<Finding> {
    QUOTAS.about(
        Level::Warning,
        "Quotas that count placeholders",
        found,
        "Each labelled run adds one pod and one StatefulSet while it is not done. If the quota is too small for the labelled \
         runs at a time, raise it by their number; otherwise, nothing needs to be done.",
    )
}

fn narrowing_terms(found: &[String]) -> Option<Finding> {
    QUOTAS.about(
        Level::Warning,
        "Quotas that reject affinity terms across namespaces, so that runs are isolated within their namespace only",
        found,
        "To isolate these runs from runs of other namespaces, raise the quota by the number of pods of labelled runs at a time.",
    )
}

/// Whether a `LimitRange` rejects the placeholder's pod when it is created, or when it is resized to its usual size.
pub(super) fn limits(snapshot: &Snapshot) -> CheckResult {
    let ranges = LIMITS.read(&snapshot.limits)?;
    let (tenants, config) = (Tenants::new(snapshot), snapshot.config());
    let (usual, reserved) = (size::usual(&config).requests(), reserved(&config));
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for range in ranges.iter().filter(|range| tenants.runs(*range).is_some()) {
        let name = full_name(&range.metadata);
        for item in items(range) {
            let least = item
                .min
                .as_ref()
                .map(Resources::from_quantities)
                .unwrap_or_default();
            let most = item
                .max
                .as_ref()
                .map(Resources::from_quantities)
                .unwrap_or_default();
            for key in least.beyond(&usual).filter(|key| is_set(&usual, key)) {
                let (least, ours) = (least.get(key), usual.get(key));
                small.push(format!(
                    "{key} {least} in LimitRange {name} (placeholder-{key} is {ours})"
                ));
            }
            for key in reserved.beyond(&most).filter(|key| is_set(&most, key)) {
                let (most, ours) = (most.get(key), reserved.get(key));
                large.push(format!(
                    "{key} {most} in LimitRange {name} (a placeholder requests {ours})"
                ));
            }
        }
    }
    Ok(LIMITS.or_ok(
        [too_small(&small), too_large(&large)].into_iter().flatten(),
        tenants.well("LimitRange rejects"),
    ))
}

fn too_small(found: &[String]) -> Option<Finding> {
    LIMITS.about(
        Level::Warning,
        "A LimitRange minimum is higher than the placeholder's requests",
        found,
        "Set placeholder-cpu and placeholder-memory in the ConfigMap config-pod-affinity to the minimum; until then, the API \
         server rejects the pod of each placeholder first, and the controller raises its requests.",
    )
}

fn too_large(found: &[String]) -> Option<Finding> {
    LIMITS.about(
        Level::Warning,
        "A LimitRange maximum is lower than the requests of a placeholder, default-reserve included",
        found,
        "Lower default-reserve, placeholder-cpu or placeholder-memory in the ConfigMap config-pod-affinity, or raise the maximum; \
         until then, the API server rejects the pod of such a placeholder first, and the controller lowers its requests, without \
         the reserve.",
    )
}

/// The limits of a `LimitRange` that apply to a pod of one container.
fn items(range: &LimitRange) -> impl Iterator<Item = &LimitRangeItem> {
    let items = range.spec.iter().flat_map(|spec| &spec.limits);
    items.filter(|item| item.type_ == "Container" || item.type_ == "Pod")
}

fn is_set(amounts: &Resources, name: &str) -> bool {
    amounts.iter().any(|(key, _)| key == name)
}

/// The requests of a placeholder while its run is held, if the run has no reserve of its own.
fn reserved(config: &Config) -> Resources {
    let mut run = trial::run();
    let name = run.metadata.generate_name.take();
    (run.metadata.namespace, run.metadata.uid) = (name.clone(), name.clone());
    run.metadata.name = name;
    let size = RunView::of(&run).map(|view| size::reserved(&view.run, config));
    size.unwrap_or_else(|| size::usual(config)).requests()
}

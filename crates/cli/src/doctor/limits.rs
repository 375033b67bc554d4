//! Do the limits of the namespaces with placeholders let these in, at the size that they have?

use super::tenants::{tenants, text};
use super::{Exam, Finding, runs, trial};
use crate::view::{RunView, full_name};
use crate::words::list;
use k8s_openapi::api::core::v1::LimitRange;
use placement::config::Config;
use placement::placeholder::size;
use placement::resources::Resources;

const CHECK: &str = "limits";
const NAMED: usize = 5;

/// What is allowed of a pod of one container.
struct Bounds {
    range: String,
    least: Resources,
    most: Resources,
}

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    let ranges = match &exam.limits {
        Err(gap) => return vec![Finding::unseen(CHECK, gap)],
        Ok(ranges) => ranges,
    };
    let (tenants, config) = (tenants(exam), runs::config(exam));
    let is_here = |range: &&LimitRange| {
        let namespace = range.metadata.namespace.as_ref();
        namespace.is_some_and(|it| tenants.contains_key(it))
    };
    let bounds: Vec<_> = ranges.iter().filter(is_here).flat_map(bounds).collect();
    let found = [too_small(&config, &bounds), too_large(&config, &bounds)];
    let found: Vec<_> = found.into_iter().flatten().collect();
    if found.is_empty() {
        let sentence = format!("No LimitRange rejects placeholders in {}.", text(&tenants));
        return vec![Finding::ok(CHECK, sentence)];
    }
    found
}

fn bounds(range: &LimitRange) -> impl Iterator<Item = Bounds> {
    let items = range.spec.iter().flat_map(|spec| &spec.limits);
    let items = items.filter(|item| item.type_ == "Container" || item.type_ == "Pod");
    items.map(|item| Bounds {
        range: full_name(&range.metadata),
        least: item
            .min
            .as_ref()
            .map(Resources::from_quantities)
            .unwrap_or_default(),
        most: item
            .max
            .as_ref()
            .map(Resources::from_quantities)
            .unwrap_or_default(),
    })
}

/// The API server would refuse the placeholder's pod, or to make it small.
fn too_small(config: &Config, bounds: &[Bounds]) -> Option<Finding> {
    let ours = size::usual(config).requests();
    let of_range = |it: &Bounds| -> Vec<String> {
        let short = it.least.beyond(&ours).filter(|name| is_set(&ours, name));
        let told = short.map(|name| {
            let (least, ours) = (it.least.get(name), ours.get(name));
            format!(
                "{name} {least} in LimitRange {} (placeholder-{name} is {ours})",
                it.range
            )
        });
        told.collect()
    };
    let found: Vec<_> = bounds.iter().flat_map(of_range).collect();
    (!found.is_empty()).then(|| {
        Finding::bad(
            CHECK,
            format!("A LimitRange minimum is higher than the placeholder's requests: {}.", list(&found, NAMED)),
            "Set placeholder-cpu and placeholder-memory in the ConfigMap config-pod-affinity to the minimum; until then, labelled \
             runs in the namespace get no placeholder, and are held until hold-deadline.",
        )
    })
}

fn too_large(config: &Config, bounds: &[Bounds]) -> Option<Finding> {
    let ours = asked(config);
    let of_range = |it: &Bounds| -> Vec<String> {
        let long = ours.beyond(&it.most).filter(|name| is_set(&it.most, name));
        let told = long.map(|name| {
            let (most, ours) = (it.most.get(name), ours.get(name));
            format!(
                "{name} {most} in LimitRange {} (a placeholder requests {ours})",
                it.range
            )
        });
        told.collect()
    };
    let found: Vec<_> = bounds.iter().flat_map(of_range).collect();
    (!found.is_empty()).then(|| {
        Finding::bad(
            CHECK,
            format!(
                "A LimitRange maximum is lower than the requests of a placeholder, default-reserve included: {}.",
                list(&found, NAMED)
            ),
            "Lower default-reserve, placeholder-cpu or placeholder-memory in the ConfigMap config-pod-affinity, or raise the maximum; \
             until then, labelled runs in the namespace without a lower reserve of their own get no placeholder, and are held until \
             hold-deadline.",
        )
    })
}

fn is_set(amounts: &Resources, name: &str) -> bool {
    amounts.iter().any(|(key, _)| key == name)
}

/// What a placeholder requests while its run is held, if the run has no reserve of its own.
fn asked(config: &Config) -> Resources {
    let mut run = trial::run();
    let name = run.metadata.generate_name.take();
    (run.metadata.namespace, run.metadata.uid) = (name.clone(), name.clone());
    run.metadata.name = name;
    let size = RunView::of(&run).map(|view| size::reserved(&view.run, config));
    size.unwrap_or_else(|| size::usual(config)).requests()
}

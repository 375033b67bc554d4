//! The names of the variants, with the colours of the charts. Page and charts show variants in this order.

pub(crate) const DISABLED: &str = "Tekton, disabled";
pub(crate) const PIPELINERUNS: &str = "Tekton, pipelineruns";
pub(crate) const ISOLATE: &str = "Tekton, isolate-pipelinerun";
pub(crate) const ALWAYS: &str = "pod-affinity, colocateAlways";
pub(crate) const COMPLETED: &str = "pod-affinity, colocateCompleted";
pub(crate) const BY_POLICIES: &str = "pod-affinity by policies, colocateCompleted";
pub(crate) const ISOLATE_ALWAYS: &str = "pod-affinity, isolateAlways";

pub(crate) const NO_TERMS: &str = "no terms";
pub(crate) const CLUSTER: &str = "pod-affinity, cluster";
pub(crate) const NAMESPACE: &str = "pod-affinity, namespace";
pub(crate) const NODE_NAME_TOO: &str = "tried: node name too";
pub(crate) const NODE_NAME_APART: &str = "tried: node name too, anti-affinity on placeholders only";
pub(crate) const NODE_NAME_ONLY: &str = "tried: node name only";

pub(crate) const WITHOUT: &str = "without pod-affinity";
pub(crate) const WITH_WEBHOOK: &str = "with the webhook";
pub(crate) const WITH_POLICIES: &str = "with policies";

pub(crate) const CONTROLLER: &str = "controller";
pub(crate) const RELEASE: &str = "hold to release";
pub(crate) const PATCHES: &str = "API server alone: patches of runs";
pub(crate) const CREATES: &str = "API server alone: new ConfigMaps";

/// Grey: runs without placement. Blue: pod-affinity with the webhook. Green: pod-affinity by policies.
const COLOURS: [(&str, &str); 20] = [
    (DISABLED, "#98a2ad"),
    (NO_TERMS, "#98a2ad"),
    (WITHOUT, "#98a2ad"),
    (PIPELINERUNS, "#d6c53c"),
    (ISOLATE, "#cc8a2e"),
    (ALWAYS, "#4db8d2"),
    (COMPLETED, "#1f6fc4"),
    (CLUSTER, "#1f6fc4"),
    (WITH_WEBHOOK, "#1f6fc4"),
    (BY_POLICIES, "#169c86"),
    (WITH_POLICIES, "#169c86"),
    (ISOLATE_ALWAYS, "#123f73"),
    (NAMESPACE, "#7d74cf"),
    (NODE_NAME_TOO, "#8a6d3b"),
    (NODE_NAME_APART, "#b08d57"),
    (NODE_NAME_ONLY, "#d2b48c"),
    (CONTROLLER, "#1f6fc4"),
    (RELEASE, "#1f6fc4"),
    (PATCHES, "#98a2ad"),
    (CREATES, "#c3cad1"),
];

/// Where a variant stands, and its colour. A variant with an option, such as "NAME, fast path", is paler than the one without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Style {
    pub(crate) place: usize,
    pub(crate) colour: &'static str,
    pub(crate) opacity: f64,
}

pub(crate) fn style(variant: &str) -> Option<Style> {
    let option = |name| variant.strip_prefix(name);
    let mut styles = (0..).zip(COLOURS);
    styles.find_map(|(place, (name, colour))| {
        let opacity = match option(name)? {
            "" => 1.0,
            option if option.starts_with(", ") => 0.5,
            _ => return None,
        };
        Some(Style {
            place,
            colour,
            opacity,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_with_an_option_has_the_colour_of_the_variant_without() {
        let (plain, gated) = (
            style(CLUSTER).unwrap(),
            style("pod-affinity, cluster, fast path").unwrap(),
        );
        assert_eq!((plain.place, plain.colour), (gated.place, gated.colour));
        assert!(gated.opacity < plain.opacity);
        assert_eq!(style("pod-affinity, clusters"), None);
    }
}

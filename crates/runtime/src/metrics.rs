//! The registry behind `/metrics`, and this crate's own metrics. Other crates register their metrics in [`Registry::prefixed`].

use crate::resources::ResourceCollector;
use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::{self, Metric},
};
use std::fmt;
use strum::{IntoStaticStr, VariantArray};

/// Prefix of all metrics of pod-affinity.
pub const PREFIX: &str = "pod_affinity";

/// Name and value of the only label of a series.
type Label = [(&'static str, &'static str); 1];
type Counters = Family<Label, Counter>;

/// All metrics of one process.
pub struct Registry(registry::Registry);

impl Registry {
    /// A registry with the version, memory and open files of the process.
    pub fn new(version: &str) -> Self {
        let mut root = registry::Registry::default();
        root.register_collector(Box::new(ResourceCollector));
        let build = Info::new([("version".to_owned(), version.to_owned())]);
        root.sub_registry_with_prefix(PREFIX)
            .register("build", "The version that runs", build);
        Self(root)
    }

    /// The registry for metrics of pod-affinity; their names get [`PREFIX`].
    pub fn prefixed(&mut self) -> &mut registry::Registry {
        self.0.sub_registry_with_prefix(PREFIX)
    }

    /// All metrics in the `OpenMetrics` text format.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.0)?;
        Ok(out)
    }
}

/// The result of loading a configuration or a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum LoadOutcome {
    /// The loaded version is active.
    Accepted,
    /// The loaded version was refused; the previous version stays active.
    Refused,
}

/// A part of the stored certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum CertificatePart {
    /// The CA.
    #[strum(to_string = "authority")]
    Ca,
    /// The bundle of CAs.
    Bundle,
    /// The serving certificate.
    Leaf,
}

/// Metrics of a process that serves admission requests. Clones share the values.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    certificate_loads: Counters,
    /// Unix time at which the served certificate expires; 0 without a certificate.
    pub certificate_expiry: Gauge,
    /// Connections that were refused because of the limit.
    pub connections_refused: Counter,
}

/// Metrics of a process that takes part in leader election. Clones share the values.
#[derive(Clone, Debug, Default)]
pub struct Leading {
    configuration_loads: Counters,
    configuration_valid: Gauge,
    configuration_generation: Gauge,
    renewals: Counters,
    /// Failed checks of the certificates.
    pub certificate_errors: Counter,
    /// 1 while this process leads.
    pub leading: Gauge,
    /// Failed attempts to acquire or renew the Lease.
    pub lease_errors: Counter,
}

impl Serving {
    /// Registers these metrics.
    pub fn register(registry: &mut registry::Registry) -> Self {
        let all = Self {
            certificate_loads: registered(registry, "certificate_loads", "Serving certificates read"),
            certificate_expiry: registered(
                registry,
                "certificate_expiry_timestamp_seconds",
                "When the served certificate expires; 0 while there is none",
            ),
            connections_refused: registered(registry, "connections_refused", "Connections over the limit"),
        };
        start_at_zero(&all.certificate_loads, LoadOutcome::VARIANTS, by_outcome);
        all
    }

    /// Counts a loaded certificate.
    pub fn certificate_load(&self, outcome: LoadOutcome) {
        self.certificate_loads.get_or_create(&by_outcome(outcome)).inc();
    }

    /// Number of loaded certificates with this outcome.
    #[cfg(test)]
    pub(crate) fn certificate_loads(&self, outcome: LoadOutcome) -> u64 {
        self.certificate_loads.get_or_create(&by_outcome(outcome)).get()
    }
}

impl Leading {
    /// Registers the metrics that every controller has.
    pub fn register(registry: &mut registry::Registry) -> Self {
        let all = Self {
            configuration_loads: registered(registry, "configuration_loads", "ConfigMap versions read"),
            configuration_valid: registered(
                registry,
                "configuration_valid",
                "1 while the current ConfigMap is active; 0 while it is rejected or not read yet",
            ),
            configuration_generation: registered(
                registry,
                "configuration_generation",
                "resourceVersion of the active ConfigMap; 0 without a ConfigMap",
            ),
            leading: registered(registry, "leading", "1 while this process is the leader"),
            lease_errors: registered(
                registry,
                "lease_errors",
                "Failed attempts to acquire or renew the Lease",
            ),
            ..Self::default()
        };
        start_at_zero(&all.configuration_loads, LoadOutcome::VARIANTS, by_outcome);
        all
    }

    /// Registers the metrics of a controller that manages certificates. Without a webhook these metrics must be absent, because the
    /// alert on a missing webhook depends on them.
    pub fn register_certificates(&self, registry: &mut registry::Registry) {
        start_at_zero(&self.renewals, CertificatePart::VARIANTS, by_part);
        let help = "Certificates made by this process";
        registry.register("certificate_renewals", help, self.renewals.clone());
        let help = "Failed checks of the certificates";
        registry.register("certificate_errors", help, self.certificate_errors.clone());
    }

    /// Counts a ConfigMap version that became active.
    pub(crate) fn configuration_accepted(&self, generation: i64) {
        self.configuration_loaded(LoadOutcome::Accepted);
        self.configuration_valid.set(1);
        self.configuration_generation.set(generation);
    }

    /// Counts a refused ConfigMap version.
    pub(crate) fn configuration_refused(&self) {
        self.configuration_loaded(LoadOutcome::Refused);
        self.configuration_valid.set(0);
    }

    fn configuration_loaded(&self, outcome: LoadOutcome) {
        self.configuration_loads.get_or_create(&by_outcome(outcome)).inc();
    }

    /// Counts a certificate or bundle that this process created.
    pub fn renewal(&self, part: CertificatePart) {
        self.renewals.get_or_create(&by_part(part)).inc();
    }
}

fn registered<M: Metric + Clone + Default>(registry: &mut registry::Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Creates a series at 0 for each of these values, so that queries find the series before the first event, and the first event is
/// an increase.
fn start_at_zero<V: Copy>(counters: &Counters, values: &[V], label: fn(V) -> Label) {
    for value in values {
        drop(counters.get_or_create(&label(*value)));
    }
}

fn by_outcome(outcome: LoadOutcome) -> Label {
    [("outcome", outcome.into())]
}

fn by_part(part: CertificatePart) -> Label {
    [("part", part.into())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposition() -> String {
        let mut registry = Registry::new("1.2.3");
        Serving::register(registry.prefixed()).certificate_load(LoadOutcome::Refused);
        let leading = Leading::register(registry.prefixed());
        leading.register_certificates(registry.prefixed());
        leading.renewal(CertificatePart::Leaf);
        registry.encode().unwrap()
    }

    #[test]
    fn a_controller_without_certificates_has_no_metrics_of_certificates() {
        let mut registry = Registry::new("1.2.3");
        Leading::register(registry.prefixed());
        let text = registry.encode().unwrap();
        assert!(
            text.contains("pod_affinity_leading") && !text.contains("certificate"),
            "{text}"
        );
    }

    #[test]
    fn metrics_have_the_prefix_and_the_version() {
        let text = exposition();
        assert!(
            text.contains("pod_affinity_build_info{version=\"1.2.3\"} 1"),
            "{text}"
        );
        assert!(
            text.contains("pod_affinity_certificate_loads_total{outcome=\"refused\"} 1"),
            "{text}"
        );
        assert!(
            text.contains("pod_affinity_certificate_renewals_total{part=\"leaf\"} 1"),
            "{text}"
        );
    }

    #[test]
    fn a_counter_starts_at_0() {
        let text = exposition();
        for line in [
            "pod_affinity_certificate_loads_total{outcome=\"accepted\"} 0",
            "pod_affinity_certificate_renewals_total{part=\"bundle\"} 0",
            "pod_affinity_configuration_loads_total{outcome=\"refused\"} 0",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn a_refused_configuration_does_not_change_the_generation_metric() {
        let mut registry = Registry::new("1.2.3");
        let metrics = Leading::register(registry.prefixed());
        metrics.configuration_accepted(41);
        metrics.configuration_refused();
        let text = registry.encode().unwrap();
        assert!(text.contains("pod_affinity_configuration_valid 0"), "{text}");
        assert!(
            text.contains("pod_affinity_configuration_generation 41"),
            "{text}"
        );
    }

    #[test]
    fn the_memory_metric_has_the_standard_name_of_prometheus() {
        let text = exposition();
        assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}

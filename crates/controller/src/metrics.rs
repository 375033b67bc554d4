//! What an operator sees of the controller. Every label value comes from a closed set; never a run's name.

use crate::gauges::Gauges;
use crate::observe::Stores;
use crate::refusal::Refused;
use placement::plan::{MoveCause, ReleaseCause};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;
use strum::{IntoStaticStr, VariantArray};

/// Counts and times what the controller does; clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    hold_seconds: Family<ByOutcome, Histogram, fn() -> Histogram>,
    schedule_seconds: Histogram,
    releases: Family<ByCause, Counter>,
    moves_off: Family<ByCause, Counter>,
    nodeless_seconds: Histogram,
    reconcile_seconds: Histogram,
    reconcile_errors: Family<ByStepAndReason, Counter>,
    overtaken: Counter,
    events: Family<ByOutcome, Counter>,
    watch_errors: Family<ByResource, Counter>,
    gauges: Gauges,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    Released(ReleaseCause),
    /// Another released the run.
    Foreign,
    /// The run was done without ever being released.
    Cancelled,
    /// The run was deleted.
    Deleted,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum EventEnd {
    Sent,
    Failed,
    /// Too many were waiting.
    Dropped,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStepAndReason {
    step: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResource {
    resource: &'static str,
}

impl Metrics {
    /// Registers all of them; the prefix is the registry's.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::new();
        metrics.register_runs(registry);
        metrics.register_work(registry);
        registry.register_collector(Box::new(metrics.gauges.clone()));
        metrics
    }

    /// What happens to runs.
    fn register_runs(&self, registry: &mut Registry) {
        let help = "Time from a run's creation to the end of its hold";
        registry.register("hold_seconds", help, self.hold_seconds.clone());
        let help = "Time from asking for a placeholder to seeing it on a node";
        registry.register(
            "placeholder_schedule_seconds",
            help,
            self.schedule_seconds.clone(),
        );
        registry.register("releases", "Runs released, by cause", self.releases.clone());
        let help = "Moves of runs off their node, by cause";
        registry.register("moves", help, self.moves_off.clone());
        let help = "Time from giving up a node to the placeholder on the next one";
        registry.register("nodeless_seconds", help, self.nodeless_seconds.clone());
        let help = "Events on runs, by outcome";
        registry.register("events", help, self.events.clone());
    }

    /// What it takes.
    fn register_work(&self, registry: &mut Registry) {
        let help = "Duration of one reconciliation of one run, its write included";
        registry.register("reconcile_seconds", help, self.reconcile_seconds.clone());
        let help = "Steps that failed and are retried, by step and reason";
        registry.register("reconcile_errors", help, self.reconcile_errors.clone());
        let help = "Guarded writes that found the object changed, and changed nothing";
        registry.register("overtaken", help, self.overtaken.clone());
        let help = "Watches that broke and were restarted";
        registry.register("watch_errors", help, self.watch_errors.clone());
    }

    fn new() -> Self {
        let metrics = Self {
            // 0.1 s to 27 min: hold-deadline is 10 min unless it was changed.
            hold_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.1, 2.0, 15))),
            schedule_seconds: Histogram::new(exponential_buckets(0.025, 2.0, 16)),
            releases: Family::default(),
            moves_off: Family::default(),
            // 0.1 s to 27 min: a machine has to be bought sometimes.
            nodeless_seconds: Histogram::new(exponential_buckets(0.1, 2.0, 15)),
            reconcile_seconds: Histogram::new(exponential_buckets(0.000_1, 4.0, 10)),
            reconcile_errors: Family::default(),
            overtaken: Counter::default(),
            events: Family::default(),
            watch_errors: Family::default(),
            gauges: Gauges::default(),
        };
        metrics.begin();
        metrics
    }

    /// What has not happened yet is told as 0, so that its first time is an increase.
    fn begin(&self) {
        for end in EventEnd::VARIANTS {
            drop(self.events.get_or_create(&ByOutcome { outcome: end.into() }));
        }
        let releases = ReleaseCause::ALL.iter();
        let releases = releases.map(|cause| (&self.releases, cause.as_str()));
        let moves = MoveCause::ALL.map(|cause| (&self.moves_off, cause.as_str()));
        for (family, cause) in releases.chain(moves) {
            drop(family.get_or_create(&ByCause { cause }));
        }
    }

    pub(crate) fn hold_ended(&self, end: HoldEnd, after: Duration) {
        let labels = ByOutcome {
            outcome: end.as_str(),
        };
        self.hold_seconds
            .get_or_create(&labels)
            .observe(after.as_secs_f64());
        if let HoldEnd::Released(_) = end {
            self.releases
                .get_or_create(&ByCause { cause: end.as_str() })
                .inc();
        }
    }

    pub(crate) fn scheduled(&self, after: Duration) {
        self.schedule_seconds.observe(after.as_secs_f64());
    }

    pub(crate) fn moved_off(&self, cause: MoveCause) {
        let labels = ByCause {
            cause: cause.as_str(),
        };
        self.moves_off.get_or_create(&labels).inc();
    }

    pub(crate) fn moved(&self, after: Duration) {
        self.nodeless_seconds.observe(after.as_secs_f64());
    }

    pub(crate) fn reconciled(&self, took: Duration) {
        self.reconcile_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn refused(&self, refused: &Refused) {
        let labels = ByStepAndReason {
            step: refused.operation.into(),
            reason: refused.cause().into(),
        };
        self.reconcile_errors.get_or_create(&labels).inc();
    }

    pub(crate) fn overtaken(&self) {
        self.overtaken.inc();
    }

    pub(crate) fn event(&self, end: EventEnd) {
        self.events
            .get_or_create(&ByOutcome { outcome: end.into() })
            .inc();
    }

    /// A watch begins, without an error so far.
    pub(crate) fn watch(&self, resource: &'static str) {
        drop(self.watch_errors.get_or_create(&ByResource { resource }));
    }

    pub(crate) fn watch_error(&self, resource: &'static str) {
        self.watch_errors.get_or_create(&ByResource { resource }).inc();
    }

    pub(crate) fn count_in(&self, stores: Option<Stores>) {
        self.gauges.count_in(stores);
    }
}

impl HoldEnd {
    fn as_str(self) -> &'static str {
        match self {
            Self::Released(cause) => cause.as_str(),
            Self::Foreign => "foreign",
            Self::Cancelled => "cancelled",
            Self::Deleted => "deleted",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::exposition;

    #[test]
    fn a_release_is_counted_by_cause_and_timed_by_outcome() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.hold_ended(HoldEnd::Released(ReleaseCause::NodeFound), Duration::from_secs(1));
        metrics.hold_ended(HoldEnd::Foreign, Duration::from_secs(1));
        let text = exposition(&registry);
        assert!(
            text.contains("releases_total{cause=\"node_found\"} 1\n"),
            "{text}"
        );
        assert!(
            text.contains("hold_seconds_count{outcome=\"foreign\"} 1\n"),
            "{text}"
        );
        assert!(!text.contains("releases_total{cause=\"foreign\"}"), "{text}");
    }
}

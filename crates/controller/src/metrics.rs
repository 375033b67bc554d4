//! The controller's metrics. Every label value comes from a closed set, except the namespaces of [`crate::node_time`], whose number is
//! limited. Names of runs are no label values.

use crate::api_error::StepError;
use crate::gauges::Gauges;
use crate::node_time::NodeTime;
use crate::observe::Stores;
use placement::plan::{MoveCause, ReleaseCause};
use placement::warm::Start;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
use std::time::Duration;
use strum::{IntoStaticStr, VariantArray};

/// The labels of a series, each with its value.
type Labels<const N: usize> = [(&'static str, &'static str); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;

/// Counts and times what the controller does; clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    hold_seconds: Family<Labels<1>, Histogram, fn() -> Histogram>,
    schedule_seconds: Histogram,
    releases: Counters<1>,
    moves_off: Counters<1>,
    nodeless_seconds: Histogram,
    events: Counters<1>,
    reconcile_seconds: Histogram,
    reconcile_errors: Counters<2>,
    overtaken: Counter,
    watch_errors: Counters<1>,
    fields_ignored: Counter,
    starts: Counters<1>,
    node_time: NodeTime,
    gauges: Gauges,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    Released(ReleaseCause),
    /// Another controller or a user released the run.
    Foreign,
    /// The run was done without ever being released.
    Cancelled,
    /// The run was deleted.
    Deleted,
}

/// The result of sending an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum EventEnd {
    Sent,
    Failed,
    /// The queue was full.
    Dropped,
}

impl Metrics {
    /// Registers all metrics. The registry adds the prefix of their names.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::of(registry);
        metrics.begin();
        registry.register_collector(Box::new(metrics.gauges.clone()));
        metrics
    }

    fn of(registry: &mut Registry) -> Self {
        Self {
            hold_seconds: registered(
                registry,
                "hold_seconds",
                "Time from a run's creation to the end of its hold",
                Family::new_with_constructor(minutes),
            ),
            schedule_seconds: registered(
                registry,
                "placeholder_schedule_seconds",
                "Time from the creation of a placeholder until its pod is on a node",
                // The alert PodAffinityPlaceholdersSlow needs a bucket that ends at 300 seconds.
                Histogram::new(exponential_buckets(300.0 / 8192.0, 2.0, 16)),
            ),
            releases: counted(registry, "releases", "Runs released, by cause"),
            moves_off: counted(registry, "moves", "Moves of runs off their node, by cause"),
            nodeless_seconds: registered(
                registry,
                "nodeless_seconds",
                "Time from giving up a node to the placeholder on the next one",
                minutes(),
            ),
            events: counted(registry, "events", "Events on runs, by outcome"),
            reconcile_seconds: registered(
                registry,
                "reconcile_seconds",
                "Duration of one reconciliation of one run, its write included",
                Histogram::new(exponential_buckets(0.000_1, 4.0, 10)),
            ),
            reconcile_errors: counted(
                registry,
                "reconcile_errors",
                "Steps that failed and are retried, by step and reason",
            ),
            overtaken: counted(
                registry,
                "overtaken",
                "Guarded writes that found the object changed, and changed nothing",
            ),
            watch_errors: counted(registry, "watch_errors", "Watches that broke and were restarted"),
            starts: counted(registry, "starts", "Runs released on a warm or another node"),
            fields_ignored: counted(
                registry,
                "fields_ignored",
                "Runs with a field that is over a limit and was ignored",
            ),
            node_time: NodeTime::register(registry),
            gauges: Gauges::default(),
        }
    }

    /// Creates the counters with the value 0, so that the first occurrence is an increase.
    fn begin(&self) {
        for cause in ReleaseCause::ALL {
            drop(self.releases.get_or_create(&by_cause(cause.as_str())));
        }
        for cause in MoveCause::ALL {
            drop(self.moves_off.get_or_create(&by_cause(cause.as_str())));
        }
        for start in Start::VARIANTS {
            drop(self.starts.get_or_create(&[("start", start.into())]));
        }
        for end in EventEnd::VARIANTS {
            drop(self.events.get_or_create(&by_outcome(end.into())));
        }
    }

    pub(crate) fn hold_ended(&self, end: HoldEnd, after: Duration) {
        let labels = by_outcome(end.as_str());
        self.hold_seconds
            .get_or_create(&labels)
            .observe(after.as_secs_f64());
        if let HoldEnd::Released(cause) = end {
            self.releases.get_or_create(&by_cause(cause.as_str())).inc();
        }
    }

    pub(crate) fn scheduled(&self, after: Duration) {
        self.schedule_seconds.observe(after.as_secs_f64());
    }

    pub(crate) fn moved_off(&self, cause: MoveCause) {
        self.moves_off.get_or_create(&by_cause(cause.as_str())).inc();
    }

    pub(crate) fn moved(&self, after: Duration) {
        self.nodeless_seconds.observe(after.as_secs_f64());
    }

    pub(crate) fn event(&self, end: EventEnd) {
        self.events.get_or_create(&by_outcome(end.into())).inc();
    }

    pub(crate) fn reconciled(&self, duration: Duration) {
        self.reconcile_seconds.observe(duration.as_secs_f64());
    }

    pub(crate) fn refused(&self, refused: &StepError) {
        let (step, reason) = (refused.operation.into(), refused.cause().into());
        let labels = [("step", step), ("reason", reason)];
        self.reconcile_errors.get_or_create(&labels).inc();
    }

    /// A run that prefers warm nodes was released on a node.
    pub(crate) fn started(&self, start: Start) {
        self.starts.get_or_create(&[("start", start.into())]).inc();
    }

    /// A run of this namespace has a node.
    pub(crate) fn has_node(&self, namespace: &str) {
        self.node_time.began(namespace);
    }

    /// A run of this namespace ended, or was deleted, and had a node for this time.
    pub(crate) fn had_node(&self, namespace: &str, duration: Duration) {
        self.node_time.ended(namespace, duration);
    }

    /// The node of a run of this namespace was kept for a further time after the run.
    pub(crate) fn kept_node(&self, namespace: &str, duration: Duration) {
        self.node_time.kept(namespace, duration);
    }

    pub(crate) fn field_ignored(&self) {
        self.fields_ignored.inc();
    }

    pub(crate) fn overtaken(&self) {
        self.overtaken.inc();
    }

    /// Creates the error counter of a watch with the value 0.
    pub(crate) fn watch(&self, resource: &'static str) {
        drop(self.watch_errors.get_or_create(&[("resource", resource)]));
    }

    pub(crate) fn watch_error(&self, resource: &'static str) {
        self.watch_errors.get_or_create(&[("resource", resource)]).inc();
    }

    pub(crate) fn count_in(&self, stores: Option<Stores>) {
        self.gauges.count_in(stores);
    }
}

fn registered<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn counted<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    registered(registry, name, help, M::default())
}

/// 0.1 s to 27 min: the default `hold-deadline` is 10 min, and an autoscaler may have to provision the next node first.
fn minutes() -> Histogram {
    Histogram::new(exponential_buckets(0.1, 2.0, 15))
}

fn by_outcome(outcome: &'static str) -> Labels<1> {
    [("outcome", outcome)]
}

fn by_cause(cause: &'static str) -> Labels<1> {
    [("cause", cause)]
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

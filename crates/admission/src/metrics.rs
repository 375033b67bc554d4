//! The metrics of the webhooks. Every label value comes from a closed set.

use crate::decide::Webhook;
use placement::admission::Outcome;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
use std::time::Duration;

/// The labels of a series, each with its value.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Counts and measures admissions; clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    admissions: Family<Labels<3>, Counter>,
    seconds: Family<Labels<1>, Histogram, fn() -> Histogram>,
    over_limit: Family<Labels<1>, Counter>,
}

impl Metrics {
    /// Registers the metrics. The registry adds the prefix of their names.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            admissions: registered(
                registry,
                "admissions",
                "Admission requests by webhook, operation and verdict",
                Family::default(),
            ),
            seconds: registered(
                registry,
                "admission_seconds",
                "Time from the start of a request to its answer, the body's arrival included",
                // 25 us to 0.4 s; the API server waits for 10 s.
                Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_025, 2.0, 15))),
            ),
            over_limit: registered(
                registry,
                "admission_fields_over_limit",
                "Objects with a field that is over a limit and was ignored, by webhook",
                Family::default(),
            ),
        };
        metrics.begin(Webhook::PipelineRun);
        metrics.begin(Webhook::Pod);
        metrics
    }

    /// Creates the counters of failures and of limits with the value 0, so that the first occurrence is an increase.
    fn begin(&self, webhook: Webhook) {
        drop(self.seconds.get_or_create(&by_webhook(webhook)));
        drop(self.over_limit.get_or_create(&by_webhook(webhook)));
        let operations: &[_] = match webhook {
            Webhook::PipelineRun | Webhook::InNamespace(_) => &["CREATE", "UPDATE"],
            Webhook::Pod => &["CREATE"],
        };
        for operation in operations {
            let failed = admission(webhook, Some(operation), Outcome::Failed);
            drop(self.admissions.get_or_create(&failed));
        }
    }

    /// `operation` is `None` if the body has no valid review.
    pub(crate) fn observe(
        &self,
        webhook: Webhook,
        operation: Option<&str>,
        outcome: Outcome,
        took: Duration,
    ) {
        let labels = admission(webhook, operation, outcome);
        self.admissions.get_or_create(&labels).inc();
        self.seconds
            .get_or_create(&by_webhook(webhook))
            .observe(took.as_secs_f64());
    }

    /// Counts an object with a field that is over a limit.
    pub(crate) fn over_limit(&self, webhook: Webhook) {
        self.over_limit.get_or_create(&by_webhook(webhook)).inc();
    }
}

fn registered<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn admission(webhook: Webhook, operation: Option<&str>, outcome: Outcome) -> Labels<3> {
    let operation = match operation {
        Some("CREATE") => "CREATE",
        Some("UPDATE") => "UPDATE",
        Some("DELETE") => "DELETE",
        Some("CONNECT") => "CONNECT",
        Some(_) => "other",
        None => "none",
    };
    [
        ("webhook", webhook.as_str()),
        ("operation", operation),
        ("verdict", outcome.as_str()),
    ]
}

fn by_webhook(webhook: Webhook) -> Labels<1> {
    [("webhook", webhook.as_str())]
}

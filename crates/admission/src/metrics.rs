//! What an operator sees of the webhooks. Every label value comes from a closed set.

use crate::decide::{Decision, FAULT};
use crate::webhook::Webhook;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

/// Counts and times admissions; clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    admissions: Family<Admission, Counter>,
    seconds: Family<Timed, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Admission {
    webhook: &'static str,
    operation: &'static str,
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Timed {
    webhook: &'static str,
}

impl Metrics {
    /// Registers `admissions_total` and `admission_seconds`; the prefix is the registry's.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            admissions: Family::default(),
            // 25 us to 0.4 s: from a quick answer to one that has used up a tenth of the API server's patience.
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_025, 2.0, 15))),
        };
        for webhook in [Webhook::PipelineRun, Webhook::Pod] {
            metrics.begin(webhook.as_str());
        }
        registry.register(
            "admissions",
            "Admission requests by webhook, operation and verdict",
            metrics.admissions.clone(),
        );
        registry.register(
            "admission_seconds",
            "Time from the start of a request to its answer, the body's arrival included",
            metrics.seconds.clone(),
        );
        metrics
    }

    /// What has not happened yet is told as 0, so that a first fault of ours is an increase.
    fn begin(&self, webhook: &'static str) {
        drop(self.seconds.get_or_create(&Timed { webhook }));
        drop(self.admissions.get_or_create(&Admission {
            webhook,
            operation: "CREATE",
            verdict: FAULT,
        }));
    }

    pub(crate) fn observe(&self, webhook: Webhook, decision: &Decision, took: Duration) {
        let webhook = webhook.as_str();
        let labels = Admission {
            webhook,
            operation: decision.operation,
            verdict: decision.verdict,
        };
        self.admissions.get_or_create(&labels).inc();
        self.seconds
            .get_or_create(&Timed { webhook })
            .observe(took.as_secs_f64());
    }
}

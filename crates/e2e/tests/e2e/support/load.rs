//! A steady load on the pod webhook through the API server; counts lost calls at the client and at the API server.

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, PostParams};
use placement::keys;
use runtime::install;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use testbed::Testbed;
use tokio::sync::{Mutex, MutexGuard, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// The cause of a call that the API server accepted although the pod got no terms.
pub(crate) const WITHOUT_TERMS: &str = "admitted without terms";
/// Pod creations per second.
pub(crate) const RATE: u32 = 50;
/// Pod creations per second in tests that also do other work on the same machine.
pub(crate) const GENTLE: u32 = 10;
/// Most calls in flight. A machine that is too busy for the rate makes fewer calls, instead of queueing calls until they
/// time out.
const MOST_IN_FLIGHT: usize = 10;

/// Held by tests that load the machine, so that two such tests do not measure each other.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

/// Dry-run creations of pods of an enrolled run. Each creation calls the webhook.
pub(crate) struct Load {
    begun: Arc<AtomicU32>,
    over: oneshot::Sender<()>,
    task: JoinHandle<Outcome>,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) calls: u32,
    pub(crate) lost: Vec<Lost>,
}

impl Outcome {
    /// Number of lost calls by cause: the end of the API server's message.
    pub(crate) fn causes(&self) -> BTreeMap<&str, usize> {
        let mut causes = BTreeMap::new();
        for lost in &self.lost {
            *causes.entry(lost.cause.rsplit(": ").next().unwrap()).or_default() += 1;
        }
        causes
    }
}

/// A call that was rejected, or that was accepted without terms.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    pub(crate) cause: String,
}

impl Load {
    pub(crate) async fn start(bed: &Testbed) -> Self {
        Self::with_rate(bed, RATE).await
    }

    /// Starts the load with this rate.
    pub(crate) async fn with_rate(bed: &Testbed, rate: u32) -> Self {
        let pods = Api::namespaced(bed.client().await.unwrap(), "default");
        let (over, ended) = oneshot::channel();
        let begun = Arc::default();
        let task = tokio::spawn(run(pods, rate, Arc::clone(&begun), ended));
        Self { begun, over, task }
    }

    /// Number of calls that were started so far.
    pub(crate) fn calls(&self) -> u32 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Starts no more calls, and waits for the calls in flight.
    pub(crate) async fn end(self) -> Outcome {
        self.over.send(()).unwrap();
        self.task.await.unwrap()
    }
}

/// Makes this many calls at once, over as many connections as the API server opens for them. Returns the lost calls.
pub(crate) async fn burst(bed: &Testbed, calls: u32) -> Vec<Lost> {
    let pods = Api::namespaced(bed.client().await.unwrap(), "default");
    let answers = join_all((0..calls).map(|number| call(&pods, number))).await;
    answers.into_iter().filter_map(Result::err).collect()
}

async fn run(pods: Api<Pod>, rate: u32, begun: Arc<AtomicU32>, mut over: oneshot::Receiver<()>) -> Outcome {
    let mut ticks = interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let room = Arc::new(Semaphore::new(MOST_IN_FLIGHT));
    let mut calls = Vec::new();
    while over.try_recv().is_err() {
        ticks.tick().await;
        let place = Arc::clone(&room).acquire_owned().await.unwrap();
        let (pods, number) = (pods.clone(), begun.fetch_add(1, Ordering::Relaxed));
        calls.push(tokio::spawn(async move {
            let _place = place;
            call(&pods, number).await
        }));
    }
    let mut lost = Vec::new();
    for call in calls {
        lost.extend(call.await.unwrap().err());
    }
    Outcome {
        calls: begun.load(Ordering::Relaxed),
        lost,
    }
}

async fn call(pods: &Api<Pod>, number: u32) -> Result<(), Lost> {
    let pod = json!({
        "metadata": {"name": format!("call-{number}"), "labels": {keys::GROUP: "load"}},
        "spec": {"containers": [{"name": "main", "image": "testbed.invalid/main"}]},
    });
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let begun = Instant::now();
    let lost = |cause| Lost {
        begun,
        ended: Instant::now(),
        cause,
    };
    let created = pods.create(&dry_run, &serde_json::from_value(pod).unwrap()).await;
    let created = created.map_err(|error| match error {
        kube::Error::Api(status) => lost(status.message.clone()),
        other => lost(other.to_string()),
    })?;
    let terms = created.spec.and_then(|spec| spec.affinity);
    terms.map(drop).ok_or_else(|| lost(WITHOUT_TERMS.to_owned()))
}

/// The API server's own metrics of the pod webhook and of this load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Calls of the webhook that led to a rejection: `apiserver_admission_webhook_rejection_count`.
    pub(crate) rejections: u64,
    /// Failed calls that the API server ignored: `apiserver_admission_webhook_fail_open_count`.
    pub(crate) let_through: u64,
    /// Dry-run creations of pods that failed: `apiserver_request_total`.
    pub(crate) refused: u64,
}

impl Counted {
    pub(crate) async fn now(client: &Client) -> Self {
        let request = kube::client::Body::empty();
        let request = axum::http::Request::get("/metrics").body(request).unwrap();
        let answer = client.send(request).await.unwrap().into_body();
        let text = answer.collect_bytes().await.unwrap();
        Self::parse(std::str::from_utf8(&text).unwrap())
    }

    fn parse(text: &str) -> Self {
        let webhook = format!("name=\"{}\"", install::POD_WEBHOOK);
        let created = ["dry_run=\"All\"", "resource=\"pods\"", "verb=\"POST\""];
        let sum = |metric: &str, counts: &dyn Fn(&str) -> bool| {
            let samples = text
                .lines()
                .filter(|line| line.starts_with(metric) && counts(line));
            let values = samples.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
            values.sum()
        };
        let of_webhook = |line: &str| line.contains(&webhook);
        Self {
            rejections: sum("apiserver_admission_webhook_rejection_count{", &of_webhook),
            let_through: sum("apiserver_admission_webhook_fail_open_count{", &of_webhook),
            refused: sum("apiserver_request_total{", &|line| {
                created.iter().all(|label| line.contains(label)) && !line.contains("code=\"201\"")
            }),
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            rejections: self.rejections - before.rejections,
            let_through: self.let_through - before.let_through,
            refused: self.refused - before.refused,
        }
    }
}

#[e2e_test]
fn the_metrics_of_the_api_server_are_filtered_by_webhook_and_load() {
    let text = format!(
        "apiserver_admission_webhook_rejection_count{{error_type=\"calling_webhook_error\",name=\"{0}\"}} 2\n\
         apiserver_admission_webhook_rejection_count{{error_type=\"no_error\",name=\"another\"}} 4\n\
         apiserver_admission_webhook_fail_open_count{{name=\"{0}\",type=\"admit\"}} 1\n\
         apiserver_request_total{{code=\"500\",dry_run=\"All\",resource=\"pods\",verb=\"POST\"}} 3\n\
         apiserver_request_total{{code=\"201\",dry_run=\"All\",resource=\"pods\",verb=\"POST\"}} 50\n\
         apiserver_request_total{{code=\"500\",dry_run=\"\",resource=\"pods\",verb=\"POST\"}} 7\n",
        install::POD_WEBHOOK
    );
    let counted = Counted {
        rejections: 2,
        let_through: 1,
        refused: 3,
    };
    assert_eq!(Counted::parse(&text), counted);
}

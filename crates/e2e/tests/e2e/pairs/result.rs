//! The result of a run, from the timestamps in the run and its events, because the polls of the test are imprecise.

use crate::support::SOON;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::events;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use placement::keys;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use testbed::runs::{self, RunSpec, State};
use testbed::{Result, Testbed};

/// The reason on a TaskRun whose pod was rejected by a quota.
const REFUSED: &str = "ExceededResourceQuota";

/// The result of a run; times are whole seconds.
#[derive(Clone, Debug)]
pub(super) struct RunResult {
    pub(super) state: State,
    /// Time from creation to end, and the part of it in which the run was pending.
    pub(super) total: i64,
    pub(super) held: i64,
    /// How long another run kept the placeholder off all nodes.
    pub(super) obstructed: i64,
    /// How often each reason was reported on the run, and the message of one of its events.
    pub(super) reported: BTreeMap<String, (i64, String)>,
    /// Number of tasks whose first pod was rejected by a quota.
    pub(super) refused: i64,
}

impl RunResult {
    /// How often the run reported this reason.
    pub(super) fn reports(&self, reason: &str) -> i64 {
        self.reported.get(reason).map_or(0, |(count, _)| *count)
    }
}

/// Waits for the end of a run. Until the obstacle has ended, no node is free for the run's placeholder.
pub(super) async fn until_ended(
    bed: &Testbed,
    run: &RunSpec,
    patience: Duration,
    obstacle: Option<&RunSpec>,
) -> Result<RunResult> {
    let over = until_over(bed, run, patience).await?;
    let created = over.creation_timestamp().unwrap().0.as_second();
    let free = match obstacle {
        Some(other) => at(&until_over(bed, other, SOON).await?, "completionTime"),
        None => created,
    };
    let client = bed.client().await?;
    Ok(RunResult {
        state: runs::state(&over),
        total: at(&over, "completionTime") - created,
        held: at(&over, "startTime") - created,
        obstructed: (free - created).max(0),
        reported: reported(&client, run).await,
        refused: refused(&client, run).await,
    })
}

async fn until_over(bed: &Testbed, run: &RunSpec, patience: Duration) -> Result<DynamicObject> {
    let is_over = |run: &DynamicObject| runs::state(run).is_over();
    bed.until_run(run, "to end", patience, is_over).await
}

fn at(run: &DynamicObject, moment: &str) -> i64 {
    let time = run.data["status"][moment].as_str().unwrap();
    time.parse::<Timestamp>().unwrap().as_second()
}

async fn reported(client: &Client, run: &RunSpec) -> BTreeMap<String, (i64, String)> {
    let api: Api<events::v1::Event> = Api::namespaced(client.clone(), run.namespace());
    let mut reported = BTreeMap::<_, (i64, _)>::new();
    for event in api.list(&ListParams::default()).await.unwrap() {
        let of_run = event.regarding.and_then(|it| it.name).as_deref() == Some(run.name());
        let by_us = event
            .reporting_controller
            .is_some_and(|by| by.starts_with(keys::OWN_PREFIX));
        if of_run && by_us {
            let count = event.series.map_or(1, |series| series.count);
            let words = event.note.unwrap_or_default();
            let reason = reported.entry(event.reason.unwrap_or_default());
            reason.or_insert((0, words)).0 += i64::from(count);
        }
    }
    reported
}

async fn refused(client: &Client, run: &RunSpec) -> i64 {
    let api: Api<Event> = Api::namespaced(client.clone(), run.namespace());
    let events = api.list(&ListParams::default()).await.unwrap().items;
    let refused = events
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some(REFUSED));
    let tasks = refused.filter_map(|event| task_of(run, &event.involved_object.name?));
    i64::try_from(tasks.collect::<BTreeSet<_>>().len()).unwrap()
}

/// The name of the task, if the TaskRun belongs to this run: other runs of its namespace have its name followed by a number.
fn task_of(run: &RunSpec, task_run: &str) -> Option<String> {
    let task = task_run.strip_prefix(run.name())?.strip_prefix('-')?;
    (!task.contains('-')).then(|| task.to_owned())
}

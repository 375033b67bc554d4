//! The events on a run: each step once, and a lasting state from time to time, with the messages of scheduler and
//! autoscaler.

use crate::support::SOON;
use crate::support::events::until_event;
use crate::support::placeholders::until_no_placeholder;
use crate::support::runs::create;
use crate::support::testbeds::{fresh, installed};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::json;
use std::time::{Duration, Instant};
use testbed::runs::RunSpec;
use testbed::{NodeGroup, Nodes, Part, Testbed};

/// The shortest time between two events about a lasting state.
const PAUSE: Duration = Duration::from_secs(20);

/// pod-affinity's events on a run, the oldest first.
async fn reported(bed: &Testbed, run: &RunSpec) -> Vec<Event> {
    let events: Api<Event> = Api::namespaced(bed.client().await.unwrap(), run.namespace());
    let mut reported = events.list(&ListParams::default()).await.unwrap().items;
    reported.retain(|event| {
        let of_run = event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(run.name());
        let by = event.reporting_controller.as_deref();
        of_run && by == Some("pod-affinity.tekton.dev/controller")
    });
    reported.sort_by_key(|event| event.event_time.clone());
    reported
}

fn reason(event: &Event) -> &str {
    event.reason.as_deref().unwrap_or_default()
}

fn note(event: &Event) -> &str {
    event.note.as_deref().unwrap_or_default()
}

#[e2e_test]
async fn each_step_of_a_run_is_reported_once_and_in_order() {
    let bed = &installed().await;
    let namespace = bed.namespace("reported").await.unwrap();
    let run = RunSpec::diamond(&namespace, "run").opted_in("true");
    create(bed, &run).await;
    until_event(bed, &run, "Released").await;
    until_no_placeholder(bed, &namespace).await;
    let reported = reported(bed, &run).await;
    let steps = reported.iter().filter(|event| reason(event) != "WaitingForNode");
    let steps: Vec<_> = steps
        .map(|event| (reason(event), event.series.is_some()))
        .collect();
    assert_eq!(
        steps,
        [("Held", false), ("Released", false)],
        "none of them repeatedly"
    );
    assert!(
        reported.iter().all(|event| note(event).ends_with('.')),
        "{reported:#?}"
    );
}

/// Runs with a node selector that no node has, including nodes that the autoscaler could add.
#[e2e_test(autoscaler, second)]
async fn a_waiting_run_gets_events_with_the_latest_messages_of_scheduler_and_autoscaler() {
    let bed = fresh(0).await;
    bed.start_autoscaler(&[NodeGroup::new("pool", 0, 5)])
        .await
        .unwrap();
    // No answer before the first event.
    bed.pause(Part::ClusterAutoscaler).unwrap();
    let template = json!({"podTemplate": {"nodeSelector": {"disk": "ssd"}}});
    let run = RunSpec::new("default", "waits")
        .task("only", &[])
        .opted_in("true")
        .spec("taskRunTemplate", template);
    let started = Instant::now();
    create(&bed, &run).await;
    let first = until_event(&bed, &run, "WaitingForNode").await;
    assert!(
        first.contains("no nodes available") && !first.contains("autoscaler reports"),
        "{first}"
    );
    assert!(
        first.contains("kubectl pod-affinity explain -n default waits"),
        "{first}"
    );
    bed.resume(Part::ClusterAutoscaler).unwrap();
    for number in 0..8 {
        bed.add_nodes(&Nodes::new(&format!("other{number}"), 1))
            .await
            .unwrap();
    }
    let latest = bed.until("both their latest words on the run", SOON, async || {
        let reported = reported(&bed, &run).await;
        let last = reported
            .last()
            .map(|event| note(event).to_owned())
            .unwrap_or_default();
        // The number of nodes when the scheduler tried the pod last: the scheduler does not retry the pod for a node that
        // cannot help.
        if last.contains(" nodes are available") && last.contains("The autoscaler reports: ") {
            Ok(last)
        } else {
            Err(last)
        }
    });
    let latest = latest.await.unwrap();
    assert!(latest.contains("pod didn't trigger scale-up"), "{latest}");
    let waits = reported(&bed, &run).await;
    let waits = waits
        .iter()
        .filter(|event| reason(event) == "WaitingForNode")
        .count();
    let pauses = usize::try_from(started.elapsed().as_secs() / PAUSE.as_secs()).unwrap();
    assert!(
        waits <= 1 + pauses,
        "{waits} notes within {:?}",
        started.elapsed()
    );
}

/// An operator of Tekton can reset the flag while runs exist.
#[e2e_test]
async fn a_labelled_run_is_warned_while_tekton_places_the_pods_of_runs_itself() {
    let bed = fresh(2).await;
    let run = RunSpec::new("default", "run")
        .task("only", &[])
        .opted_in("true")
        .ending("hang");
    create(&bed, &run).await;
    until_event(&bed, &run, "Released").await;
    assert!(
        !reported(&bed, &run)
            .await
            .iter()
            .any(|event| reason(event) == "TektonPlacesPods")
    );
    bed.feature_flags(&[("coschedule", "isolate-pipelinerun")])
        .await
        .unwrap();
    let warning = until_event(&bed, &run, "TektonPlacesPods").await;
    assert!(warning.contains("coschedule is isolate-pipelinerun"), "{warning}");
}

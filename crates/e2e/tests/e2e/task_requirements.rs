//! The placeholder chooses the node of all tasks from the tasks' requirements: devices, preferences, and objects that may
//! not exist.

use crate::support::SOON;
use crate::support::controller::until_reconciled;
use crate::support::events::{reasons, until_event};
use crate::support::objects::{another_pod, quota};
use crate::support::placeholders::bound_placeholder;
use crate::support::runs::{create, let_succeed, let_task_end, nodes_of};
use crate::support::testbeds::fresh;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use placement::keys;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testbed::runs::{self, RunSpec, State};
use testbed::{Nodes, Testbed};

const DEVICE: &str = "example.com/gpu";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Adds a plain node, and a node whose taint is tolerated only by pods that request its device, by an admission policy.
async fn with_devices(bed: &Testbed) {
    bed.add_nodes(&Nodes::new("device", 1).devices(DEVICE, 1))
        .await
        .unwrap();
}

fn trains(run: RunSpec, name: &str, after: &[&str]) -> RunSpec {
    run.task(name, after).task_field("taskSpec", with_device(name))
}

/// Kubernetes requires equal requests and limits for a device.
fn with_device(name: &str) -> Value {
    let devices = json!({DEVICE: "1"});
    json!({"steps": [{
        "name": name, "image": "testbed.invalid/step", "script": "true",
        "computeResources": {"requests": devices, "limits": devices},
    }]})
}

#[e2e_test]
async fn a_run_that_reserves_a_device_starts_on_a_node_that_is_tainted_for_it() {
    let bed = fresh(1).await;
    with_devices(&bed).await;
    let run = trains(RunSpec::new("default", "run"), "train", &[]);
    let run = trains(run, "test", &["train"])
        .opted_in("true")
        .annotation(keys::RESERVE, "example.com/gpu=1")
        .lasting("1s");
    create(&bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(nodes_of(&bed, &run).await, ["device-0".to_owned()].into());
    let reported = reasons(&bed.client().await.unwrap(), &run).await;
    assert!(!reported.contains(&"MovedOff".to_owned()), "{reported:?}");
}

#[e2e_test]
async fn a_placeholder_follows_a_task_to_the_device_that_it_requests() {
    let bed = fresh(1).await;
    with_devices(&bed).await;
    let run = RunSpec::new("default", "run").task("fetch", &[]);
    let run = trains(trains(run, "train", &["fetch"]), "test", &["train"])
        .opted_in("true")
        .ending("hang");
    let created = create(&bed, &run).await;
    let_task_end(&bed, &run, "fetch").await;
    until_event(&bed, &run, "MovedOff").await;
    bed.until("the placeholder to be on the task's node", SOON, async || {
        let pod = bound_placeholder(&bed, &created).await;
        match runs::node(&pod) {
            Some("device-0") => Ok(()),
            elsewhere => Err(format!("{elsewhere:?}")),
        }
    })
    .await
    .unwrap();
    let_succeed(&bed, &run).await;
}

/// The placeholder uses no device: the quota would have no room for the task without the placeholder either.
#[e2e_test]
async fn a_run_keeps_its_placeholder_if_a_quota_has_no_device_for_a_task() {
    let bed = &*fresh(1).await;
    with_devices(bed).await;
    let namespace = bed.namespace("quota").await.unwrap();
    quota(bed, &namespace, &format!("requests.{DEVICE}"), "0").await;
    let run = RunSpec::new(&namespace, "run").task("fetch", &[]);
    let run = trains(run, "train", &["fetch"]).opted_in("true").lasting("1s");
    let created = create(bed, &run).await;
    let first = bound_placeholder(bed, &created).await;
    let client = bed.client().await.unwrap();
    let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
    bed.until("the quota to reject the task", SOON, async || {
        let listed = events.list(&ListParams::default()).await;
        let mut events = listed.map_err(|error| error.to_string())?.items.into_iter();
        let rejected = events.find(|event| event.reason.as_deref() == Some("ExceededResourceQuota"));
        rejected.ok_or_else(|| "no event".to_owned())
    })
    .await
    .unwrap();
    until_reconciled(bed, &run).await;
    let reported = reasons(&client, &run).await;
    assert!(!reported.contains(&"MadeRoom".to_owned()), "{reported:?}");
    assert_eq!(bound_placeholder(bed, &created).await.uid(), first.uid());
}

async fn goes_to(bed: &Testbed, affinity: Value, node: &str) {
    let run = RunSpec::diamond("default", "run")
        .opted_in("true")
        .lasting("1s")
        .spec("taskRunTemplate", json!({"podTemplate": {"affinity": affinity}}));
    create(bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(nodes_of(bed, &run).await, [node.to_owned()].into());
    let reported = reasons(&bed.client().await.unwrap(), &run).await;
    assert!(!reported.contains(&"MovedOff".to_owned()), "{reported:?}");
}

#[e2e_test]
async fn a_run_starts_where_its_tasks_anti_affinity_lets_them_run() {
    let bed = fresh(3).await;
    for node in ["node-0", "node-1"] {
        another_pod(&bed, node, "database", "0").await;
    }
    another_pod(&bed, "node-2", "busy", "4").await;
    let database =
        json!({"topologyKey": keys::HOSTNAME, "labelSelector": {"matchLabels": {"app": "database"}}});
    let affinity = json!({"podAntiAffinity": {REQUIRED: [database]}});
    goes_to(&bed, affinity, "node-2").await;
}

#[e2e_test]
async fn a_run_starts_on_a_node_that_its_tasks_prefer() {
    let bed = fresh(2).await;
    bed.add_nodes(&Nodes::new("ssd", 1).label("disk", "ssd"))
        .await
        .unwrap();
    another_pod(&bed, "ssd-0", "busy", "4").await;
    let ssd = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]});
    let affinity = json!({"nodeAffinity": {PREFERRED: [{"weight": 100, "preference": ssd}]}});
    goes_to(&bed, affinity, "ssd-0").await;
}

/// The final state of a run, and its duration.
async fn end(bed: &Testbed, run: &RunSpec) -> (State, Duration) {
    let begun = Instant::now();
    create(bed, run).await;
    let done = bed
        .until_run(run, "to be done", SOON, |run| runs::state(run).is_over())
        .await
        .unwrap();
    (runs::state(&done), begun.elapsed())
}

#[e2e_test]
async fn a_run_with_a_missing_object_or_an_invalid_template_fails_as_soon_as_without_the_label() {
    let bed = fresh(1).await;
    for (name, template) in [
        ("account", json!({"serviceAccountName": "missing"})),
        (
            "priority",
            json!({"podTemplate": {"priorityClassName": "missing"}}),
        ),
        ("runtime", json!({"podTemplate": {"runtimeClassName": "missing"}})),
        (
            "selector",
            json!({"podTemplate": {"nodeSelector": {"pool": "missing, and not valid!"}}}),
        ),
        (
            "toleration",
            json!({"podTemplate": {"tolerations": [{"key": "missing", "operator": "Unknown"}]}}),
        ),
    ] {
        let run = |name: String| {
            RunSpec::new("default", &name)
                .task("only", &[])
                .spec("taskRunTemplate", template.clone())
        };
        let (plain, soon) = end(&bed, &run(format!("plain-{name}"))).await;
        let labelled = run(name.to_owned()).opted_in("true");
        let (outcome, later) = end(&bed, &labelled).await;
        assert_eq!(outcome, plain, "{name}");
        assert!(
            later < soon + Duration::from_secs(15),
            "{name}: {later:?}, not {soon:?}"
        );
        let note = until_event(&bed, &labelled, "Released").await;
        let names_value = note.contains("missing") || note.contains("Unknown");
        assert!(names_value, "{note}");
    }
}

//! All pods of a labelled run are on one node, for each shape of a run, and no other run is on the node.

use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::runs::{create, nodes_after, nodes_of, until_released};
use crate::support::testbeds::{ZONES, add_many_nodes, fresh, fresh_by, installed, plain};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use std::collections::BTreeSet;
use testbed::runs::RunSpec;
use testbed::{Admission, Nodes, Testbed};

const SHAPES: [fn(&str) -> RunSpec; 5] = [parallel, sequence, with_finally, with_retries, matrix];

/// The nodes of concurrent labelled runs of all shapes.
async fn nodes_of_shapes(bed: &Testbed) -> Vec<BTreeSet<String>> {
    let runs = SHAPES.iter().enumerate().map(async |(number, shape)| {
        let namespace = bed.namespace(&format!("shape-{number}")).await.unwrap();
        nodes_after(bed, &shape(&namespace).opted_in("true")).await
    });
    join_all(runs).await
}

fn have_one_node(shapes: &[BTreeSet<String>]) {
    for (number, nodes) in shapes.iter().enumerate() {
        assert_eq!(nodes.len(), 1, "shape {number} is on {nodes:?}");
    }
}

/// Without the label, sequential tasks are spread here; `testbed_coschedules` proves the same for parallel tasks.
#[e2e_test]
async fn sequential_and_parallel_and_retried_and_finally_and_matrix_tasks_have_one_node() {
    let (without, with) = (plain().await, installed().await);
    let unlabelled = sequence(&without.namespace("sequence").await.unwrap());
    let (spread, met) = tokio::join!(nodes_after(&without, &unlabelled), nodes_of_shapes(&with));
    assert!(
        spread.len() > 1,
        "without the label all pods met by chance on {spread:?}"
    );
    have_one_node(&met);
}

#[e2e_test(policies, second)]
async fn with_policies_each_of_these_runs_has_one_node_and_shares_it_with_no_other() {
    let bed = fresh_by(Admission::Policies, 0).await;
    add_many_nodes(&bed).await;
    let auditor = Auditor::start(&bed).await;
    have_one_node(&nodes_of_shapes(&bed).await);
    auditor.assert_no_violation();
}

fn parallel(namespace: &str) -> RunSpec {
    ["a", "b", "c", "d"]
        .iter()
        .fold(RunSpec::new(namespace, "run"), |run, task| run.task(task, &[]))
        .lasting("2s")
}

/// Tasks that prefer different zones: sequential tasks on an empty cluster would often meet by chance.
fn preferring_zones(run: RunSpec, tasks: &[&str]) -> RunSpec {
    let preferring = tasks.iter().zip(ZONES.iter().cycle()).map(|(task, zone)| {
        let zone = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]});
        let term = json!({"weight": 100, "preference": {"matchExpressions": [zone]}});
        let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}});
        json!({"pipelineTaskName": task, "podTemplate": {"affinity": affinity}})
    });
    let preferring: Vec<_> = preferring.collect();
    run.spec("taskRunSpecs", json!(preferring))
}

fn sequence(namespace: &str) -> RunSpec {
    let run = RunSpec::new(namespace, "run")
        .task("a", &[])
        .task("b", &["a"])
        .task("c", &["b"]);
    preferring_zones(run, &["a", "b", "c"])
}

fn with_finally(namespace: &str) -> RunSpec {
    RunSpec::diamond(namespace, "run")
        .finally("report")
        .finally("tidy")
}

fn with_retries(namespace: &str) -> RunSpec {
    let run = RunSpec::new(namespace, "run")
        .task("a", &[])
        .task_field("retries", json!(1));
    let run = run
        .task("b", &["a"])
        .task_field("retries", json!(1))
        .ending("fail-once");
    preferring_zones(run, &["a", "b"])
}

fn matrix(namespace: &str) -> RunSpec {
    let params = json!([{"name": "platform", "value": ["linux", "mac", "windows", "plan9"]}]);
    RunSpec::new(namespace, "run")
        .task("build", &[])
        .task_field("matrix", json!({"params": params}))
        .lasting("2s")
}

#[e2e_test]
async fn a_run_that_is_created_in_v1beta1_has_one_node() {
    let bed = &installed().await;
    let namespace = bed.namespace("v1beta1").await.unwrap();
    let mut run = RunSpec::new(&namespace, "run").opted_in("true");
    let step = json!({"name": "step", "image": "testbed.invalid/step", "script": "true"});
    let task = |name: &str| json!({"name": name, "taskSpec": {"steps": [step]}});
    run.manifest["apiVersion"] = json!("tekton.dev/v1beta1");
    run.manifest["spec"]["pipelineSpec"]["tasks"] = json!([task("a"), task("b"), task("c")]);
    let client = bed.client().await.unwrap();
    let (runs, _) = testbed::apply::api_of(&client, &run.manifest).unwrap();
    let object = serde_json::from_value(run.manifest.clone()).unwrap();
    let held = runs.create(&PostParams::default(), &object).await.unwrap();
    assert_eq!(held.data["spec"]["status"], "PipelineRunPending");
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(nodes_of(bed, &run).await.len(), 1);
}

#[e2e_test]
async fn one_task_may_opt_out() {
    let bed = &installed().await;
    let namespace = bed.namespace("opt-out").await.unwrap();
    let elsewhere = json!([{
        "pipelineTaskName": "elsewhere",
        "metadata": {"labels": {placement::keys::OPT_IN: "false"}},
    }]);
    let run = RunSpec::diamond(&namespace, "run")
        .task("elsewhere", &[])
        .opted_in("true")
        .spec("taskRunSpecs", elsewhere)
        .lasting("2s");
    create(bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(bed.client().await.unwrap(), &namespace);
    let terms = |pod: &Pod| pod.spec.as_ref().unwrap().affinity.is_some();
    let of = |task: &str| ListParams::default().labels(&format!("tekton.dev/pipelineTask={task}"));
    assert!(
        !terms(&pods.list(&of("elsewhere")).await.unwrap().items[0]),
        "the opted-out task is left alone"
    );
    assert!(
        terms(&pods.list(&of("build")).await.unwrap().items[0]),
        "the others are not"
    );
}

#[e2e_test]
async fn no_other_task_follows_a_task_that_opted_out() {
    let bed = fresh(1).await;
    let specs = json!([{
        "pipelineTaskName": "elsewhere",
        "metadata": {"labels": {placement::keys::OPT_IN: "false"}, "annotations": {testbed::kwok::DURATION: "12s"}},
        "podTemplate": {"nodeSelector": {"topology.kubernetes.io/zone": "west"}},
    }]);
    // Two tasks that do not fit together: the second may be on any node, if the group has no node.
    let most = json!({"cpu": "6"});
    let run = RunSpec::new("default", "run")
        .task("elsewhere", &[])
        .sized_task("left", &[], &most)
        .sized_task("right", &[], &most)
        .opted_in("true")
        .lasting("6s")
        .spec("taskRunSpecs", specs);
    create(&bed, &run).await;
    until_released(&bed, &run).await;
    // The first node that the opted-out task fits on, with room for another task.
    bed.add_nodes(&Nodes::new("west", 1).zone("west")).await.unwrap();
    bed.until_succeeded(&run, SOON).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(bed.client().await.unwrap(), "default");
    let selector = |task: &str| ListParams::default().labels(&format!("tekton.dev/pipelineTask={task}"));
    for (task, node) in [("elsewhere", "west-0"), ("left", "node-0"), ("right", "node-0")] {
        let pods = pods.list(&selector(task)).await.unwrap().items;
        assert_eq!(testbed::runs::nodes(&pods), [node.to_owned()].into(), "{task}");
    }
}

#[e2e_test]
async fn runs_wait_for_a_node_if_no_node_can_be_added() {
    let bed = fresh(1).await;
    let first = RunSpec::diamond("default", "first")
        .opted_in("true")
        .lasting("3s");
    let second = RunSpec::diamond("default", "second")
        .opted_in("true")
        .lasting("1s");
    create(&bed, &first).await;
    until_released(&bed, &first).await;
    create(&bed, &second).await;
    let first_done = bed.until_succeeded(&first, SOON).await.unwrap();
    let second_done = bed.until_succeeded(&second, SOON).await.unwrap();
    let time = |run: &kube::api::DynamicObject, field: &str| -> jiff::Timestamp {
        run.data["status"][field].as_str().unwrap().parse().unwrap()
    };
    assert!(
        time(&second_done, "startTime") >= time(&first_done, "completionTime"),
        "one after the other"
    );
}

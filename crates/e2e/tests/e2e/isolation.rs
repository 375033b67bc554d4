//! The runs from which an isolated run is kept apart: with `isolation-scope: namespace`, with `isolate-from: enrolled`, and where a
//! quota rejects affinity terms across namespaces.

use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::controller::configure;
use crate::support::events::until_event;
use crate::support::objects::{cordon, forbid_cross_namespace_terms, limit_cross_namespace_terms, uncordon};
use crate::support::placeholders::{placeholder_name, pods};
use crate::support::pool::{self, PooledTestbed};
use crate::support::runs::{bound_task, create, let_end_once_bound, nodes_of};
use crate::support::testbeds::fresh;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use testbed::runs::RunSpec;
use testbed::{Nodes, Options, Testbed};

const ONLY: &str = "only";

/// A testbed with two nodes and one setting that differs from the default.
async fn bed_with(setting: (&str, &str)) -> PooledTestbed {
    let bed = fresh(2).await;
    configure(&bed, &[(setting.0, Some(setting.1))]).await;
    bed
}

/// A run whose pods prefer the first node: only isolation leads them to the second node.
fn run(namespace: &str, name: &str) -> RunSpec {
    RunSpec::new(namespace, name).task(ONLY, &[]).ending("hang").spec(
        "taskRunTemplate",
        json!({"podTemplate": {"affinity": first_node()}}),
    )
}

fn first_node() -> Value {
    let first = json!({"key": placement::keys::HOSTNAME, "operator": "In", "values": ["node-0"]});
    let term = json!({"weight": 100, "preference": {"matchExpressions": [first]}});
    json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})
}

/// The node of each run, with all runs bound at the same time.
async fn nodes_at_once<const RUNS: usize>(bed: &Testbed, runs: &[RunSpec; RUNS]) -> [String; RUNS] {
    let_end_once_bound(bed, runs, &[ONLY]).await;
    let mut nodes = Vec::new();
    for run in runs {
        bed.until_succeeded(run, SOON).await.unwrap();
        nodes.extend(nodes_of(bed, run).await);
    }
    nodes.try_into().unwrap()
}

#[e2e_test]
async fn with_isolation_scope_namespace_only_runs_of_one_namespace_keep_apart() {
    let bed = bed_with(("isolation-scope", "namespace")).await;
    let namespaces = two_namespaces(&bed).await;
    only_runs_of_one_namespace_keep_apart(&bed, &namespaces).await;
}

async fn two_namespaces(bed: &Testbed) -> [String; 2] {
    [
        bed.namespace("red").await.unwrap(),
        bed.namespace("blue").await.unwrap(),
    ]
}

/// Two runs in each namespace get the two nodes of the testbed. Returns the runs.
async fn only_runs_of_one_namespace_keep_apart(bed: &Testbed, [red, blue]: &[String; 2]) -> [RunSpec; 4] {
    let auditor = Auditor::start(bed).await;
    let runs = [(red, "one"), (red, "two"), (blue, "one"), (blue, "two")]
        .map(|(namespace, name)| run(namespace, name).opted_in("true"));
    for run in &runs {
        create(bed, run).await;
    }
    let [red, other_red, blue, other_blue] = nodes_at_once(bed, &runs).await;
    assert_ne!(red, other_red);
    assert_ne!(blue, other_blue);
    auditor.assert_no_violation();
    runs
}

#[e2e_test]
async fn where_a_quota_rejects_terms_across_namespaces_only_runs_of_one_namespace_keep_apart() {
    let bed = fresh(2).await;
    let namespaces = two_namespaces(&bed).await;
    for namespace in &namespaces {
        forbid_cross_namespace_terms(&bed, namespace).await;
    }
    for run in only_runs_of_one_namespace_keep_apart(&bed, &namespaces).await {
        let note = until_event(&bed, &run, "IsolationNarrowed").await;
        assert!(note.contains("tight"), "{note}");
    }
}

#[e2e_test]
async fn a_held_run_whose_placeholder_a_new_quota_rejects_for_its_terms_is_isolated_within_its_namespace() {
    let bed = fresh(1).await;
    cordon(&bed, "node-0").await;
    let run = RunSpec::new("default", "held").task(ONLY, &[]).lasting("1s");
    let run = run.opted_in("true");
    let created = create(&bed, &run).await;
    until_event(&bed, &run, "WaitingForNode").await;
    forbid_cross_namespace_terms(&bed, "default").await;
    let pods = pods(&bed.client().await.unwrap(), "default");
    let name = placeholder_name(&created).pod();
    pods.delete(&name, &DeleteParams::default()).await.unwrap();
    until_event(&bed, &run, "IsolationNarrowed").await;
    uncordon(&bed, "node-0").await;
    bed.until_succeeded(&run, SOON).await.unwrap();
}

/// The API server is configured to require such a quota.
#[e2e_test(second)]
async fn where_terms_across_namespaces_need_a_quota_that_is_missing_only_runs_of_one_namespace_keep_apart() {
    let options = Options {
        require_quota_of_terms: true,
        ..Options::default()
    };
    let bed = pool::start(options).await;
    bed.add_nodes(&Nodes::new("node", 2)).await.unwrap();
    // The installation creates a pod in this namespace, as a dry run.
    limit_cross_namespace_terms(&bed, "default", "1").await;
    bed.install_pod_affinity().await.unwrap();
    let namespaces = two_namespaces(&bed).await;
    let runs = only_runs_of_one_namespace_keep_apart(&bed, &namespaces).await;
    for run in &runs {
        let note = until_event(&bed, run, "IsolationNarrowed").await;
        assert!(note.contains("has no ResourceQuota"), "{note}");
    }
}

#[e2e_test]
async fn with_isolate_from_enrolled_only_labelled_runs_keep_apart() {
    let bed = bed_with(("isolate-from", "enrolled")).await;
    let auditor = Auditor::start(&bed).await;
    let runs = [
        run("default", "unlabelled-before"),
        run("default", "labelled").opted_in("true"),
        run("default", "labelled-too").opted_in("true"),
        run("default", "unlabelled-after"),
    ];
    for run in &runs {
        create(&bed, run).await;
        bound_task(&bed, run, ONLY).await;
    }
    let [before, labelled, other, after] = nodes_at_once(&bed, &runs).await;
    assert_eq!(before, labelled, "it prefers the node of an unlabelled run");
    assert_ne!(labelled, other);
    assert!(
        BTreeSet::from([labelled, other]).contains(&after),
        "an unlabelled run is on the node of a labelled run"
    );
    auditor.assert_no_violation();
}

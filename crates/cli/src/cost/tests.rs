//! What runs used, by run and by group, from the objects that still exist.

use super::text::{csv, notes, table};
use super::*;
use crate::fixture::{at, done, forbidden, merged, object, placeholder, run};
use crate::timeline::fixture::{
    end, here, life_on, named, nothing, pod_of, since, task_run, three, unlabelled,
};
use crate::timeline::usage::usage;
use k8s_openapi::api::core::v1::Pod;
use placement::config::Config;
use placement::keys;
use serde_json::{Value, json};
use std::time::Duration;

fn typed(node: Node, instance: &str) -> Node {
    let labels = json!({"metadata": {"labels": {INSTANCE_TYPE: instance}}});
    object(serde_json::to_value(node).unwrap(), &labels)
}

fn requests(pod: Pod, cpu: &str, memory: &str) -> Pod {
    let containers = json!([{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]);
    object(
        serde_json::to_value(pod).unwrap(),
        &json!({"spec": {"containers": containers}}),
    )
}

fn prices() -> Prices {
    Prices::parse("large,3.6").unwrap()
}

/// A run on node-1 from second 20 to 60, with two tasks, on a node with 8 CPUs and 32 GiB.
fn one() -> History {
    History {
        runs: vec![run(&merged(
            done(),
            &json!({"spec": {"pipelineRef": {"name": "release"}}}),
        ))],
        events: Ok(life_on("node-1")),
        task_runs: Ok(vec![
            task_run("u1", "clone", 21, Some(40)),
            task_run("u1", "build", 30, Some(58)),
        ]),
        pods: Ok(vec![
            requests(pod_of("build", "u1", "clone", Some("node-1"), 22), "2", "4Gi"),
            requests(pod_of("build", "u1", "build", Some("node-1"), 30), "4", "8Gi"),
        ]),
        nodes: Ok(vec![typed(here("node-1"), "large"), here("node-2")]),
        ..nothing()
    }
}

fn rows(history: &History, period: Option<u64>, by: CostGroup) -> Report {
    let usage = usage(history, period.map(Duration::from_secs));
    report(&usage, history, Some(&prices()), by)
}

fn row(history: &History) -> Row {
    let [row] = rows(history, None, CostGroup::Run).rows.try_into().unwrap();
    row
}

fn gaps(history: &History) -> Vec<Gap> {
    row(history).gaps.into_keys().collect()
}

fn changed(changes: &Value) -> History {
    History {
        runs: vec![run(&merged(done(), changes))],
        ..one()
    }
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-4
}

#[test]
fn a_run_has_the_seconds_of_its_node_and_the_shares_of_its_tasks() {
    let row = row(&one());
    let seconds = [
        row.node_seconds,
        row.waiting_seconds,
        row.running_seconds,
        row.kept_seconds,
    ];
    assert_eq!(seconds.map(|it| it.to_string()), ["40", "20", "36", "0"]);
    let Requested { cpu, memory, .. } = row.requested.unwrap();
    assert!(
        near(cpu.peak, 6.0 / 8.0) && near(memory.peak, 12.0 / 32.0),
        "{cpu:?} {memory:?}"
    );
    assert!(
        near(cpu.average, (2.0 * 18.0 + 4.0 * 28.0) / (8.0 * 40.0)),
        "{cpu:?}"
    );
    assert!(near(row.cost.unwrap(), 0.04), "{:?}", row.cost);
    assert!(row.gaps.is_empty(), "{:?}", row.gaps);
}

#[test]
fn only_the_part_in_the_period_counts() {
    let report = rows(&one(), Some(70), CostGroup::Run);
    assert_eq!(
        (report.total.node_seconds, report.total.waiting_seconds),
        (10.0, 0.0)
    );
    assert!(near(
        report.total.requested.unwrap().cpu.average,
        4.0 * 8.0 / (8.0 * 10.0)
    ));
    assert!(rows(&one(), Some(60), CostGroup::Run).rows.is_empty());
}

#[test]
fn a_run_that_moved_has_both_nodes_and_waits_between_them() {
    let report = rows(&three(), None, CostGroup::Run);
    let [build, next] = report.rows.as_slice() else {
        panic!("{report:#?}")
    };
    assert_eq!((build.node_seconds, build.waiting_seconds), (90.0, 30.0));
    assert_eq!((next.node_seconds, next.waiting_seconds), (0.0, 60.0));
    assert_eq!((report.total.runs, report.total.waiting_seconds), (2, 90.0));
}

#[test]
fn a_node_that_a_done_run_keeps_costs_and_is_counted_separately() {
    let keeps = json!({"metadata": {"labels": {keys::STRATEGY: "isolateAlways"}}});
    let scheduled =
        json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(20).to_string()});
    let owned = json!({
        "metadata": {"ownerReferences": [
            {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "build", "uid": "u1"},
        ]},
        "status": {"conditions": [scheduled]},
    });
    let mut history = changed(&keeps);
    history
        .pods
        .as_mut()
        .unwrap()
        .push(placeholder("build", "u1", Some("node-1"), &owned));
    let row = row(&history);
    assert_eq!((row.node_seconds, row.kept_seconds), (40.0, 60.0));
    assert!(near(row.cost.unwrap(), 0.1) && row.gaps.is_empty(), "{row:?}");
    assert_eq!(gaps(&changed(&keeps)), [Gap::Kept]);
}

/// The run of `one`, whose node is kept until this second; the configuration allows two minutes.
fn kept_until(second: i64) -> History {
    let config = Config {
        keep_node_for: Duration::from_mins(2),
        ..Config::default()
    };
    let recorded = json!({"metadata": {"annotations": {keys::KEPT_UNTIL: at(second).to_string()}}});
    History {
        config: Ok(config),
        ..changed(&recorded)
    }
}

#[test]
fn a_node_that_is_kept_after_a_run_costs_until_the_recorded_time_or_until_now() {
    for (until, kept, cost) in [(60, 0.0, 0.04), (90, 30.0, 0.07), (170, 60.0, 0.1)] {
        let history = kept_until(until);
        let row = row(&history);
        assert_eq!((row.node_seconds, row.kept_seconds), (40.0, kept), "{until}");
        assert!(near(row.cost.unwrap(), cost) && row.gaps.is_empty(), "{row:?}");
    }
    let after_the_end = rows(&kept_until(90), Some(40), CostGroup::Run).total;
    assert_eq!(
        (after_the_end.node_seconds, after_the_end.kept_seconds),
        (0.0, 10.0)
    );
    let ended = rows(&kept_until(90), Some(30), CostGroup::Run);
    assert!(ended.rows.is_empty());
}

#[test]
fn a_time_that_the_controller_cannot_have_recorded_is_a_gap() {
    let unread = History {
        config: Err(forbidden("get", "configmaps")),
        ..kept_until(90)
    };
    let malformed = json!({"metadata": {"annotations": {keys::KEPT_UNTIL: "later"}}});
    let never = History {
        config: Ok(Config::default()),
        ..kept_until(100)
    };
    for history in [
        kept_until(59),
        kept_until(300),
        changed(&malformed),
        unread,
        never,
    ] {
        let row = row(&history);
        assert_eq!((row.node_seconds, row.kept_seconds), (40.0, 0.0));
        assert_eq!(gaps(&history), [Gap::Kept]);
    }
}

#[test]
fn what_is_unknown_is_a_gap_and_no_zero() {
    let without = |changes: History| (row(&changes), gaps(&changes));
    let (row, found) = without(History {
        nodes: Ok(Vec::new()),
        node_ends: Ok(vec![end("node-1", 90)]),
        ..one()
    });
    assert_eq!(
        (row.node_seconds, row.cost, row.requested, found),
        (40.0, None, None, vec![Gap::Node])
    );
    let (_, found) = without(History {
        nodes: Ok(vec![since("node-1", 70)]),
        ..one()
    });
    assert_eq!(found, [Gap::Node], "another node with this name");
    let (row, found) = without(History {
        nodes: Ok(vec![here("node-1")]),
        ..one()
    });
    assert_eq!(
        (row.cost, row.requested.is_some(), found),
        (None, true, vec![Gap::Price])
    );
    let (row, found) = without(History {
        pods: Ok(one().pods.unwrap()[..1].to_vec()),
        ..one()
    });
    assert_eq!((row.requested, found), (None, vec![Gap::Pods]));
    let (row, found) = without(History {
        pods: Ok(Vec::new()),
        events: Ok(Vec::new()),
        ..one()
    });
    assert_eq!((row.node_seconds, found), (40.0, vec![Gap::Pods, Gap::Moves]));
    assert_eq!(
        gaps(&History {
            pods: Err(forbidden("list", "pods")),
            ..one()
        }),
        [Gap::Pods]
    );
}

#[test]
fn without_a_price_file_there_are_no_costs_and_no_gaps() {
    let report = report(&usage(&one(), None), &one(), None, CostGroup::Run);
    assert_eq!((report.total.cost, report.total.runs_with_gaps), (None, 0));
}

/// The run of `one`, a run of the same Pipeline on a node without a price, and a run of another Pipeline without pods.
fn several() -> History {
    let mut history = one();
    let other = |name: &str, uid: &str, node: &str, pipeline: &str| {
        let own = json!({
            "metadata": {"annotations": {keys::NODE: node}, "labels": {keys::GROUP: uid}},
            "spec": {"pipelineRef": {"name": pipeline}},
        });
        run(&merged(merged(done(), &named(name, uid)), &own))
    };
    history.runs.push(other("second", "u2", "node-2", "release"));
    history.runs.push(other("third", "u3", "node-9", "nightly"));
    history
        .runs
        .push(run(&merged(unlabelled(), &named("plain", "u4"))));
    history
        .task_runs
        .as_mut()
        .unwrap()
        .push(task_run("u2", "only", 20, Some(60)));
    let pod = pod_of("second", "u2", "only", Some("node-2"), 20);
    history.pods.as_mut().unwrap().push(requests(pod, "1", "1Gi"));
    history.nodes = Ok(vec![
        typed(here("node-1"), "large"),
        typed(here("node-2"), "huge"),
    ]);
    history
}

#[test]
fn runs_are_reported_one_by_one_by_pipeline_and_by_namespace() {
    let of = |by, all| {
        let report = rows(&several(), None, by);
        format!(
            "{}\n{}\n{}\n",
            table(&report, by, all),
            csv(&report.rows),
            notes(&report).join("\n")
        )
    };
    let texts = [
        of(CostGroup::Run, true),
        of(CostGroup::Pipeline, false),
        of(CostGroup::Namespace, true),
    ];
    insta::assert_snapshot!(texts.join("========\n"));
}

#[test]
fn the_tasks_of_a_nested_run_count_for_the_root_run() {
    let nested = json!({"metadata": {
        "labels": {keys::GROUP: "u1"},
        "annotations": {keys::NODE: null},
        "ownerReferences": [
            {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "build", "uid": "u1", "controller": true},
        ],
    }});
    let mut history = one();
    let own = merged(done(), &merged(named("nested", "u2"), &nested));
    history.runs.push(run(&own));
    let task = task_run("u2", "inner", 40, Some(60));
    history.task_runs.as_mut().unwrap().push(task);
    let pod = requests(pod_of("nested", "u2", "inner", Some("node-1"), 40), "2", "1Gi");
    history.pods.as_mut().unwrap().push(pod);
    let row = row(&history);
    assert_eq!((row.runs, row.running_seconds), (1, 38.0));
    let cpu = row.requested.unwrap().cpu.average;
    assert!(
        near(cpu, (2.0 * 18.0 + 4.0 * 28.0 + 2.0 * 20.0) / (8.0 * 40.0)),
        "{cpu}"
    );
}

#[test]
fn a_row_is_data_too() {
    let report = rows(&several(), None, CostGroup::Pipeline);
    insta::assert_snapshot!(serde_json::to_string_pretty(&report.rows).unwrap());
}

#[test]
fn a_node_without_an_instance_type_is_a_gap_that_is_named() {
    let report = rows(
        &History {
            nodes: Ok(vec![here("node-1")]),
            ..one()
        },
        None,
        CostGroup::Run,
    );
    let [note] = notes(&report).try_into().unwrap();
    let expected = "gap price, 1 run: the price file has no price for a node without the label node.kubernetes.io/instance-type";
    assert_eq!(note, expected);
}

//! Each state in one line, and the rows as each format shows them.

use super::*;
use crate::fixture::{UID, at, done, merged, placeholder, released, statefulset, unschedulable, view};
use placement::keys;
use serde_json::{Value, json};

fn set(replicas: i32) -> StatefulSet {
    statefulset(replicas, &json!({}))
}

fn one(changes: &Value, sets: &[StatefulSet], pods: &[Pod]) -> Row {
    let config = Config::default();
    rows(
        [view(changes)].iter(),
        &PlaceholdersByName::of(sets, pods),
        Some(&config),
    )
    .remove(0)
}

fn all() -> Vec<Row> {
    let waits = placeholder("build", UID, None, &unschedulable("no node"));
    let home = placeholder("build", UID, Some("node-1"), &json!({}));
    let adopted = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "build", "uid": UID},
    ]}});
    let kept = placeholder("build", UID, Some("node-1"), &adopted);
    let free = |fields: Value| {
        merged(
            json!({"metadata": {"annotations": null}, "spec": {"status": null}}),
            &fields,
        )
    };
    let label = |value: &str| json!({"metadata": {"labels": {keys::OPT_IN: value}}});
    let late = json!({"status": {"startTime": at(5).to_string(), "childReferences": [{"name": "x"}]}});
    vec![
        one(&json!({}), &[], &[]),
        one(&json!({}), &[set(1)], &[waits]),
        one(&json!({"metadata": {"annotations": null}}), &[], &[]),
        one(
            &json!({"metadata": {"labels": {keys::KUEUE_QUEUE_NAME: "q"}}}),
            &[],
            &[],
        ),
        one(&released(), &[set(1)], &[home]),
        one(&released(), &[set(0)], &[]),
        one(&done(), &[], &[]),
        one(&done(), &[], &[kept]),
        one(&free(label("false")), &[], &[]),
        one(&free(late), &[], &[]),
        one(&free(label("perhaps")), &[], &[]),
        one(&free(label("isolateAlways")), &[set(1)], &[]),
        one(&json!({"spec": {"managedBy": "x.com/y"}}), &[], &[]),
        one(
            &json!({"metadata": {"deletionTimestamp": at(9).to_string()}}),
            &[],
            &[],
        ),
    ]
}

#[test]
fn every_state_is_a_line_of_the_table() {
    let layout = Layout {
        namespaces: false,
        wide: false,
        headed: true,
    };
    insta::assert_snapshot!(layout.table(&all(), at(120)));
}

#[test]
fn a_wide_table_of_all_namespaces_has_all_columns() {
    let layout = Layout {
        namespaces: true,
        wide: true,
        headed: true,
    };
    insta::assert_snapshot!(layout.table(&all()[..5], at(120)));
}

#[test]
fn a_row_says_where_the_label_came_from_as_long_as_it_opts_in() {
    let by_namespace = |value: &str| {
        let changes = json!({"metadata": {
            "labels": {keys::OPT_IN: value}, "annotations": {keys::OPTED_IN_BY: keys::BY_NAMESPACE},
        }});
        one(&changes, &[], &[]).opted_in_by
    };
    assert_eq!(by_namespace("true"), Some("namespace"));
    assert_eq!(by_namespace("false"), None);
    assert_eq!(one(&json!({}), &[], &[]).opted_in_by, Some("run"));
}

#[test]
fn a_row_is_data_too() {
    insta::assert_json_snapshot!(&all()[4..5]);
}

#[test]
fn rows_are_sorted_by_namespace_and_name() {
    let named =
        |namespace: &str, name: &str| view(&json!({"metadata": {"namespace": namespace, "name": name}}));
    let runs = [named("b", "x"), named("a", "z"), named("a", "y")];
    let sorted = rows(runs.iter(), &PlaceholdersByName::default(), None);
    let names: Vec<_> = sorted
        .iter()
        .map(|row| format!("{}/{}", row.namespace, row.name))
        .collect();
    assert_eq!(names, ["a/y", "a/z", "b/x"]);
    assert_eq!(sorted[0].strategy.as_deref(), Some("(default)"));
}

#[test]
fn rows_are_sorted_by_the_column_that_is_asked_for_and_blanks_come_last() {
    let sorted = |column: Column| {
        let mut rows = all();
        sort(&mut rows, column);
        let words = rows.iter().map(|row| match column {
            Column::Node => row.node.clone().unwrap_or_else(|| "-".into()),
            _ => row.state.to_string(),
        });
        let mut words: Vec<_> = words.collect();
        words.dedup();
        words
    };
    assert_eq!(sorted(Column::Node), ["node-1", "-"]);
    let states = sorted(Column::State);
    assert!(states.is_sorted() && states.len() > 9, "{states:?}");
    let mut rows = all();
    sort(&mut rows, Column::Since);
    assert!(rows.iter().map(|row| row.since).is_sorted());
    sort(&mut rows, Column::Strategy);
    assert_eq!(rows.last().unwrap().strategy, None);
}

#[test]
fn a_table_without_headers_has_rows_only() {
    let layout = Layout {
        namespaces: false,
        wide: false,
        headed: false,
    };
    let text = layout.table(&all(), at(120));
    assert!(text.starts_with("build ") && !text.contains("NAME"), "{text}");
}

#[test]
fn a_run_that_waits_for_a_node_has_a_position_among_the_runs_of_its_kind_and_an_end_of_its_hold() {
    let waits = |name: &str, second: i64, changes: &Value| {
        let metadata = json!({"name": name, "uid": name, "creationTimestamp": at(second).to_string()});
        view(&merged(json!({"metadata": metadata}), changes))
    };
    let of_pool = json!({"spec": {"taskRunTemplate": {"podTemplate": {"nodeSelector": {"pool": "ci"}}}}});
    let over_cap = json!({"metadata": {"annotations": {keys::HOLD: "over-cap"}}});
    let runs = [
        waits("c", 3, &json!({})),
        waits("a", 5, &over_cap),
        waits("b", 1, &json!({})),
        waits("of-pool", 2, &of_pool),
        view(&released()),
    ];
    let unknown = rows(runs.iter(), &PlaceholdersByName::default(), None);
    assert!(unknown.iter().all(|row| row.hold_ends.is_none()));
    let rows = rows(
        runs.iter(),
        &PlaceholdersByName::default(),
        Some(&Config::default()),
    );
    let cells = rows
        .iter()
        .map(|row| (row.name.as_str(), row.position, row.hold_ends));
    let expected = [
        ("a", Some(3), None),
        ("b", Some(1), Some(at(601))),
        ("build", None, None),
        ("c", Some(2), Some(at(603))),
        ("of-pool", Some(1), Some(at(602))),
    ];
    assert_eq!(cells.collect::<Vec<_>>(), expected);
}

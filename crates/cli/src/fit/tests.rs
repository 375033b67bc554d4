//! What the stories do not show: amounts, namespaces of terms, and groups that are elsewhere.

use super::*;
use crate::fixture::{UID, node, object, placeholder, stranger, task};
use placement::keys;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn against(pod: &Pod, nodes: &[Node], pods: &[Pod], volumes: &[BoundVolume]) -> Vec<String> {
    let fit = Fit::new(pod, ClusterView { nodes, pods, volumes });
    let obstacles = fit.obstacles(&nodes[0]).into_iter();
    obstacles.map(|obstacle| obstacle.to_string()).collect()
}

/// Before, the tool compared each pod with each node, and searched the node of each pod.
#[test]
fn thousands_of_pods_and_nodes_are_compared_in_seconds() {
    let start = Instant::now();
    let nodes: Vec<_> = (0..500)
        .map(|number| node(&format!("n-{number}"), &json!({})))
        .collect();
    let of_run = |number: usize| {
        let node = format!("n-{}", number % 500);
        placeholder(
            &format!("run-{number}"),
            &format!("u-{number}"),
            Some(&node),
            &json!({}),
        )
    };
    let pods: Vec<_> = (0..5000).map(of_run).collect();
    let pod = placeholder("build", UID, None, &json!({}));
    let fit = Fit::new(
        &pod,
        ClusterView {
            nodes: &nodes,
            pods: &pods,
            volumes: &[],
        },
    );
    assert!(nodes.iter().all(|node| fit.obstacles(node).len() >= 10));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap()
}

#[test]
fn what_is_left_is_never_less_than_nothing_and_exact() {
    let table = [
        ("8", "50m", "7950m"),
        ("32Gi", "100Mi", "32668Mi"),
        ("1", "2", "0"),
        ("1Gi", "1", "1073741823"),
    ];
    for (offered, used, rest) in table {
        assert_eq!(
            left(quantity(offered), quantity(used)),
            quantity(rest),
            "{offered} - {used}"
        );
    }
}

#[test]
fn a_pod_whose_group_is_elsewhere_is_told_where() {
    let nodes = [node("a", &json!({})), node("b", &json!({}))];
    let home = placeholder("build", UID, Some("b"), &json!({}));
    let next = task("next", None, &json!({}));
    assert_eq!(
        against(&next, &nodes, std::slice::from_ref(&home), &[]),
        ["is not the node of this run (b)"]
    );
    assert!(against(&next, &nodes[1..], &[home], &[]).is_empty());
    assert!(
        against(&next, &nodes, &[], &[]).is_empty(),
        "the first of its group may go anywhere"
    );
}

#[test]
fn who_is_done_or_not_bound_is_in_nobodys_way() {
    let nodes = [node("a", &json!({}))];
    let own = placeholder("build", UID, None, &json!({}));
    let done = placeholder(
        "other",
        "u2",
        Some("a"),
        &json!({"status": {"phase": "Succeeded"}}),
    );
    let unbound = placeholder("other", "u2", None, &json!({}));
    assert!(against(&own, &nodes, &[done, unbound], &[]).is_empty());
}

#[test]
fn an_isolated_run_keeps_one_away_that_would_share() {
    let nodes = [node("a", &json!({}))];
    let sharing = json!({"spec": {"affinity": {"podAntiAffinity": null}}});
    let own = placeholder("build", UID, None, &sharing);
    let isolated = placeholder("other", "u2", Some("a"), &json!({}));
    let told = against(&own, &nodes, &[isolated], &[]);
    assert_eq!(
        told,
        ["is occupied by run other of namespace ci (colocateCompleted)"]
    );
    let also_sharing = placeholder("other", "u2", Some("a"), &sharing);
    assert!(against(&own, &nodes, &[also_sharing], &[]).is_empty());
}

#[test]
fn a_term_without_namespaces_means_its_own_and_lists_are_followed() {
    let nodes = [node("a", &json!({}))];
    let other = placeholder(
        "other",
        "u2",
        Some("a"),
        &json!({
            "metadata": {"namespace": "web"}, "spec": {"affinity": {"podAntiAffinity": null}},
        }),
    );
    let told = |namespaces: Value| {
        let mut own = serde_json::to_value(placeholder("build", UID, None, &json!({}))).unwrap();
        let terms = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0";
        let term = own.pointer_mut(terms).unwrap();
        term["namespaceSelector"] = Value::Null;
        term["namespaces"] = namespaces;
        against(
            &object(own, &json!({})),
            &nodes,
            std::slice::from_ref(&other),
            &[],
        )
        .len()
    };
    assert_eq!(told(Value::Null), 0);
    assert_eq!(told(json!(["ci"])), 0);
    assert_eq!(told(json!(["ci", "web"])), 1);
}

#[test]
fn a_run_is_told_once_also_where_its_tasks_pods_bear_no_strategy() {
    let nodes = [node("a", &json!({}))];
    let own = placeholder("build", UID, None, &json!({}));
    let pods = [
        placeholder("other", "u2", Some("a"), &json!({})),
        stranger("other", "a"),
    ];
    assert_eq!(against(&own, &nodes, &pods, &[]).len(), 1);
}

#[test]
fn a_pod_of_no_run_is_named_itself() {
    let nodes = [node("a", &json!({}))];
    let own = placeholder("build", UID, None, &json!({}));
    let term = json!({"topologyKey": keys::HOSTNAME, "labelSelector": {}});
    let lonely: Pod = object(
        json!({
            "metadata": {"namespace": "ci", "name": "lonely"},
            "spec": {"nodeName": "a", "containers": [], "affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [term],
            }}},
        }),
        &json!({}),
    );
    let told = against(&own, &nodes, &[lonely], &[]);
    assert_eq!(
        told,
        ["has pod ci/lonely, and one of the two has anti-affinity to the other"]
    );
}

//! Which PVCs the placeholder mounts, leaves to the tasks, and ignores.

use super::*;
use serde_json::{Value, json};

/// A bound `ReadWriteOnce` PVC with these changes.
fn pvc(changes: &Value) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": {}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeName": "v"},
    });
    json_patch::merge(&mut claim, changes);
    serde_json::from_value(claim).unwrap()
}

fn run(claims: &[&str]) -> Run {
    Run {
        claims: claims.iter().map(|name| (*name).to_owned()).collect(),
        ..crate::fixture::run()
    }
}

fn with_task_opted_out() -> Run {
    Run {
        opted_out_tasks: true,
        ..run(&["source"])
    }
}

fn selector(terms: &Value) -> NodeSelector {
    serde_json::from_value(json!({"nodeSelectorTerms": terms})).unwrap()
}

fn is(key: &str, values: &[&str]) -> Value {
    json!({"matchExpressions": [{"key": key, "operator": "In", "values": values}]})
}

fn zone(name: &str) -> NodeSelector {
    selector(&json!([is("zone", &[name])]))
}

fn claim(name: &str, changes: &Value, required: Option<NodeSelector>) -> Claim {
    Claim {
        name: name.to_owned(),
        claim: pvc(changes),
        required,
    }
}

/// A node of the zone east.
fn nodes() -> BTreeMap<String, Arc<NodeFacts>> {
    let labels = [
        ("zone", "east"),
        (keys::HOSTNAME, "host-1"),
        ("driver.example.com/node", "node-1"),
    ];
    let node = NodeFacts {
        name: "node-1".to_owned(),
        labels: labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..NodeFacts::default()
    };
    [(node.name.clone(), Arc::new(node))].into()
}

/// Of these volumes, which the placeholder mounts.
fn mounted(run: &Run, volumes: &[(&str, Option<NodeSelector>)]) -> Vec<String> {
    let claims = volumes.iter().cloned();
    let claims: Vec<_> = claims
        .map(|(name, required)| claim(name, &json!({}), required))
        .collect();
    let constraints = constraints(run, &claims, &nodes());
    assert_eq!(constraints.required, None);
    constraints.mountable
}

#[test]
fn a_bound_pvc_is_mounted() {
    for ordinary in [
        json!({}),
        json!({"spec": {"accessModes": ["ReadWriteMany"]}}),
        json!({"spec": {"accessModes": null}, "status": {"phase": "Bound"}}),
    ] {
        assert_eq!(part(&run(&[]), &pvc(&ordinary)), Part::Mounted, "{ordinary}");
    }
}

#[test]
fn a_pvc_that_would_block_the_placeholder_has_no_effect() {
    for harm in [
        json!({"status": {"phase": "Lost"}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    ] {
        assert_eq!(part(&run(&[]), &pvc(&harm)), Part::None, "{harm}");
    }
}

#[test]
fn a_pvc_for_one_pod_is_left_to_the_tasks() {
    let exclusive = pvc(&json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteOncePod"]}}));
    assert_eq!(part(&run(&[]), &exclusive), Part::OfTasks);
}

#[test]
fn a_volume_for_one_node_is_left_to_the_tasks_if_a_task_may_be_on_another_node() {
    let of_modes = |modes: &[&str]| {
        part(
            &with_task_opted_out(),
            &pvc(&json!({"spec": {"accessModes": modes}})),
        )
    };
    assert_eq!(of_modes(&["ReadWriteOnce"]), Part::OfTasks);
    assert_eq!(of_modes(&["ReadWriteOnce", "ReadWriteMany"]), Part::Mounted);
    assert_eq!(of_modes(&["ReadOnlyMany"]), Part::Mounted);
}

#[test]
fn an_unbound_pvc_is_left_to_the_tasks_until_the_place_of_its_volume_is_decided() {
    let unbound = |metadata: Value, class: Value| {
        let spec = json!({"volumeName": null, "storageClassName": class});
        part(&run(&[]), &pvc(&json!({"metadata": metadata, "spec": spec})))
    };
    assert_eq!(unbound(json!({}), json!("fast")), Part::OfTasks);
    assert_eq!(unbound(json!({}), json!(null)), Part::OfTasks);
    assert_eq!(unbound(json!({}), json!("")), Part::Mounted);
    for decided in IN_PROGRESS {
        let annotations = json!({"annotations": {decided: "any"}});
        assert_eq!(unbound(annotations, json!("fast")), Part::Mounted, "{decided}");
    }
}

#[test]
fn the_placeholder_requires_a_node_of_each_volume_that_it_leaves_to_the_tasks() {
    let exclusive = json!({"spec": {"accessModes": ["ReadWriteOncePod"]}});
    let claims = [
        claim("exclusive", &exclusive, Some(zone("west"))),
        claim("anywhere", &exclusive, None),
        claim("east", &json!({}), Some(zone("east"))),
        claim("west", &json!({}), Some(zone("west"))),
    ];
    let found = constraints(
        &run(&["exclusive", "anywhere", "east", "west"]),
        &claims,
        &nodes(),
    );
    assert_eq!(
        (found.mountable, found.required),
        (vec!["west".to_owned()], Some(zone("west")))
    );
}

/// Volumes of regional disks name two zones. Combined without limits, thirty of these volumes have a billion alternatives.
#[test]
fn many_volumes_that_are_left_to_the_tasks_require_their_common_zones() {
    let exclusive = json!({"spec": {"accessModes": ["ReadWriteOncePod"]}});
    let names: Vec<_> = (0..30).map(|number| format!("disk-{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let zones = selector(&json!([is("zone", &["a"]), is("zone", &["b"])]));
    let claims: Vec<_> = names
        .iter()
        .map(|name| claim(name, &exclusive, Some(zones.clone())))
        .collect();
    let mut run = run(&names);
    assert_eq!(constraints(&run, &claims, &nodes()).required, Some(zones));
    let gpu = json!({"matchExpressions": [{"key": "gpu", "operator": "Exists"}]});
    run.template.require(selector(&json!([gpu])));
    let required = constraints(&run, &claims, &nodes()).required.unwrap();
    let keys = required.node_selector_terms.iter().map(|term| {
        let requirements = term.match_expressions.iter().flatten();
        requirements.map(|it| it.key.as_str()).collect::<Vec<_>>()
    });
    assert_eq!(keys.collect::<Vec<_>>(), [["gpu", "zone"], ["gpu", "zone"]]);
}

#[test]
fn of_volumes_that_no_node_can_use_together_the_first_is_mounted() {
    let run = run(&["a", "b", "c"]);
    let east_or_west = selector(&json!([is("zone", &["east"]), is("zone", &["west", "north"])]));
    let of_node = selector(&json!([is("host", &["n1"])]));
    let apart = [("a", Some(zone("east"))), ("b", Some(zone("west"))), ("c", None)];
    assert_eq!(mounted(&run, &apart), ["a", "c"]);
    let together = [
        ("a", Some(east_or_west.clone())),
        ("b", Some(zone("west"))),
        ("c", Some(of_node)),
    ];
    assert_eq!(mounted(&run, &together), ["a", "b", "c"]);
    let two_by_two = [
        ("a", Some(east_or_west)),
        ("b", Some(selector(&json!([is("zone", &["south", "east"])])))),
        ("c", Some(zone("north"))),
    ];
    assert_eq!(mounted(&run, &two_by_two), ["a", "b"]);
}

#[test]
fn a_volume_that_no_node_of_the_pod_template_can_use_is_left_to_the_tasks() {
    let mut run = run(&["a"]);
    run.template.node_selector = [("zone".to_owned(), "east".to_owned())].into();
    assert!(mounted(&run, &[("a", Some(zone("west")))]).is_empty());
    assert_eq!(mounted(&run, &[("a", Some(zone("east")))]), ["a"]);
    run.template = PodTemplate::default();
    run.template.require(zone("east"));
    assert!(mounted(&run, &[("a", Some(zone("west")))]).is_empty());
}

#[test]
fn more_alternatives_than_can_be_compared_count_as_usable_together() {
    let run = run(&["a", "b"]);
    let many = |zone: &str| {
        let terms: Vec<_> = (0..20)
            .map(|number| is("zone", &[&format!("{zone}-{number}")]))
            .collect();
        selector(&json!(terms))
    };
    let apart = [("a", Some(many("east"))), ("b", Some(many("west")))];
    assert_eq!(mounted(&run, &apart), ["a", "b"]);
}

#[test]
fn a_volume_is_read_only_if_the_rule_needs_it() {
    let bound = pvc(&json!({}));
    assert!(!needs_volume(&run(&["source"]), &bound));
    assert!(needs_volume(&run(&["source", "cache"]), &bound));
    assert!(needs_volume(&with_task_opted_out(), &bound));
    let mut selects = run(&["source"]);
    selects.template.node_selector = [("zone".to_owned(), "east".to_owned())].into();
    assert!(needs_volume(&selects, &bound));
    let lost = pvc(&json!({"status": {"phase": "Lost"}}));
    assert!(!needs_volume(&run(&["source", "cache"]), &lost));
}

#[test]
fn a_volume_of_another_zone_than_the_node_of_a_local_volume_is_left_to_the_tasks() {
    let run = run(&["local", "zonal"]);
    let mounted = |local: &Value, in_zone: &str| {
        let local = selector(&json!([local]));
        mounted(&run, &[("local", Some(local)), ("zonal", Some(zone(in_zone)))])
    };
    let by_name = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]});
    for node in [
        is(keys::HOSTNAME, &["host-1"]),
        is("driver.example.com/node", &["node-1"]),
        by_name,
    ] {
        assert_eq!(mounted(&node, "west"), ["local"], "{node}");
        assert_eq!(mounted(&node, "east"), ["local", "zonal"], "{node}");
    }
    let not_yet = is(keys::HOSTNAME, &["not-yet"]);
    assert_eq!(mounted(&not_yet, "west"), ["local", "zonal"]);
}

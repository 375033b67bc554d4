//! Runs whose node can take no new pod, or is the only one that they can be on.

use super::*;
use crate::facts::{PartialPods, Surroundings};
use placement::config::Config;

fn dead() -> Node {
    let taint = |effect: &str| json!({"key": "node.kubernetes.io/unreachable", "effect": effect});
    let dead = json!({
        "spec": {"taints": [taint("NoSchedule"), taint("NoExecute")]},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
    });
    node("node-1", &dead)
}

fn cordoned() -> Node {
    node("node-1", &json!({"spec": {"unschedulable": true}}))
}

fn tainted() -> Node {
    node(
        "node-1",
        &json!({"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}),
    )
}

/// A task that is there for good: its node does not say that it has ended.
fn leaving() -> Pod {
    let deleted = json!({"metadata": {"deletionTimestamp": at(100).to_string()}});
    task("build", Some("node-1"), &deleted)
}

fn next(changes: &Value) -> Pod {
    let mounts =
        json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]}});
    let waits = merged(unschedulable(NOWHERE), &mounts);
    task("test", None, &merged(waits, changes))
}

fn large() -> Pod {
    next(&json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "9"}}}]}}))
}

/// A run with these pods whose node is this one, or is gone. Another node is free.
fn on(own: Option<Node>, pods: Vec<Pod>) -> Facts {
    let nodes = own.clone().into_iter().chain([node("node-2", &json!({}))]);
    let surroundings = Surroundings {
        nodes: Ok(nodes.collect()),
        pods: PartialPods {
            pods: pods.clone(),
            errors: Vec::new(),
        },
    };
    Facts {
        node: Some(Ok(own)),
        surroundings: Some(surroundings),
        ..running(pods)
    }
}

/// Its PVC can be used on its node only.
fn tied(facts: Facts) -> Facts {
    let here = json!({"key": keys::HOSTNAME, "operator": "In", "values": ["node-1"]});
    let disk = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}}});
    let disk = BoundVolume::of("disk", &object(disk, &json!({}))).unwrap();
    Facts {
        volumes: Some(Ok(vec![disk])),
        ..facts
    }
}

fn stays(facts: Facts) -> Facts {
    let never = Config {
        move_after: None,
        ..Config::default()
    };
    Facts {
        config: Ok(never),
        ..facts
    }
}

fn while_none_waits() -> Facts {
    Facts {
        surroundings: None,
        ..on(
            Some(cordoned()),
            vec![home(), task("build", Some("node-1"), &json!({}))],
        )
    }
}

fn without_placeholder() -> Facts {
    let made_room = "A ResourceQuota rejected the pod of build-test.";
    let left = json!({"spec": {"template": {"metadata": {"annotations": {keys::LEFT: ""}}}}});
    Facts {
        set: Ok(Some(statefulset(0, &left))),
        events: Ok(vec![told(90, "MadeRoom", made_room)]),
        ..running(vec![task("build", Some("node-1"), &json!({}))])
    }
}

explanations! {
    on_a_node_that_died_with_a_task_on_it: on(Some(dead()), vec![home(), leaving(), next(&json!({}))]);
    on_a_node_that_died_and_lost_the_placeholder:
        on(Some(dead()), vec![placeholder("build", UID, None, &unschedulable(NOWHERE)), leaving()]);
    on_a_cordoned_node_which_is_the_only_one_for_its_volume: tied(on(Some(cordoned()), vec![home(), next(&json!({}))]));
    on_the_only_node_for_its_volume_which_is_too_small: tied(on(Some(node("node-1", &json!({}))), vec![home(), large()]));
    on_a_cordoned_node_while_no_pod_waits: while_none_waits();
    without_its_placeholder_which_made_room: without_placeholder();
}

#[test]
fn each_trouble_with_the_node_is_told_with_what_follows_and_what_would_help() {
    let busy = |own: Option<Node>| on(own, vec![home(), leaving(), next(&json!({}))]);
    let idle = |own: Option<Node>| on(own, vec![home(), next(&json!({}))]);
    let told = |facts: Facts| {
        let explanation = explain(&facts);
        let mut sections = explanation.sections.iter();
        let section = sections.find(|section| section.title == "Node").unwrap();
        format!("{}\n{}", section.text, explanation.help.join("\n"))
    };
    let table = [
        told(busy(Some(cordoned()))),
        told(busy(Some(tainted()))),
        told(busy(None)),
        told(idle(Some(dead()))),
        told(tied(busy(Some(dead())))),
        told(tied(idle(Some(tainted())))),
        told(tied(idle(None))),
        told(stays(busy(Some(cordoned())))),
    ];
    insta::assert_snapshot!(table.join("\n--\n"));
}

#[test]
fn what_tekton_keeps_for_a_volume_is_no_task() {
    let assistant = json!({"metadata": {"labels": {keys::COMPONENT: keys::ASSISTANT}}});
    let facts = running(vec![home(), task("keeper", Some("node-1"), &assistant)]);
    assert!(text(&facts).contains("no pod so far"), "{}", text(&facts));
}

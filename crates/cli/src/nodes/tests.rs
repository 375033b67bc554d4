//! Who has which node.

use super::*;
use crate::fixture::{UID, node, placeholder, stranger, task};
use placement::keys;
use serde_json::json;

#[test]
fn each_node_is_told_with_the_runs_on_it_and_what_is_left() {
    let kept = json!({"metadata": {"namespace": "web", "ownerReferences": [
        {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "old", "uid": "u3"},
    ]}});
    let sharing = json!({"metadata": {"labels": {keys::STRATEGY: "colocateAlways"}}});
    let keeps = json!({
        "metadata": {"name": "pod-affinity-kept-node-0", "labels": {keys::COMPONENT: keys::KEPT_NODE, keys::APP: keys::APP_NAME}},
        "spec": {"nodeName": "d-free", "containers": []},
    });
    let keeps = serde_json::from_value(keeps).unwrap();
    let ended = json!({"status": {"phase": "Succeeded"}});
    let nodes = [
        node("e-lost", &json!({"status": {"conditions": []}})),
        node("a-taken", &json!({})),
        node("b-reserved", &json!({"spec": {"unschedulable": true}})),
        node("c-shared", &json!({})),
        node("d-free", &json!({})),
        node(
            "f-dead",
            &json!({"spec": {"unschedulable": true}, "status": {"conditions": []}}),
        ),
    ];
    let pods = vec![
        placeholder("build", UID, Some("a-taken"), &json!({})),
        task("fetch", Some("a-taken"), &json!({})),
        task("done", Some("a-taken"), &ended),
        placeholder("old", "u3", Some("b-reserved"), &kept),
        placeholder("first", "u4", Some("c-shared"), &sharing),
        placeholder("second", "u5", Some("c-shared"), &sharing),
        stranger("plain", "c-shared"),
        task("waits", None, &json!({})),
        keeps,
    ];
    insta::assert_snapshot!(text(&rows(&nodes, &pods), true, true));
}

//! A run with a reserve annotation gets a node from the start that is large enough for its later tasks.

use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::controller::configure;
use crate::support::events::{reasons, until_event};
use crate::support::objects::{another_pod, cpu, still_node};
use crate::support::pool::PooledTestbed;
use crate::support::pvcs::{create_pvc, with_pvc};
use crate::support::runs::{create, nodes_of, until_released};
use crate::support::testbeds::{fresh, installed};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use placement::keys;
use serde_json::json;
use testbed::runs::RunSpec;
use testbed::{Nodes, Testbed};

/// A testbed with two nodes that are too small, and one node that fits the reserve or the task, but not both at the same
/// time.
async fn bed() -> PooledTestbed {
    let bed = fresh(0).await;
    bed.add_nodes(&Nodes::new("small", 2).size("2", "8Gi"))
        .await
        .unwrap();
    bed.add_nodes(&Nodes::new("large", 1).size("6", "16Gi"))
        .await
        .unwrap();
    bed
}

/// A run whose first task fits on any node, and whose second task requests 4 CPU.
fn run(name: &str) -> RunSpec {
    RunSpec::new("default", name)
        .task("small", &[])
        .sized_task("large", &["small"], &json!({"cpu": "4"}))
        .opted_in("true")
        .lasting("1s")
}

fn reserving(reserve: &str) -> RunSpec {
    run("run").annotation(keys::RESERVE, reserve)
}

async fn placeholder(client: &Client) -> Pod {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let selector = format!("{}={}", keys::COMPONENT, keys::PLACEHOLDER);
    let listed = pods.list(&ListParams::default().labels(&selector)).await;
    let mut items = listed.unwrap().items;
    assert_eq!(items.len(), 1);
    items.remove(0)
}

async fn succeeds_on_the_large_node_without_a_move(bed: &Testbed, run: &RunSpec) {
    bed.until_succeeded(run, SOON).await.unwrap();
    assert_eq!(nodes_of(bed, run).await, ["large-0".to_owned()].into());
    let reported = reasons(&bed.client().await.unwrap(), run).await;
    assert!(!reported.contains(&"MovedOff".to_owned()), "{reported:?}");
}

#[e2e_test]
async fn a_placeholder_reserves_and_is_resized_in_place_before_the_tasks_start() {
    let bed = fresh(0).await;
    let client = bed.client().await.unwrap();
    bed.add_nodes(&Nodes::new("small", 2).size("2", "8Gi"))
        .await
        .unwrap();
    still_node(&bed, &client, "large-0").await;
    let auditor = Auditor::start(&bed).await;
    let run = RunSpec::new("default", "run")
        .sized_task("large", &[], &json!({"cpu": "4"}))
        .opted_in("true")
        .annotation(keys::RESERVE, "cpu=4");
    create(&bed, &run).await;
    until_released(&bed, &run).await;
    let pod = placeholder(&client).await;
    assert_eq!(cpu(&pod), "50m", "as small as usual when the run is released");
    assert!(
        pod.annotations().contains_key(keys::RESERVE) && !pod.annotations().contains_key(keys::PINNED),
        "the pod that was created with the reserve"
    );
    bed.until("the task to have room beside it", SOON, async || {
        let nodes = nodes_of(&bed, &run).await;
        if nodes == ["large-0".to_owned()].into() {
            Ok(())
        } else {
            Err(format!("{nodes:?}"))
        }
    })
    .await
    .unwrap();
    auditor.assert_no_violation();
}

#[e2e_test]
async fn the_reserve_of_the_configuration_applies_to_runs_without_a_reserve() {
    let bed = bed().await;
    // Without a reserve, runs would start on a small node.
    another_pod(&bed, "large-0", "busy", "1200m").await;
    configure(&bed, &[("default-reserve", Some("cpu=4"))]).await;
    let run = run("run");
    create(&bed, &run).await;
    succeeds_on_the_large_node_without_a_move(&bed, &run).await;
}

#[e2e_test]
async fn a_reserve_that_fits_on_no_node_is_reported_with_numbers() {
    let bed = bed().await;
    let run = reserving("cpu=64,memory=8Gi");
    create(&bed, &run).await;
    let reported = until_event(&bed, &run, "WaitingForNode").await;
    assert!(reported.contains("large-0 has cpu 6 of 64"), "{reported}");
    bed.add_nodes(&Nodes::new("huge", 1).size("96", "256Gi"))
        .await
        .unwrap();
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(nodes_of(&bed, &run).await, ["huge-0".to_owned()].into());
}

#[e2e_test]
async fn an_invalid_reserve_is_rejected_when_the_run_is_created() {
    let bed = installed().await;
    let client = bed.client().await.unwrap();
    for (reserve, part) in [
        ("cpu", "name=quantity"),
        ("cpus=4", "cpus"),
        ("cpu=-1", "cpu=-1"),
        ("cpu=0", "cpu=0"),
        ("memory=8", "unit"),
        ("cpu=4Gi", "unit"),
        ("cpu=much", "much"),
        ("cpu=1,cpu=2", "more than once"),
        ("nvidia.com/gpu=1500m", "whole number"),
    ] {
        let refused = reserving(reserve).create(&client).await.unwrap_err().to_string();
        assert!(
            refused.contains(keys::RESERVE) && refused.contains(part),
            "{reserve}: {refused}"
        );
    }
}

#[e2e_test]
async fn if_a_resize_is_rejected_the_placeholder_is_recreated_on_its_node_with_small_requests() {
    let bed = bed().await;
    let client = bed.client().await.unwrap();
    forbid_resize(&bed, &client).await;
    let auditor = Auditor::start(&bed).await;
    let run = reserving("cpu=4").lasting("3s");
    create(&bed, &run).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let selector = format!("{}={}", keys::COMPONENT, keys::PLACEHOLDER);
    let pinned = |pod: &Pod| {
        let mark = pod.annotations().get(keys::PINNED);
        mark.is_some_and(|node| node == "large-0")
    };
    bed.until("a placeholder that is pinned to the node", SOON, async || {
        let listed = pods
            .list(&ListParams::default().labels(&selector))
            .await
            .map_err(|error| error.to_string())?;
        if listed.items.iter().any(pinned) {
            Ok(())
        } else {
            Err("none".to_owned())
        }
    })
    .await
    .unwrap();
    succeeds_on_the_large_node_without_a_move(&bed, &run).await;
    auditor.assert_no_violation();
}

/// Removes the right to resize pods, as on an API server without the subresource; returns after the API server has applied
/// the change.
async fn forbid_resize(bed: &Testbed, client: &Client) {
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/resize"],
    });
    let policy = json!({
        "metadata": {"name": "no-resize"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "not here"}],
        },
    });
    let binding = json!({
        "metadata": {"name": "no-resize"},
        "spec": {"policyName": "no-resize", "validationActions": ["Deny"]},
    });
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let params = PostParams::default();
    policies
        .create(&params, &serde_json::from_value(policy).unwrap())
        .await
        .unwrap();
    bindings
        .create(&params, &serde_json::from_value(binding).unwrap())
        .await
        .unwrap();
    until_resize_is_refused(bed, client).await;
}

async fn until_resize_is_refused(bed: &Testbed, client: &Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let resources = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}});
    let probe = json!({
        "metadata": {"name": "probe"},
        "spec": {
            "nodeName": "still",
            "containers": [{"name": "main", "image": "testbed.invalid/main", "resources": resources}],
        },
    });
    still_node(bed, client, "still").await;
    pods.create(&PostParams::default(), &serde_json::from_value(probe).unwrap())
        .await
        .unwrap();
    let container = json!({"name": "main", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}});
    let patch = Patch::Strategic(json!({"spec": {"containers": [container]}}));
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    bed.until("resize to be refused", SOON, async || {
        match pods.patch_subresource("resize", "probe", &params, &patch).await {
            Err(error) if error.to_string().contains("not here") => Ok(()),
            other => Err(format!("{:?}", other.map(|_| ()))),
        }
    })
    .await
    .unwrap();
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("probe", &at_once).await.unwrap();
    bed.remove_nodes(&["still".to_owned()]).await.unwrap();
}

#[e2e_test]
async fn the_reserve_is_available_in_addition_to_the_placeholder_and_tektons_assistant() {
    let bed = fresh(0).await;
    create_pvc(&bed, "source", None).await;
    // The placeholder and the assistant request 50m each.
    bed.add_nodes(&Nodes::new("tight", 2).size("4060m", "8Gi"))
        .await
        .unwrap();
    let run = RunSpec::new("default", "run")
        .sized_task("large", &[], &json!({"cpu": "4"}))
        .opted_in("true")
        .annotation(keys::RESERVE, "cpu=4");
    let run = with_pvc(run, "source");
    create(&bed, &run).await;
    until_event(&bed, &run, "WaitingForNode").await;
    bed.add_nodes(&Nodes::new("large", 1).size("4100m", "8Gi"))
        .await
        .unwrap();
    succeeds_on_the_large_node_without_a_move(&bed, &run).await;
}

//! After a run, a pod keeps its node for some time. Every pod can use the node, and nothing is left afterwards.

use crate::support::SOON;
use crate::support::cli::tool;
use crate::support::events::until_event;
use crate::support::objects::node_of;
use crate::support::placeholders::until_no_placeholder;
use crate::support::runs::{bound_task, create, let_succeed, nodes_of, of_pipeline};
use crate::support::testbeds::fresh;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use placement::keys;
use serde_json::{Value, json};
use testbed::Testbed;
use testbed::product::NAMESPACE;
use testbed::runs::RunSpec;

/// Longer than the first steps of the test during which a node is kept.
const KEPT_FOR: &str = "30s";
const KEPT_SECONDS: f64 = 30.0;

async fn build(bed: &Testbed, name: &str) -> RunSpec {
    let run = RunSpec::new("default", name).task("only", &[]).ending("hang");
    let run = run.opted_in("true").annotation(keys::WARM, "true");
    of_pipeline(bed, run, json!({"name": "build"})).await
}

/// The pods that keep nodes.
pub(crate) async fn kept_nodes(bed: &Testbed) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(bed.client().await.unwrap(), NAMESPACE);
    let kept = ListParams::default().labels(&format!("{}={}", keys::COMPONENT, keys::KEPT_NODE));
    pods.list(&kept).await.unwrap().items
}

/// The pod that keeps the node, after the scheduler bound the pod.
async fn until_kept(bed: &Testbed, node: &str) -> Pod {
    bed.until(format!("{node} to be kept"), SOON, async || {
        let kept = kept_nodes(bed).await;
        let on_node = kept.iter().find(|pod| {
            let spec = pod.spec.as_ref();
            spec.and_then(|spec| spec.node_name.as_deref()) == Some(node)
        });
        on_node.cloned().ok_or_else(|| format!("{kept:?}"))
    })
    .await
    .unwrap()
}

async fn until_none_kept(bed: &Testbed) {
    bed.until("no node to be kept", SOON, async || {
        let kept = kept_nodes(bed).await;
        if kept.is_empty() {
            Ok(())
        } else {
            Err(format!("{kept:?}"))
        }
    })
    .await
    .unwrap();
}

/// Ends the run, and waits for the pod that keeps its node.
async fn end(bed: &Testbed, run: &RunSpec, node: &str) {
    let_succeed(bed, run).await;
    until_kept(bed, node).await;
}

/// The scheduler binds a pod of another application that needs most of the node.
async fn until_other_pod_is_on(bed: &Testbed, node: &str) {
    let pods: Api<Pod> = Api::namespaced(bed.client().await.unwrap(), "default");
    let pod = json!({"metadata": {"name": "other"}, "spec": {
        "nodeSelector": {keys::HOSTNAME: node},
        "containers": [{"name": "main", "image": "testbed.invalid/main", "resources": {"requests": {"cpu": "3"}}}],
    }});
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    bed.until("the other pod to be bound", SOON, async || {
        let other = pods.get("other").await.map_err(|error| error.to_string())?;
        let node = other.spec.and_then(|spec| spec.node_name);
        node.map(drop).ok_or_else(|| format!("{:?}", other.status))
    })
    .await
    .unwrap();
}

#[e2e_test]
async fn the_node_of_a_run_is_kept_for_the_next_run_and_for_other_pods_and_nothing_is_left() {
    let bed = fresh(3).await;
    bed.configure(&[
        ("keep-node-for", Some(KEPT_FOR)),
        ("keep-nodes-at-most", Some("1")),
    ])
    .await
    .unwrap();
    let first = build(&bed, "first").await;
    create(&bed, &first).await;
    let node = node_of(&bound_task(&bed, &first, "only").await);
    end(&bed, &first, &node).await;
    until_no_placeholder(&bed, "default").await;

    let [next, elsewhere] = [build(&bed, "next").await, build(&bed, "elsewhere").await];
    create(&bed, &next).await;
    let released = until_event(&bed, &next, "Released").await;
    assert!(released.contains("a warm start"), "{released}");
    until_none_kept(&bed).await;
    create(&bed, &elsewhere).await;
    bound_task(&bed, &elsewhere, "only").await;

    end(&bed, &next, &node).await;
    until_other_pod_is_on(&bed, &node).await;
    let_succeed(&bed, &elsewhere).await;
    until_no_placeholder(&bed, "default").await;
    let kept: Vec<_> = kept_nodes(&bed).await.iter().map(node_of).collect();
    assert!(kept.iter().all(|it| *it == node), "keep-nodes-at-most: {kept:?}");
    until_none_kept(&bed).await;
    assert_eq!(nodes_of(&bed, &next).await, [node].into());
    kept_time_is_reported(&bed).await;
}

/// The next run took the node of the first; the node of the next was kept for the whole time. `elsewhere` kept no node.
async fn kept_time_is_reported(bed: &Testbed) {
    let report: Value = serde_json::from_str(&tool(bed, "cost --since=0 -o json").await.out).unwrap();
    println!("{report:#}");
    let seconds = |run: &str| {
        let items = report["items"].as_array().unwrap();
        let item = items.iter().find(|item| item["run"] == run).unwrap();
        assert_eq!(item["runsWithGaps"], 0, "{item:#}");
        item["keptSeconds"].as_f64().unwrap()
    };
    let [first, next, elsewhere] = ["first", "next", "elsewhere"].map(seconds);
    assert!(first > 0.0 && first <= KEPT_SECONDS, "{first}");
    assert!((next - KEPT_SECONDS).abs() < 0.01, "{next}");
    assert!(elsewhere.abs() < 0.01, "{elsewhere}");
    let drawn = tool(bed, "timeline --since=0").await.out;
    assert!(drawn.contains("kept after the end"), "{drawn}");
}

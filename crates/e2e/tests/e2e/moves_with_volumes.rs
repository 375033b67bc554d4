//! A run with PVCs moves to a node to which its volumes can be attached, and the volumes follow.

use crate::support::SOON;
use crate::support::assistants::until_assistants_on;
use crate::support::auditor::Auditor;
use crate::support::cli::explain_until;
use crate::support::events::{notes, until_event};
use crate::support::fake_csi::{Attacher, add_attaching_nodes};
use crate::support::objects::{cordon, node_of, uncordon};
use crate::support::placeholders::{bound_placeholder, pods, until_no_placeholder};
use crate::support::pvcs::{create_pvc, create_pvc_of, with_pvc};
use crate::support::runs::{
    bound_task, create, let_end, let_succeed, let_task_end, small_then, until_moved_from,
};
use crate::support::testbeds::fresh;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use placement::keys;
use serde_json::json;
use testbed::runs::{self, RunSpec};
use testbed::{Nodes, Testbed};

#[e2e_test]
async fn a_run_moves_to_a_node_that_can_use_its_volume() {
    let bed = fresh(0).await;
    bed.add_nodes(&Nodes::new("west-small", 1).size("2", "8Gi").zone("west"))
        .await
        .unwrap();
    create_pvc(&bed, "zonal", Some("west")).await;
    let run = with_pvc(small_then("4"), "zonal");
    create(&bed, &run).await;
    bound_task(&bed, &run, "small").await;
    bed.add_nodes(&Nodes::new("east", 2).zone("east")).await.unwrap();
    bed.add_nodes(&Nodes::new("west-large", 1).zone("west"))
        .await
        .unwrap();
    assert_eq!(node_of(&bound_task(&bed, &run, "large").await), "west-large-0");
    bed.until_succeeded(&run, SOON).await.unwrap();
}

#[e2e_test]
async fn tektons_own_assistant_leaves_with_the_run_and_follows_it() {
    let bed = fresh(0).await;
    bed.add_nodes(&Nodes::new("small", 2).size("2", "8Gi"))
        .await
        .unwrap();
    create_pvc(&bed, "source", None).await;
    let run = with_pvc(small_then("4"), "source").ending("hang");
    let auditor = Auditor::start(&bed).await;
    create(&bed, &run).await;
    let_task_end(&bed, &run, "small").await;
    bed.add_nodes(&Nodes::new("large", 1)).await.unwrap();
    assert_eq!(node_of(&bound_task(&bed, &run, "large").await), "large-0");
    until_assistants_on(&bed, &["large-0".to_owned()].into()).await;
    let_succeed(&bed, &run).await;
    auditor.assert_no_violation_on_live_nodes();
}

/// Tekton moves the assistant off a cordoned node only until the first task of the run is created.
#[e2e_test]
async fn a_cordoned_node_is_left_together_with_tektons_own_assistant() {
    let bed = fresh(2).await;
    create_pvc(&bed, "source", None).await;
    let tasks = RunSpec::new("default", "run").task("a", &[]).task("b", &["a"]);
    let run = with_pvc(tasks.opted_in("true").ending("hang"), "source");
    create(&bed, &run).await;
    let first = node_of(&bound_task(&bed, &run, "a").await);
    cordon(&bed, &first).await;
    let_task_end(&bed, &run, "a").await;
    let second = until_moved_from(&bed, &run, &first).await;
    assert_eq!(node_of(&bound_task(&bed, &run, "b").await), second);
    until_assistants_on(&bed, &[second].into()).await;
    let_succeed(&bed, &run).await;
}

/// Another run waits for this node, and would take it at once if the run gave the node up.
#[e2e_test]
async fn a_run_never_gives_up_the_only_node_that_can_use_its_volume() {
    let bed = fresh(2).await;
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-0"]});
    let only_here = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}});
    let disk = json!({"local": {"path": "/tmp"}, "nodeAffinity": only_here});
    create_pvc_of(&bed, "disk", disk).await;
    let tasks = RunSpec::new("default", "run").task("a", &[]).task("b", &["a"]);
    let run = with_pvc(tasks.opted_in("true").ending("hang"), "disk");
    let created = create(&bed, &run).await;
    let placeholder = bound_placeholder(&bed, &created).await;
    let same_node = json!({"podTemplate": {"nodeSelector": {"kubernetes.io/hostname": "node-0"}}});
    let other = RunSpec::new("default", "other")
        .task("only", &[])
        .opted_in("true");
    create(&bed, &other.clone().spec("taskRunTemplate", same_node)).await;
    bound_task(&bed, &run, "a").await;
    cordon(&bed, "node-0").await;
    let_end(&bed, &run).await;
    let client = bed.client().await.unwrap();
    let is_it = |(reason, note): &(String, String)| {
        reason == "NodeUnfit"
            && note.contains("stays on node node-0, because its PVC disk can be used on no other node")
    };
    bed.until("the run to say why it stays", SOON, async || {
        let notes = notes(&client, &run).await;
        if notes.iter().any(is_it) {
            Ok(())
        } else {
            Err(notes)
        }
    })
    .await
    .unwrap();
    assert_eq!(bound_placeholder(&bed, &created).await.uid(), placeholder.uid());
    let text = explain_until(
        &bed,
        "run",
        "stays there, because its PVC disk can be used on no other node",
    )
    .await;
    let remedies = "What would help\n  * Let pods onto node-0 again: `kubectl uncordon node-0`.\n";
    assert!(text.ends_with(remedies), "{text}");
    uncordon(&bed, "node-0").await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    bed.until_succeeded(&other, SOON).await.unwrap();
}

/// The run opts out before its last task is created, so Tekton schedules this task to its assistant's node.
#[e2e_test]
async fn a_run_that_opts_out_while_it_has_no_node_still_has_its_assistant() {
    let bed = fresh(0).await;
    bed.add_nodes(&Nodes::new("small", 1).size("2", "8Gi"))
        .await
        .unwrap();
    create_pvc(&bed, "source", None).await;
    let tasks = small_then("4").task("last", &["large"]);
    let run = with_pvc(tasks, "source");
    create(&bed, &run).await;
    until_event(&bed, &run, "MovedOff").await;
    let opt_out = Patch::Merge(json!({"metadata": {"labels": {keys::OPT_IN: "false"}}}));
    let api = runs::runs(&bed.client().await.unwrap(), "default");
    api.patch("run", &PatchParams::default(), &opt_out).await.unwrap();
    bed.add_nodes(&Nodes::new("large", 1)).await.unwrap();
    bed.until_succeeded(&run, SOON).await.unwrap();
    until_no_placeholder(&bed, "default").await;
}

/// The real attach-detach controller runs. The test acts as the storage driver, which detaches slowly.
#[e2e_test]
async fn a_volume_that_is_attached_to_the_old_node_is_detached_before_it_follows_the_run() {
    let bed = fresh(0).await;
    let attacher = Attacher::start(&bed).await;
    Attacher::create_pvc(&bed, "source").await;
    add_attaching_node(&bed, "small", "2").await;
    let run = with_pvc(small_then("4"), "source").ending("hang");
    create(&bed, &run).await;
    bound_task(&bed, &run, "small").await;
    attacher.until_attached(&bed, "small-0").await;
    let_task_end(&bed, &run, "small").await;
    add_attaching_node(&bed, "large", "8").await;
    assert_eq!(node_of(&bound_task(&bed, &run, "large").await), "large-0");
    attacher.until_attached(&bed, "large-0").await;
    let_succeed(&bed, &run).await;
    let reported = notes(&bed.client().await.unwrap(), &run).await;
    let moves = reported.iter().filter(|(reason, _)| reason == "MovedOff").count();
    assert_eq!(
        moves, 1,
        "waiting for a volume is no reason to move again: {reported:?}"
    );
    attacher.assert_never_attached_twice();
}

async fn add_attaching_node(bed: &Testbed, prefix: &str, cpu: &str) {
    add_attaching_nodes(bed, &Nodes::new(prefix, 1).size(cpu, "16Gi")).await;
}

/// The node stays reserved, and the PVC is released.
#[e2e_test]
async fn the_volume_of_a_finished_run_that_reserves_its_node_can_be_used_by_the_next_run() {
    let bed = fresh(0).await;
    let attacher = Attacher::start(&bed).await;
    Attacher::create_pvc(&bed, "source").await;
    add_attaching_node(&bed, "first", "8").await;
    let run = |name: &str, strategy: &str| {
        let run = RunSpec::new("default", name).task("only", &[]);
        with_pvc(run.opted_in(strategy), "source")
    };
    let reserves = run("reserves", "isolateAlways").lasting("2s");
    let made = create(&bed, &reserves).await;
    bed.until_succeeded(&reserves, SOON).await.unwrap();
    until_event(&bed, &reserves, "CleanedUp").await;
    let kept = bound_placeholder(&bed, &made).await.spec.unwrap();
    assert_eq!(kept.node_name.as_deref(), Some("first-0"));
    let volumes = kept.volumes.unwrap_or_default();
    assert!(
        volumes
            .iter()
            .all(|volume| volume.persistent_volume_claim.is_none()),
        "{volumes:?}"
    );

    add_attaching_node(&bed, "second", "8").await;
    let next = run("next", "true").ending("hang");
    create(&bed, &next).await;
    attacher.until_attached(&bed, "second-0").await;
    let_succeed(&bed, &next).await;
    attacher.assert_never_attached_twice();
    until_claim_deleted(&bed, "source").await;
    assert_eq!(node_of(&bound_placeholder(&bed, &made).await), "first-0");
}

/// Deletes a PVC after the pods of all tasks, as pruners do: Kubernetes keeps a PVC while a pod refers to it, even a pod
/// that has ended.
async fn until_claim_deleted(bed: &Testbed, name: &str) {
    let client = bed.client().await.unwrap();
    let (params, tasks) = (
        DeleteParams::default(),
        ListParams::default().labels("tekton.dev/pipelineTask"),
    );
    let api = pods(&client, "default");
    api.delete_collection(&params, &tasks).await.unwrap();
    let pvcs: Api<PersistentVolumeClaim> = Api::namespaced(client, "default");
    pvcs.delete(name, &params).await.unwrap();
    bed.until(format!("PVC {name} to be deleted"), SOON, async || {
        let pvc = pvcs.get_opt(name).await.map_err(|error| error.to_string())?;
        pvc.map_or(Ok(()), |pvc| Err(format!("{:?}", pvc.metadata.finalizers)))
    })
    .await
    .unwrap();
}

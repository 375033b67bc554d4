//! Volumes that only some tasks of a run mount, and that cannot all be used on one node: each task is on a node of its own volume.

use crate::support::SOON;
use crate::support::events::notes;
use crate::support::fake_csi::{
    Attacher, DEFAULT_ZONE, IMMEDIATE, Provisioner, WITH_THE_FIRST_POD, add_attaching_nodes,
};
use crate::support::objects::node_of;
use crate::support::placeholders::bound_placeholder;
use crate::support::pvcs::{create_pvc, create_pvc_of, with_workspace_of};
use crate::support::runs::{bound_task, create, let_succeed, let_task_end};
use crate::support::testbeds::fresh;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Api, PostParams};
use placement::keys;
use serde_json::{Value, json};
use testbed::runs::{OPT_IN, RunSpec};
use testbed::{Nodes, Testbed};

const ZONE: &str = "topology.kubernetes.io/zone";

/// A labelled run whose three tasks run one after another.
fn three_tasks(name: &str) -> RunSpec {
    let run = RunSpec::new("default", name).task("first", &[]);
    let run = run.task("second", &["first"]).task("third", &["second"]);
    run.opted_in("true").lasting("1s")
}

/// The PVC is mounted by the tasks of these names.
fn mounted_by(run: RunSpec, pvc: &str, tasks: &[&str]) -> RunSpec {
    let volume = json!({"persistentVolumeClaim": {"claimName": pvc}});
    with_workspace_of(run, pvc, &volume, |task| tasks.contains(&task))
}

async fn zones(bed: &Testbed) {
    for zone in ["east", DEFAULT_ZONE] {
        add_attaching_nodes(bed, &Nodes::new(zone, 1).zone(zone)).await;
    }
}

/// The nodes of the three tasks.
async fn nodes_of_tasks(bed: &Testbed, run: &RunSpec) -> [String; 3] {
    let mut nodes = [const { String::new() }; 3];
    for (node, task) in nodes.iter_mut().zip(["first", "second", "third"]) {
        *node = node_of(&bound_task(bed, run, task).await);
    }
    nodes
}

/// Checks that the placeholder's node affinity never excluded all nodes. For a moment, the scheduler may not know that a PVC is
/// bound.
async fn assert_never_waited_for_a_node(bed: &Testbed, run: &RunSpec) {
    let reported = notes(&bed.client().await.unwrap(), run).await;
    let waited =
        |(reason, note): &(String, String)| reason == "WaitingForNode" && note.contains("node affinity");
    assert!(!reported.iter().any(waited), "{reported:?}");
}

#[e2e_test]
async fn a_run_with_volumes_in_two_zones_goes_to_the_zone_of_each_task() {
    let bed = fresh(0).await;
    zones(&bed).await;
    create_pvc(&bed, "a", Some("east")).await;
    create_pvc(&bed, "b", Some("west")).await;
    let run = mounted_by(three_tasks("run"), "a", &["first", "third"]);
    let run = mounted_by(run, "b", &["second"]);
    create(&bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(nodes_of_tasks(&bed, &run).await, ["east-0", "west-0", "east-0"]);
    assert_never_waited_for_a_node(&bed, &run).await;
}

#[e2e_test]
async fn a_run_with_disks_of_two_nodes_goes_to_the_node_of_each_task() {
    let bed = fresh(2).await;
    for (pvc, node) in [("a", "node-0"), ("b", "node-1")] {
        let here = json!({"key": keys::HOSTNAME, "operator": "In", "values": [node]});
        let only_here = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}});
        let disk = json!({"local": {"path": "/tmp"}, "nodeAffinity": only_here});
        create_pvc_of(&bed, pvc, disk).await;
    }
    let run = mounted_by(three_tasks("run"), "a", &["first", "third"]);
    let run = mounted_by(run, "b", &["second"]);
    create(&bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(nodes_of_tasks(&bed, &run).await, ["node-0", "node-1", "node-0"]);
    assert_never_waited_for_a_node(&bed, &run).await;
}

/// A template of a volume of 1 GiB that Tekton creates for the run.
fn template(class: &str) -> Value {
    json!({"spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class,
        "resources": {"requests": {"storage": "1Gi"}},
    }})
}

/// The placeholder mounts the PVC that the run names. Tekton creates the other PVC when the run starts.
#[e2e_test]
async fn the_placeholder_follows_its_run_to_a_node_where_it_cannot_mount_its_own_volume() {
    let bed = fresh(0).await;
    let _provisioner = Provisioner::start(&bed).await;
    zones(&bed).await;
    create_pvc(&bed, "a", Some("east")).await;
    let run = mounted_by(three_tasks("run"), "a", &["second"]);
    let made = json!({"volumeClaimTemplate": template(IMMEDIATE)});
    let run = with_workspace_of(run, "made", &made, |task| task == "first").ending("hang");
    let created = create(&bed, &run).await;
    assert_eq!(node_of(&bound_task(&bed, &run, "first").await), "west-0");
    bed.until(
        "the placeholder to be on the node of the task",
        SOON,
        async || match node_of(&bound_placeholder(&bed, &created).await) {
            node if node == "west-0" => Ok(()),
            node => Err(node),
        },
    )
    .await
    .unwrap();
    let_succeed(&bed, &run).await;
    assert_eq!(nodes_of_tasks(&bed, &run).await, ["west-0", "east-0", "east-0"]);
}

/// The placeholder finds a node before the task that is restricted to another zone is created.
#[e2e_test]
async fn without_tektons_assistants_an_unbound_pvc_gets_its_volume_in_the_zone_of_the_first_task_that_mounts_it()
 {
    let bed = fresh(0).await;
    bed.configure(&[("move-after", Some("2s"))]).await.unwrap();
    bed.feature_flags(&[("coschedule", "disabled")]).await.unwrap();
    let _provisioner = Provisioner::start(&bed).await;
    bed.add_nodes(&Nodes::new("east", 1).zone("east")).await.unwrap();
    let pvc = json!({"metadata": {"name": "later"}, "spec": template(WITH_THE_FIRST_POD)["spec"]});
    let pvcs: Api<PersistentVolumeClaim> = Api::namespaced(bed.client().await.unwrap(), "default");
    let pvc = serde_json::from_value(pvc).unwrap();
    pvcs.create(&PostParams::default(), &pvc).await.unwrap();
    let elsewhere = json!({"nodeSelector": {ZONE: "west"}});
    let second = json!({"pipelineTaskName": "second", "podTemplate": elsewhere});
    let run = mounted_by(three_tasks("run"), "later", &["second"]).spec("taskRunSpecs", json!([second]));
    create(&bed, &run).await;
    bound_task(&bed, &run, "first").await;
    bed.add_nodes(&Nodes::new("west", 1).zone("west")).await.unwrap();
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(node_of(&bound_task(&bed, &run, "second").await), "west-0");
}

/// The task does not follow its run, so the placeholder must not keep the volume on the node of the run. KWOK starts pods
/// without their volumes, so the task hangs until its volume is attached, as with a kubelet.
#[e2e_test]
async fn a_task_that_opted_out_gets_the_volume_of_its_run_on_another_node() {
    let bed = fresh(0).await;
    bed.feature_flags(&[("coschedule", "disabled")]).await.unwrap();
    let attacher = Attacher::start(&bed).await;
    Attacher::create_pvc(&bed, "source").await;
    for pool in ["linux", "windows"] {
        add_attaching_nodes(&bed, &Nodes::new(pool, 1).label("pool", pool)).await;
    }
    let pool = |pool: &str| json!({"nodeSelector": {"pool": pool}});
    let second = json!({
        "pipelineTaskName": "second",
        "metadata": {"labels": {OPT_IN: "false"}},
        "podTemplate": pool("windows"),
    });
    let run = mounted_by(
        three_tasks("run").ending("hang"),
        "source",
        &["first", "second", "third"],
    )
    .spec("taskRunTemplate", json!({"podTemplate": pool("linux")}))
    .spec("taskRunSpecs", json!([second]));
    create(&bed, &run).await;
    bound_task(&bed, &run, "first").await;
    attacher.until_attached(&bed, "linux-0").await;
    let_task_end(&bed, &run, "first").await;
    bound_task(&bed, &run, "second").await;
    attacher.until_attached(&bed, "windows-0").await;
    let_succeed(&bed, &run).await;
    attacher.assert_never_attached_twice();
}

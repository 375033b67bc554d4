//! Volumes that containers mount: a disk of the node, on which one task writes a program that another task executes.

use crate::real_node::runs::{create, ends_well, its_placeholder_goes, released};
use crate::real_node::setup::{NodeSetup, SOON};
use crate::support::events::reasons;
use crate::support::pvcs::{create_pvc_of, with_pvc, with_workspace};
use crate::volumes_node_local::{example, follow_page, the_volume_of_a_deleted_run_is_used_again};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use placement::keys;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use testbed::real_node::NAME;
use testbed::runs::{self, RunSpec};

/// The path of pod-affinity's program in the workspace of `with_pvc`.
const WRITTEN: &str = "/workspace/source/pod-affinity";

/// A folder of the node, to which any user may write.
fn folder(setup: &NodeSetup, path: &str) {
    let made = setup.bed.real_node_folder().join(path);
    std::fs::create_dir_all(&made).unwrap();
    std::fs::set_permissions(&made, Permissions::from_mode(0o777)).unwrap();
}

/// Creates a local volume of the node, to which any user may write, and its PVC.
async fn disk(setup: &NodeSetup, name: &str, mode: &str) {
    let path = format!("var/lib/disks/{name}");
    folder(setup, &path);
    let here = json!({"key": keys::HOSTNAME, "operator": "In", "values": [NAME]});
    let volume = json!({
        "local": {"path": format!("/{path}")},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        "accessModes": [mode],
    });
    create_pvc_of(&setup.bed, name, volume).await;
}

fn task(setup: &NodeSetup, name: &str, command: &[&str]) -> Value {
    let step = json!({"name": "step", "image": setup.image, "command": command});
    json!({"name": name, "taskSpec": {"steps": [step]}})
}

/// Tekton's own program copies pod-affinity's, because the image contains no other program.
fn writes(setup: &NodeSetup, name: &str) -> Value {
    let copy = ["/tekton/bin/entrypoint", "cp", "/pod-affinity", WRITTEN];
    task(setup, name, &copy)
}

fn executes(setup: &NodeSetup, name: &str) -> Value {
    task(setup, name, &[WRITTEN, "--version"])
}

fn run(name: &str, pvc: &str, tasks: &[Value]) -> RunSpec {
    let run = RunSpec::new("default", name).spec("pipelineSpec", json!({"tasks": tasks}));
    with_pvc(run.opted_in("true"), pvc)
}

pub(crate) async fn two_runs_use_a_volume_in_turn(setup: &NodeSetup) {
    disk(setup, "turns", "ReadWriteOnce").await;
    let mut then = executes(setup, "two");
    then["runAfter"] = json!(["one"]);
    let first = run("writes", "turns", &[writes(setup, "one"), then.clone()]);
    let second = run("executes", "turns", &[executes(setup, "one"), then]);
    create(setup, &first).await;
    released(setup, &first).await;
    create(setup, &second).await;
    setup.bed.until_succeeded(&first, SOON).await.unwrap();
    ends_well(setup, &second).await;
}

/// The recipe of examples/node-local, with the image of this test: a task executes what another task wrote, also in a later run.
pub(crate) async fn a_run_gets_a_volume_of_its_node(setup: &NodeSetup) {
    folder(setup, "var/lib/node-local");
    follow_page(&setup.bed, "## Volumes", NAME).await;
    let mut then = executes(setup, "read");
    then["runAfter"] = json!(["write"]);
    let first = like_the_example("node-local", &[writes(setup, "write"), then.clone()]);
    let later = like_the_example("node-local-later", &[executes(setup, "write"), then]);
    create(setup, &first).await;
    setup.bed.until_succeeded(&first, SOON).await.unwrap();
    the_volume_of_a_deleted_run_is_used_again(&setup.bed, &first, NAME).await;
    create(setup, &later).await;
    ends_well(setup, &later).await;
    the_volume_of_a_deleted_run_is_used_again(&setup.bed, &later, NAME).await;
}

/// The run of the example, with these tasks.
fn like_the_example(name: &str, tasks: &[Value]) -> RunSpec {
    let spec = &example(name).manifest["spec"];
    let run = RunSpec::new("default", name).spec("pipelineSpec", json!({"tasks": tasks}));
    let run = run.spec("taskRunTemplate", spec["taskRunTemplate"].clone());
    with_workspace(run.opted_in("true"), &spec["workspaces"][0])
}

/// The scheduler and the kubelet allow one pod at a time to use such a volume. Tekton's own assistant would be this pod.
pub(crate) async fn a_volume_of_one_pod_goes_from_task_to_task(setup: &NodeSetup) {
    let disabled = [("coschedule", "disabled")];
    setup.bed.feature_flags(&disabled).await.unwrap();
    disk(setup, "exclusive", "ReadWriteOncePod").await;
    let mut tasks = vec![writes(setup, "write")];
    for name in ["left", "right"] {
        let mut task = executes(setup, name);
        task["runAfter"] = json!(["write"]);
        tasks.push(task);
    }
    let spec = run("exclusive", "exclusive", &tasks);
    create(setup, &spec).await;
    setup.bed.until_succeeded(&spec, SOON).await.unwrap();
    let client = setup.bed.client().await.unwrap();
    let pods = runs::pods(&client, "default", "exclusive").await.unwrap();
    let [left, right] = ["left", "right"].map(|task| lived(&pods, task));
    assert!(
        left.1 <= right.0 || right.1 <= left.0,
        "both at once: {left:?}, {right:?}"
    );
    let reported = reasons(&client, &spec).await;
    assert!(!reported.contains(&"MovedOff".to_owned()), "{reported:?}");
    its_placeholder_goes(setup, &spec).await;
}

/// The times at which the pod of a task was bound and at which it ended.
fn lived(pods: &[Pod], task: &str) -> (String, String) {
    let is_it = |pod: &&Pod| pod.labels().get("tekton.dev/pipelineTask").map(String::as_str) == Some(task);
    let status = pods.iter().find(is_it).unwrap().status.clone().unwrap();
    let ended = status.container_statuses.unwrap()[0].state.clone().unwrap();
    let ended = ended.terminated.unwrap().finished_at.unwrap().0.to_string();
    (status.start_time.unwrap().0.to_string(), ended)
}

//! Volumes that containers mount: a disk of the node, on which one task writes a program that another task executes.

use crate::real_node::runs::{create, ends_well, released};
use crate::real_node::world::{SOON, World};
use crate::support::claims::{claim_of, with_claim};
use crate::support::events::reasons;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use placement::keys;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use testbed::real_node::NAME;
use testbed::runs::{self, RunSpec};

/// The path of pod-affinity's program in the workspace of `with_claim`.
const WRITTEN: &str = "/workspace/source/pod-affinity";

/// Creates a local volume of the node, to which any user may write, and its PVC.
async fn disk(world: &World, name: &str, mode: &str) {
    let folder = format!("var/lib/disks/{name}");
    let made = world.bed.real_node_folder().join(&folder);
    std::fs::create_dir_all(&made).unwrap();
    std::fs::set_permissions(&made, Permissions::from_mode(0o777)).unwrap();
    let here = json!({"key": keys::HOSTNAME, "operator": "In", "values": [NAME]});
    let volume = json!({
        "local": {"path": format!("/{folder}")},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        "accessModes": [mode],
    });
    claim_of(&world.bed, name, volume).await;
}

fn task(world: &World, name: &str, command: &[&str]) -> Value {
    let step = json!({"name": "step", "image": world.image, "command": command});
    json!({"name": name, "taskSpec": {"steps": [step]}})
}

/// Tekton's own program copies pod-affinity's, because the image contains no other program.
fn writes(world: &World, name: &str) -> Value {
    let copy = ["/tekton/bin/entrypoint", "cp", "/pod-affinity", WRITTEN];
    task(world, name, &copy)
}

fn executes(world: &World, name: &str) -> Value {
    task(world, name, &[WRITTEN, "--version"])
}

fn run(name: &str, claim: &str, tasks: &[Value]) -> RunSpec {
    let run = RunSpec::new("default", name).spec("pipelineSpec", json!({"tasks": tasks}));
    with_claim(run.opted_in("true"), claim)
}

pub(crate) async fn two_runs_use_a_volume_in_turn(world: &World) {
    disk(world, "turns", "ReadWriteOnce").await;
    let mut then = executes(world, "two");
    then["runAfter"] = json!(["one"]);
    let first = run("writes", "turns", &[writes(world, "one"), then.clone()]);
    let second = run("executes", "turns", &[executes(world, "one"), then]);
    create(world, &first).await;
    released(world, &first).await;
    create(world, &second).await;
    world.bed.until_succeeded(&first, SOON).await.unwrap();
    ends_well(world, &second).await;
}

/// The scheduler and the kubelet allow one pod at a time to use such a volume. Tekton's own assistant would be this pod.
pub(crate) async fn a_volume_of_one_pod_goes_from_task_to_task(world: &World) {
    let disabled = [("coschedule", "disabled")];
    world.bed.feature_flags(&disabled).await.unwrap();
    disk(world, "exclusive", "ReadWriteOncePod").await;
    let mut tasks = vec![writes(world, "write")];
    for name in ["left", "right"] {
        let mut task = executes(world, name);
        task["runAfter"] = json!(["write"]);
        tasks.push(task);
    }
    let spec = run("exclusive", "exclusive", &tasks);
    create(world, &spec).await;
    world.bed.until_succeeded(&spec, SOON).await.unwrap();
    let client = world.bed.client().await.unwrap();
    let pods = runs::pods(&client, "default", "exclusive").await.unwrap();
    let [left, right] = ["left", "right"].map(|task| lived(&pods, task));
    assert!(
        left.1 <= right.0 || right.1 <= left.0,
        "both at once: {left:?}, {right:?}"
    );
    let told = reasons(&client, &spec).await;
    assert!(!told.contains(&"MovedOff".to_owned()), "{told:?}");
}

/// The times at which the pod of a task was bound and at which it ended.
fn lived(pods: &[Pod], task: &str) -> (String, String) {
    let is_it = |pod: &&Pod| pod.labels().get("tekton.dev/pipelineTask").map(String::as_str) == Some(task);
    let status = pods.iter().find(is_it).unwrap().status.clone().unwrap();
    let ended = status.container_statuses.unwrap()[0].state.clone().unwrap();
    let ended = ended.terminated.unwrap().finished_at.unwrap().0.to_string();
    (status.start_time.unwrap().0.to_string(), ended)
}

//! Images that the node pulls ahead, from a registry behind a slow connection. The container runtime needs no support of image
//! volumes, because no container mounts the images: containerd 1.6 has none.

use crate::real_node::images::push_program;
use crate::real_node::install;
use crate::real_node::runs::{cores, create, ends_well_on_node, its_placeholder_runs, released};
use crate::real_node::setup::{NodeSetup, SOON, start};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use placement::keys;
use serde_json::json;
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use testbed::runs::{self, RunSpec};

/// The speed of the connection.
const BYTES_PER_SECOND: u64 = 4 << 20;
/// The size of each task's image.
const IMAGE: usize = 24 << 20;
/// How long a task works.
const WORK: &str = "8";
const TASKS: usize = 3;

/// The times of a run since its creation.
struct Times {
    first_step: Duration,
    end: Duration,
}

#[e2e_test(nightly, real_node, webhook)]
fn the_node_pulls_the_images_of_later_tasks_while_the_first_task_works() {
    let _alone = super::alone();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let setup = start(true).await;
        install::from_the_checkout(&setup);
        a_failed_pull_harms_no_run(&setup).await;
        let slow = slow_registry(&setup.registry);
        let mut ends = Vec::new();
        for pulls in ["false", "true", "false", "true"] {
            let times = measured(&setup, &slow, &format!("run-{}", ends.len()), pulls).await;
            let Times { first_step, end } = times;
            eprintln!("pull-images {pulls}: first step after {first_step:?}, end after {end:?}");
            ends.push(end);
        }
        let [late, ahead, late_again, ahead_again] = ends[..] else {
            unreachable!("four runs")
        };
        assert!(ahead.max(ahead_again) < late.min(late_again));
    });
}

/// The placeholder pulls the image of a task that the run skips, and that the registry does not have.
async fn a_failed_pull_harms_no_run(setup: &NodeSetup) {
    let step = |image: &str| json!({"name": "step", "image": image, "command": ["/pod-affinity"], "args": ["--version"]});
    let task = |name: &str, image: &str| json!({"name": name, "taskSpec": {"steps": [step(image)]}});
    let mut skipped = task("skipped", &format!("{}/absent:test", setup.registry));
    skipped["when"] = json!([{"input": "a", "operator": "in", "values": ["b"]}]);
    let mut then = task("two", &setup.image);
    then["runAfter"] = json!(["one"]);
    let tasks = json!([skipped, task("one", &setup.image), then]);
    let spec = RunSpec::new("default", "failed-pull")
        .spec("pipelineSpec", json!({"tasks": tasks}))
        .opted_in("true")
        .annotation(keys::PULL_IMAGES, "true");
    create(setup, &spec).await;
    released(setup, &spec).await;
    its_placeholder_runs(setup, &spec).await;
    ends_well_on_node(setup, &spec, 2).await;
}

/// A run of sequential tasks, each with an image of its own that the node does not have. The reserve of the run and the first task
/// each request more than half the node, so that the first task fits only if the placeholder is resized during the pull.
async fn measured(setup: &NodeSetup, registry: &str, name: &str, pulls: &str) -> Times {
    let most = format!("{}m", cores(setup).await * 600);
    let mut tasks = Vec::new();
    for index in 0..TASKS {
        let image = push_large(setup, &format!("{name}-{index}")).await;
        let image = image.replace(&setup.registry, registry);
        let step = json!({
            "name": "step", "image": image, "command": ["/sleeps", WORK],
            "computeResources": {"requests": {"cpu": most}},
        });
        let after: Vec<_> = index.checked_sub(1).map(task_name).into_iter().collect();
        tasks.push(json!({"name": task_name(index), "taskSpec": {"steps": [step]}, "runAfter": after}));
    }
    let spec = RunSpec::new("default", name)
        .spec("pipelineSpec", json!({"tasks": tasks}))
        .opted_in("true")
        .annotation(keys::RESERVE, &format!("cpu={most}"))
        .annotation(keys::PULL_IMAGES, pulls);
    let created = create(setup, &spec).await;
    let run = setup.bed.until_succeeded(&spec, 3 * SOON).await.unwrap();
    let times = times(setup, &spec, &created, &run).await;
    ends_well_on_node(setup, &spec, TASKS).await;
    times
}

fn task_name(index: usize) -> String {
    format!("task-{index}")
}

async fn times(setup: &NodeSetup, spec: &RunSpec, created: &DynamicObject, run: &DynamicObject) -> Times {
    let created = created.metadata.creation_timestamp.as_ref().unwrap().0;
    let since = |time: Timestamp| Duration::try_from(time.duration_since(created)).unwrap();
    let client = setup.bed.client().await.unwrap();
    let pods = runs::pods(&client, spec.namespace(), spec.name()).await.unwrap();
    let first_step = pods.iter().map(step_start).min().unwrap();
    let end: Timestamp = run.data["status"]["completionTime"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    Times {
        first_step: since(first_step),
        end: since(end),
    }
}

fn step_start(pod: &Pod) -> Timestamp {
    let statuses = pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap();
    let ended = statuses[0].state.as_ref().unwrap().terminated.as_ref().unwrap();
    ended.started_at.as_ref().unwrap().0
}

async fn push_large(setup: &NodeSetup, name: &str) -> String {
    let mut program = std::fs::read(sleeper(setup)).unwrap();
    // A loader ignores bytes after the end of a program. Random bytes cannot be compressed.
    let mut padding = vec![0; IMAGE - program.len()];
    fastrand::Rng::new().fill(&mut padding);
    program.extend(padding);
    let large = setup.folder("large").join(name);
    std::fs::write(&large, program).unwrap();
    std::fs::set_permissions(&large, Permissions::from_mode(0o755)).unwrap();
    push_program(&setup.registry, name, &large, "sleeps").await
}

/// A program that sleeps for the given seconds.
fn sleeper(setup: &NodeSetup) -> PathBuf {
    let folder = setup.folder("sleeper");
    let (source, program) = (folder.join("sleeps.c"), folder.join("sleeps"));
    let code = "#include <stdlib.h>\n#include <unistd.h>\nint main(int count, char **words) { return sleep(atoi(words[1])); }\n";
    std::fs::write(&source, code).unwrap();
    let built = Command::new("cc")
        .args(["-static", "-s", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());
    program
}

/// The address of the registry behind a connection that all its clients share.
fn slow_registry(registry: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (registry, line) = (registry.to_owned(), Arc::new(Mutex::new(())));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (registry, line) = (registry.clone(), Arc::clone(&line));
            thread::spawn(move || forward(client, &registry, &line));
        }
    });
    address
}

fn forward(mut client: TcpStream, registry: &str, line: &Mutex<()>) -> io::Result<()> {
    let mut server = TcpStream::connect(registry)?;
    let (mut requests, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || io::copy(&mut requests, &mut to));
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = server.read(&mut buffer)?;
        if read == 0 {
            return client.shutdown(Shutdown::Both);
        }
        let _taken = line.lock().unwrap();
        thread::sleep(Duration::from_nanos(
            read as u64 * 1_000_000_000 / BYTES_PER_SECOND,
        ));
        client.write_all(&buffer[..read])?;
    }
}

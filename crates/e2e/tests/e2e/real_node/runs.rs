//! Labelled runs whose pods run real containers.

use crate::real_node::install::{self, Installation};
use crate::real_node::setup::{NodeSetup, SOON, start};
use crate::real_node::volumes;
use crate::support::runs::held_for_good;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod, ResourceRequirements};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams};
use placement::keys;
use serde_json::{Value, json};
use std::time::Instant;
use testbed::real_node::NAME;
use testbed::runs::{self, RunSpec, State, state};

/// One test, because each step needs the previous step, and an installation is cluster-wide.
#[e2e_test(first, real_node, webhook, second)]
fn a_labelled_run_goes_from_pending_to_succeeded_in_containers() {
    let _alone = super::alone();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let before = crate::real_node::leftovers::Machine::look();
    runtime.block_on(async {
        let begun = Instant::now();
        let step = |what: &str| eprintln!("{what} ({:.0} s)", begun.elapsed().as_secs_f32());
        let setup = start(true).await;
        step("the real node is Ready");
        let installed = install::from_the_checkout(&setup);
        step("config/ is installed: all pods are Ready");
        a_run_is_held_placed_and_released(&setup, &installed, "first").await;
        step("a run has succeeded");
        two_runs_have_the_node_one_after_the_other(&setup).await;
        step("two runs have had the node one after the other");
        volumes::two_runs_use_a_volume_in_turn(&setup).await;
        step("two runs have had a volume one after the other");
        volumes::a_run_gets_a_volume_of_its_node(&setup).await;
        step("two runs have had a volume that was bound for them");
        a_reserve_is_given_back_in_place(&setup).await;
        step("a run with a reserve has succeeded; its placeholder was made small in place");
        install::forbid_resize(&setup).await;
        without_resize_a_reserve_is_given_back_by_a_new_placeholder(&setup).await;
        step("a run with a reserve has succeeded; its placeholder was recreated with small requests");
        the_job_before_a_deletion_releases_a_held_run(&setup, &installed).await;
        step("the Job before a deletion has released a held run and stopped the controller");
        install::uninstall(&setup, &installed);
        step("it is uninstalled, and nothing is left");
        let installed = install::from_a_release(&setup);
        step("release.yaml is installed with the image from the archive: all pods are Ready");
        a_run_is_held_placed_and_released(&setup, &installed, "released").await;
        step("a run has succeeded");
        volumes::a_volume_of_one_pod_goes_from_task_to_task(&setup).await;
        step("tasks have had a volume one after the other");
        install::uninstall(&setup, &installed);
        let folder = setup.bed.folder().to_owned();
        drop(setup);
        before.is_as_before_and_without(&folder);
        step("nothing is left on the machine");
    });
}

async fn the_job_before_a_deletion_releases_a_held_run(setup: &NodeSetup, installed: &Installation) {
    let held = held_for_good(&setup.bed, "default", "left-over").await;
    install::release_all(setup, installed);
    let api = runs::runs(&setup.bed.client().await.unwrap(), "default");
    let run = api.get(held.name()).await.unwrap();
    assert_ne!(state(&run), State::Pending);
    let pods = "--selector=app.kubernetes.io/name=pod-affinity,app.kubernetes.io/component!=webhook";
    let get = [
        "get",
        "statefulsets,pods",
        pods,
        "--all-namespaces",
        "--output=name",
    ];
    let deleted = setup.bed.until("all objects to be deleted", SOON, async || {
        let left = setup.kubectl(&get);
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    deleted.await.unwrap();
    api.delete(held.name(), &DeleteParams::default()).await.unwrap();
}

/// A run of two sequential tasks that execute pod-affinity's own binary.
fn run(setup: &NodeSetup, name: &str) -> RunSpec {
    with_requests(setup, name, &json!({}))
}

fn with_requests(setup: &NodeSetup, name: &str, requests: &Value) -> RunSpec {
    let step = json!({
        "name": "step",
        "image": setup.image,
        "command": ["/pod-affinity"],
        "args": ["--version"],
        "computeResources": {"requests": requests},
    });
    let tasks = json!([
        {"name": "one", "taskSpec": {"steps": [step]}},
        {"name": "two", "taskSpec": {"steps": [step]}, "runAfter": ["one"]},
    ]);
    RunSpec::new("default", name)
        .spec("pipelineSpec", json!({"tasks": tasks}))
        .opted_in("true")
}

/// Creates a run, which is held from its creation on. The API server gets the webhook's CA a moment after the webhook's pods
/// are Ready; until then, it rejects runs.
pub(crate) async fn create(setup: &NodeSetup, spec: &RunSpec) -> DynamicObject {
    let client = setup.bed.client().await.unwrap();
    let created = setup.bed.until("a labelled run to be accepted", SOON, async || {
        spec.create(&client).await.map_err(|error| error.to_string())
    });
    let created = created.await.unwrap();
    assert_eq!(state(&created), State::Pending);
    assert!(created.annotations().contains_key(keys::HOLD));
    created
}

async fn a_run_is_held_placed_and_released(setup: &NodeSetup, installed: &Installation, name: &str) {
    let spec = run(setup, name);
    create(setup, &spec).await;
    released(setup, &spec).await;
    let container = its_placeholder_runs(setup, &spec).await;
    let names = [container.image, container.image_id];
    assert!(names.contains(&installed.image), "{names:?}");
    ends_well(setup, &spec).await;
}

pub(crate) async fn ends_well(setup: &NodeSetup, spec: &RunSpec) {
    setup.bed.until_succeeded(spec, SOON).await.unwrap();
    its_pods_were_real(setup, spec).await;
    its_placeholder_goes(setup, spec).await;
}

/// Waits until the run is released on the real node.
pub(crate) async fn released(setup: &NodeSetup, spec: &RunSpec) -> DynamicObject {
    let on_the_node = |run: &DynamicObject| {
        run.annotations().get(keys::NODE).map(String::as_str) == Some(NAME) && state(run) != State::Pending
    };
    let run = setup
        .bed
        .until_run(spec, "to be released on the real node", SOON, on_the_node);
    run.await.unwrap()
}

async fn placeholder(setup: &NodeSetup, spec: &RunSpec) -> Option<Pod> {
    let listed = pods(setup, spec.namespace()).await;
    let listed = listed.list(&ListParams::default().labels(&selector(spec))).await;
    listed.unwrap().items.into_iter().next()
}

async fn pods(setup: &NodeSetup, namespace: &str) -> Api<Pod> {
    Api::namespaced(setup.bed.client().await.unwrap(), namespace)
}

/// A label selector for the run's placeholder.
fn selector(spec: &RunSpec) -> String {
    let (component, run) = (keys::COMPONENT, keys::TEKTON_PIPELINE_RUN);
    format!("{component}={},{run}={}", keys::PLACEHOLDER, spec.name())
}

/// Waits until the placeholder is Ready.
pub(crate) async fn its_placeholder_runs(setup: &NodeSetup, spec: &RunSpec) -> ContainerStatus {
    let what = format!("the placeholder of {} to run", spec.name());
    let container = setup.bed.until(what, SOON, async || {
        let pod = placeholder(setup, spec).await;
        let status = pod.and_then(|pod| pod.status).unwrap_or_default();
        let container = status.container_statuses.unwrap_or_default().pop();
        container
            .filter(|container| container.ready)
            .ok_or(status.conditions)
    });
    container.await.unwrap()
}

pub(crate) async fn its_placeholder_goes(setup: &NodeSetup, spec: &RunSpec) {
    let what = format!("the placeholder of {} to be gone", spec.name());
    let gone = setup.bed.until(what, SOON, async || {
        placeholder(setup, spec)
            .await
            .map_or(Ok(()), |pod| Err(pod.metadata.deletion_timestamp))
    });
    gone.await.unwrap();
}

/// Checks that the pods of these tasks were on the node, and that the placeholder is deleted.
pub(crate) async fn ends_well_on_node(setup: &NodeSetup, spec: &RunSpec, tasks: usize) {
    setup.bed.until_succeeded(spec, SOON).await.unwrap();
    let client = setup.bed.client().await.unwrap();
    let pods = runs::pods(&client, spec.namespace(), spec.name()).await.unwrap();
    assert_eq!(pods.len(), tasks);
    assert_eq!(runs::nodes(&pods), [NAME.to_owned()].into());
    its_placeholder_goes(setup, spec).await;
}

/// Checks that each task's pod was on the node, and that the log of its container is the output of the binary.
async fn its_pods_were_real(setup: &NodeSetup, spec: &RunSpec) {
    let client = setup.bed.client().await.unwrap();
    let pods = runs::pods(&client, spec.namespace(), spec.name()).await.unwrap();
    assert_eq!(pods.len(), 2);
    assert_eq!(runs::nodes(&pods), [NAME.to_owned()].into());
    for pod in &pods {
        let log = step_log(setup, pod);
        assert!(
            log.contains(&format!("pod-affinity {}", env!("CARGO_PKG_VERSION"))),
            "{log}"
        );
    }
}

fn step_log(setup: &NodeSetup, pod: &Pod) -> String {
    let folder = format!(
        "{}_{}_{}",
        pod.namespace().unwrap(),
        pod.name_any(),
        pod.uid().unwrap()
    );
    let logs = setup.bed.real_node_folder().join("var/log/pods").join(folder);
    std::fs::read_to_string(logs.join("step-step/0.log")).unwrap()
}

async fn two_runs_have_the_node_one_after_the_other(setup: &NodeSetup) {
    let (one, two) = (run(setup, "one"), run(setup, "two"));
    create(setup, &one).await;
    released(setup, &one).await;
    create(setup, &two).await;
    let one = setup.bed.until_succeeded(&one, SOON).await.unwrap();
    let two = setup.bed.until_succeeded(&two, SOON).await.unwrap();
    let time = |run: &DynamicObject, key: &str| run.data["status"][key].as_str().unwrap().to_owned();
    let (ended, begun) = (time(&one, "completionTime"), time(&two, "startTime"));
    assert!(
        ended <= begun,
        "the first ended at {ended}, the second began at {begun}"
    );
}

async fn a_reserve_is_given_back_in_place(setup: &NodeSetup) {
    let spec = reserving(setup, "resized").await;
    let [big, small] = first_and_last_until_the_release(setup, &spec).await;
    assert_eq!(big.uid(), small.uid());
    let reported = setup
        .bed
        .until("the kubelet to have made it small", SOON, async || {
            let resources = its_placeholder_runs(setup, &spec).await.resources;
            let reported = cpu(resources.as_ref()).to_owned();
            if reported == "50m" { Ok(()) } else { Err(reported) }
        });
    reported.await.unwrap();
    ends_well(setup, &spec).await;
}

async fn without_resize_a_reserve_is_given_back_by_a_new_placeholder(setup: &NodeSetup) {
    let spec = reserving(setup, "recreated").await;
    let [big, small] = first_and_last_until_the_release(setup, &spec).await;
    assert_ne!(big.uid(), small.uid());
    assert_eq!(
        small.annotations().get(keys::PINNED).map(String::as_str),
        Some(NAME)
    );
    ends_well(setup, &spec).await;
}

/// A run with a reserve of more than half the node, and tasks with the same requests: a task fits only if the placeholder
/// has small requests.
async fn reserving(setup: &NodeSetup, name: &str) -> RunSpec {
    let most = format!("{}m", cores(setup).await * 600);
    with_requests(setup, name, &json!({"cpu": most})).annotation(keys::RESERVE, &format!("cpu={most}"))
}

/// The placeholder as it was created, with the requests of the reserve, and as it is when its run is released.
async fn first_and_last_until_the_release(setup: &NodeSetup, spec: &RunSpec) -> [Pod; 2] {
    let created = create(setup, spec).await;
    released(setup, spec).await;
    let what = format!("the history of the placeholder of {}", spec.name());
    // Each attempt watches for one second, which may be too short for the whole history.
    let versions = setup.bed.until(what, SOON, async || {
        let versions = placeholders_since(setup, spec, &created).await;
        match versions.last().map(request) {
            Some("50m") => Ok(versions),
            last => Err(last.map(str::to_owned)),
        }
    });
    let mut versions = versions.await.unwrap();
    let last = versions.pop().expect("a placeholder of a running run");
    let first = versions.swap_remove(0);
    let reserve = spec.manifest["metadata"]["annotations"][keys::RESERVE]
        .as_str()
        .unwrap();
    let milli = |cpu: &str| cpu.trim_end_matches('m').parse::<i64>().unwrap();
    // The reserve includes the requests of the placeholder and of Tekton's assistant.
    let beside = milli(request(&first)) - milli(reserve.trim_start_matches("cpu="));
    assert_eq!(beside, 100);
    [first, last]
}

/// Each version of the placeholder since the run was created.
async fn placeholders_since(setup: &NodeSetup, spec: &RunSpec, created: &DynamicObject) -> Vec<Pod> {
    let since = created.resource_version().unwrap();
    let until_now = WatchParams::default().labels(&selector(spec)).timeout(1);
    let events = pods(setup, spec.namespace()).await;
    let events = events.watch(&until_now, &since).await.unwrap();
    let versions = events.filter_map(async |event| match event.unwrap() {
        WatchEvent::Added(pod) | WatchEvent::Modified(pod) => Some(pod),
        _ => None,
    });
    versions.collect().await
}

fn request(pod: &Pod) -> &str {
    cpu(pod.spec.as_ref().unwrap().containers[0].resources.as_ref())
}

fn cpu(resources: Option<&ResourceRequirements>) -> &str {
    &resources.unwrap().requests.as_ref().unwrap()["cpu"].0
}

pub(crate) async fn cores(setup: &NodeSetup) -> u32 {
    let nodes: Api<Node> = Api::all(setup.bed.client().await.unwrap());
    let node = nodes.get(NAME).await.unwrap();
    let room = node.status.unwrap().allocatable.unwrap();
    room["cpu"].0.parse().expect("whole cores, as a machine has them")
}

/// Creates a pod, and waits until it runs.
pub(crate) async fn a_pod_runs(setup: &NodeSetup) {
    let pods = pods(setup, "default").await;
    let pod = json!({
        "metadata": {"name": "waiting"},
        "spec": {"containers": [{"name": "main", "image": setup.image, "args": ["placeholder"]}]},
    });
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let running = setup.bed.until("a pod to run", SOON, async || {
        let pod = pods.get("waiting").await.map_err(|error| error.to_string())?;
        let phase = pod.status.and_then(|status| status.phase);
        if phase.as_deref() == Some("Running") {
            Ok(())
        } else {
            Err(format!("{phase:?}"))
        }
    });
    running.await.unwrap();
}

//! Switches from the webhook to policies and back with the commands of the overlay's page, while runs and pods are created
//! continuously.

use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::cli::binary;
use crate::support::faulted_runs::CONTROLLERS;
use crate::support::install::{follow, plugins};
use crate::support::kubectl::{file, kubectl, rendered, workspace};
use crate::support::load::{GENTLE, Load};
use crate::support::pages::blocks;
use crate::support::pool;
use crate::support::runs::nodes_of;
use k8s_openapi::api::core::v1::Affinity;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt};
use placement::keys;
use serde_json::{Value, json};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};
use testbed::product::Installed;
use testbed::runs::{self, RunSpec, State};
use testbed::{Nodes, Part, Testbed};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::JoinHandle;
use tokio::time::interval;

const PAGE: &str = "overlays/policies/README.md";
/// Pause between the creation of two runs.
const PAUSE: Duration = Duration::from_millis(600);
/// One run out of this many is first held by its user.
const USERS: usize = 4;
/// Replaces cargo in a shell: `cargo ship apply` would build an image, and the testbed's processes need none.
const CARGO: &str = r#"#!/bin/sh
[ "$1 $2" = "ship apply" ] || exit 1
exec kubectl apply -f "$(echo "$4" | tr / -).json"
"#;

#[e2e_test(nightly, policies)]
async fn a_switch_to_policies_and_back_under_load_loses_no_run_and_no_pod() {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 60)).await.unwrap();
    prepare(&bed).await;
    let installed = install(&bed).await;
    // A controller on a busy machine may lose its Lease and end; the testbed restarts it.
    for controller in CONTROLLERS {
        bed.keep_alive(controller);
    }
    let auditor = Auditor::start(&bed).await;
    let (load, runs) = (Load::with_rate(&bed, GENTLE).await, Creation::start(&bed).await);
    let policies = to_policies(&bed, &installed).await;
    let webhook = to_the_webhook(&bed, &installed).await;
    let (outcome, made) = (load.end().await, runs.end().await);
    println!(
        "to policies in {policies:.1?}, back in {webhook:.1?}: {} runs, {} pods, {} of these lost",
        made.len(),
        outcome.calls,
        outcome.lost.len()
    );
    assert!(outcome.lost.is_empty(), "{:?}", outcome.causes());
    for run in &made {
        bed.until_succeeded(run, SOON).await.unwrap();
        assert_eq!(nodes_of(&bed, run).await.len(), 1, "{}", run.name());
        each_pod_has_each_term_once(&bed, run).await;
    }
    auditor.assert_no_violation();
}

/// Writes the files that the commands of the page need into their working directory.
async fn prepare(bed: &Testbed) {
    symlink(workspace().join("config"), bed.folder().join("config")).unwrap();
    let cargo = plugins(bed, &binary().await).join("cargo");
    std::fs::write(&cargo, CARGO).unwrap();
    std::fs::set_permissions(&cargo, PermissionsExt::from_mode(0o755)).unwrap();
}

async fn install(bed: &Testbed) -> Installed {
    let objects = objects("config");
    let install = bed.install(objects, &[], async |objects| {
        // The name under which the `cargo` of this test finds `cargo ship apply -f config/`.
        let file = file(bed, "config-", &objects);
        kubectl(bed, &["apply", "-f", &file]);
        Ok(())
    });
    install.await.unwrap()
}

fn objects(folder: &str) -> Vec<Value> {
    let objects = json!(rendered(&workspace().join(folder))).to_string();
    serde_json::from_str(&objects.replace("ko://", "testbed.invalid/")).unwrap()
}

async fn to_policies(bed: &Testbed, installed: &Installed) -> Duration {
    let begun = Instant::now();
    let [apply, remove] = commands("### From the webhook to policies");
    roll_out(bed, installed, "overlays/policies", &apply).await;
    run(bed, &remove).await;
    // On real nodes, the deletion of the Deployment ends its pods.
    for replica in 0..2 {
        bed.stop(Part::Webhook(replica)).unwrap();
    }
    begun.elapsed()
}

async fn to_the_webhook(bed: &Testbed, installed: &Installed) -> Duration {
    let begun = Instant::now();
    let [apply, rely] = commands("### From policies to the webhook");
    roll_out(bed, installed, "overlays/fail-open", &apply).await;
    run(bed, &rely).await;
    begun.elapsed()
}

fn commands(heading: &str) -> [String; 2] {
    blocks(PAGE, heading).try_into().unwrap()
}

async fn roll_out(bed: &Testbed, installed: &Installed, overlay: &str, apply: &str) {
    let roll_out = bed.roll_out(installed, objects(overlay), async |objects| {
        file(bed, &overlay.replace('/', "-"), &objects);
        run(bed, apply).await;
        Ok(())
    });
    roll_out.await.unwrap();
}

async fn run(bed: &Testbed, commands: &str) {
    follow(bed, commands, &RunSpec::new("default", "none")).await;
}

/// Creates labelled runs, one after another.
struct Creation {
    over: oneshot::Sender<()>,
    task: JoinHandle<Vec<RunSpec>>,
}

impl Creation {
    async fn start(bed: &Testbed) -> Self {
        let client = bed.client().await.unwrap();
        let (over, ended) = oneshot::channel();
        let task = tokio::spawn(create_runs(client, ended));
        Self { over, task }
    }

    async fn end(self) -> Vec<RunSpec> {
        self.over.send(()).expect("a run was refused or not held");
        self.task.await.unwrap()
    }
}

async fn create_runs(client: Client, mut over: oneshot::Receiver<()>) -> Vec<RunSpec> {
    let (mut ticks, mut made) = (interval(PAUSE), Vec::new());
    while over.try_recv() == Err(TryRecvError::Empty) {
        ticks.tick().await;
        made.push(created(&client, made.len()).await);
    }
    made
}

async fn created(client: &Client, number: usize) -> RunSpec {
    let run = RunSpec::new("default", &format!("run-{number}"))
        .task("a", &[])
        .task("b", &["a"])
        .opted_in("true");
    if number.is_multiple_of(USERS) {
        let users = run.clone().spec("status", json!(keys::PENDING));
        users.create(client).await.unwrap();
        is_held(&released(client, &run).await);
    } else {
        is_held(&run.create(client).await.unwrap());
    }
    run
}

async fn released(client: &Client, run: &RunSpec) -> DynamicObject {
    let release = Patch::Merge(json!({"spec": {"status": null}}));
    let api = runs::runs(client, run.namespace());
    let released = api.patch(run.name(), &PatchParams::default(), &release).await;
    released.unwrap()
}

fn is_held(run: &DynamicObject) {
    let ours = run.annotations().contains_key(keys::HOLD);
    assert!(ours && runs::state(run) == State::Pending, "{run:?}");
}

async fn each_pod_has_each_term_once(bed: &Testbed, run: &RunSpec) {
    let client = bed.client().await.unwrap();
    for pod in runs::pods(&client, run.namespace(), run.name()).await.unwrap() {
        let affinity = pod.spec.and_then(|spec| spec.affinity).unwrap_or_default();
        assert_eq!(required_terms(&affinity), [1, 1], "{affinity:?}");
    }
}

/// Number of required terms: affinity to the group, and anti-affinity to other runs.
fn required_terms(affinity: &Affinity) -> [usize; 2] {
    let near = affinity.pod_affinity.as_ref();
    let near = near.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let apart = affinity.pod_anti_affinity.as_ref();
    let apart = apart.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    [near, apart].map(|terms| terms.map_or(0, Vec::len))
}

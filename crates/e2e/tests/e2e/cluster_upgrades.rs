//! Kubernetes and Tekton are upgraded while labelled runs are held and running: no run is lost, and no run is split.

use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::faulted_runs::{OURS, Runs, is_held, keep_alive_on};
use crate::support::pool;
use std::process::Command;
use testbed::pace::SHORT_LEASE;
use testbed::runs::{self, State};
use testbed::{Kubernetes, Options, Part, Tekton, Testbed, Versions};

/// Fewer nodes than runs, so that some runs are held during the upgrade.
const NODES: usize = OURS / 2;

/// Runs that their users hold, running runs, and runs that wait for their nodes.
async fn under_way<'a>(bed: &'a Testbed, auditor: &'a Auditor, namespace: &str) -> Runs<'a> {
    let mut runs = Runs::in_namespace(bed, auditor, namespace).await;
    runs.create_held_by_users().await;
    runs.create(OURS).await;
    bed.until("runs to run while others are held", SOON, async || {
        let listed = runs.listed().await?;
        let held = listed.iter().filter(|run| is_held(run)).count();
        let running = listed.iter().filter(|run| runs::state(run) == State::Running);
        let running = running.count();
        if held > 0 && running > 0 {
            Ok(())
        } else {
            Err(format!("{held} are held, {running} run"))
        }
    })
    .await
    .unwrap();
    runs
}

async fn all_end(mut runs: Runs<'_>) {
    runs.create(OURS / 2).await;
    runs.all_succeed().await;
}

async fn server_version(bed: &Testbed) -> String {
    let info = bed.client().await.unwrap().apiserver_version().await.unwrap();
    info.git_version
}

/// The version that the running controller was built from. Its ConfigMap is not evidence for this.
fn tekton_version(bed: &Testbed) -> String {
    let program = format!("/proc/{}/exe", bed.pid(Part::TektonController).unwrap());
    let reported = Command::new("go")
        .args(["version", "-m", &program])
        .output()
        .unwrap();
    let reported = String::from_utf8(reported.stdout).unwrap();
    let mut words = reported.split_whitespace();
    words
        .find(|word| *word == "github.com/tektoncd/pipeline")
        .unwrap();
    words.next().unwrap().to_owned()
}

#[e2e_test(nightly)]
async fn labelled_runs_survive_an_upgrade_of_kubernetes_and_of_tekton() {
    let bed = pool::start_exactly(Options {
        versions: Some(Versions {
            kubernetes: Kubernetes::V1_36,
            tekton: Tekton::V1_12,
        }),
        ..Options::default()
    })
    .await;
    keep_alive_on(&bed, NODES, &SHORT_LEASE).await;
    let auditor = Auditor::start(&bed).await;
    let before = (server_version(&bed).await, tekton_version(&bed));

    let runs = under_way(&bed, &auditor, "kubernetes").await;
    bed.upgrade_kubernetes(Kubernetes::V1_37).await.unwrap();
    all_end(runs).await;

    let runs = under_way(&bed, &auditor, "tekton").await;
    bed.upgrade_tekton(Tekton::V1_15).await.unwrap();
    all_end(runs).await;

    auditor.assert_no_violation();
    let after = (server_version(&bed).await, tekton_version(&bed));
    println!("from {before:?} to {after:?}");
    assert!(before.0.starts_with("v1.36.") && after.0.starts_with("v1.37."));
    assert!(before.1.starts_with("v1.12.") && after.1.starts_with("v1.15."));
}

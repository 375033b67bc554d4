//! `wait`, `release`, `disable` and `enable` on a real API server.

use crate::support::SOON;
use crate::support::cli::{LONG, only, tool};
use crate::support::runs::{create, held_for_good};
use crate::support::testbeds::fresh;
use serde_json::json;
use testbed::Testbed;
use testbed::runs::{self, RunSpec, State};

#[e2e_test]
async fn the_tool_waits_for_runs_and_releases_them_and_switches_pod_affinity_off_and_on() {
    let bed = fresh(3).await;
    a_run_is_waited_for(&bed).await;
    a_held_run_is_released(&bed).await;
    a_namespace_is_switched_off_and_on(&bed).await;
    the_cluster_is_switched_off_and_on(&bed).await;
}

async fn a_run_is_waited_for(bed: &Testbed) {
    create(bed, &only("short").opted_in("true").lasting("2s")).await;
    for goal in ["node", "released", "done"] {
        let said = tool(bed, &format!("wait pr/short --for={goal} --timeout=90s")).await;
        assert_eq!(said.code, Some(0), "{goal}: {said:?}");
    }
    held_for_good(bed, "default", "held").await;
    let sentence = "error: PipelineRun default/held is not on a node after 3s: its state is WaitingForNode. The controller is in state \
                    HeldUnscheduled. Waits for a node.\n";
    // On a stalled machine, the tool may time out before it has seen the run's placeholder.
    let late = bed.until("a wait in vain to say the run's state", SOON, async || {
        let late = tool(bed, "wait held --for=node --timeout=3s").await;
        if late.err == sentence { Ok(late) } else { Err(late) }
    });
    assert_eq!(late.await.unwrap().code, Some(1));
}

async fn a_held_run_is_released(bed: &Testbed) {
    let tried = tool(bed, "release held --dry-run=server").await;
    assert_eq!(
        tried.out, "pipelinerun.tekton.dev/held released (server dry run)\n",
        "{tried:?}"
    );
    let said = tool(bed, "release pipelinerun held").await;
    assert_eq!(said.out, "pipelinerun.tekton.dev/held released\n", "{said:?}");
    let again = tool(bed, "release held").await;
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.err.contains("is not held by pod-affinity"), "{again:?}");
    let api = runs::runs(&bed.client().await.unwrap(), "default");
    assert_eq!(runs::state(&api.get("held").await.unwrap()), State::Running);
}

async fn a_namespace_is_switched_off_and_on(bed: &Testbed) {
    let namespace = bed.namespace("off").await.unwrap();
    let held = held_for_good(bed, &namespace, "held").await;
    let said = tool(bed, &format!("disable -n {namespace}")).await;
    assert!(
        said.code == Some(0) && said.out.contains("/held released"),
        "{said:?}"
    );
    let api = runs::runs(&bed.client().await.unwrap(), &namespace);
    assert_eq!(runs::state(&api.get(held.name()).await.unwrap()), State::Running);
    until_created_runs_are(bed, &namespace, "off", State::Running).await;
    let said = tool(bed, &format!("enable -n {namespace}")).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    until_created_runs_are(bed, &namespace, "on", State::Pending).await;
}

async fn the_cluster_is_switched_off_and_on(bed: &Testbed) {
    let said = tool(bed, "disable -A").await;
    assert_eq!(said.code, Some(0), "{said:?}");
    until_created_runs_are(bed, "default", "all-off", State::Running).await;
    let doctor = tool(bed, "doctor").await;
    assert!(
        doctor.out.replace(['\n', ' '], "").contains("isswitchedoff"),
        "{doctor:?}"
    );
    // This testbed has no Deployment. The tool reports this, and switches admission on.
    let said = tool(bed, "enable -A").await;
    let lines: Vec<_> = said.out.lines().collect();
    let (first, others) = lines.split_first().unwrap();
    assert!(
        !others.is_empty() && others.iter().all(|line| line.ends_with(" enabled")),
        "{said:?}"
    );
    assert_eq!(*first, "deployment.apps/pod-affinity-controller is not there");
    assert_eq!(
        said.err,
        "error: a part of the installation is not there. Apply the manifests of the release again.\n"
    );
    assert_eq!(said.code, Some(1), "{said:?}");
    until_created_runs_are(bed, "default", "all-on", State::Pending).await;
}

/// Waits until new runs have this state: a changed configuration takes a moment to become active in the API server's
/// admission.
async fn until_created_runs_are(bed: &Testbed, namespace: &str, name: &str, wanted: State) {
    let nowhere = json!({"podTemplate": {"nodeSelector": {"nowhere": "true"}}});
    let mut number = 0;
    bed.until(format!("new runs to be {wanted:?}"), SOON, async || {
        number += 1;
        let spec = RunSpec::new(namespace, &format!("{name}-{number}"))
            .task("only", &[])
            .opted_in("true")
            .lasting(LONG)
            .spec("taskRunTemplate", nowhere.clone());
        let found = runs::state(&create(bed, &spec).await);
        if found == wanted { Ok(()) } else { Err(found) }
    })
    .await
    .unwrap();
}

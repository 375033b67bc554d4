//! Upgrades a release while runs are held, running and waiting: no run is lost, and each run keeps its placeholder.
//!
//! Both releases are written by `cargo ship release`. The testbed runs the processes, from the same code. The releases
//! differ in the image of the placeholders and in the version label of every object.

use crate::support::SOON;
use crate::support::cli::tool;
use crate::support::events::until_event;
use crate::support::kubectl::{call, file, parsed, printed};
use crate::support::placeholders::bound_placeholder;
use crate::support::pool;
use crate::support::runs::{create, let_end, nodes_of};
use crate::support::ship_program::released;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use testbed::pace::AS_SHIPPED;
use testbed::runs::{self, RunSpec, State};
use testbed::{Audit, Nodes, Options, Testbed};

/// The objects of a release, whose image contains only this version.
fn release(bed: &Testbed, version: &str) -> Vec<Value> {
    let folder = released(bed.folder(), version);
    parsed(&std::fs::read_to_string(folder.join("release.yaml")).unwrap())
}

/// kubectl's result for each object.
fn applied(bed: &Testbed, name: &str, objects: &[Value]) -> BTreeMap<String, String> {
    let file = file(bed, name, objects);
    let said = printed(&call(bed, "kubectl", &["apply", "-f", &file]));
    let words = said.lines().map(|line| line.rsplit_once(' ').unwrap());
    words
        .map(|(object, word)| (object.to_owned(), word.to_owned()))
        .collect()
}

fn placed(name: &str, zone: &str) -> RunSpec {
    let there = json!({"podTemplate": {"nodeSelector": {"topology.kubernetes.io/zone": zone}}});
    RunSpec::new("default", name)
        .opted_in("true")
        .spec("taskRunTemplate", there)
}

/// How often each placeholder was created: an apply that creates an object is answered with 201.
fn made(bed: &Testbed) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    for asked in bed.audit().unwrap() {
        let text = |pointer: &str| asked.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let is_made = asked.pointer("/responseStatus/code") == Some(&json!(201));
        if is_made && text("/objectRef/resource") == "statefulsets" {
            *made.entry(text("/objectRef/name").to_owned()).or_default() += 1;
        }
    }
    made
}

fn image(pod: &Pod) -> String {
    pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap()
}

async fn state(bed: &Testbed, run: &RunSpec) -> State {
    let api = runs::runs(&bed.client().await.unwrap(), run.namespace());
    runs::state(&api.get(run.name()).await.unwrap())
}

/// The versions that the command line tool prints for the controller and the webhook.
async fn versions(bed: &Testbed) -> String {
    let printed = tool(bed, "version").await.out;
    let (_client, installed) = printed.split_once('\n').unwrap();
    installed.to_owned()
}

#[e2e_test(webhook)]
async fn an_upgrade_loses_no_run_and_duplicates_no_placeholder() {
    let options = Options {
        audit: Audit::PodAffinity,
        ..Options::default()
    };
    let bed = pool::start(options).await;
    bed.add_nodes(&Nodes::new("node", 3).size("2", "8Gi").zone("here"))
        .await
        .unwrap();
    let (old, new) = (release(&bed, "v1.0.0"), release(&bed, "v1.1.0"));
    let installed = bed
        // Runs are created and end while each replica drains.
        .install(old, &[AS_SHIPPED], async |objects| {
            applied(&bed, "old", &objects);
            Ok(())
        })
        .await
        .unwrap();
    let expected = "Controller   v1.0.0\nAdmission    v1.0.0 (webhook)\n";
    assert_eq!(versions(&bed).await, expected);

    let held = placed("held", "there").task("only", &[]);
    let waiting =
        placed("waiting", "here")
            .task("small", &[])
            .sized_task("large", &["small"], &json!({"cpu": "4"}));
    let running = placed("running", "here")
        .task("a", &[])
        .task("b", &["a"])
        .task("c", &["b"])
        .ending("hang");
    let mut before = Vec::new();
    for run in [&held, &waiting, &running] {
        before.push(create(&bed, run).await);
    }
    until_event(&bed, &held, "WaitingForNode").await;
    until_event(&bed, &waiting, "NoNodeFits").await;
    let place = bound_placeholder(&bed, &before[2]).await;

    let mut said = BTreeMap::new();
    let mut again = BTreeMap::new();
    bed.roll_out(&installed, new, async |objects| {
        said = applied(&bed, "new", &objects);
        again = applied(&bed, "new", &objects);
        Ok(())
    })
    .await
    .unwrap();
    // The version is a label of each object.
    assert!(said.values().all(|word| word == "configured"), "{said:?}");
    // kubectl always sends the selector of a PodDisruptionBudget, and reports this as a change.
    let changed: Vec<_> = again.iter().filter(|(_, word)| *word != "unchanged").collect();
    assert!(
        matches!(changed[..], [(budget, _)] if budget.starts_with("poddisruptionbudget")),
        "{changed:?}"
    );
    assert_eq!(versions(&bed).await, expected.replace("v1.0.0", "v1.1.0"));

    assert_eq!(state(&bed, &held).await, State::Pending);
    assert_eq!(
        state(&bed, &running).await,
        State::Running,
        "it began before and ends after"
    );
    let_end(&bed, &running).await;
    let kept = bound_placeholder(&bed, &before[2]).await;
    assert_eq!((kept.uid(), image(&kept)), (place.uid(), image(&place)));
    bed.add_nodes(&Nodes::new("far", 1).zone("there")).await.unwrap();
    bed.add_nodes(&Nodes::new("large", 1).size("8", "32Gi").zone("here"))
        .await
        .unwrap();
    let later = placed("later", "here").task("only", &[]).ending("hang");
    let later_run = create(&bed, &later).await;
    assert_ne!(image(&bound_placeholder(&bed, &later_run).await), image(&place));
    let_end(&bed, &later).await;
    for run in [&held, &waiting, &running, &later] {
        bed.until_succeeded(run, SOON).await.unwrap();
    }
    assert_eq!(nodes_of(&bed, &held).await.len(), 1);
    assert_eq!(nodes_of(&bed, &running).await.len(), 1);
    let made = made(&bed);
    assert_eq!(made.len(), 4, "{made:?}");
    assert!(made.values().all(|times| *times == 1), "{made:?}");
}

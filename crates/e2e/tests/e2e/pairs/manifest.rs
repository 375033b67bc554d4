//! The manifests of a pair: both variants are built from the same draw, with and without the label.

use super::condition::Condition;
use super::pair::{Pair, Storage, Variant};
use super::place::{Place, ZONE};
use crate::support::custom_runs::with_custom_task;
use crate::support::fake_csi::{IMMEDIATE, WITH_THE_FIRST_POD};
use crate::support::pvcs::with_workspace_of;
use placement::keys;
use serde_json::{Value, json};
use testbed::runs::{OPT_IN, RunSpec};

/// The label of nodes that only one pair uses. A taint with the pair's name keeps other pods away.
pub(super) const OWNER: &str = "pair";
/// A task that the test itself ends.
pub(super) const GAP: &str = "gap";
/// The app to which runs have affinity or anti-affinity.
pub(super) const DATABASE: &str = "database";
const SIDES: [&str; 3] = ["left", "middle", "right"];
/// The tasks in the order in which they get the volumes or the zones of their run.
const MOUNTING: [&str; 6] = ["first", "second", "third", "left", "middle", "right"];

/// The run, and the runs of its namespace that are created together with it.
pub(super) fn runs(pair: &Pair, variant: Variant) -> Vec<RunSpec> {
    let all = 0..pair.condition.crowd();
    all.map(|number| run(pair, variant, &name(pair, variant, number)))
        .collect()
}

fn name(pair: &Pair, variant: Variant, number: usize) -> String {
    match number {
        0 => pair.name(variant),
        _ => format!("{}-{number}", pair.name(variant)),
    }
}

fn run(pair: &Pair, variant: Variant, name: &str) -> RunSpec {
    let run =
        RunSpec::new(&pair.namespace(variant), name).lasting(&format!("{}ms", pair.lasting.as_millis()));
    let run = mounting(pair, with_tasks(pair, run));
    let run = special(pair, run);
    let mut of_tasks = json!({"podTemplate": template(pair, variant)});
    if pair.condition == Condition::NoSuchAccount {
        of_tasks["serviceAccountName"] = json!("nobody");
    }
    labelled(pair, variant, run.spec("taskRunTemplate", of_tasks))
}

fn with_tasks(pair: &Pair, mut run: RunSpec) -> RunSpec {
    let size = pair.condition.cpu(pair.place);
    let size = size.map_or(json!({}), |cpu| json!({"cpu": cpu}));
    run = run.sized_task("first", &[], &size);
    for side in SIDES.into_iter().take(pair.width) {
        run = run.sized_task(side, &["first"], &size);
    }
    let before = if pair.condition.has_custom_task() {
        GAP
    } else {
        "first"
    };
    for (before, name) in [(before, "second"), ("second", "third")]
        .into_iter()
        .take(pair.length)
    {
        run = run.sized_task(name, &[before], &size);
    }
    if pair.condition == Condition::TimesOut {
        run = run.task_field("timeout", json!("1s"));
    }
    if pair.finally {
        run = run.finally("last");
    }
    match pair.condition {
        Condition::NodeDies | Condition::FailsOnce => tried_again(run, pair.retries),
        // Tekton retries the task, whatever state an evicted pod causes.
        Condition::Preempted => tried_again(run, 2),
        _ => run,
    }
}

/// Adds retries to each task, because any task may be running during the disruption.
fn tried_again(mut run: RunSpec, retries: u32) -> RunSpec {
    for tasks in ["tasks", "finally"] {
        let tasks = run.manifest["spec"]["pipelineSpec"][tasks].as_array_mut();
        for task in tasks.into_iter().flatten() {
            task["retries"] = json!(retries);
        }
    }
    run
}

fn mounting(pair: &Pair, run: RunSpec) -> RunSpec {
    let made = |class: &str| {
        let requests = json!({"storage": "1Gi"});
        json!({"volumeClaimTemplate": {"spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": requests},
        }}})
    };
    let (name, count) = (run.name().to_owned(), pair.volumes().count());
    pair.volumes().fold(run, |run, (number, storage)| {
        let volume = match storage {
            Storage::None => return run,
            Storage::InZone | Storage::InOtherZone | Storage::OnOneNode => {
                json!({"persistentVolumeClaim": {"claimName": pvc(&name, number)}})
            }
            Storage::Immediate => made(IMMEDIATE),
            Storage::WithTheFirstPod => made(WITH_THE_FIRST_POD),
        };
        let mounts = |task: &str| {
            let turn = MOUNTING.iter().position(|name| *name == task);
            turn.is_some_and(|turn| turn % count == number)
        };
        with_workspace_of(run, &format!("volume-{number}"), &volume, mounts)
    })
}

/// The name of a PVC that exists before its run, by the number of its volume.
pub(super) fn pvc(run: &str, number: usize) -> String {
    format!("{run}-volume-{number}")
}

fn special(pair: &Pair, run: RunSpec) -> RunSpec {
    match pair.condition {
        Condition::MadeByATrigger => ["eventlistener", "trigger", "triggers-eventid"]
            .into_iter()
            .fold(run, |run, key| {
                run.label(&format!("triggers.tekton.dev/{key}"), "some")
            }),
        Condition::TaskElsewhere => {
            let elsewhere = json!({"runtimeClassName": "sandbox"});
            let second = json!({"pipelineTaskName": "second", "podTemplate": elsewhere});
            run.spec("taskRunSpecs", json!([second]))
        }
        Condition::AlternatingZones => run.spec("taskRunSpecs", alternating(pair.length)),
        Condition::FailsOnce => run.ending("fail-once"),
        Condition::Fails => run.ending("fail"),
        _ if pair.condition.has_custom_task() => with_custom_task(run, GAP, &["first"]),
        _ => run,
    }
}

/// The first task requires a node of one zone, the second a node of the other, and so on.
fn alternating(length: usize) -> Value {
    let zones = [Place::Anywhere, Place::Zone].map(Place::zone);
    let spec = |(number, task)| json!({"pipelineTaskName": task, "podTemplate": {"nodeSelector": {ZONE: zones[number % 2]}}});
    MOUNTING.iter().take(1 + length).enumerate().map(spec).collect()
}

fn labelled(pair: &Pair, variant: Variant, mut run: RunSpec) -> RunSpec {
    match (variant, pair.condition) {
        // The label of a task has no effect on the run: only the task's pods have it.
        (Variant::Labelled, Condition::LabelledTask) => {
            let metadata = json!({"labels": {OPT_IN: "true"}});
            run.manifest["spec"]["pipelineSpec"]["tasks"][0]["taskSpec"]["metadata"] = metadata;
            run
        }
        (Variant::Labelled, Condition::LabelledByPipeline | Condition::LabelledByNamespace)
        | (Variant::Plain, _) => run,
        (Variant::Labelled, _) => run.opted_in(pair.strategy),
    }
}

/// The pod template of all tasks.
fn template(pair: &Pair, variant: Variant) -> Value {
    let (name, mut template) = (pair.name(variant), pair.place.template());
    if pair.own_nodes() > 0 {
        let own = json!({"key": name, "operator": "Exists", "effect": "NoSchedule"});
        let tolerations = template["tolerations"].as_array().cloned().unwrap_or_default();
        template["tolerations"] = tolerations.into_iter().chain([own]).collect();
    }
    if pair.condition.has_nodes() {
        template["nodeSelector"][OWNER] = json!(name);
    }
    if pair.condition == Condition::InvalidTemplate {
        template["nodeSelector"]["pool"] = json!("not valid!");
    }
    if let Some(affinity) = affinity(pair) {
        template["affinity"] = affinity;
    }
    template
}

fn affinity(pair: &Pair) -> Option<Value> {
    let selector = json!({"matchLabels": {"app": DATABASE}});
    let near = json!({"topologyKey": keys::HOSTNAME, "labelSelector": selector});
    match pair.condition {
        Condition::OwnAntiAffinity => {
            Some(json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}))
        }
        Condition::OwnPreferredAffinity => {
            let weighted = json!({"weight": 100, "podAffinityTerm": near});
            Some(json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}))
        }
        Condition::OwnNodeAffinity => Some(json!({"nodeAffinity": of_nodes(pair)})),
        _ => None,
    }
}

/// A required zone, and a preferred node of the zone.
fn of_nodes(pair: &Pair) -> Value {
    let is = |key: &str, value: String| json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
    let zone = is(ZONE, pair.place.zone().to_owned());
    let node = is(keys::HOSTNAME, format!("{}-0", pair.place.pool()));
    json!({
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": node}],
    })
}

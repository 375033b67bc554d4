//! Objects as the controller of commit 00c00a4 left them at the API server, for each state of a run: this controller takes them
//! over with the requests that the earlier controller would have sent next, without operations that would change nothing.
//!
//! `takeover/base.json` has the objects of a run that runs. `takeover/states.json` has the differences of the other states as merge
//! patches, what is read for the decision, and the requests.

use crate::fixture::{Caches, clock_of, run};
use crate::memory::Memory;
use placement::plan::{AssistantPod, Creation, Decision, Inputs, Observation, Read, plan};
use placement::requests::Verb;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tekton::PipelineRun;

const BASE: &str = include_str!("takeover/base.json");
const STATES: &str = include_str!("takeover/states.json");

/// The objects of a state, and what follows.
#[derive(Deserialize)]
struct State {
    #[serde(rename = "state")]
    name: String,
    #[serde(default = "unchanged")]
    run: Value,
    /// Null: the object does not exist.
    #[serde(default = "unchanged")]
    set: Value,
    #[serde(default = "unchanged")]
    pod: Value,
    failed_create: Option<String>,
    #[serde(default)]
    reads: Vec<String>,
    then: String,
    requests: Vec<Value>,
}

fn unchanged() -> Value {
    json!({})
}

/// The object with these changes, unless it does not exist.
fn changed(object: &Value, changes: &Value) -> Option<Value> {
    let mut object = object.clone();
    json_patch::merge(&mut object, changes);
    Some(object).filter(|_| !changes.is_null())
}

/// What this controller observes half a minute after the run's creation; it has just become the leader.
async fn observed(base: &Value, state: &State) -> Observation {
    let mut caches = Caches::ready();
    if let Some(set) = changed(&base["set"], &state.set) {
        caches.add_set_of(&run(), "s1", &set);
    }
    if let Some(pod) = changed(&base["pod"], &state.pod) {
        caches.add_pod_of(&run(), "p1", &pod);
    }
    if let Some(message) = &state.failed_create {
        caches.add_failed_create(&run(), 1, message);
    }
    let run = changed(&base["run"], &state.run).unwrap();
    let run: PipelineRun = serde_json::from_value(run).unwrap();
    let clock = clock_of(&Arc::new(30.into()));
    let memory = Memory::default();
    let observed = caches
        .stores
        .observe(run.run().unwrap(), &caches.config, &clock, &memory);
    let mut observed = observed.await.unwrap();
    // The controller waits a moment before an event counts.
    observed.requeue_in = Duration::ZERO;
    observed
}

/// Answers what the plan reads, and returns the decision.
fn decide(observed: &Observation, inputs: &mut Inputs) -> (Vec<String>, Decision) {
    let mut reads = Vec::new();
    loop {
        let decision = plan(observed, inputs).decision;
        match decision {
            Decision::Read(Read::Creation) => inputs.creation = Creation::default().into(),
            Decision::Read(Read::Assistants) => inputs.assistants = vec![assistant()].into(),
            decision => return (reads, decision),
        }
        reads.push(decision.name().to_owned());
    }
}

fn assistant() -> AssistantPod {
    AssistantPod {
        name: "affinity-assistant-1-0".into(),
        uid: "a1".into(),
        node: Some("n1".into()),
    }
}

/// What is sent for this decision, in order.
fn sent(observed: &Observation, decision: &Decision) -> Vec<Value> {
    let Decision::Act(step) = decision else {
        return Vec::new();
    };
    let requests = step.actions.iter();
    let requests = requests.flat_map(|action| action.requests(observed, "image"));
    let body = |verb: Verb| match verb {
        Verb::Apply(set) => json!({"apply": set.metadata.name}),
        Verb::Create { names, .. } => json!({"create": names}),
        Verb::Json(patch) => json!(patch),
        Verb::Merge(patch) | Verb::Strategic(patch) | Verb::Resize(patch) => patch,
        Verb::Delete { uid, at_once: _ } => json!({"delete": uid}),
    };
    requests.map(|request| body(request.verb)).collect()
}

#[tokio::test]
async fn objects_of_the_controller_before_are_taken_over_in_every_state_of_a_run() {
    let base: Value = serde_json::from_str(BASE).unwrap();
    let states: Vec<State> = serde_json::from_str(STATES).unwrap();
    assert_eq!(states.len(), 19);
    for state in states {
        let (observed, mut inputs) = (observed(&base, &state).await, Inputs::default());
        let (reads, decision) = decide(&observed, &mut inputs);
        let name = &state.name;
        assert_eq!(reads, state.reads, "{name}");
        assert_eq!(decision.name(), state.then, "{name}: {decision:?}");
        assert_eq!(sent(&observed, &decision), state.requests, "{name}");
    }
}

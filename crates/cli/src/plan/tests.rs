//! The plan of the tool is the controller's plan: both read the same objects, in each state of a run.

use super::*;
use crate::fixture::{at, facts, forbidden, merged, node, rejected_task, released, statefulset};
use crate::view::RunView;
use k8s_openapi::api::apps::v1::StatefulSet;
use placement::plan::State;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Objects in each state of a run. The controller's test of the same files checks the plan and its requests.
const BASE: &str = include_str!("../../../controller/src/takeover/base.json");
const STATES: &str = include_str!("../../../controller/src/takeover/states.json");

#[derive(Deserialize)]
struct Scene {
    state: String,
    #[serde(default = "unchanged")]
    run: Value,
    /// Null: the object does not exist.
    #[serde(default = "unchanged")]
    set: Value,
    #[serde(default = "unchanged")]
    pod: Value,
    failed_create: Option<String>,
    then: String,
}

fn unchanged() -> Value {
    json!({})
}

fn changed<K: DeserializeOwned>(object: &Value, changes: &Value) -> Option<K> {
    let mut object = object.clone();
    json_patch::merge(&mut object, changes);
    (!changes.is_null()).then(|| serde_json::from_value(object).unwrap())
}

fn scenes() -> Vec<(Scene, Facts)> {
    let base: Value = serde_json::from_str(BASE).unwrap();
    let scenes: Vec<Scene> = serde_json::from_str(STATES).unwrap();
    let with_facts = |scene: Scene| {
        let set: Option<StatefulSet> = changed(&base["set"], &scene.set);
        let pod: Option<Pod> = changed(&base["pod"], &scene.pod);
        let facts = Facts {
            now: at(30),
            view: RunView::of(&changed(&base["run"], &scene.run).unwrap()).unwrap(),
            set: Ok(set),
            node: Some(Ok(Some(node("n1", &json!({}))))),
            failed_create: Some(Ok(scene.failed_create.clone())),
            ..facts(&json!({}), pod.into_iter().collect())
        };
        (scene, facts)
    };
    scenes.into_iter().map(with_facts).collect()
}

#[test]
fn the_plan_is_the_controllers_in_every_state_of_a_run() {
    let mut states = BTreeSet::new();
    for (scene, facts) in scenes() {
        let Planned { seen, plan } = Planned::new(&facts).unwrap();
        assert_eq!(plan.decision.name(), scene.then, "{}: {plan:?}", scene.state);
        states.insert(State::from_observation(&seen));
    }
    assert_eq!(states.len(), 10, "{states:?}");
}

#[test]
fn the_other_states_of_a_run_are_derived_from_its_objects() {
    let state = |changes: &Value, set: Option<StatefulSet>| {
        let facts = Facts {
            set: Ok(set),
            ..facts(changes, Vec::new())
        };
        let Planned { seen, plan } = Planned::new(&facts).unwrap();
        (State::from_observation(&seen), plan.decision.name())
    };
    let set = |replicas| Some(statefulset(replicas, &json!({})));
    let annotations = |changes: Value| json!({"metadata": {"annotations": changes}});
    let users = annotations(Value::Null);
    let declined = merged(
        released(),
        &json!({"metadata": {"labels": {keys::OPT_IN: "false"}}}),
    );
    let unlabelled = merged(released(), &json!({"metadata": {"labels": {keys::GROUP: null}}}));
    let table = [
        (state(&declined, None), (State::Ignored, "ignore")),
        (state(&users, None), (State::Queued, "enrol")),
        (
            state(&json!({}), set(0)),
            (State::HeldScaledDown, "return_placeholder"),
        ),
        (state(&unlabelled, None), (State::Unenrolled, "labelled_too_late")),
        (state(&unlabelled, set(1)), (State::Unenrolled, "enrol")),
        (
            state(&released(), None),
            (State::RunningWithoutPlaceholder, "create_placeholder"),
        ),
        (state(&released(), set(1)), (State::RunningWithoutPod, "settled")),
    ];
    for (found, expected) in table {
        assert_eq!(found, expected);
    }
    let foreign = json!({"metadata": {"ownerReferences": null}});
    let waits = state(&released(), Some(statefulset(1, &foreign)));
    assert_eq!(waits, (State::RunningWithoutPlaceholder, "old_stateful_set"));
}

#[test]
fn what_was_not_read_is_named_as_a_group_that_the_plan_needs() {
    let mut facts = facts(&json!({}), Vec::new());
    facts.now = at(1);
    facts.quota = Some(Err(forbidden("list", "resourcequotas")));
    let plan = Planned::new(&facts).unwrap().plan;
    assert_eq!(plan.decision, Decision::Read(Read::Creation));
    facts.quota = None;
    assert_eq!(
        Planned::new(&facts).unwrap().plan.decision,
        Decision::Read(Read::Creation)
    );
}

#[test]
fn a_rejection_by_a_quota_and_the_tasks_that_it_concerns_make_room() {
    let mut facts = facts(&released(), Vec::new());
    facts.set = Ok(Some(statefulset(1, &json!({}))));
    facts.refusal = Some("exceeded quota".into());
    assert_eq!(Planned::new(&facts).unwrap().plan.decision.name(), "settled");
    facts.rejected_tasks = Some(Ok(vec![rejected_task()]));
    assert_eq!(Planned::new(&facts).unwrap().plan.decision.name(), "make_room");
}

#[test]
fn a_plan_without_the_placeholder_is_not_known() {
    for (_, mut facts) in scenes() {
        facts.set = Err(forbidden("get", "statefulsets"));
        assert!(Planned::new(&facts).is_none());
    }
}

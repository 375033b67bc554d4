//! The place of a run in the queue of runs that wait for a node.

use super::*;
use crate::config::Config;
use crate::queue::{Answer, Kind, Member, Stage, Waiting};
use serde_json::json;

fn kind(scene: &Scene) -> Option<Kind> {
    Kind::from_observation(&scene.observation())
}

fn member(scene: &Scene) -> Option<Member> {
    Member::from_observation(&scene.observation())
}

fn waiting(scene: &Scene) -> Option<Waiting> {
    member(scene)?.waits.map(|(_, waiting)| waiting)
}

fn from_json<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[test]
fn runs_are_of_one_kind_if_their_templates_and_their_isolation_allow_the_same_nodes() {
    type Change = fn(&mut Scene);
    let same: [Change; 4] = [
        |scene| scene.run.reserve = Some("cpu=4".to_owned()),
        |scene| scene.run.key.namespace = "other".to_owned(),
        |scene| scene.run.opt_in = Some("isolateAlways".to_owned()),
        |scene| scene.run.template.service_account = Some("builder".to_owned()),
    ];
    let others: [Change; 8] = [
        |scene| {
            let labels = &mut scene.run.template.node_selector;
            labels.insert("disk".to_owned(), "ssd".to_owned());
        },
        |scene| scene.run.template.tolerations = vec![from_json(json!({"key": "ci", "operator": "Exists"}))],
        |scene| scene.run.template.affinity = Some(from_json(json!({"nodeAffinity": {}}))),
        |scene| scene.run.template.scheduler_name = Some("other".to_owned()),
        |scene| scene.run.template.priority_class_name = Some("high".to_owned()),
        |scene| scene.run.template.runtime_class_name = Some("kata".to_owned()),
        |scene| scene.config.isolation.from = IsolateFrom::Enrolled,
        |scene| scene.config.isolation.scope = Scope::Namespace,
    ];
    let usual = kind(&held());
    assert!(usual.is_some());
    for change in same {
        assert_eq!(kind(&held().change(change)), usual);
    }
    let mut kinds: Vec<_> = others.map(|change| kind(&held().change(change))).into();
    kinds.push(usual);
    assert!(kinds.iter().all(Option::is_some));
    let distinct: std::collections::HashSet<_> = kinds.iter().collect();
    assert_eq!(distinct.len(), others.len() + 1);
    let in_namespace = |namespace: &str| {
        held().change(|scene| {
            scene.config.isolation.scope = Scope::Namespace;
            namespace.clone_into(&mut scene.run.key.namespace);
        })
    };
    assert_ne!(kind(&in_namespace("a")), kind(&in_namespace("b")));
}

#[test]
fn a_run_that_waits_for_no_other_run_has_no_kind() {
    let shares = held().opt_in(Some("colocateAlways"));
    let tied = held().change(|scene| scene.run.claims = vec!["source".to_owned()]);
    let early = held().change(|scene| scene.config.release_when = ReleaseWhen::Created);
    for scene in [shares, tied, early.clone()] {
        assert_eq!(kind(&scene), None);
    }
    assert!(
        kind(&early.with_reserve("cpu=4")).is_some(),
        "it is released with a node"
    );
}

#[test]
fn a_held_run_without_a_node_waits_with_or_without_a_placeholder() {
    let stage = |scene: Scene| waiting(&scene).map(|run| run.placeholder);
    assert_eq!(stage(held()), Some(Stage::Missing));
    assert_eq!(stage(held().statefulset_deleting()), Some(Stage::Missing));
    assert_eq!(stage(held().with_statefulset()), Some(Stage::New));
    assert_eq!(stage(held().with_pod()), Some(Stage::New));
    assert_eq!(
        stage(held().placeholder_unschedulable(1)),
        Some(Stage::Unschedulable)
    );
    for scene in [
        held().on(NODE),
        held().with_statefulset().failed_create("exceeded quota: tight"),
        enrolled(),
        enrolled().placeholder_unschedulable(1),
        fresh(),
    ] {
        assert_eq!(stage(scene), None);
    }
}

#[test]
fn a_run_has_a_slot_from_its_placeholder_to_the_deletion_of_its_placeholder() {
    let has_slot = |scene: Scene| member(&scene).map(|run| run.has_slot);
    for scene in [held(), held().statefulset_deleting()] {
        assert_eq!(has_slot(scene), Some(false));
    }
    let ended = done(Strategy::ColocateCompleted);
    for scene in [
        held().with_statefulset(),
        held().on(NODE),
        settled(),
        enrolled(),
        ended.clone(),
    ] {
        assert_eq!(has_slot(scene), Some(true));
    }
    let held_elsewhere = held().in_group(UID).change(|scene| scene.run.hold = false);
    let others = [
        fresh(),
        fresh().opt_in(None),
        held_elsewhere,
        ended.without_statefulset(),
    ];
    for scene in others {
        assert_eq!(has_slot(scene), None);
    }
}

#[test]
fn the_size_of_a_run_is_what_its_placeholder_requests_or_would_request() {
    let size = |scene: &Scene| waiting(scene).unwrap().size;
    assert_eq!(size(&held()), size::usual(&Config::default()).requests());
    assert_eq!(
        size(&held().with_reserve("cpu=4")).get("cpu"),
        amounts("cpu=4100m").get("cpu")
    );
    let created = held().with_pod().spec(|spec| spec.size = amounts("cpu=2"));
    assert_eq!(size(&created), amounts("cpu=2"));
    let is_estimate = |scene: &Scene| waiting(scene).unwrap().is_estimate;
    assert!(is_estimate(&held().with_reserve("auto")));
    assert!(!is_estimate(&held().with_reserve("auto").with_pod()));
    assert!(!is_estimate(&held().with_reserve("cpu=4")));
}

#[test]
fn an_autoscaler_has_30_seconds_to_answer() {
    let answer = |seconds: i64, autoscaler: Option<&str>| {
        let scene = held().placeholder_unschedulable(seconds);
        waiting(&scene.change(|scene| scene.messages.autoscaler = autoscaler.map(str::to_owned)))
            .unwrap()
            .answer
    };
    assert_eq!(answer(29, None), Answer::Pending);
    assert_eq!(answer(30, None), Answer::Silence);
    assert_eq!(
        answer(
            1,
            Some("pod didn't trigger scale-up: 1 max node group size reached")
        ),
        Answer::Refusal
    );
    assert_eq!(
        answer(40, Some("pod triggered scale-up: [{two 1->2 (max: 30)}]")),
        Answer::Promise
    );
    assert_eq!(waiting(&held().with_pod()).unwrap().answer, Answer::Pending);
}

#[test]
fn a_placeholder_with_a_scheduling_gate_has_found_nothing_and_gets_no_answer() {
    let gated = held().placeholder_unschedulable(40).change(|scene| {
        let found = scene.pod.as_mut().unwrap().unschedulable.as_mut().unwrap();
        *found = Unschedulable::from_condition(Some(Unschedulable::GATED), None, Some(found.since));
    });
    let waiting = waiting(&gated).unwrap();
    assert_eq!(
        (waiting.placeholder, waiting.answer),
        (Stage::New, Answer::Pending)
    );
}

//! An automatic reserve: read before the placeholder is created, given up if no node has it, recorded at the end of the
//! run.

use super::*;
use crate::automatic_reserve::{ExpectedRequests, PodUsage, Source};
use crate::fixture;
use crate::keys;
use crate::node::NodeFacts;
use crate::requests::{Object, Operation, Verb};
use crate::reserve::ReserveSetting;
use serde_json::{Value, json};
use std::sync::Arc;

fn automatic(scene: Scene) -> Scene {
    scene.change(|scene| scene.run.reserve = Some("auto".to_owned()))
}

fn need(asks: &str) -> ExpectedRequests {
    ExpectedRequests {
        requests: fixtures::amounts(asks),
        source: Source::Record("earlier".to_owned()),
    }
}

/// The requests of the new placeholder.
fn created(scene: &Scene) -> Value {
    let [request] = scene.requests().try_into().unwrap();
    let Verb::Apply(set) = request.verb else {
        panic!("{request:?}")
    };
    let pod = set.spec.unwrap().template.spec.unwrap();
    json!(pod.containers[0].resources)["requests"].clone()
}

fn needing(scene: Scene, asks: &str) -> Scene {
    scene.change(|scene| {
        let need = Some(need(asks));
        scene.inputs.creation = Creation {
            need,
            ..Creation::default()
        }
        .into();
    })
}

#[test]
fn expected_requests_are_read_before_the_creation_and_count_only_for_an_automatic_reserve() {
    let unread = automatic(held()).unread(Read::Creation);
    assert_eq!(unread.decision(), Decision::Read(Read::Creation));
    let counts = |scene: Scene| created(&needing(scene, "cpu=2"))["cpu"] == json!("2100m");
    assert!(counts(automatic(held())));
    assert!(!counts(held()));
    assert!(!counts(
        held().change(|scene| scene.run.reserve = Some("cpu=4".to_owned()))
    ));
    assert!(!counts(automatic(enrolled())), "no task waits for a reserve");
    let by_default = |reserve: Option<&str>| {
        held().change(|scene| {
            scene.config.default_reserve = ReserveSetting::Automatic;
            scene.run.reserve = reserve.map(str::to_owned);
        })
    };
    assert!(counts(by_default(None)));
    assert!(!counts(by_default(Some(""))));
}

#[test]
fn an_automatic_reserve_is_limited_by_the_configured_maximum() {
    let at_most = |most: &str| {
        let scene = automatic(held())
            .change(|scene| scene.config.auto_reserve_maximum = crate::reserve::parse(most).unwrap());
        created(&needing(scene, "cpu=4,memory=8Gi"))
    };
    assert_eq!(at_most(""), json!({"cpu": "4100m", "memory": "8392Mi"}));
    assert_eq!(at_most("cpu=2"), json!({"cpu": "2100m", "memory": "8392Mi"}));
    let unknown = needing(automatic(held()), "");
    assert_eq!(created(&unknown), json!({"cpu": "50m", "memory": "100Mi"}));
    let Decision::Act(step) = needing(automatic(held()), "cpu=4").decision() else {
        panic!("{unknown:?}")
    };
    assert_eq!(step.event, Some(Event::Created(Some(need("cpu=4")))));
}

/// A run with an automatic reserve that is larger than all nodes, and has been for this number of seconds.
fn too_large(seconds: i64) -> Scene {
    let scene = held()
        .in_group(fixtures::UID)
        .placeholder_unschedulable(seconds)
        .with_reserve("cpu=4");
    automatic(scene).change(|scene| scene.cluster.nodes = vec![node("n", "cpu=2,memory=16Gi")])
}

fn decided(scene: &Scene, answer: Option<&str>) -> Plan {
    let answer = answer.map(str::to_owned);
    let scene = scene.clone();
    scene.change(|scene| scene.messages.autoscaler = answer).plan()
}

/// The template gets the usual size without a pin, then the pod is deleted.
fn is_given_up(plan: &Plan) -> bool {
    let Decision::Act(Step { event, actions, .. }) = &plan.decision else {
        return false;
    };
    let Some(Event::ReserveGivenUp { nearest }) = event else {
        return false;
    };
    let nearest = nearest.as_ref().map(ToString::to_string);
    assert_eq!(nearest.as_deref(), Some("n has cpu 2 of 4100m"));
    let delete = Action::Delete(Target::Pod(POD.to_owned()));
    assert_eq!(*actions, [Action::Placeholder(spec()), delete]);
    true
}

#[test]
fn an_automatic_reserve_that_fits_no_node_is_given_up_unless_an_autoscaler_adds_one() {
    assert!(is_given_up(&decided(&too_large(30), None)));
    let refused = Some("pod didn't trigger scale-up: 1 Insufficient cpu");
    assert!(is_given_up(&decided(&too_large(30), refused)));
    let promised = Some("pod triggered scale-up: [{large 0->1 (max: 9)}]");
    assert!(!is_given_up(&decided(&too_large(300), promised)));
    let early = decided(&too_large(12), None);
    assert!(!is_given_up(&early));
    assert_eq!(early.again, Some(Duration::from_secs(18)));
}

#[test]
fn an_automatic_reserve_that_fits_only_nodes_which_the_run_cannot_use_is_given_up() {
    let mut cordoned = node("cordoned", "cpu=64,memory=64Gi");
    Arc::make_mut(&mut cordoned).unschedulable = true;
    let own = |name: &str, mut node: Arc<NodeFacts>| {
        let labels = &mut Arc::make_mut(&mut node).labels;
        labels.insert("pool".to_owned(), name.to_owned());
        node
    };
    let nodes = [
        own("ci", node("n", "cpu=2,memory=16Gi")),
        own("other", node("large", "cpu=64,memory=64Gi")),
        own("ci", cordoned),
    ];
    let scene = too_large(30).change(|scene| {
        scene
            .run
            .template
            .node_selector
            .insert("pool".to_owned(), "ci".to_owned());
        scene.cluster.nodes = nodes.into();
    });
    assert!(is_given_up(&decided(&scene, None)));
    let usable = own("ci", node("large", "cpu=64,memory=64Gi"));
    let fits = scene.change(|scene| scene.cluster.nodes.push(usable));
    assert!(!is_given_up(&decided(&fits, None)));
}

#[test]
fn an_automatic_reserve_that_a_quota_never_allows_is_given_up() {
    let rejected = |limit: &str| {
        let figures =
            "exceeded quota: q, requested: requests.cpu=4100m, used: requests.cpu=3, limited: requests.cpu=";
        let held = held().in_group(fixtures::UID).with_statefulset();
        automatic(held.with_reserve("cpu=4")).failed_create(&format!("{figures}{limit}"))
    };
    let event = |scene: &Scene| match scene.plan().decision {
        Decision::Act(Step { event, actions, .. }) => (event, actions),
        other => panic!("{other:?}"),
    };
    let (given_up, actions) = event(&rejected("4"));
    assert!(
        matches!(given_up, Some(Event::ReserveOverQuota { .. })),
        "{given_up:?}"
    );
    assert_eq!(actions, [Action::Placeholder(spec())]);
    for waits in [
        rejected("5"),
        rejected("4").change(|scene| scene.run.reserve = Some("cpu=4".to_owned())),
    ] {
        let (waits, _) = event(&waits);
        assert!(matches!(waits, Some(Event::PodMissing { .. })), "{waits:?}");
    }
}

#[test]
fn a_reserve_that_fits_a_node_and_a_reserve_of_the_user_are_never_given_up() {
    let taken = too_large(300).change(|scene| scene.cluster.nodes = vec![node("n", "cpu=8,memory=16Gi")]);
    assert!(!is_given_up(&decided(&taken, None)));
    let written = too_large(300).change(|scene| scene.run.reserve = Some("cpu=4".to_owned()));
    assert!(!is_given_up(&decided(&written, None)));
    assert!(
        !is_given_up(&decided(&too_large(300).shrunk(), None)),
        "it is small already"
    );
}

fn ended_well() -> Scene {
    automatic(done(Strategy::ColocateCompleted)).change(|scene| scene.run.succeeded = true)
}

#[test]
fn usage_is_read_when_a_run_with_an_automatic_reserve_succeeded_and_has_no_record() {
    let is_read = |scene: Scene| scene.unread(Read::Usage).decision() == Decision::Read(Read::Usage);
    assert!(is_read(ended_well()));
    assert!(!is_read(ended_well().change(|scene| scene.run.succeeded = false)));
    assert!(!is_read(
        ended_well().change(|scene| scene.run.used = Some(String::new()))
    ));
    assert!(!is_read(ended_well().change(|scene| scene.run.reserve = None)));
    assert!(!is_read(ended_well().without_statefulset()), "its end is over");
}

#[test]
fn usage_is_recorded_after_the_clean_up_and_only_if_there_were_tasks() {
    let stint = PodUsage {
        node: "n".to_owned(),
        from: fixtures::ago(60),
        to: fixtures::ago(30),
        requests: fixtures::amounts("cpu=4"),
    };
    let requests = |stints: Vec<PodUsage>| {
        let scene = ended_well().change(|scene| scene.inputs.usage = stints.into());
        scene.requests()
    };
    let operations = |stints| {
        let requests = requests(stints);
        requests.iter().map(|it| it.operation).collect::<Vec<_>>()
    };
    assert_eq!(operations(Vec::new()), [Operation::CleanUp]);
    assert_eq!(
        operations(vec![stint.clone()]),
        [Operation::CleanUp, Operation::RecordUse]
    );
    let record = requests(vec![stint]).pop().unwrap();
    let patch = json!({"metadata": {"uid": fixtures::UID, "annotations": {keys::USED: "cpu=4"}}});
    assert_eq!((record.object, record.verb), (Object::Run, Verb::Merge(patch)));
}

#[test]
fn an_automatic_reserve_has_no_amount_before_the_expected_requests_are_read() {
    let run = crate::run::Run {
        reserve: Some("auto".to_owned()),
        ..fixture::run()
    };
    let config = crate::config::Config::default();
    assert!(!crate::placeholder::size::reserved(&run, &config).reserves());
    assert_eq!(crate::placeholder::size::invalid_reserve(&run), None);
}

//! Runs that pod-affinity ignores, and runs that are opted out, done or being deleted.

use super::*;

#[test]
fn nested_runs_and_runs_of_other_managers_are_ignored() {
    let child = held().change(|scene| scene.run.child = true);
    assert_eq!(child.decision(), Decision::Ignore(IgnoreReason::Child));
    let managed = held().change(|scene| scene.run.managed_elsewhere = true);
    assert_eq!(
        managed.decision(),
        Decision::Ignore(IgnoreReason::ManagedElsewhere)
    );
}

const NOT_OPTED_IN: [Option<&str>; 3] = [None, Some("false"), Some("nonsense")];

#[test]
fn a_run_that_is_not_opted_in_is_left_alone() {
    for value in NOT_OPTED_IN {
        assert_eq!(
            fresh().opt_in(value).decision(),
            Decision::Ignore(IgnoreReason::NotOptedIn),
            "{value:?}"
        );
    }
}

#[test]
fn runs_in_excluded_namespaces_are_ignored() {
    for namespace in crate::keys::EXCLUDED_NAMESPACES {
        let run = fresh().change(|scene| scene.run.key.namespace = namespace.to_owned());
        assert_eq!(
            run.decision(),
            Decision::Ignore(IgnoreReason::NotOptedIn),
            "{namespace}"
        );
    }
}

#[test]
fn a_held_run_that_opted_out_is_released_at_once_and_leaves_its_group() {
    let event = Event::Released {
        cause: ReleaseCause::OptedOut,
        enrolment: None,
        node: None,
        message: None,
    };
    let run = RunState {
        group: None,
        ..enrolled_state()
    };
    let action = Decision::act("release", event, [Action::Run(run)]);
    for value in NOT_OPTED_IN {
        assert_eq!(held().on(NODE).opt_in(value).decision(), action, "{value:?}");
    }
}

#[test]
fn the_placeholder_of_a_running_run_that_opted_out_is_deleted() {
    for value in NOT_OPTED_IN {
        assert_eq!(
            enrolled().on(NODE).opt_in(value).decision(),
            cleaned_up(),
            "{value:?}"
        );
        let gone = enrolled().statefulset_deleting().opt_in(value);
        assert_eq!(
            gone.decision(),
            Decision::Ignore(IgnoreReason::NotOptedIn),
            "{value:?}"
        );
    }
}

#[test]
fn the_placeholder_of_an_isolated_run_is_recreated_without_pvcs_before_the_run_is_done() {
    let mounting = |scene: Scene| {
        scene.change(|scene| {
            let pod = scene.pod.as_mut().unwrap();
            pod.shape.mounts = true;
            scene.statefulset.as_mut().unwrap().spec.claims = vec!["source".to_owned()];
        })
    };
    let running = mounting(settled().resolved(Strategy::IsolateAlways).on(NODE));
    let unmounted = Spec {
        node: Some(NODE.to_owned()),
        claims: Vec::new(),
        ..spec()
    };
    assert_eq!(running.decision(), recreated_as(unmounted));
    assert_eq!(mounting(settled()).decision(), Decision::Wait(Wait::Settled));
    let done = mounting(done(Strategy::IsolateAlways));
    assert_eq!(
        done.decision(),
        deletion(Some(SET), None),
        "it never came to that"
    );
}

fn assistant(node: Option<&str>) -> AssistantPod {
    AssistantPod {
        name: "affinity-assistant-5e2a-0".to_owned(),
        uid: "assistant-uid".to_owned(),
        node: node.map(str::to_owned),
    }
}

#[test]
fn a_run_that_opts_out_after_moving_off_finds_a_node_for_its_affinity_assistants_first() {
    let left = |spec: &mut Spec| spec.previous_node = Some("old".to_owned());
    let moved_off = enrolled().moved_off().opt_in(Some("false")).spec(left);
    let back = Spec {
        previous_node: Some("old".to_owned()),
        ..spec()
    };
    assert_eq!(
        moved_off.decision(),
        Decision::act("return_placeholder", None, [Action::Placeholder(back)])
    );
    let back = moved_off.spec(|spec| spec.replicas = 1).on(NODE);
    let with = |assistants: Option<AssistantPod>| {
        let assistants: Vec<_> = assistants.into_iter().collect();
        let scene = back.clone();
        scene
            .change(|scene| scene.inputs.assistants = assistants.into())
            .plan()
    };
    assert_eq!(
        with(Some(assistant(None))),
        in_seconds(Decision::Wait(Wait::Assistants), 5)
    );
    assert_eq!(with(Some(assistant(Some(NODE)))).decision, cleaned_up());
    assert_eq!(with(None).decision, cleaned_up());
    let unread = back.clone().unread(Read::Assistants);
    assert_eq!(unread.decision(), Decision::Read(Read::Assistants));
}

#[test]
fn an_opted_out_run_of_another_holder_is_not_released() {
    let kueue = held()
        .opt_in(Some("false"))
        .change(|scene| scene.run.queued_by_kueue = true);
    assert_eq!(kueue.decision(), Decision::Ignore(IgnoreReason::NotOptedIn));
}

#[test]
fn a_queued_run_that_opted_out_leaves_its_group() {
    for value in NOT_OPTED_IN {
        let queued = || {
            enrolled().opt_in(value).change(|scene| {
                scene.run.status = SpecStatus::Pending;
                scene.statefulset = None;
                scene.pod = None;
            })
        };
        let withdrawn = RunState {
            group: None,
            ..enrolled_state()
        };
        let withdraw = Decision::act("unenrol", None, [Action::Run(withdrawn)]);
        assert_eq!(queued().decision(), withdraw, "{value:?}");
        let left = queued().change(|scene| scene.run.group = None);
        assert_eq!(
            left.decision(),
            Decision::Ignore(IgnoreReason::NotOptedIn),
            "{value:?}"
        );
    }
}

#[test]
fn a_done_run_frees_its_node_with_either_colocating_strategy() {
    for strategy in [Strategy::ColocateAlways, Strategy::ColocateCompleted] {
        assert_eq!(done(strategy).decision(), deletion(Some(SET), None));
        assert_eq!(
            done(strategy).statefulset_deleting().decision(),
            Decision::Ignore(IgnoreReason::Done)
        );
        assert_eq!(
            done(strategy).without_statefulset().decision(),
            Decision::Ignore(IgnoreReason::Done)
        );
    }
}

#[test]
fn a_pod_keeps_the_usable_node_of_a_done_run_before_the_placeholder_is_deleted() {
    let keeping =
        |strategy| done(strategy).change(|scene| scene.config.keep_node_for = Duration::from_mins(5));
    let usable = |scene: Scene| scene.change(|scene| scene.node = NodeState::Usable);
    let scene = usable(keeping(Strategy::ColocateCompleted));
    let requests = scene.requests();
    let objects: Vec<_> = requests.iter().map(|request| &request.object).collect();
    assert_eq!(
        objects,
        [&Object::KeptNode(NODE.to_owned()), &Object::StatefulSet]
    );
    let deleted = deletion(Some(SET), None);
    assert_eq!(
        keeping(Strategy::ColocateCompleted).decision(),
        deleted,
        "unknown node"
    );
    let cordoned = |scene: &mut Scene| scene.node = NodeState::Unusable(Cause::Cordoned);
    assert_eq!(
        keeping(Strategy::ColocateCompleted).change(cordoned).decision(),
        deleted
    );
    assert_eq!(
        usable(done(Strategy::ColocateCompleted)).decision(),
        deleted,
        "not configured"
    );
    let kept = |scene: &mut Scene| scene.cluster.keeps_node = true;
    assert_eq!(scene.clone().change(kept).decision(), deleted, "kept already");
    assert_eq!(usable(keeping(Strategy::IsolateAlways)).decision(), adoption());
    let is_deleted = scene.change(|scene| scene.run.deleting = true);
    assert_eq!(is_deleted.decision(), deleted);
}

fn adoption() -> Decision {
    Decision::act("adopt_pod", None, [Action::Pod(PodChange::Adopt(POD.to_owned()))])
}

#[test]
fn a_done_isolated_run_adopts_its_pod_and_then_deletes_its_statefulset() {
    let scene = done(Strategy::IsolateAlways);
    assert_eq!(scene.decision(), adoption());
    let scene = scene.adopted();
    let delete = Action::Delete(Target::Placeholder(SET.to_owned()));
    assert_eq!(
        scene.decision(),
        Decision::act("keep_pod", Event::NodeKept, [delete])
    );
    assert_eq!(
        scene.clone().statefulset_deleting().decision(),
        Decision::Ignore(IgnoreReason::Done)
    );
    assert_eq!(
        scene.without_statefulset().decision(),
        Decision::Ignore(IgnoreReason::Done)
    );
}

#[test]
fn a_done_isolated_run_without_a_node_is_cleaned_up() {
    let scene = || done(Strategy::IsolateAlways);
    let without_node = [
        scene().change(|scene| scene.pod = None),
        scene().pod_ending(),
        scene().change(|scene| scene.pod.as_mut().unwrap().node = None),
        scene().change(|scene| scene.run.group = None),
    ];
    for scene in without_node {
        assert_eq!(scene.decision(), deletion(Some(SET), None));
    }
}

#[test]
fn a_done_isolated_run_that_moved_off_reserves_no_node() {
    let scene = || done(Strategy::IsolateAlways).moved_off();
    for scene in [
        scene(),
        scene().on(NODE),
        scene().on(NODE).adopted(),
        scene().on(NODE).pod_ending(),
    ] {
        assert_eq!(scene.decision(), deletion(Some(SET), None), "{scene:?}");
    }
}

#[test]
fn a_run_that_moved_off_is_cleaned_up_like_any_other_run() {
    for strategy in [Strategy::ColocateAlways, Strategy::ColocateCompleted] {
        assert_eq!(done(strategy).moved_off().decision(), deletion(Some(SET), None));
    }
    let opted_out = enrolled().moved_off().opt_in(None);
    assert_eq!(opted_out.decision(), cleaned_up());
    let deleted = enrolled().moved_off().change(|scene| scene.run.deleting = true);
    assert_eq!(deleted.decision(), deletion(Some(SET), None));
}

#[test]
fn a_run_that_was_cancelled_while_held_is_cleaned_up() {
    let scene = held().with_pod().change(|scene| {
        scene.run.done = true;
        scene.run.status = SpecStatus::Other("Cancelled".to_owned());
    });
    assert_eq!(scene.decision(), deletion(Some(SET), None));
}

#[test]
fn a_done_run_that_opted_out_is_cleaned_up_like_a_labelled_run() {
    for value in NOT_OPTED_IN {
        assert_eq!(
            done(Strategy::ColocateCompleted).opt_in(value).decision(),
            deletion(Some(SET), None)
        );
        let isolated = done(Strategy::IsolateAlways).opt_in(value);
        assert_eq!(isolated.decision(), adoption());
    }
}

#[test]
fn placeholder_and_adopted_pod_of_a_run_that_is_being_deleted_are_deleted() {
    let delete = |scene: Scene| scene.change(|scene| scene.run.deleting = true).decision();
    assert_eq!(delete(held().on(NODE)), deletion(Some(SET), None));
    assert_eq!(delete(enrolled().on(NODE)), deletion(Some(SET), None));
    let isolated = done(Strategy::IsolateAlways).adopted();
    assert_eq!(delete(isolated.clone()), deletion(Some(SET), Some(POD)));
    assert_eq!(
        delete(isolated.clone().without_statefulset()),
        deletion(None, Some(POD))
    );
    assert_eq!(
        delete(isolated.without_statefulset().pod_ending()),
        Decision::Ignore(IgnoreReason::Done)
    );
    assert_eq!(delete(held()), Decision::Ignore(IgnoreReason::Done));
}

#[test]
fn a_statefulset_of_the_same_name_with_another_owner_is_never_changed() {
    let delete = |scene: Scene| scene.change(|scene| scene.run.deleting = true);
    let foreign = || enrolled().on(NODE).foreign_statefulset();
    assert_eq!(foreign().decision(), Decision::Wait(Wait::OldStatefulSet));
    assert_eq!(
        foreign().opt_in(None).decision(),
        Decision::Ignore(IgnoreReason::NotOptedIn)
    );
    assert_eq!(delete(foreign()).decision(), Decision::Ignore(IgnoreReason::Done));
    let adopted = delete(done(Strategy::IsolateAlways).adopted().foreign_statefulset());
    assert_eq!(
        adopted.decision(),
        deletion(None, Some(POD)),
        "the run owns the pod"
    );
    assert_eq!(
        done(Strategy::ColocateCompleted).foreign_statefulset().decision(),
        Decision::Ignore(IgnoreReason::Done)
    );
    assert_eq!(held().on(NODE).foreign_statefulset().decision(), await_node());
}

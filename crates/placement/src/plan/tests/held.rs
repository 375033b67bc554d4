//! Runs that wait, held by pod-affinity or by another controller.

use super::*;
use crate::attempts::{Before, Turn};
use crate::caps::{Cap, OverCap};
use crate::config::Config;
use crate::coschedule::Coschedule;
use crate::cross_namespace_quota::TermsRejected;
use crate::image_pull::Images;
use crate::requests::Verb;
use crate::statefulset_quota::{OwnedStatefulSet, Quota, QuotaBlocker, Shortage};

#[test]
fn a_placeholder_is_created_for_a_held_run() {
    assert_eq!(held().decision(), creation());
}

#[test]
fn labels_of_the_run_are_read_before_its_placeholder_copies_them() {
    let read = Creation {
        labels: [("team".to_owned(), "build".to_owned())].into(),
        ..Creation::default()
    };
    let unread = held().unread(Read::Creation);
    assert_eq!(unread.decision(), Decision::Read(Read::Creation));
    let scene = held().change(|scene| scene.inputs.creation = read.clone().into());
    let create = Action::Create(New::Placeholder(default_enrolment(), read));
    assert_eq!(
        scene.decision(),
        Decision::act("create_placeholder", Event::Created(None), [create.clone()])
    );
    let [request] = create.requests(&scene.observation(), "image").try_into().unwrap();
    let Verb::Apply(set) = request.verb else {
        panic!("{request:?}")
    };
    assert_eq!(set.metadata.labels.unwrap()["team"], "build");
}

fn no_room(quota: &str, blocker: Option<QuotaBlocker>) -> Quota {
    let quota = quota.to_owned();
    Quota {
        short_of: Some(quota.clone()),
        shortage: Some(Shortage { quota, blocker }),
    }
}

fn placeholder_of(run: &str, uid: &str) -> OwnedStatefulSet {
    OwnedStatefulSet {
        run: run.to_owned(),
        name: format!("placeholder of {run}"),
        uid: uid.to_owned(),
        is_placeholder: true,
        deleting: false,
    }
}

#[test]
fn no_placeholder_is_created_if_the_affinity_assistants_need_the_room_in_the_quota() {
    let short = |scene: Scene| scene.short_of(no_room("ResourceQuota few", None)).plan();
    let waits = Decision::Wait(Wait::Places {
        quota: "ResourceQuota few".to_owned(),
    });
    assert_eq!(
        held().unread(Read::Creation).decision(),
        Decision::Read(Read::Creation)
    );
    assert_eq!(short(held()), in_seconds(waits.clone(), 30));
    assert_eq!(short(enrolled()), in_seconds(waits, 30));
    let over = held().change(|scene| scene.run.created = Some(ago(9999)));
    assert_eq!(short(over).decision, released(ReleaseCause::Deadline, None));
}

const NO_BLOCKER: Option<QuotaBlocker> = None;

fn waits_for_places() -> Decision {
    Decision::Wait(Wait::Places {
        quota: "few".to_owned(),
    })
}

/// A held run with one PVC, this long after its deadline. A quota has no room for Tekton's assistant.
fn at_deadline(scene: Scene, late: i64, blocker: Option<QuotaBlocker>) -> Scene {
    let deadline = i64::try_from(Config::default().hold_deadline.as_secs()).unwrap();
    let scene = scene.in_group(UID).created_ago(deadline + late);
    let scene = scene.change(|scene| scene.run.templates = 1);
    scene.short_of(no_room("few", blocker))
}

/// Tekton fails a run if a quota rejects its assistants. Without the opt-in label, no placeholder would take their
/// place.
#[test]
fn a_run_at_its_deadline_frees_places_in_the_quota_before_its_release() {
    let placeholders =
        || QuotaBlocker::Placeholders(vec![placeholder_of("u2", "s2"), placeholder_of("u3", "s3")]);
    let at = |late, blocker| at_deadline(held(), late, Some(blocker));
    let event = Event::PlacesFreed {
        names: vec!["placeholder of u2".to_owned(), "placeholder of u3".to_owned()],
        quota: "few".to_owned(),
    };
    let delete = |run: &str, uid: &str| {
        Action::Delete(Target::OtherPlaceholder {
            name: format!("placeholder of {run}"),
            uid: uid.to_owned(),
        })
    };
    let frees = Decision::act("free_places", event, [delete("u2", "s2"), delete("u3", "s3")]);
    assert_eq!(at(0, placeholders()).plan(), in_seconds(frees, 1));
    assert_eq!(
        at(14, QuotaBlocker::DeletedStatefulSets).plan(),
        in_seconds(waits_for_places(), 1)
    );
    assert_eq!(
        at(-1, placeholders()).plan(),
        in_seconds(waits_for_places(), 1),
        "it may wait"
    );
    assert_eq!(
        at(0, placeholders()).unread(Read::Quota).decision(),
        Decision::Read(Read::Quota)
    );
    let enough = at(0, placeholders()).short_of(Quota::default());
    let disabled = at(0, placeholders()).change(|scene| scene.cluster.coschedule = Coschedule::Disabled);
    let without_pvc = at(0, placeholders()).change(|scene| scene.run.templates = 0);
    for scene in [enough, at_deadline(held(), 0, NO_BLOCKER), disabled, without_pvc] {
        assert_eq!(scene.decision(), released(ReleaseCause::Deadline, None));
    }
}

/// The controller may have been down at the deadline.
#[test]
fn a_run_waits_for_places_for_fifteen_seconds_after_the_controller_began_to_free_them() {
    let since = |seconds: i64| {
        let scene = at_deadline(held(), 9999, Some(QuotaBlocker::DeletedStatefulSets));
        scene.change(|scene| scene.makes_room_since = Some(ago(seconds)))
    };
    assert_eq!(since(14).decision(), waits_for_places());
    assert_eq!(since(15).decision(), released(ReleaseCause::Deadline, None));
    assert_eq!(
        since(15).unread(Read::Quota).decision(),
        released(ReleaseCause::Deadline, None)
    );
}

/// Another run without the opt-in label took the place of the assistant while the placeholder waited for its node.
#[test]
fn a_run_with_a_node_waits_for_the_place_of_its_assistant_and_gives_up_its_placeholder_at_the_deadline() {
    let with = |late, blocker| at_deadline(held().on(NODE), late, blocker);
    assert_eq!(with(-60, NO_BLOCKER).plan(), with_timer(waits_for_places(), SOON));
    assert_eq!(with(-3, NO_BLOCKER).plan(), in_seconds(waits_for_places(), 3));
    let unenrolled = with(-60, NO_BLOCKER).change(|scene| scene.run.group = None);
    assert_eq!(unenrolled.decision(), enrolled_while_held());
    let before_a_longer_deadline =
        with(-60, NO_BLOCKER).change(|scene| scene.makes_room_since = Some(ago(99)));
    assert_eq!(before_a_longer_deadline.decision(), waits_for_places());
    let own = QuotaBlocker::Placeholders(vec![placeholder_of(UID, SET)]);
    assert_eq!(with(-60, Some(own.clone())).decision(), waits_for_places());
    let frees = with(0, Some(own)).decision();
    let Decision::Act(step) = frees else {
        panic!("{frees:?}")
    };
    assert_eq!(
        step.actions,
        [Action::Delete(Target::Placeholder(SET.to_owned()))]
    );
    let has_room = with(-60, NO_BLOCKER).short_of(Quota::default());
    for scene in [has_room, with(0, NO_BLOCKER)] {
        assert_eq!(scene.decision(), released(ReleaseCause::NodeFound, Some(NODE)),);
    }
}

/// The placeholder would take the place of the assistant that Tekton creates at the release.
#[test]
fn a_run_that_opts_out_gives_up_its_placeholder_before_its_release_if_a_quota_has_no_room() {
    let own = || QuotaBlocker::Placeholders(vec![placeholder_of(UID, SET)]);
    let opts_out = |blocker| at_deadline(held().on(NODE), -60, blocker).opt_in(Some("false"));
    let Decision::Act(step) = opts_out(Some(own())).decision() else {
        panic!("{:?}", opts_out(Some(own())).decision())
    };
    let deletion = Action::Delete(Target::Placeholder(SET.to_owned()));
    assert_eq!(step.actions, [deletion]);
    let recounts = Some(QuotaBlocker::DeletedStatefulSets);
    assert_eq!(opts_out(recounts.clone()).decision(), waits_for_places());
    let late = opts_out(recounts).change(|scene| scene.makes_room_since = Some(ago(15)));
    for scene in [
        late,
        opts_out(NO_BLOCKER),
        opts_out(Some(own())).short_of(Quota::default()),
    ] {
        let Decision::Act(step) = scene.decision() else {
            panic!("{:?}", scene.decision())
        };
        assert_eq!(step.name, "release");
    }
}

/// A run without a placeholder is enrolled like a run with one, because a user may cancel it while it is held.
#[test]
fn a_run_that_is_held_without_a_placeholder_for_a_minute_is_enrolled() {
    let waits = |seconds| held().change(|scene| scene.run.created = Some(ago(seconds)));
    assert_eq!(waits(60).decision(), enrolled_while_held());
    assert_eq!(waits(59).decision(), creation());
    assert_eq!(waits(60).in_group(UID).decision(), creation());
}

#[test]
fn a_statefulset_without_its_pod_is_requeued_and_checked_again_soon() {
    assert_eq!(
        held().with_statefulset().plan(),
        with_timer(pod_missing(None), SOON)
    );
    let nudged = |requeue_in| {
        let scene = held().with_statefulset();
        scene
            .change(|scene| scene.requeue_in = Duration::from_secs(requeue_in))
            .plan()
    };
    assert_eq!(nudged(2), in_seconds(await_node(), 2));
    assert_eq!(nudged(30), with_timer(await_node(), SOON));
    let unobserved = held()
        .with_statefulset()
        .change(|scene| scene.statefulset.as_mut().unwrap().observed = false);
    assert_eq!(unobserved.plan(), with_timer(await_node(), SOON));
}

#[test]
fn a_held_run_whose_placeholder_is_rejected_permanently_is_released() {
    let told = |message: &str| held().with_statefulset().failed_create(message).decision();
    let missing = r#"pods "x" is forbidden: no PriorityClass with name urgent was found"#;
    is_released_as_impossible(&told(missing), missing);
    let quota = r#"pods "x" is forbidden: exceeded quota: few"#;
    assert_eq!(told(quota), pod_missing(Some(quota)));
}

#[test]
fn a_run_whose_template_kubernetes_rejects_is_released_and_gets_no_placeholder() {
    let message = "spec.template.spec.nodeSelector: Invalid value";
    let rejected =
        |scene: Scene| scene.change(|scene| scene.messages.invalid_template = Some(message.to_owned()));
    is_released_as_impossible(&rejected(held()).decision(), message);
    let running = rejected(enrolled().without_statefulset());
    assert_eq!(running.plan(), without_timer(Decision::Wait(Wait::Settled)));
    let conflict = "pod node label selector conflicts with its namespace node label selector";
    let scene = held().with_statefulset().failed_create(conflict);
    is_released_as_impossible(&scene.decision(), conflict);
}

fn is_released_as_impossible(decision: &Decision, told: &str) {
    let event = Event::Released {
        cause: ReleaseCause::PlaceholderImpossible,
        enrolment: Some(default_enrolment()),
        node: None,
        message: Some(told.to_owned()),
    };
    let release = Decision::act("release", event, [Action::Run(enrolled_state())]);
    assert_eq!(*decision, release, "it is held although nothing can come of it");
}

#[test]
fn a_placeholder_is_adjusted_to_each_limit_range_until_two_contradict_each_other() {
    let message = r#"pods "x" is forbidden: minimum cpu usage per Container is 100m, but request is 50m"#;
    let within = Spec {
        size: amounts("cpu=100m,memory=100Mi"),
        within_limits: true,
        ..spec()
    };
    let event = Event::SizedWithinLimits {
        message: message.to_owned(),
    };
    let sized = Decision::act("size_within_limits", event, [Action::Placeholder(within.clone())]);
    let first = held().with_statefulset().failed_create(message).plan();
    assert_eq!(first, with_timer(sized, SOON));
    let adjusted = |message| {
        let scene = held().with_statefulset().spec(|spec| *spec = within.clone());
        scene.failed_create(message).plan().decision
    };
    let conflict = r#"pods "x" is forbidden: maximum cpu usage per Container is 80m, but limit is 100m"#;
    is_released_as_impossible(&adjusted(conflict), conflict);
    let second =
        r#"pods "x" is forbidden: minimum memory usage per Container is 500Mi, but request is 100Mi"#;
    let both = Spec {
        size: amounts("cpu=100m,memory=500Mi"),
        ..within.clone()
    };
    let Decision::Act(step) = adjusted(second) else {
        panic!("the bounds of both LimitRanges are met");
    };
    assert_eq!(step.actions, [Action::Placeholder(both)]);
    assert_eq!(
        adjusted(message).name(),
        "requeue_statefulset",
        "the message is outdated"
    );
}

#[test]
fn the_placeholder_of_a_running_run_is_adjusted_when_the_api_server_rejects_its_pod() {
    let rejected = |message: &str| {
        enrolled()
            .with_statefulset()
            .failed_create(message)
            .plan()
            .decision
    };
    let sized =
        rejected(r#"pods "x" is forbidden: minimum cpu usage per Container is 100m, but request is 50m"#);
    assert_eq!(sized.name(), "size_within_limits");
    let full = rejected("exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3");
    assert_eq!(full, Decision::Wait(Wait::Settled));
    let paused = enrolled().with_statefulset().failed_create("denied");
    let paused = paused
        .change(|scene| scene.requeue_in = Duration::from_secs(3))
        .plan();
    assert_eq!(paused.again, Some(Duration::from_secs(3)));
}

/// A quota of the namespace rejects pods with affinity terms across namespaces.
pub(super) fn limited(scene: Scene) -> Scene {
    scene.change(|scene| scene.cluster.terms_rejected = Some(TermsRejected::BecauseOf("tight".to_owned())))
}

fn isolation_of(scene: &Scene) -> &'static str {
    scene.observation().enrolment().isolation.as_str()
}

#[test]
fn a_quota_limits_the_isolation_of_a_run_that_has_neither_a_placeholder_nor_pods() {
    let limits = |scene: Scene| isolation_of(&limited(scene.clone())) != isolation_of(&scene);
    let shared = |scene: &mut Scene| scene.run.opt_in = Some("colocateAlways".to_owned());
    assert!(limits(held()) && limits(held().in_group(UID)) && limits(fresh()));
    assert!(!limits(held().with_statefulset()) && !limits(enrolled()));
    assert!(!limits(held().change(shared)), "the run has no such terms");
    let enrolled_only = |scene: &mut Scene| scene.config.isolation.from = IsolateFrom::Enrolled;
    assert_eq!(
        isolation_of(&limited(held()).change(enrolled_only)),
        "namespace-enrolled"
    );
    let narrow = Enrolment {
        isolation: "namespace-all".parse().unwrap(),
        ..default_enrolment()
    };
    let create = Action::Create(New::Placeholder(narrow, Creation::default()));
    assert_eq!(
        limited(held()).decision(),
        Decision::act("create_placeholder", Event::Created(None), [create])
    );
}

#[test]
fn a_placeholder_that_a_quota_rejects_for_its_terms_is_deleted_to_be_created_with_others() {
    let over = r#"pods "x" is forbidden: exceeded quota: tight"#;
    let rejected = |scene: Scene| limited(scene.with_statefulset().failed_create(over));
    let delete = Action::Delete(Target::Placeholder(SET.to_owned()));
    let narrows = Decision::act("narrow_isolation", None, [delete]);
    assert_eq!(rejected(held()).plan(), with_timer(narrows, SOON));
    let isolated = |isolation: &str| {
        let isolation = isolation.parse().unwrap();
        rejected(held()).change(|scene| scene.statefulset.as_mut().unwrap().isolation = Some(isolation))
    };
    assert_eq!(isolated("namespace-all").decision(), pod_missing(Some(over)));
    let unlimited = held().with_statefulset().failed_create(over);
    assert_eq!(unlimited.decision(), pod_missing(Some(over)));
    let other = limited(held().with_statefulset().failed_create("denied the request"));
    assert_eq!(other.decision(), pod_missing(Some("denied the request")));
}

/// The API server requires a quota for terms across namespaces.
#[test]
fn a_placeholder_that_is_rejected_for_its_terms_without_a_quota_is_created_with_others() {
    let lacks = "insufficient quota to match these scopes: [{CrossNamespacePodAffinity Exists []}]";
    let required =
        |scene: Scene| scene.change(|scene| scene.cluster.terms_rejected = Some(TermsRejected::WithoutQuota));
    let rejected = |message| held().with_statefulset().failed_create(message);
    let step = |message| required(rejected(message)).decision().name();
    assert_eq!(step(lacks), "narrow_isolation");
    assert_eq!(step("exceeded quota: few"), "requeue_statefulset");
    assert_eq!(rejected(lacks).decision(), pod_missing(Some(lacks)));
    assert_eq!(isolation_of(&required(held())), "namespace-all");
}

#[test]
fn a_placeholder_that_a_policy_rejects_is_created_again_without_image_volumes() {
    let denied = "denied the request: volumes of the type image are forbidden";
    let pulls = |scene: Scene| scene.spec(|spec| spec.images = ["golang".to_owned()].into_iter().collect());
    let rejected = |message: &str| pulls(held().with_statefulset().failed_create(message));
    let scene = rejected(denied);
    let mut wanted = scene.statefulset.clone().unwrap().spec;
    wanted.images = Images::default();
    let message = Some(denied.to_owned());
    let leaves_out = Decision::act(
        "leave_out_images",
        Event::PodMissing { message },
        [Action::Placeholder(wanted)],
    );
    assert_eq!(scene.plan(), with_timer(leaves_out, SOON));
    for explained in [
        r#"pods "x" is forbidden: exceeded quota: tight"#,
        r#"pods "x" is forbidden: minimum cpu usage per Container is 100m, but request is 50m"#,
    ] {
        assert_ne!(rejected(explained).decision().name(), "leave_out_images");
    }
    let without = held().with_statefulset().failed_create(denied);
    assert_eq!(without.decision(), pod_missing(Some(denied)));
    let unexplained = pulls(held().with_statefulset());
    assert_eq!(unexplained.decision(), pod_missing(None));
}

#[test]
fn a_held_run_waits_for_its_node_until_the_deadline() {
    let plan = held().with_pod().in_group(UID).created_ago(60).plan();
    assert_eq!(plan, in_seconds(await_node(), 9 * 60));
}

#[test]
fn a_wait_for_a_node_has_the_message_of_the_scheduler() {
    let wait = Decision::Wait(Wait::Node {
        unschedulable: Some(NO_NODE.to_owned()),
        autoscaler: None,
        largest: None,
    });
    let unschedulable = held().placeholder_unschedulable(1).in_group(UID);
    assert_eq!(unschedulable.decision(), wait);
}

#[test]
fn a_held_run_with_an_unschedulable_placeholder_is_enrolled() {
    let enrol = enrolled_while_held();
    assert_eq!(held().placeholder_unschedulable(1).decision(), enrol);
    assert_eq!(
        held().placeholder_unschedulable(1).in_group("old-uid").decision(),
        enrol
    );
}

#[test]
fn a_run_that_is_held_for_a_minute_is_enrolled_in_any_state_of_its_placeholder() {
    let waits = [
        |scene: Scene| scene.with_statefulset(),
        Scene::with_pod,
        Scene::foreign_statefulset,
        Scene::statefulset_deleting,
    ];
    for waits in waits {
        let after = |seconds| waits(held()).created_ago(seconds);
        let enrol = enrolled_while_held();
        assert_ne!(after(59).decision(), enrol);
        assert!(after(59).plan().again.is_some_and(|again| again <= SOON));
        assert_eq!(after(60).decision(), enrol);
        assert_ne!(after(60).in_group(UID).decision(), enrol);
    }
}

#[test]
fn a_held_run_with_a_bound_placeholder_is_enrolled_and_released_for_its_node() {
    assert_eq!(
        held().on(NODE).decision(),
        released(ReleaseCause::NodeFound, Some(NODE))
    );
}

#[test]
fn the_node_of_a_terminating_placeholder_pod_does_not_count() {
    assert_eq!(held().on(NODE).pod_ending().decision(), pod_missing(None));
}

#[test]
fn release_when_created_waits_for_no_node() {
    let created = |scene: Scene| {
        scene
            .change(|scene| scene.config.release_when = ReleaseWhen::Created)
            .decision()
    };
    assert_eq!(created(held()), creation());
    assert_eq!(
        created(held().with_statefulset()),
        released(ReleaseCause::PlaceholderCreated, None)
    );
    assert_eq!(
        created(held().on(NODE)),
        released(ReleaseCause::NodeFound, Some(NODE))
    );
}

#[test]
fn a_hold_ends_at_its_deadline_in_any_state_of_the_placeholder() {
    for scene in [
        held(),
        held().with_statefulset(),
        held().with_pod(),
        held().statefulset_deleting(),
        held().foreign_statefulset(),
    ] {
        assert_eq!(
            scene.created_ago(600).decision(),
            released(ReleaseCause::Deadline, None)
        );
    }
}

#[test]
fn a_node_that_is_found_before_a_late_release_is_the_cause_of_the_release() {
    assert_eq!(
        held().on(NODE).created_ago(9999).decision(),
        released(ReleaseCause::NodeFound, Some(NODE))
    );
}

#[test]
fn the_next_reconciliation_is_at_the_deadline_at_the_latest() {
    let late = |scene: Scene| scene.in_group(UID).created_ago(598).plan().again;
    for scene in [
        held().with_statefulset(),
        held().with_pod(),
        held().statefulset_deleting(),
    ] {
        assert_eq!(late(scene), Some(Duration::from_secs(2)));
    }
}

#[test]
fn a_run_without_or_with_a_future_creation_time_counts_as_new() {
    let again = |scene: Scene| scene.with_pod().in_group(UID).plan().again;
    let deadline = Some(Duration::from_mins(10));
    assert_eq!(again(held().change(|scene| scene.run.created = None)), deadline);
    assert_eq!(again(held().created_ago(-3600)), deadline);
}

#[test]
fn the_deadline_of_a_run_that_another_holder_released_counts_from_the_release() {
    let scene = || held().created_ago(9999).with_pod().in_group(UID);
    let released_late = scene().decision();
    assert_eq!(released_late, released(ReleaseCause::Deadline, None));
    let release = scene().change(|scene| scene.run.held_from = HeldFrom::Release(ago(60)));
    assert_eq!(release.plan().again, Some(Duration::from_mins(9)));
}

#[test]
fn a_hold_that_begins_in_the_future_counts_from_the_creation() {
    let begun = |created, ahead: i64| {
        let scene = held().created_ago(created).with_pod().in_group(UID);
        scene.change(|scene| scene.run.held_from = HeldFrom::Release(ago(-ahead)))
    };
    assert_eq!(
        begun(9999, 3600).decision(),
        released(ReleaseCause::Deadline, None)
    );
    let new = begun(60, 3600).plan().again;
    assert_eq!(new, Some(Duration::from_mins(9)));
    let other_clock = begun(9999, 30).plan().again;
    assert_eq!(other_clock, Some(Duration::from_mins(10)));
}

#[test]
fn a_hold_by_an_admission_policy_gets_its_date_before_its_deadline_is_checked() {
    let undated = held()
        .created_ago(9999)
        .change(|scene| scene.run.held_from = HeldFrom::UndatedRelease);
    let dated = RunState {
        hold: Some(HeldFrom::Release(now())),
        group: None,
        node: None,
        used: None,
    };
    assert_eq!(
        undated.decision(),
        Decision::act("date_hold", None, [Action::Run(dated)])
    );
}

#[test]
fn a_held_run_waits_for_the_deletion_of_its_old_placeholder() {
    let plan = held()
        .statefulset_deleting()
        .on(NODE)
        .statefulset_deleting()
        .plan();
    assert_eq!(plan, with_timer(await_node(), SOON));
}

#[test]
fn a_held_run_with_the_group_of_another_run_is_released_with_its_own_group() {
    assert_eq!(
        held().in_group("old-uid").on(NODE).decision(),
        released(ReleaseCause::NodeFound, Some(NODE))
    );
}

#[test]
fn the_placeholder_of_a_run_whose_hold_the_user_took_over_is_deleted() {
    let taken_over = held()
        .in_group(UID)
        .on(NODE)
        .change(|scene| scene.run.hold = false);
    assert_eq!(taken_over.decision(), cleaned_up());
}

#[test]
fn a_run_of_another_holder_is_enrolled_and_gets_no_placeholder() {
    let pending = fresh().change(|scene| scene.run.status = SpecStatus::Pending);
    let kueue = held().change(|scene| scene.run.queued_by_kueue = true);
    for (scene, hold) in [(pending, None), (kueue, Some(HeldFrom::Creation))] {
        let scene = scene.created_ago(9999);
        assert_eq!(scene.decision(), labelled(hold));
        assert_eq!(
            scene.in_group(UID).decision(),
            Decision::Ignore(IgnoreReason::HeldElsewhere)
        );
    }
}

#[test]
fn a_run_that_kueue_released_gets_a_placeholder() {
    let scene = enrolled().change(|scene| scene.run.queued_by_kueue = true);
    assert_eq!(scene.decision(), creation());
}

const LATER: Turn = Turn::Later(Before::Rejected);

#[test]
fn a_run_without_a_pod_waits_for_older_runs_that_a_quota_rejected() {
    let waits = in_seconds(Decision::Wait(Wait::OlderRuns(Before::Rejected)), 30);
    let rejected = || held().with_statefulset().failed_create("exceeded quota: few");
    let running = enrolled().change(|scene| (scene.statefulset, scene.pod) = (None, None));
    for scene in [held(), rejected(), running] {
        let scene = scene.unread(Read::Creation);
        assert_ne!(scene.decision(), waits.decision);
        assert_eq!(scene.change(|scene| scene.turn = LATER).plan(), waits);
    }
    let on_node = held().with_pod().change(|scene| scene.turn = LATER);
    assert_eq!(on_node.decision(), held().with_pod().decision());
}

#[test]
fn a_run_that_waits_for_older_runs_is_released_at_its_deadline() {
    let late = held().created_ago(600).change(|scene| scene.turn = LATER);
    assert_eq!(late.decision(), released(ReleaseCause::Deadline, None));
}

const IN_LINE: Turn = Turn::Later(Before::Waiting { ahead: 2 });

#[test]
fn a_run_in_line_has_no_placeholder() {
    let waits = Decision::Wait(Wait::OlderRuns(Before::Waiting { ahead: 2 }));
    let in_line = held().unread(Read::Creation).change(|scene| scene.turn = IN_LINE);
    assert_eq!(in_line.plan(), in_seconds(waits, 30));
    let back = |scene: Scene| {
        scene
            .in_group(UID)
            .change(|scene| scene.turn = IN_LINE)
            .decision()
    };
    let delete = Action::Delete(Target::Placeholder(SET.to_owned()));
    let unschedulable = held().placeholder_unschedulable(1);
    assert_eq!(back(unschedulable), Decision::act("step_back", None, [delete]));
    assert!(matches!(
        back(held().on(NODE)),
        Decision::Act(Step { name: "release", .. })
    ));
    let late = held().placeholder_unschedulable(1).created_ago(600);
    assert!(matches!(back(late), Decision::Act(Step { name: "release", .. })));
}

const OVER_CAP: Turn = Turn::Later(Before::OverCap(OverCap {
    cap: Cap::EachNamespace(5),
    ahead: 1,
}));

#[test]
fn the_deadline_does_not_count_while_a_cap_has_no_room() {
    let over = |scene: Scene| scene.change(|scene| scene.turn = OVER_CAP);
    let state = RunState {
        hold: Some(HeldFrom::OverCap),
        ..enrolled_state()
    };
    let suspend = Decision::act("suspend_hold", None, [Action::Run(state)]);
    let suspended = |scene: Scene| scene.change(|scene| scene.run.held_from = HeldFrom::OverCap);
    let without_labels = suspended(held());
    for scene in [held(), held().created_ago(9999), without_labels] {
        assert_eq!(over(scene).decision(), suspend);
    }
    let waits = Decision::Wait(Wait::OlderRuns(match OVER_CAP {
        Turn::Later(before) => before,
        Turn::Now => unreachable!(),
    }));
    let late = suspended(held().in_group(UID).created_ago(9999));
    assert_eq!(over(late.clone()).plan(), in_seconds(waits, 30));
    let dated = RunState {
        hold: Some(HeldFrom::Release(now())),
        ..enrolled_state()
    };
    let date = Decision::act("date_hold", None, [Action::Run(dated)]);
    for scene in [late.clone(), over(late.with_statefulset())] {
        assert_eq!(scene.decision(), date, "the cap has room");
    }
}

#[test]
fn a_placeholder_without_an_answer_of_an_autoscaler_is_looked_at_again_after_30_seconds() {
    let again = |scene: Scene| scene.in_group(UID).plan().again;
    let deadline = Some(Duration::from_mins(10));
    assert_eq!(
        again(held().placeholder_unschedulable(10)),
        Some(Duration::from_secs(20))
    );
    assert_eq!(again(held().placeholder_unschedulable(30)), deadline);
    let answered = held()
        .placeholder_unschedulable(10)
        .change(|scene| scene.messages.autoscaler = Some("no".to_owned()));
    assert_eq!(again(answered), deadline);
}

/// The StatefulSet controller may create the pod in its next attempt.
#[test]
fn an_event_about_an_earlier_attempt_does_not_release_the_run() {
    let missing = "no PriorityClass with name urgent was found";
    let scene = held().with_statefulset().failed_create(missing);
    let scene = scene.change(|scene| scene.requeue_in = Duration::from_secs(2));
    assert_eq!(scene.plan(), in_seconds(await_node(), 2));
}

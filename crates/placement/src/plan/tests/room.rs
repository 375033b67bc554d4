//! A quota rejects the pod of a task of the run, or of another run of the namespace.

use super::*;

fn refused(scene: Scene, tasks: &[&str]) -> Scene {
    let tasks: Vec<_> = tasks.iter().map(|task| (*task).to_owned()).collect();
    scene.change(|scene| {
        scene.refusal = Some("7".into());
        scene.inputs.rejected_tasks = tasks.into();
    })
}

fn made_room(scene: Scene, count: u32, seconds: i64) -> Scene {
    scene.change(|scene| {
        scene.yields = Repeated {
            count,
            last: Some(ago(seconds)),
        }
    })
}

#[test]
fn a_refusal_in_the_namespace_is_looked_into() {
    let scene = settled().change(|scene| scene.refusal = Some("7".into()));
    assert_eq!(scene.plan(), without_timer(Decision::Read(Read::RejectedTasks)));
}

#[test]
fn one_that_is_anothers_changes_nothing() {
    assert_eq!(refused(settled(), &[]).plan(), settled().plan());
    let away = || made_room(enrolled().moved_off(), 1, 10);
    assert_eq!(refused(away(), &[]).plan(), away().plan());
}

#[test]
fn the_placeholder_makes_room_and_when_it_is_gone_tekton_tries_again() {
    let tasks = ["build-test"];
    let event = Event::MadeRoom {
        tasks: vec!["build-test".into()],
    };
    let away = Spec {
        replicas: 0,
        left: Some(String::new()),
        ..spec()
    };
    assert_eq!(
        refused(settled(), &tasks).plan(),
        without_timer(Decision::act("make_room", event, [Action::Placeholder(away)]))
    );
    let ending = refused(enrolled().moved_off().on(NODE).pod_ending(), &tasks);
    assert_eq!(ending.plan(), without_timer(Decision::Wait(Wait::PodEnd)));
    let gone = refused(enrolled().moved_off(), &tasks);
    assert_eq!(gone.plan(), without_timer(retries()));
}

fn retries() -> Decision {
    Decision::act(
        "retry_tasks",
        None,
        [Action::Requeue(Requeue::TaskRuns {
            names: vec!["build-test".into()],
            refusal: "7".into(),
        })],
    )
}

#[test]
fn it_is_told_so_again_with_growing_pauses_if_another_took_the_place() {
    let gone = |count, seconds| {
        let scene = refused(enrolled().moved_off(), &["build-test"]);
        let retries = Repeated {
            count,
            last: Some(ago(seconds)),
        };
        scene.change(|scene| scene.retries = retries).plan()
    };
    assert_eq!(gone(1, 1), in_seconds(Decision::Wait(Wait::Pause), 1));
    assert_eq!(gone(3, 5), in_seconds(Decision::Wait(Wait::Pause), 3));
    assert_eq!(gone(3, 8).decision, retries());
}

#[test]
fn it_stays_away_for_ten_seconds_and_each_time_twice_as_long() {
    let away = |count, seconds| made_room(enrolled().moved_off(), count, seconds).plan();
    assert_eq!(away(1, 4), in_seconds(Decision::Wait(Wait::Pause), 6));
    assert_eq!(away(3, 4), in_seconds(Decision::Wait(Wait::Pause), 36));
    assert_eq!(away(1, 10), without_timer(follow()));
}

#[test]
fn a_held_run_has_no_task_that_could_be_refused() {
    let held = held().with_set().with_pod();
    assert_eq!(refused(held.clone(), &["another"]).plan(), held.plan());
}

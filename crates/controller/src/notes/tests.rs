use super::*;
use crate::api_error::Failure;
use crate::fixture::{actions, at, enrolment, nothing, observed_pod, observed_set, planned, run, step_of};
use kube::core::Status;
use placement::automatic_reserve::{ExpectedRequests, Source};
use placement::coschedule::Coschedule;
use placement::cross_namespace_quota::TermsRejected;
use placement::plan::{Action, IgnoreReason, Inputs, PlaceholderPod, PodChange, Unschedulable, plan};
use placement::plan::{Event, ReleaseCause, Wait};
use placement::requests::Operation;
use placement::run::{Run, SpecStatus};

fn seen() -> Observation {
    let pod = PlaceholderPod {
        unschedulable: Some(Unschedulable {
            message: "0/3 nodes are available.".into(),
            since: at(0),
        }),
        ..observed_pod(None)
    };
    Observation {
        pod: Some(pod),
        ..nothing()
    }
}

fn told(run: &Run, decision: &Decision, result: &Result<Effect, StepError>) -> Vec<Note> {
    let seen = Observation {
        run: run.clone(),
        ..seen()
    };
    notes(&seen, &planned(decision.clone()), result)
}

fn written(run: &Run, action: &Decision) -> Vec<Note> {
    told(run, action, &Ok(Effect::Written))
}

fn reasons(notes: &[Note]) -> Vec<&'static str> {
    notes.iter().map(|note| note.reason.into()).collect()
}

fn refused(operation: Operation, code: u16, message: &str) -> Result<Effect, StepError> {
    let error = kube::Error::Api(Status::failure(message, "").with_code(code).boxed());
    Err(StepError {
        operation,
        fault: Failure::Api(Box::new(error)),
    })
}

fn release(cause: ReleaseCause) -> Decision {
    step_of(Event::Released {
        cause,
        enrolment: Some(enrolment()),
        node: Some("n1".into()),
        message: None,
    })
}

#[test]
fn a_placeholder_that_returns_is_distinguished_from_a_new_placeholder() {
    let running = Run {
        node: Some("n1".into()),
        hold: false,
        status: SpecStatus::Unset,
        ..run()
    };
    let create = step_of(Event::Created(None));
    assert_eq!(reasons(&written(&run(), &create)), ["Held"]);
    assert_eq!(reasons(&written(&running, &create)), ["PlaceholderReturned"]);
}

#[test]
fn a_held_run_gets_its_event_even_if_its_placeholder_is_rejected() {
    let quota = refused(Operation::Placeholder, 403, "exceeded quota: builds");
    let notes = told(&run(), &step_of(Event::Created(None)), &quota);
    assert_eq!(reasons(&notes), ["Held", "PlaceholderRefused"]);
    assert!(notes[1].text.contains("exceeded quota: builds") && notes[1].text.contains("ResourceQuota"));
}

#[test]
fn the_event_of_a_run_whose_isolation_a_quota_limits_names_the_quota_and_the_remedy() {
    let limited = |event| {
        let mut observed = nothing();
        observed.cluster.terms_rejected = Some(TermsRejected::BecauseOf("tight".to_owned()));
        notes(&observed, &planned(step_of(event)), &Ok(Effect::Written))
    };
    let created = limited(Event::Created(None));
    assert_eq!(reasons(&created), ["Held", "IsolationNarrowed"]);
    for words in ["its own namespace only", "ResourceQuota tight", "isolation-scope"] {
        assert!(created[1].text.contains(words), "{}", created[1].text);
    }
    assert_eq!(
        reasons(&limited(Event::Enrolled)),
        ["Enrolled", "IsolationNarrowed"]
    );
}

#[test]
fn the_event_of_a_run_whose_pods_tekton_places_names_the_mode_and_the_remedy() {
    let mut observed = nothing();
    observed.cluster.coschedule = Coschedule::IsolatePipelineRun;
    let told = notes(
        &observed,
        &planned(Decision::Wait(Wait::Settled)),
        &Ok(Effect::Nothing),
    );
    assert_eq!(reasons(&told), ["TektonPlacesPods"]);
    for words in [
        "coschedule is isolate-pipelinerun",
        "Set coschedule to workspaces",
        "ConfigMap feature-flags",
    ] {
        assert!(told[0].text.contains(words), "{}", told[0].text);
    }
}

#[test]
fn the_event_of_freed_places_names_the_other_placeholders_and_the_quota() {
    let frees = step_of(Event::PlacesFreed {
        names: vec!["another".to_owned(), "third".to_owned()],
        quota: "ResourceQuota few (2 of 2 used)".to_owned(),
    });
    let notes = written(&run(), &frees);
    assert_eq!(reasons(&notes), ["MadeRoom"]);
    for words in [
        "ResourceQuota few (2 of 2 used)",
        "another, third",
        "assistants",
        "Raise the quota",
    ] {
        assert!(notes[0].text.contains(words), "{}", notes[0].text);
    }
}

#[test]
fn the_event_of_a_placeholder_that_makes_room_for_assistants_names_the_quota() {
    let wait = Decision::Wait(Wait::Places {
        quota: "ResourceQuota few (count/statefulsets.apps: 0 of 1 used, 2 needed)".to_owned(),
    });
    let held = written(&run(), &wait);
    assert_eq!(reasons(&held), ["Held", "PlaceholderRefused"]);
    for words in ["ResourceQuota few", "affinity assistants", "hold-deadline"] {
        assert!(held[1].text.contains(words), "{}", held[1].text);
    }
    let running = Run {
        hold: false,
        status: SpecStatus::Unset,
        ..run()
    };
    let goes_on = written(&running, &wait);
    assert_eq!(reasons(&goes_on), ["PlaceholderRefused"]);
    assert!(
        goes_on[0].text.contains("without a placeholder"),
        "{}",
        goes_on[0].text
    );
}

#[test]
fn the_event_of_a_rejection_by_a_policy_names_the_settings_that_may_help() {
    let create = step_of(Event::Created(None));
    let denied = refused(
        Operation::Placeholder,
        403,
        "admission webhook \"w\" denied the request: no team",
    );
    let text = &told(&run(), &create, &denied)[1].text;
    for words in ["no team", "exempt the placeholder", "placeholder-copied-labels"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn the_event_of_a_wait_has_the_message_of_the_scheduler() {
    let waiting = Decision::Wait(Wait::Node {
        unschedulable: Some("0/3 nodes are available: taint.".into()),
        autoscaler: None,
        largest: None,
    });
    let notes = told(&run(), &waiting, &Ok(Effect::Nothing));
    assert_eq!(reasons(&notes), ["WaitingForNode"]);
    assert!(notes[0].text.contains("0/3 nodes are available: taint."));
    assert!(!notes[0].text.contains("autoscaler"), "none has spoken");
    let silent = Decision::Wait(Wait::Node {
        unschedulable: None,
        autoscaler: None,
        largest: None,
    });
    assert!(told(&run(), &silent, &Ok(Effect::Nothing)).is_empty());
}

#[test]
fn the_event_of_a_wait_has_the_answer_of_the_autoscaler_and_the_remedy_for_neighbours() {
    let waiting = Decision::Wait(Wait::Node {
        unschedulable: Some("0/3 nodes are available.".into()),
        autoscaler: Some("pod didn't trigger scale-up: 1 max node group size reached".into()),
        largest: None,
    });
    let text = &notes(&nothing(), &planned(waiting), &Ok(Effect::Nothing))[0].text;
    assert!(
        text.contains("The autoscaler reports: pod didn't trigger scale-up: 1 max"),
        "{text}"
    );
    assert!(text.contains("explain -n ns build`"), "{text}");
    assert!(
        !text.contains("colocateAlways"),
        "an isolated run shares its node with no other run: {text}"
    );
}

#[test]
fn the_event_of_a_missing_pod_has_the_message_of_the_statefulset_controller() {
    let told = |message| written(&run(), &step_of(Event::PodMissing { message }));
    let quota = told(Some("create Pod failed: exceeded quota".to_owned()));
    assert_eq!(reasons(&quota), ["PlaceholderRefused"]);
    assert!(!quota[0].text.contains("placeholder-labels"));
    let policy = told(Some(
        "create Pod failed: ValidatingAdmissionPolicy 'p' denied request: no team".to_owned(),
    ));
    assert!(
        policy[0].text.contains("placeholder-labels") && policy[0].text.contains("delete the StatefulSet")
    );
    assert!(told(None).is_empty());
}

#[test]
fn the_event_of_a_deadline_names_the_reason_for_the_missing_node() {
    let action = step_of(Event::Released {
        cause: ReleaseCause::Deadline,
        enrolment: None,
        node: None,
        message: None,
    });
    let notes = written(&run(), &action);
    assert_eq!(reasons(&notes), ["HoldDeadlineExceeded", "Released"]);
    assert!(
        notes[0].text.contains("0/3 nodes are available.") && notes[0].text.contains("10m"),
        "{}",
        notes[0].text
    );
}

#[test]
fn a_refused_release_names_its_cause_and_a_remedy() {
    let denied = refused(
        Operation::Release,
        400,
        "admission webhook \"v\" denied the request: only status updates",
    );
    let notes = told(&run(), &release(ReleaseCause::NodeFound), &denied);
    assert_eq!(reasons(&notes), ["ReleaseRefused"]);
    assert!(notes[0].text.contains("only status updates") && notes[0].text.contains("create the run again"));
    let down = refused(Operation::Release, 500, "failed calling webhook \"w\"");
    let notes = told(&run(), &release(ReleaseCause::NodeFound), &down);
    assert!(notes[0].text.contains("unavailable"), "{}", notes[0].text);
}

#[test]
fn the_event_of_an_enrolled_run_names_the_holder() {
    let queued = Run { hold: false, ..run() };
    let told = written(&queued, &step_of(Event::Enrolled));
    assert!(told[0].text.contains("Another holder"), "{}", told[0].text);
    let running = Run {
        status: SpecStatus::Unset,
        ..run()
    };
    assert!(
        written(&running, &step_of(Event::Enrolled))[0]
            .text
            .contains("after it was released")
    );
}

#[test]
fn the_enrolment_of_a_held_run_emits_only_the_event_about_the_wait() {
    let seen = Observation {
        statefulset: Some(observed_set()),
        ..seen()
    };
    let enrols = plan(&seen, &Inputs::default());
    assert_eq!(enrols.decision.name(), "enrol", "its labels are written");
    assert!(notes(&seen, &enrols, &Ok(Effect::Written)).is_empty());
}

#[test]
fn the_clean_up_is_reported_unless_the_run_is_deleted() {
    let deleted = |deleting: bool| {
        let run = Run {
            deleting,
            opt_in: None,
            hold: false,
            status: SpecStatus::Unset,
            ..run()
        };
        let seen = Observation {
            run,
            statefulset: Some(observed_set()),
            ..seen()
        };
        let deletes = plan(&seen, &Inputs::default());
        assert!(matches!(deletes.decision, Decision::Act(_)), "{deletes:?}");
        notes(&seen, &deletes, &Ok(Effect::Written))
    };
    assert_eq!(reasons(&deleted(false)), ["CleanedUp"]);
    assert!(deleted(true).is_empty());
    let kept = written(&run(), &step_of(Event::NodeKept));
    assert!(kept[0].text.contains("stays reserved"));
    let adopts = actions([Action::Pod(PodChange::Adopt("p1".into()))]);
    assert!(written(&run(), &adopts).is_empty());
}

#[test]
fn what_needs_no_words_gets_none() {
    for action in [
        Decision::Ignore(IgnoreReason::Done),
        Decision::Wait(Wait::Settled),
        Decision::Wait(Wait::OldStatefulSet),
        Decision::Wait(Wait::PodEnd),
        Decision::Wait(Wait::Scheduler),
        Decision::Wait(Wait::Pause),
        Decision::Wait(Wait::Assistants),
        step_of(Event::PodMissing { message: None }),
    ] {
        assert!(
            told(&run(), &action, &Ok(Effect::Nothing)).is_empty(),
            "{action:?}"
        );
    }
    assert!(told(&run(), &release(ReleaseCause::NodeFound), &Ok(Effect::Overtaken)).is_empty());
}

#[test]
fn the_event_of_an_automatic_reserve_names_its_amount_and_its_source() {
    let text = |source: Source, asks: &str| {
        let need = ExpectedRequests {
            requests: placement::automatic_reserve::parse_record(asks).unwrap(),
            source,
        };
        let told = written(&run(), &step_of(Event::Created(Some(need))));
        assert_eq!(reasons(&told), ["Held", "ReserveChosen"]);
        told[1].text.clone()
    };
    let earlier = || Source::Record("build-7".to_owned());
    let known = text(earlier(), "cpu=4,memory=8Gi");
    assert!(
        known.contains("cpu=4,memory=8Gi") && known.contains("PipelineRun build-7"),
        "{known}"
    );
    assert!(text(earlier(), "").contains("nothing is reserved, since the tasks of PipelineRun build-7"));
    assert!(text(Source::Definitions, "cpu=4").contains("the requests of the largest task of its Pipeline"));
    assert!(text(Source::Nothing, "").contains("no earlier run of its Pipeline"));
    let stated = written(&run(), &step_of(Event::Created(None)));
    assert_eq!(reasons(&stated), ["Held"], "it is not automatic");
}

#[test]
fn the_event_of_a_given_up_reserve_names_the_resources_of_the_nearest_node() {
    let mut seen = seen();
    seen.pod.as_mut().unwrap().shape.requests = placement::automatic_reserve::parse_record("cpu=64").unwrap();
    let given_up = step_of(Event::ReserveGivenUp { nearest: None });
    let text = &notes(&seen, &planned(given_up), &Ok(Effect::Written))[0].text;
    assert!(
        text.contains("No node has room for cpu=64") && text.contains("auto-reserve-maximum"),
        "{text}"
    );
}

//! The end of a wait, against a fake API server, and by the state of a run.

use super::*;
use crate::args::{Caller, Verb, parse};
use crate::commands::BAD;
use crate::fake_api::{AsCluster, FakeApi, run_path};
use crate::fixture::{UID, done, merged, placeholder, released, run};
use placement::keys;
use serde_json::{Value, json};
use testing::Behaviour;
use tokio::time::sleep;

async fn waited(changes: &Value, line: &str) -> RequestResult<ExitCode> {
    waited_at(&FakeApi::default(), changes, line).await
}

async fn waited_at(api: &FakeApi, changes: &Value, line: &str) -> RequestResult<ExitCode> {
    api.put(&run_path("build"), serde_json::to_value(run(changes)).unwrap());
    let words = ["x", "wait"].into_iter().chain(line.split(' ')).map(Into::into);
    let Verb::Wait(args) = parse(Caller::of("x"), words).unwrap().command else {
        panic!()
    };
    wait(&api.cluster(), &args).await
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_well_when_the_run_is_there() {
    for condition in ["released", "node", "done"] {
        let code = waited(&done(), &format!("pr/build --for={condition} --timeout=0")).await;
        assert_eq!(code, Ok(ExitCode::SUCCESS), "{condition}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_fails_at_its_timeout_and_for_a_run_that_never_gets_there() {
    assert_eq!(
        waited(&json!({}), "build --for=done --timeout=3s").await,
        Ok(ExitCode::from(BAD))
    );
    let deleted = json!({"metadata": {"deletionTimestamp": "2027-01-15T08:00:01Z"}});
    assert_eq!(
        waited(&deleted, "build --for=node").await,
        Ok(ExitCode::from(BAD))
    );
    assert_eq!(
        waited(&json!({}), "absent --for=node").await,
        Ok(ExitCode::from(BAD))
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_names_the_error_of_an_api_server_that_is_unavailable_at_the_timeout() {
    let api = FakeApi::default();
    let fails = async {
        sleep(Duration::from_secs(1)).await;
        api.set_behaviour(Behaviour::Unavailable);
    };
    let changes = json!({});
    let waited = waited_at(&api, &changes, "build --for=done --timeout=3s");
    let (end, ()) = tokio::join!(waited, fails);
    let error = end.unwrap_err().to_string();
    assert!(
        error.starts_with("could not get pipelineruns.tekton.dev build in namespace ci"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_deleted_and_created_again_is_another() {
    let api = FakeApi::default();
    let other = run(&merged(done(), &json!({"metadata": {"uid": "u9"}})));
    api.put(&run_path("build"), serde_json::to_value(other).unwrap());
    let key = RunKey {
        namespace: "ci".into(),
        name: "build".into(),
        uid: UID.into(),
    };
    let mut state = State::Held;
    let end = end(&api.cluster().server, &key, WaitCondition::Done, &mut state).await;
    assert_eq!(end, Ok(End::Never("it was deleted".into())));
}

fn ends(changes: &Value, node: Option<&str>) -> [String; 3] {
    let view = RunView::of(&run(changes)).unwrap();
    let pod = placeholder("build", UID, node, &json!({}));
    let placeholder = PlaceholderObjects {
        set: None,
        pod: node.is_some().then_some(&pod),
    };
    [WaitCondition::Released, WaitCondition::Node, WaitCondition::Done].map(|condition| {
        match end_of(condition, &view, &placeholder) {
            Some(End::Reached(how)) => how,
            None => "-".to_owned(),
            Some(End::Never(why)) => format!("never: {why}"),
            Some(End::Late(limit)) => panic!("late after {limit:?}"),
        }
    })
}

#[test]
fn a_run_comes_to_its_node_is_released_and_done() {
    assert_eq!(ends(&json!({}), None), ["-", "-", "-"]);
    assert_eq!(ends(&json!({}), Some("node-7")), ["-", "on node node-7", "-"]);
    assert_eq!(ends(&released(), None), ["released", "on node node-1", "-"]);
    assert_eq!(
        ends(&done(), None),
        ["released", "on node node-1", "done: succeeded"]
    );
}

#[test]
fn a_run_that_can_never_get_there_is_told_from_one_that_takes_its_time() {
    let deleted = json!({"metadata": {"deletionTimestamp": "2027-01-15T08:00:01Z"}});
    let never = "never: it is being deleted";
    assert_eq!(ends(&deleted, None), [never, never, "-"]);
    let cancelled = json!({
        "metadata": {"annotations": {keys::NODE: null}},
        "spec": {"status": "Cancelled"},
        "status": {"startTime": null, "conditions": [{"type": "Succeeded", "status": "False", "reason": "Cancelled"}]},
    });
    assert_eq!(
        ends(&merged(done(), &cancelled), None),
        [
            "never: it is done, and was never started",
            "never: it is done, and had no node",
            "done: did not succeed"
        ]
    );
    let declined = json!({
        "metadata": {"labels": {keys::OPT_IN: "false"}, "annotations": null}, "spec": {"status": null},
    });
    assert_eq!(
        ends(&declined, None)[1],
        "never: its state is Declined, so pod-affinity gives it no node"
    );
}

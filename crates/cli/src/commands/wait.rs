//! `wait`: until a run has a node, is released or done, or can never be; at the latest until the timeout.

use super::read::unknown;
use super::{printed, refused};
use crate::args::{Goal, WaitArgs};
use crate::ask::{Seen, Server};
use crate::client::Cluster;
use crate::filter::Filter;
use crate::follow::{Known, of_run};
use crate::gather::viewed;
use crate::goal::{Progress, progress};
use crate::state::State;
use crate::view::{PipelineRun, Seat};
use crate::words::span;
use futures::StreamExt;
use placement::names::RunKey;
use std::process::ExitCode;
use std::time::Duration;

/// `wait`.
pub(super) async fn wait(cluster: &Cluster, args: &WaitArgs) -> Seen<ExitCode> {
    let target = args.run.target()?;
    let namespace = target.namespace(&cluster.namespace);
    let server = &cluster.server;
    let runs = server.within::<PipelineRun>(namespace);
    let Some(run) = runs.get(&target.name).await? else {
        return Ok(unknown(cluster, namespace, &target.name).await);
    };
    let view = viewed(&run)?;
    let key = view.run.key.clone();
    let mut state = State::of(&view, &Seat::default());
    let end = end(server, &key, args.goal, &mut state);
    let end = match args.timeout.0 {
        Some(limit) => tokio::time::timeout(limit, end)
            .await
            .unwrap_or(Ok(End::Late(limit))),
        None => end.await,
    };
    Ok(match end? {
        End::Reached(how) => printed(&format!("pipelinerun.tekton.dev/{} is {how}\n", key.name)),
        End::Never(why) => failed(&key, &format!("will not be {}: {why}", args.goal.words())),
        End::Late(limit) => {
            let limit = span(limit);
            failed(
                &key,
                &format!("is not {} after {limit}: its state is {state}", args.goal.words()),
            )
        }
    })
}

/// How a wait ends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Reached(String),
    Never(String),
    Late(Duration),
}

fn failed(key: &RunKey, what: &str) -> ExitCode {
    refused(&format!("PipelineRun {key} {what}."))
}

/// `state` is what the run was seen in last.
async fn end(server: &Server, key: &RunKey, goal: Goal, state: &mut State) -> Seen<End> {
    let mut known = Known::default();
    let placeholder = Filter::name(&key.placeholder().pod());
    let mut changes = of_run(server, key, &placeholder);
    while let Some(change) = changes.next().await {
        known.take(change?);
        if !known.is_complete() {
            continue;
        }
        let Some((view, seat)) = known.of_run(key) else {
            return Ok(End::Never("it was deleted".to_owned()));
        };
        *state = State::of(&view, &seat);
        match progress(goal, &view, &seat) {
            Progress::Reached(how) => return Ok(End::Reached(how)),
            Progress::Coming => {}
            Progress::Never(why) => return Ok(End::Never(why)),
        }
    }
    Ok(End::Never("the API server ended the watch".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Caller, Verb, parse};
    use crate::commands::BAD;
    use crate::fake_api::{AsCluster, FakeApi, run_path};
    use crate::fixture::{UID, done, merged, run};
    use serde_json::{Value, json};

    async fn waited(changes: &Value, line: &str) -> Seen<ExitCode> {
        let api = FakeApi::default();
        api.put(&run_path("build"), serde_json::to_value(run(changes)).unwrap());
        let words = ["x", "wait"].into_iter().chain(line.split(' ')).map(Into::into);
        let Verb::Wait(args) = parse(Caller::of("x"), words).unwrap().command else {
            panic!()
        };
        wait(&api.cluster(), &args).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_well_when_the_run_is_there() {
        for goal in ["released", "node", "done"] {
            let code = waited(&done(), &format!("pr/build --for={goal} --timeout=0")).await;
            assert_eq!(code, Ok(ExitCode::SUCCESS), "{goal}");
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
        let end = end(&api.cluster().server, &key, Goal::Done, &mut state).await;
        assert_eq!(end, Ok(End::Never("it was deleted".into())));
    }
}

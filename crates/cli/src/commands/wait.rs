//! `wait`: waits until a run has a node, is released or done, until it can never be so, or until the timeout.

use super::read::unknown;
use super::{printed, refused};
use crate::args::{WaitArgs, WaitCondition};
use crate::client::Cluster;
use crate::explanation;
use crate::filter::Filter;
use crate::follow::{CachedObjects, of_run};
use crate::gather::{facts, viewed};
use crate::requests::{RequestResult, Server};
use crate::state::State;
use crate::view::{PipelineRun, PlaceholderObjects, RunView};
use crate::words::span;
use futures::StreamExt;
use placement::names::RunKey;
use placement::run::SpecStatus;
use std::process::ExitCode;
use std::time::Duration;

/// `wait`.
pub(super) async fn wait(cluster: &Cluster, args: &WaitArgs) -> RequestResult<ExitCode> {
    let target = args.run.target()?;
    let namespace = target.namespace(&cluster.namespace);
    let server = &cluster.server;
    let runs = server.within::<PipelineRun>(namespace);
    let Some(run) = runs.get(&target.name).await? else {
        return Ok(unknown(cluster, namespace, &target.name).await);
    };
    let view = viewed(&run)?;
    let key = view.run.key.clone();
    let mut state = State::of(&view, &PlaceholderObjects::default());
    let end = end(server, &key, args.condition, &mut state);
    let end = match args.timeout.0 {
        Some(limit) => tokio::time::timeout(limit, end)
            .await
            .unwrap_or(Ok(End::Late(limit))),
        None => end.await,
    };
    Ok(match end? {
        End::Reached(how) => printed(&format!("pipelinerun.tekton.dev/{} is {how}\n", key.name)),
        End::Never(why) => failed(&key, &format!("will not be {}: {why}", args.condition.words())),
        End::Late(limit) => {
            let next = next_step(server, &key).await?.unwrap_or_default();
            let (condition, limit) = (args.condition.words(), span(limit));
            failed(
                &key,
                &format!("is not {condition} after {limit}: its state is {state}{next}"),
            )
        }
    })
}

/// How a wait ends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// The run has reached the condition, with a text that says how.
    Reached(String),
    /// The run cannot reach the condition, for this reason.
    Never(String),
    Late(Duration),
}

fn failed(key: &RunKey, what: &str) -> ExitCode {
    refused(&format!("PipelineRun {key} {what}."))
}

/// The controller's state and next step. An error tells why the wait may have missed the end of the run.
async fn next_step(server: &Server, key: &RunKey) -> RequestResult<Option<String>> {
    let facts = Box::pin(facts(server, &key.namespace, &key.name)).await?;
    let text = facts.and_then(|facts| explanation::controller_text(&facts));
    Ok(text.map(|text| format!(". The controller is {}", text.trim_end_matches('.'))))
}

/// Watches the run. `state` is its last state.
async fn end(
    server: &Server,
    key: &RunKey,
    condition: WaitCondition,
    state: &mut State,
) -> RequestResult<End> {
    let mut known = CachedObjects::default();
    let placeholder = Filter::name(&key.placeholder().pod());
    let mut changes = of_run(server, key, &placeholder);
    while let Some(change) = changes.next().await {
        if !known.take(change?) {
            continue;
        }
        let Some((view, placeholder)) = known.of_run(key) else {
            return Ok(End::Never("it was deleted".to_owned()));
        };
        *state = State::of(view, &placeholder);
        if let Some(end) = end_of(condition, view, &placeholder) {
            return Ok(end);
        }
    }
    Ok(End::Never("the API server ended the watch".to_owned()))
}

/// How the wait for a run with this placeholder ends; `None` if the run may still reach the condition.
fn end_of(condition: WaitCondition, view: &RunView, placeholder: &PlaceholderObjects<'_>) -> Option<End> {
    match condition {
        WaitCondition::Released => released(view),
        WaitCondition::Node => node(view, placeholder),
        WaitCondition::Done => done(view),
    }
}

fn done(view: &RunView) -> Option<End> {
    let outcome = match &view.verdict {
        Some((true, _)) => "succeeded",
        Some((false, _)) => "did not succeed",
        None => "ended",
    };
    view.run.done.then(|| End::Reached(format!("done: {outcome}")))
}

fn released(view: &RunView) -> Option<End> {
    let run = &view.run;
    match run.status {
        _ if run.done && view.started.is_none() => {
            Some(End::Never("it is done, and was never started".to_owned()))
        }
        SpecStatus::Pending if run.deleting => Some(being_deleted()),
        SpecStatus::Pending => None,
        SpecStatus::Unset | SpecStatus::Other(_) => Some(End::Reached("released".to_owned())),
    }
}

fn node(view: &RunView, placeholder: &PlaceholderObjects<'_>) -> Option<End> {
    let state = State::of(view, placeholder);
    let known = placeholder.node().or(view.run.node.as_deref());
    match (state, known) {
        // A run that moves gave up its last node.
        (State::Moving, _)
        | (State::Held | State::WaitingForNode | State::HeldElsewhere | State::Running, None) => None,
        (_, Some(node)) => Some(End::Reached(format!("on node {node}"))),
        (State::Done | State::Reserved, None) => Some(End::Never("it is done, and had no node".to_owned())),
        (State::Ending, None) => Some(being_deleted()),
        (
            State::Declined
            | State::TooLate
            | State::Invalid
            | State::Nested
            | State::ManagedElsewhere
            | State::Unlabelled,
            None,
        ) => Some(End::Never(format!(
            "its state is {state}, so pod-affinity gives it no node"
        ))),
    }
}

fn being_deleted() -> End {
    End::Never("it is being deleted".to_owned())
}

#[cfg(test)]
mod tests;

//! The verbs that write: `release`, `disable` and `enable`. `disable` changes the admission of new runs first, so that no run is held
//! while existing runs are released.

mod admission;

use self::admission::Outcome;
use super::read::unknown;
use super::{BAD, UNASKED, notes, printed, refused};
use crate::args::{DisableArgs, DryRun, EnableArgs, ReleaseArgs};
use crate::client::Cluster;
use crate::doctor::manifests::CONTROLLER;
use crate::gather::{placeholders, viewed};
use crate::output;
use crate::requests::writes::Writer;
use crate::requests::{RequestError, RequestResult, ResourceClient};
use crate::state::State;
use crate::switch::Switch;
use crate::view::{PipelineRun, PlaceholderObjects, RunView, is_live};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::ListParams;
use kube::{Resource, ResourceExt};
use placement::keys;
use placement::requests::{opt_out, release_by_hand};
use placement::run::Run;
use placement::strategy::Strategy;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Duration;

/// Replicas of the controller in the manifests.
const REPLICAS: i32 = 2;
/// How often an object that is changed in the meantime is read again.
const TRIES: usize = 3;
/// A controller finishes its last writes and gives up its Lease before it ends.
const ENDING: Duration = Duration::from_mins(1);
/// API servers use a changed webhook configuration within a second, and a changed policy within two seconds.
const SETTLED: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(500);

fn writer(cluster: &Cluster, dry_run: DryRun) -> Writer<'_> {
    Writer {
        server: &cluster.server,
        dry_run,
    }
}

/// `release`.
pub(super) async fn release(cluster: &Cluster, args: &ReleaseArgs) -> RequestResult<ExitCode> {
    let target = args.run.target()?;
    let namespace = target.namespace(&cluster.namespace);
    let runs = cluster.server.within::<PipelineRun>(namespace);
    let Some(run) = runs.get(&target.name).await? else {
        return Ok(unknown(cluster, namespace, &target.name).await);
    };
    let view = viewed(&run)?;
    if !view.run.is_held_by_us() {
        return Ok(refused(&not_ours(&view)));
    }
    let writer = writer(cluster, args.dry_run);
    writer
        .patch(&runs, &target.name, release_by_hand(&view.run).0)
        .await?;
    Ok(printed(&writer.told(&format!("{} released", named(&view.run)))))
}

fn not_ours(view: &RunView) -> String {
    let (run, state) = (&view.run.key, State::of(view, &PlaceholderObjects::default()));
    let elsewhere = ", and another holder has to release it";
    let holder = if state == State::HeldElsewhere {
        elsewhere
    } else {
        ""
    };
    format!("PipelineRun {run} is not held by pod-affinity: its state is {state}{holder}.")
}

fn named(run: &Run) -> String {
    format!("pipelinerun.tekton.dev/{}", run.key.name)
}

/// `disable`.
pub(super) async fn disable(cluster: &Cluster, args: &DisableArgs) -> RequestResult<ExitCode> {
    let writer = writer(cluster, args.dry_run);
    if !args.all_namespaces {
        return disable_namespace(cluster, writer, &args.install_namespace).await;
    }
    admission::switch(writer, &args.install_namespace, &Switch::AllOff, "disabled").await?;
    if !args.stop_controller {
        return Ok(ExitCode::SUCCESS);
    }
    scale(writer, &args.install_namespace, |_| Some(0)).await?;
    until_stopped(writer, &args.install_namespace).await?;
    // A user may have removed the label of a held run while no controller ran.
    let all = ListParams::default();
    let started = start(writer, None, all, Run::is_held_by_us).await?;
    let (sets, pods) = placeholders(writer.server, None).await;
    let deleted = [delete(writer, sets).await, delete(writer, pods).await];
    Ok(ExitCode::from(deleted.into_iter().fold(started, u8::max)))
}

async fn disable_namespace(
    cluster: &Cluster,
    writer: Writer<'_>,
    installation: &str,
) -> RequestResult<ExitCode> {
    if let Some(code) = missing_namespace(cluster).await {
        return Ok(code);
    }
    let switch = Switch::Exclude(cluster.namespace.clone());
    admission::switch(writer, installation, &switch, "disabled").await?;
    until_used(writer).await;
    let labelled = ListParams::default().labels(keys::OPT_IN);
    let started = start(writer, Some(&cluster.namespace), labelled, may_use_a_node).await?;
    Ok(ExitCode::from(started))
}

/// The answer if the namespace does not exist. The user may lack the right to get namespaces.
async fn missing_namespace(cluster: &Cluster) -> Option<ExitCode> {
    let namespace = &cluster.namespace;
    let found = cluster.server.cluster::<Namespace>().get(namespace).await;
    notes(found.as_ref().err());
    matches!(found, Ok(None)).then(|| refused(&format!("there is no namespace {namespace}.")))
}

/// `enable`.
pub(super) async fn enable(cluster: &Cluster, args: &EnableArgs) -> RequestResult<ExitCode> {
    let writer = writer(cluster, args.dry_run);
    let switch = if args.all_namespaces {
        Switch::AllOn
    } else if let Some(code) = missing_namespace(cluster).await {
        return Ok(code);
    } else {
        Switch::Include(cluster.namespace.clone())
    };
    // The controller is first, so that it is there when admission holds runs.
    let none = |replicas: i32| (replicas == 0).then_some(REPLICAS);
    let is_there = !args.all_namespaces || scale(writer, &args.install_namespace, none).await?;
    let outcome = admission::switch(writer, &args.install_namespace, &switch, "enabled").await?;
    let outcome = if is_there { outcome } else { Outcome::Missing };
    Ok(match outcome {
        Outcome::Done => ExitCode::SUCCESS,
        Outcome::StillOff => refused(
            "pod-affinity is off in all namespaces. To switch it on: `kubectl pod-affinity enable -A`.",
        ),
        Outcome::Missing => {
            refused("a part of the installation is not there. Apply the manifests of the release again.")
        }
    })
}

/// Whether the run is not done, or keeps its node for good.
fn may_use_a_node(run: &Run) -> bool {
    !run.done || run.strategy == Some(Strategy::IsolateAlways.to_string())
}

/// Releases held runs that meet the condition, and then opts out the others that do. Returns the exit code. A cluster from which Tekton
/// was removed has no runs.
async fn start(
    writer: Writer<'_>,
    namespace: Option<&str>,
    runs: ListParams,
    condition: impl Fn(&Run) -> bool,
) -> RequestResult<u8> {
    let all = writer.server.reach::<tekton::PipelineRun>(namespace);
    let keep = |found: tekton::PipelineRun| found.run().filter(&condition);
    let found = match all.collect(runs, keep).await {
        Err(RequestError::NotServed(_)) => Vec::new(),
        found => found?,
    };
    let (held, others): (Vec<_>, Vec<_>) = found.into_iter().partition(Run::is_held_by_us);
    let mut code = 0;
    for run in held.into_iter().chain(others) {
        code = code.max(reported(writer, start_run(writer, run).await));
    }
    Ok(code)
}

/// Prints what was done to an object, or the error, and returns the exit code. An object that cannot be changed does not stop the others.
fn reported(writer: Writer<'_>, done: RequestResult<Option<String>>) -> u8 {
    match done {
        Ok(done) => {
            if let Some(done) = done {
                tell(writer, &done);
            }
            0
        }
        Err(error) => {
            output::note(&format!("error: {error}"));
            if matches!(error, RequestError::Changed(_)) {
                BAD
            } else {
                UNASKED
            }
        }
    }
}

/// Releases or opts out a run, and returns what was done; `None` for a run that has opted out or no longer exists.
async fn start_run(writer: Writer<'_>, mut run: Run) -> RequestResult<Option<String>> {
    let key = run.key.clone();
    let runs = writer.server.within::<PipelineRun>(&key.namespace);
    let mut tries = TRIES;
    loop {
        tries -= 1;
        let (patch, done) = if run.is_held_by_us() {
            (release_by_hand(&run), "released")
        } else if run.opt_in.as_deref() == Some("false") {
            return Ok(None);
        } else {
            (opt_out(&run), "opted out")
        };
        match writer.patch(&runs, &key.name, patch.0).await {
            Err(RequestError::Changed(_)) if tries > 0 => {}
            other => return other.map(|()| Some(format!("{} {done}", named(&run)))),
        }
        match runs.get(&key.name).await? {
            Some(found) if found.uid().as_deref() == Some(&key.uid) => run = viewed(&found)?.run,
            Some(_) | None => return Ok(None),
        }
    }
}

/// Scales the controller if `wanted` has a number for its replicas; false if the Deployment does not exist.
async fn scale(
    writer: Writer<'_>,
    namespace: &str,
    wanted: impl Fn(i32) -> Option<i32>,
) -> RequestResult<bool> {
    let deployments = writer.server.within::<Deployment>(namespace);
    let Some(found) = deployments.get(CONTROLLER).await? else {
        tell(writer, &format!("deployment.apps/{CONTROLLER} is not there"));
        return Ok(false);
    };
    let replicas = found.spec.and_then(|spec| spec.replicas).unwrap_or(1);
    if let Some(wanted) = wanted(replicas) {
        let scaled = PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["spec", "replicas"]),
            value: wanted.into(),
        });
        writer.patch(&deployments, CONTROLLER, vec![scaled]).await?;
        tell(
            writer,
            &format!("deployment.apps/{CONTROLLER} scaled to {wanted}"),
        );
    }
    Ok(true)
}

/// Waits until the API servers use the changed objects. Before, they could hold another run.
async fn until_used(writer: Writer<'_>) {
    if writer.writes() {
        tokio::time::sleep(SETTLED).await;
    }
}

/// Waits until the controller has ended, because it would create placeholders again. A pod on a dead node never ends, so the wait has
/// a limit.
async fn until_stopped(writer: Writer<'_>, namespace: &str) -> RequestResult<()> {
    if !writer.writes() {
        return Ok(());
    }
    until_used(writer).await;
    let pods = writer.server.within::<Pod>(namespace);
    let selector = format!("{}={},{}=controller", keys::APP, keys::APP_NAME, keys::COMPONENT);
    let selected = || ListParams::default().labels(&selector);
    let gone = async {
        // An evicted pod stays until it is garbage-collected.
        while pods.list(selected()).await?.iter().any(is_live) {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    };
    tokio::time::timeout(ENDING, gone).await.unwrap_or_else(|_| {
        output::note(
            "note: pods of the controller have not ended. One that works creates placeholders again.",
        );
        Ok(())
    })
}

/// Deletes the objects. Returns the exit code.
async fn delete<K>(writer: Writer<'_>, objects: RequestResult<Vec<K>>) -> u8
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let objects = match objects {
        Ok(objects) => objects,
        Err(error) => return reported(writer, Err(error)),
    };
    let mut code = 0;
    for object in objects {
        let place: ResourceClient<K> = writer.server.within(&object.namespace().unwrap_or_default());
        let deleted = writer.delete(&place, &object.name_any(), object.uid()).await;
        let kind = K::kind(&()).to_lowercase();
        let done = deleted.map(|()| Some(format!("{kind}/{} deleted", object.name_any())));
        code = code.max(reported(writer, done));
    }
    code
}

/// Prints what was done, while the command continues.
fn tell(writer: Writer<'_>, done: &str) {
    // A closed output does not undo the write.
    let _ = output::print(&writer.told(done));
}

#[cfg(test)]
mod tests;

//! The verbs that write: `release`, `disable` and `enable`. New runs first, so that none is held behind our back.

mod admission;

use super::read::unknown;
use super::{UNASKED, printed, refused};
use crate::args::{DisableArgs, EnableArgs, ReleaseArgs};
use crate::ask::writes::Pen;
use crate::ask::{Gap, Place, Seen};
use crate::client::Cluster;
use crate::gather::{placeholders, viewed};
use crate::output;
use crate::state::State;
use crate::switch::Switch;
use crate::view::{PipelineRun, RunView, Seat};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Resource, ResourceExt};
use placement::keys;
use placement::requests::{opt_out, release_by_hand};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Duration;

const CONTROLLER: &str = "pod-affinity-controller";
/// Replicas of the controller in the manifests.
const REPLICAS: i32 = 2;
/// How often something that changes meanwhile is read again.
const TRIES: usize = 3;
/// A controller finishes its last writes and gives up its Lease before it ends.
const ENDING: Duration = Duration::from_mins(1);
/// API servers learn of a changed webhook configuration within a second, and of a changed policy within two.
const SETTLED: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(500);

/// `release`.
pub(super) async fn release(cluster: &Cluster, args: &ReleaseArgs) -> Seen<ExitCode> {
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
    let pen = Pen {
        server: &cluster.server,
        dry_run: args.dry_run,
    };
    pen.patch(&runs, &target.name, release_by_hand(&view.run).0)
        .await?;
    Ok(printed(&pen.told(&format!("{} released", named(&view)))))
}

fn not_ours(view: &RunView) -> String {
    let state = State::of(view, &Seat::default());
    let holder = match state {
        State::HeldElsewhere => ", and another holder has to release it",
        _ => "",
    };
    format!(
        "PipelineRun {} is not held by pod-affinity: its state is {state}{holder}.",
        view.run.key
    )
}

fn named(view: &RunView) -> String {
    format!("pipelinerun.tekton.dev/{}", view.run.key.name)
}

/// `disable`.
pub(super) async fn disable(cluster: &Cluster, args: &DisableArgs) -> Seen<ExitCode> {
    let pen = Pen {
        server: &cluster.server,
        dry_run: args.dry_run,
    };
    if !args.all_namespaces {
        let switch = Switch::LeaveOut(cluster.namespace.clone());
        admission::switch(pen, &args.install_namespace, &switch, "disabled").await?;
        return start(pen, Some(&cluster.namespace), |_| true).await;
    }
    admission::switch(pen, &args.install_namespace, &Switch::AllOff, "disabled").await?;
    if !args.stop_controller {
        return Ok(ExitCode::SUCCESS);
    }
    scale(pen, &args.install_namespace, |_| Some(0)).await?;
    until_stopped(pen, &args.install_namespace).await?;
    let code = start(pen, None, |view| view.run.is_held_by_us()).await?;
    let (sets, pods) = placeholders(pen.server, None).await;
    delete::<StatefulSet>(pen, &sets?).await?;
    delete::<Pod>(pen, &pods?).await?;
    Ok(code)
}

/// `enable`.
pub(super) async fn enable(cluster: &Cluster, args: &EnableArgs) -> Seen<ExitCode> {
    let pen = Pen {
        server: &cluster.server,
        dry_run: args.dry_run,
    };
    let switch = if args.all_namespaces {
        Switch::AllOn
    } else {
        Switch::TakeIn(cluster.namespace.clone())
    };
    let mut are_there = admission::switch(pen, &args.install_namespace, &switch, "enabled").await?;
    if args.all_namespaces {
        let none = |replicas: i32| (replicas == 0).then_some(REPLICAS);
        are_there &= scale(pen, &args.install_namespace, none).await?;
    }
    if are_there {
        return Ok(ExitCode::SUCCESS);
    }
    Ok(refused(
        "a part of the installation is not there. Apply the manifests of the release again.",
    ))
}

/// Opts out the labelled runs that are meant, and releases those that we hold. One that cannot be changed does not keep
/// the others waiting.
async fn start(pen: Pen<'_>, namespace: Option<&str>, is_meant: impl Fn(&RunView) -> bool) -> Seen<ExitCode> {
    let labelled = ListParams::default().labels(keys::OPT_IN);
    let runs = pen.server.reach::<PipelineRun>(namespace).list(labelled).await?;
    let mut code = ExitCode::SUCCESS;
    for view in runs.iter().filter_map(RunView::of).filter(is_meant) {
        match let_start(pen, view).await {
            Ok(told) => told.into_iter().for_each(|told| tell(pen, &told)),
            Err(gap) => {
                output::note(&format!("error: {gap}"));
                code = ExitCode::from(UNASKED);
            }
        }
    }
    Ok(code)
}

async fn let_start(pen: Pen<'_>, mut view: RunView) -> Seen<Option<String>> {
    let key = view.run.key.clone();
    let runs = pen.server.within::<PipelineRun>(&key.namespace);
    let mut tries = TRIES;
    loop {
        tries -= 1;
        let (patch, done) = if view.run.is_held_by_us() {
            (release_by_hand(&view.run), "released")
        } else if view.run.opt_in.as_deref() == Some("false") {
            return Ok(None);
        } else {
            (opt_out(&view.run), "opted out")
        };
        match pen.patch(&runs, &key.name, patch.0).await {
            Err(Gap::Changed(_)) if tries > 0 => {}
            other => return other.map(|()| Some(format!("{} {done}", named(&view)))),
        }
        match runs.get(&key.name).await? {
            Some(run) if run.uid().as_deref() == Some(&key.uid) => view = viewed(&run)?,
            Some(_) | None => return Ok(None),
        }
    }
}

/// Scales the controller if the number of its replicas is to be another; false if it is not there.
async fn scale(pen: Pen<'_>, namespace: &str, wanted: impl Fn(i32) -> Option<i32>) -> Seen<bool> {
    let deployments = pen.server.within::<Deployment>(namespace);
    let Some(found) = deployments.get(CONTROLLER).await? else {
        tell(pen, &format!("deployment.apps/{CONTROLLER} is not there"));
        return Ok(false);
    };
    let replicas = found.spec.and_then(|spec| spec.replicas).unwrap_or(1);
    if let Some(wanted) = wanted(replicas) {
        let scaled = PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["spec", "replicas"]),
            value: wanted.into(),
        });
        pen.patch(&deployments, CONTROLLER, vec![scaled]).await?;
        tell(pen, &format!("deployment.apps/{CONTROLLER} scaled to {wanted}"));
    }
    Ok(true)
}

/// A controller that still works would create placeholders again, and an API server that does not know of the change yet hold
/// another run. A pod on a dead node never ends, which must not keep the runs waiting.
async fn until_stopped(pen: Pen<'_>, namespace: &str) -> Seen<()> {
    if !pen.writes() {
        return Ok(());
    }
    tokio::time::sleep(SETTLED).await;
    let pods = pen.server.within::<Pod>(namespace);
    let selector = format!("{}={},{}=controller", keys::APP, keys::APP_NAME, keys::COMPONENT);
    let gone = async {
        while !pods
            .list(ListParams::default().labels(&selector))
            .await?
            .is_empty()
        {
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

async fn delete<K>(pen: Pen<'_>, objects: &[K]) -> Seen<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    for object in objects {
        let place: Place<K> = pen.server.within(&object.namespace().unwrap_or_default());
        pen.delete(&place, &object.name_any(), object.uid()).await?;
        let kind = K::kind(&()).to_lowercase();
        tell(pen, &format!("{kind}/{} deleted", object.name_any()));
    }
    Ok(())
}

/// Line by line, since each is done by then.
fn tell(pen: Pen<'_>, done: &str) {
    // A reader who has gone does not undo it.
    let _ = output::print(&pen.told(done));
}

#[cfg(test)]
mod tests;

//! Reads one run and its node, the cluster if a pod of the run waits, and what the controller's plan needs.

mod quota;

use crate::events::RunEvent;
use crate::facts::{Facts, PartialPods, Surroundings};
use crate::fit::BoundVolume;
use crate::plan::Planned;
use crate::requests::{RequestError, RequestResult, Server};
use crate::view::{PipelineRun, RunView, claims, full_name, is_placeholder, node as bound_to};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use placement::config::Config;
use placement::keys;
use placement::plan::{Decision, Read};
use placement::run::SpecStatus;
use runtime::install;
use std::collections::BTreeSet;
use tokio::join;

/// The most names that are suggested for a run that does not exist.
const SUGGESTED: usize = 3;
/// The least similarity of a suggested name.
const ALIKE: f64 = 0.75;

/// The facts of a run; `None` if there is no such run.
pub(crate) async fn facts(server: &Server, namespace: &str, name: &str) -> RequestResult<Option<Facts>> {
    let Some(run) = server.within::<PipelineRun>(namespace).get(name).await? else {
        return Ok(None);
    };
    let view = viewed(&run)?;
    let (now, config, set, pods) = join!(
        server.clock(),
        config(server),
        placeholder(server, &view),
        pods(server, &view)
    );
    let mut facts = Facts {
        now: now?,
        config,
        set,
        pods,
        view,
        events: Ok(Vec::new()),
        node: None,
        surroundings: None,
        refusal: None,
        volumes: None,
        quota: None,
        rejected_tasks: None,
        failed_create: None,
    };
    facts.events = events(server, &facts).await;
    facts.surroundings = surroundings(server, &facts).await;
    facts.node = node(server, &facts).await;
    facts.refusal = refusal(server, &facts).await;
    if facts.placeholder().set.is_some() && facts.placeholder().pod.is_none() {
        facts.failed_create = Some(failed_create(server, &facts).await);
    }
    if facts.waiting().next().is_some() || facts.node_unusable().is_some() {
        facts.volumes = Some(volumes(server, &facts).await);
    }
    while let Some(read) = missing(&facts) {
        if !read_group(server, &mut facts, read).await {
            break;
        }
    }
    Ok(Some(facts))
}

/// The group of inputs that the controller's plan for this run still needs.
fn missing(facts: &Facts) -> Option<Read> {
    match Planned::new(facts)?.plan.decision {
        Decision::Read(read) => Some(read),
        Decision::Ignore(_) | Decision::Wait(_) | Decision::Act(_) => None,
    }
}

/// Reads a group of inputs. Returns whether the group is new: a group that could not be read is not read again.
async fn read_group(server: &Server, facts: &mut Facts, read: Read) -> bool {
    match read {
        Read::Creation | Read::Quota if facts.quota.is_none() => {
            facts.quota = Some(quota::quota(server, facts).await);
        }
        Read::Tasks if facts.volumes.is_none() => facts.volumes = Some(volumes(server, facts).await),
        Read::RejectedTasks if facts.rejected_tasks.is_none() => {
            facts.rejected_tasks = Some(quota::rejected_tasks(server, facts).await);
        }
        _ => return false,
    }
    true
}

/// A run as the rules see it.
pub(crate) fn viewed(run: &PipelineRun) -> RequestResult<RunView> {
    let unreadable = || format!("PipelineRun {} cannot be understood", full_name(&run.metadata));
    RunView::of(run).ok_or_else(|| RequestError::Unreadable(unreadable()))
}

/// The configuration of the ConfigMap. Without a ConfigMap, the defaults apply.
pub(crate) async fn config(server: &Server) -> RequestResult<Config> {
    let maps = server.within::<ConfigMap>(keys::NAMESPACE);
    let map = maps.get(install::CONFIG_MAP).await?;
    let data = map.and_then(|map| map.data).unwrap_or_default();
    Config::parse(&data).map_err(|errors| {
        RequestError::Unreadable(format!(
            "the ConfigMap {} is invalid: {errors}",
            install::CONFIG_MAP
        ))
    })
}

async fn placeholder(server: &Server, view: &RunView) -> RequestResult<Option<StatefulSet>> {
    let key = &view.run.key;
    let sets = server.within::<StatefulSet>(&key.namespace);
    sets.get(key.placeholder().as_str()).await
}

/// The pods of the run by its name, because the tasks of a run that is not enrolled have no group; and those of its group, because
/// the tasks of a nested run have the nested run's name. The UID excludes the pods of an earlier run with the same name.
async fn pods(server: &Server, view: &RunView) -> RequestResult<Vec<Pod>> {
    let key = &view.run.key;
    let pods = server.within::<Pod>(&key.namespace);
    let labelled = |name: &str, value: &str| ListParams::default().labels(&format!("{name}={value}"));
    let mut found = pods.list(labelled(keys::TEKTON_PIPELINE_RUN, &key.name)).await?;
    found.retain(|pod| {
        let labels = pod.labels();
        // The group of a nested run's pods is that of the run that started the nested run.
        let owner = labels
            .get(keys::TEKTON_PIPELINE_RUN_UID)
            .or_else(|| labels.get(keys::GROUP));
        owner.is_none_or(|uid| *uid == key.uid)
    });
    if view.run.is_enrolled() {
        let mut group = pods.list(labelled(keys::GROUP, &key.uid)).await?;
        group.retain(|pod| found.iter().all(|known| known.metadata.name != pod.metadata.name));
        found.extend(group);
    }
    Ok(found)
}

/// Events about the run, and about its pods that wait.
async fn events(server: &Server, facts: &Facts) -> RequestResult<Vec<RunEvent>> {
    let waiting = facts.waiting().filter_map(ResourceExt::uid);
    let uids = std::iter::once(facts.uid().to_owned()).chain(waiting);
    let namespace = &facts.view.run.key.namespace;
    let lists = uids.map(|uid| matching_events(server, namespace, format!("involvedObject.uid={uid}")));
    Ok(try_join_all(lists).await?.into_iter().flatten().collect())
}

async fn matching_events(server: &Server, namespace: &str, fields: String) -> RequestResult<Vec<RunEvent>> {
    let matching = ListParams::default().fields(&fields);
    let events = server.within::<Event>(namespace).list(matching).await?;
    Ok(events.iter().filter_map(RunEvent::of).collect())
}

async fn latest_event(server: &Server, facts: &Facts, fields: String) -> RequestResult<Option<String>> {
    let events = matching_events(server, &facts.view.run.key.namespace, fields).await?;
    let latest = events.into_iter().max_by_key(|event| event.at);
    Ok(latest.map(|event| event.text))
}

/// Only a running run with a placeholder makes room. A missing right to events is listed by [`Facts::events`] already.
async fn refusal(server: &Server, facts: &Facts) -> Option<String> {
    let run = &facts.view.run;
    let can_make_room = run.is_enrolled() && !run.done && run.status == SpecStatus::Unset;
    facts
        .placeholder()
        .set
        .filter(|_| can_make_room && facts.events.is_ok())?;
    let fields = format!("involvedObject.kind=TaskRun,reason={}", quota::REASON);
    latest_event(server, facts, fields).await.ok()?
}

/// The message of the latest event that says why the placeholder's pod cannot be created.
async fn failed_create(server: &Server, facts: &Facts) -> RequestResult<Option<String>> {
    let set = facts
        .placeholder()
        .set
        .and_then(|set| set.metadata.uid.as_deref());
    let fields = format!(
        "involvedObject.uid={},reason=FailedCreate",
        set.unwrap_or_default()
    );
    latest_event(server, facts, fields).await
}

async fn surroundings(server: &Server, facts: &Facts) -> Option<Surroundings> {
    facts.waiting().next()?;
    let all = server.cluster::<Node>();
    let (nodes, pods) = join!(
        all.list(ListParams::default()),
        live_pods(server, &facts.view.run.key.namespace)
    );
    Some(Surroundings { nodes, pods })
}

/// The node where the run is. A missing right to nodes is listed by the surroundings already.
async fn node(server: &Server, facts: &Facts) -> Option<RequestResult<Option<Node>>> {
    let name = facts.node_name().filter(|_| !facts.view.run.done)?;
    if facts.surroundings.is_none() {
        return Some(server.cluster::<Node>().get(name).await);
    }
    let mut nodes = facts.nodes()?.iter();
    Some(Ok(nodes.find(|node| node.name_any() == name).cloned()))
}

/// Live pods of all namespaces, or of this namespace if the user may not read the others.
pub(crate) async fn live_pods(server: &Server, namespace: &str) -> PartialPods {
    let live = || ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
    match server.reach::<Pod>(None).list(live()).await {
        Ok(pods) => PartialPods {
            pods,
            errors: Vec::new(),
        },
        Err(error) => match server.within::<Pod>(namespace).list(live()).await {
            Ok(pods) => PartialPods {
                pods,
                errors: vec![error],
            },
            Err(other) => PartialPods {
                pods: Vec::new(),
                errors: vec![error, other],
            },
        },
    }
}

/// The volumes of the PVCs that the run names, and of the PVCs that its pods mount or mounted.
async fn volumes(server: &Server, facts: &Facts) -> RequestResult<Vec<BoundVolume>> {
    let run = &facts.view.run;
    let namespace = run.key.namespace.as_str();
    let named = run.claims.iter().map(String::as_str);
    let claims: BTreeSet<_> = facts.all_pods().iter().flat_map(claims).chain(named).collect();
    let found = try_join_all(claims.into_iter().map(|claim| volume(server, namespace, claim))).await?;
    Ok(found.into_iter().flatten().collect())
}

async fn volume(server: &Server, namespace: &str, claim: &str) -> RequestResult<Option<BoundVolume>> {
    let claims = server.within::<PersistentVolumeClaim>(namespace);
    let found = claims.get(claim).await?;
    let Some(name) = found.and_then(|claim| claim.spec?.volume_name) else {
        return Ok(None);
    };
    let volume = server.cluster::<PersistentVolume>().get(&name).await?;
    Ok(volume.and_then(|volume| BoundVolume::of(claim, &volume)))
}

/// Runs with similar names, and other namespaces with a run of this name.
pub(crate) async fn alike(server: &Server, namespace: &str, name: &str) -> Vec<String> {
    let here = server.within::<PipelineRun>(namespace);
    let same = ListParams::default().fields(&format!("metadata.name={name}"));
    let everywhere = server.reach::<PipelineRun>(None);
    let elsewhere = |run: PipelineRun| {
        let other = run.metadata.namespace.filter(|other| other != namespace)?;
        Some(format!("{name} in namespace {other}"))
    };
    let (names, elsewhere) = join!(
        here.collect(ListParams::default(), |run| run.metadata.name),
        everywhere.collect(same, elsewhere)
    );
    closest(&names.unwrap_or_default(), name)
        .into_iter()
        .chain(elsewhere.unwrap_or_default())
        .take(SUGGESTED)
        .collect()
}

/// The names that are most similar to this one.
fn closest(names: &[String], name: &str) -> Vec<String> {
    let likeness = |other: &String| strsim::jaro_winkler(other, name);
    let mut alike: Vec<_> = names.iter().filter(|other| likeness(other) >= ALIKE).collect();
    alike.sort_by(|one, other| likeness(other).total_cmp(&likeness(one)).then(one.cmp(other)));
    alike.into_iter().take(SUGGESTED).cloned().collect()
}

/// The StatefulSets and pods of all placeholders, of a namespace or of the cluster.
pub(crate) async fn placeholders(
    server: &Server,
    namespace: Option<&str>,
) -> (RequestResult<Vec<StatefulSet>>, RequestResult<Vec<Pod>>) {
    let ours = || ListParams::default().labels(&placeholder_selector());
    let sets = server.reach::<StatefulSet>(namespace);
    let pods = server.reach::<Pod>(namespace);
    join!(sets.list(ours()), pods.list(ours()))
}

/// The labels of a placeholder's StatefulSet and pod.
pub(crate) fn placeholder_selector() -> String {
    format!(
        "{}={},{}={}",
        keys::APP,
        keys::APP_NAME,
        keys::COMPONENT,
        keys::PLACEHOLDER
    )
}

/// The pod of a task without a node.
pub(crate) fn is_waiting_task(pod: &Pod) -> bool {
    !is_placeholder(pod) && bound_to(pod).is_none()
}

#[cfg(test)]
mod tests;

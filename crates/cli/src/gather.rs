//! Looks at one run, at its node and, if a pod of it waits, at the cluster around it. Questions only, no judgement.

use crate::ask::{Gap, Seen, Server};
use crate::events::Told;
use crate::facts::{Around, Facts, Partial};
use crate::fit::Bound;
use crate::home::Home;
use crate::view::{PipelineRun, RunView, claims, full_name, is_placeholder, node};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use placement::config::Config;
use placement::keys;
use process::install;
use std::collections::BTreeSet;
use tokio::join;

/// Names that are suggested for one that is not there.
const SUGGESTED: usize = 3;
/// Below this, two names are not alike.
const ALIKE: f64 = 0.75;

/// The facts of a run; `None` if there is no such run.
pub(crate) async fn facts(server: &Server, namespace: &str, name: &str) -> Seen<Option<Facts>> {
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
        told: Ok(Vec::new()),
        home: None,
        around: None,
        volumes: Ok(Vec::new()),
    };
    facts.told = told(server, &facts).await;
    facts.around = around(server, &facts).await;
    facts.home = home(server, &facts).await;
    facts.volumes = volumes(server, &facts).await;
    Ok(Some(facts))
}

/// A run as the rules see it.
pub(crate) fn viewed(run: &PipelineRun) -> Seen<RunView> {
    let unreadable = || format!("PipelineRun {} cannot be understood", full_name(&run.metadata));
    RunView::of(run).ok_or_else(|| Gap::Unreadable(unreadable()))
}

/// The configuration that the ConfigMap says; none at all says the defaults.
pub(crate) async fn config(server: &Server) -> Seen<Config> {
    let map = server
        .within::<ConfigMap>(keys::NAMESPACE)
        .get(install::CONFIG_MAP)
        .await?;
    let data = map.and_then(|map| map.data).unwrap_or_default();
    Config::parse(&data).map_err(|errors| {
        Gap::Unreadable(format!(
            "the ConfigMap {} is invalid: {errors}",
            install::CONFIG_MAP
        ))
    })
}

async fn placeholder(server: &Server, view: &RunView) -> Seen<Option<StatefulSet>> {
    let key = &view.run.key;
    let sets = server.within::<StatefulSet>(&key.namespace);
    let set = sets.get(key.placeholder().as_str()).await?;
    Ok(set.filter(|set| set.owner_references().iter().any(|owner| owner.uid == key.uid)))
}

/// By name, since the tasks of a run that is not enrolled have no group. An earlier run of that name is told apart
/// by the UID that Tekton puts beside it.
async fn pods(server: &Server, view: &RunView) -> Seen<Vec<Pod>> {
    let key = &view.run.key;
    let selector = format!("{}={}", keys::TEKTON_PIPELINE_RUN, key.name);
    let pods = server
        .within::<Pod>(&key.namespace)
        .list(ListParams::default().labels(&selector))
        .await?;
    let of_run = |pod: &Pod| {
        let group = pod
            .labels()
            .get(keys::GROUP)
            .or_else(|| pod.labels().get(keys::TEKTON_PIPELINE_RUN_UID));
        group.is_none_or(|uid| *uid == key.uid)
    };
    Ok(pods.into_iter().filter(of_run).collect())
}

async fn told(server: &Server, facts: &Facts) -> Seen<Vec<Told>> {
    let waiting = facts.waiting().filter_map(ResourceExt::uid);
    let uids = std::iter::once(facts.uid().to_owned()).chain(waiting);
    let namespace = &facts.view.run.key.namespace;
    let lists = try_join_all(uids.map(|uid| events_about(server, namespace, uid))).await?;
    Ok(lists.into_iter().flatten().collect())
}

async fn events_about(server: &Server, namespace: &str, uid: String) -> Seen<Vec<Told>> {
    let matching = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    let events = server.within::<Event>(namespace).list(matching).await?;
    Ok(events.iter().filter_map(Told::of).collect())
}

async fn around(server: &Server, facts: &Facts) -> Option<Around> {
    facts.waiting().next()?;
    let namespace = facts.view.run.key.namespace.as_str();
    let (nodes, pods) = join!(
        async { server.cluster::<Node>().list(ListParams::default()).await },
        live_pods(server, namespace)
    );
    Some(Around { nodes, pods })
}

/// The node where the run is: one of those around, or by its name. A missing right to nodes is reported once.
async fn home(server: &Server, facts: &Facts) -> Option<Seen<Option<Node>>> {
    let name = facts.home_name().filter(|_| !facts.view.run.done)?;
    match facts.around.as_ref().map(|around| &around.nodes) {
        None => Some(server.cluster::<Node>().get(name).await),
        Some(Err(_)) => None,
        Some(Ok(nodes)) => {
            let mut nodes = nodes.iter();
            Some(Ok(nodes.find(|node| node.name_any() == name).cloned()))
        }
    }
}

/// Pods that take up room anywhere, or at least in this namespace.
pub(crate) async fn live_pods(server: &Server, namespace: &str) -> Partial {
    let live = || ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
    let everywhere = server.reach::<Pod>(None).list(live()).await;
    let gap = match everywhere {
        Ok(pods) => {
            return Partial {
                pods,
                gaps: Vec::new(),
            };
        }
        Err(gap) => gap,
    };
    match server.within::<Pod>(namespace).list(live()).await {
        Ok(pods) => Partial {
            pods,
            gaps: vec![gap],
        },
        Err(_) => Partial {
            pods: Vec::new(),
            gaps: vec![gap],
        },
    }
}

/// The volumes of the claims that the run names, and of those that its pods mount or mounted, if they matter.
async fn volumes(server: &Server, facts: &Facts) -> Seen<Vec<Bound>> {
    let is_unfit = || Home::of(facts).is_some_and(|home| home.trouble.is_some());
    if facts.waiting().next().is_none() && !is_unfit() {
        return Ok(Vec::new());
    }
    let run = &facts.view.run;
    let namespace = run.key.namespace.as_str();
    let named = run.claims.iter().map(String::as_str);
    let claims: BTreeSet<_> = facts.all_pods().iter().flat_map(claims).chain(named).collect();
    let found = try_join_all(claims.into_iter().map(|claim| volume(server, namespace, claim))).await?;
    Ok(found.into_iter().flatten().collect())
}

async fn volume(server: &Server, namespace: &str, claim: &str) -> Seen<Option<Bound>> {
    let found = server
        .within::<PersistentVolumeClaim>(namespace)
        .get(claim)
        .await?;
    let Some(name) = found.and_then(|claim| claim.spec?.volume_name) else {
        return Ok(None);
    };
    let volume = server.cluster::<PersistentVolume>().get(&name).await?;
    Ok(volume.and_then(|volume| Bound::of(claim, &volume)))
}

/// Runs with a name like that, and where else there is one of exactly that name.
pub(crate) async fn alike(server: &Server, namespace: &str, name: &str) -> Vec<String> {
    let here = server.within::<PipelineRun>(namespace);
    let same = ListParams::default().fields(&format!("metadata.name={name}"));
    let everywhere = server.reach::<PipelineRun>(None);
    let (here, everywhere) = join!(here.list(ListParams::default()), everywhere.list(same));
    let elsewhere = everywhere.unwrap_or_default().into_iter().filter_map(|run| {
        let other = run.metadata.namespace?;
        (other != namespace).then(|| format!("{name} in namespace {other}"))
    });
    let names: Vec<_> = here
        .unwrap_or_default()
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    closest(&names, name)
        .into_iter()
        .chain(elsewhere)
        .take(SUGGESTED)
        .collect()
}

/// The names that are most like this one.
pub(crate) fn closest(names: &[String], name: &str) -> Vec<String> {
    let likeness = |other: &String| strsim::jaro_winkler(other, name);
    let mut alike: Vec<_> = names.iter().filter(|other| likeness(other) >= ALIKE).collect();
    alike.sort_by(|one, other| likeness(other).total_cmp(&likeness(one)).then(one.cmp(other)));
    alike.into_iter().take(SUGGESTED).cloned().collect()
}

/// Placeholders, sets and pods, of a namespace or of all.
pub(crate) async fn placeholders(
    server: &Server,
    namespace: Option<&str>,
) -> (Seen<Vec<StatefulSet>>, Seen<Vec<Pod>>) {
    let ours = || ListParams::default().labels(&placeholder_selector());
    let sets = server.reach::<StatefulSet>(namespace);
    let pods = server.reach::<Pod>(namespace);
    join!(sets.list(ours()), pods.list(ours()))
}

/// The labels of everything that keeps a run's place.
pub(crate) fn placeholder_selector() -> String {
    format!(
        "{}={},{}={}",
        keys::APP,
        keys::APP_NAME,
        keys::COMPONENT,
        keys::PLACEHOLDER
    )
}

/// A task's pod that has no node.
pub(crate) fn is_waiting_task(pod: &Pod) -> bool {
    !is_placeholder(pod) && node(pod).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_api::{AsCluster, FakeApi, run_path};
    use crate::fixture::{self, UID, merged, placeholder, released, run};
    use placement::node::Cause;
    use serde_json::{Value, json, to_value};

    #[tokio::test]
    async fn the_node_of_a_run_is_read_though_no_pod_waits_and_its_volumes_once_that_is_unfit() {
        let api = FakeApi::default();
        let put = |path: &str, object: Value| api.put(path, object);
        let claim =
            json!({"spec": {"workspaces": [{"name": "w", "persistentVolumeClaim": {"claimName": "disk"}}]}});
        put(
            &run_path("build"),
            to_value(run(&merged(released(), &claim))).unwrap(),
        );
        let pod = placeholder("build", UID, Some("node-1"), &json!({}));
        put("/api/v1/namespaces/ci/pods/p-0", to_value(pod).unwrap());
        let bound = json!({"metadata": {"name": "disk"}, "spec": {"volumeName": "v"}});
        put("/api/v1/namespaces/ci/persistentvolumeclaims/disk", bound);
        let here =
            json!([{"matchExpressions": [{"key": keys::HOSTNAME, "operator": "In", "values": ["node-1"]}]}]);
        let affinity = json!({"required": {"nodeSelectorTerms": here}});
        put(
            "/api/v1/persistentvolumes/v",
            json!({"metadata": {"name": "v"}, "spec": {"nodeAffinity": affinity}}),
        );
        let seen = async |unschedulable: bool| {
            let node = fixture::node("node-1", &json!({"spec": {"unschedulable": unschedulable}}));
            put("/api/v1/nodes/node-1", to_value(node).unwrap());
            let server = api.cluster().server;
            let facts = Box::pin(facts(&server, "ci", "build")).await;
            let facts = facts.unwrap().unwrap();
            assert!(facts.around.is_none() && facts.gaps().is_empty(), "{facts:?}");
            let home = Home::of(&facts).unwrap();
            (home.name.to_owned(), home.trouble, home.tie.map(str::to_owned))
        };
        assert_eq!(seen(false).await, ("node-1".into(), None, None));
        let tied = ("node-1".into(), Some(Cause::Cordoned), Some("disk".into()));
        assert_eq!(seen(true).await, tied);
    }

    #[test]
    fn the_closest_names_come_first_and_strangers_not_at_all() {
        let names: Vec<String> = ["build-1", "build-12", "deploy", "biuld-1"]
            .map(String::from)
            .into();
        assert_eq!(closest(&names, "build-1"), ["build-1", "build-12", "biuld-1"]);
        assert!(closest(&names, "xyz").is_empty());
    }
}

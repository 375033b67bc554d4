//! Labelled runs that a fault affects, and runs that their users hold meanwhile.

use super::SOON;
use super::auditor::Auditor;
use super::events::notes;
use super::placeholders::{placeholder_name, sets, until_no_placeholder};
use super::runs::nodes_of;
use futures::{StreamExt, stream};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use placement::keys;
use serde_json::json;
use std::time::{Duration, Instant};
use testbed::product::Installed;
use testbed::runs::{self, RunSpec, State};
use testbed::{Nodes, Part, Testbed};

/// A run that is held for longer after the end of a fault is an error.
pub(crate) const RECOVERED: Duration = Duration::from_mins(1);
pub(crate) const CONTROLLERS: [Part; 2] = [Part::Controller(0), Part::Controller(1)];
/// Number of labelled runs that each fault affects, and of runs that their users hold meanwhile.
pub(crate) const OURS: usize = 8;
const USERS: usize = 2;

pub(crate) async fn keep_alive_on(bed: &Testbed, nodes: usize, environment: &[(&str, &str)]) -> Installed {
    bed.add_nodes(&Nodes::new("node", nodes)).await.unwrap();
    let installed = bed.install_pod_affinity_with(environment).await.unwrap();
    for controller in CONTROLLERS {
        bed.keep_alive(controller);
    }
    installed
}

fn run(namespace: &str, name: &str) -> RunSpec {
    RunSpec::new(namespace, name)
        .task("a", &[])
        .task("b", &["a"])
        .opted_in("true")
}

/// Runs of a namespace that a fault affects.
pub(crate) struct Runs<'a> {
    bed: &'a Testbed,
    client: Client,
    auditor: &'a Auditor,
    namespace: String,
    pub(crate) ours: Vec<RunSpec>,
    users: Vec<(RunSpec, DynamicObject)>,
}

impl<'a> Runs<'a> {
    pub(crate) async fn in_namespace(bed: &'a Testbed, auditor: &'a Auditor, name: &str) -> Self {
        Self {
            bed,
            client: bed.client().await.unwrap(),
            auditor,
            namespace: bed.namespace(name).await.unwrap(),
            ours: Vec::new(),
            users: Vec::new(),
        }
    }

    pub(crate) async fn create(&mut self, count: usize) {
        let specs: Vec<_> = (0..count).map(|_| self.next()).collect();
        let client = &self.client;
        stream::iter(&specs)
            .for_each_concurrent(8, async |spec| drop(spec.create(client).await.unwrap()))
            .await;
    }

    /// The next run, which the caller creates.
    pub(crate) fn next(&mut self) -> RunSpec {
        let next = run(&self.namespace, &format!("run-{}", self.ours.len()));
        self.ours.push(next.clone());
        next
    }

    /// Creates labelled runs that their users hold.
    pub(crate) async fn create_held_by_users(&mut self) {
        for number in 0..USERS {
            let name = format!("users-{number}");
            let spec = run(&self.namespace, &name).spec("status", json!(keys::PENDING));
            let created = spec.create(&self.client).await.unwrap();
            self.auditor.only_its_user_releases(&created);
            self.users.push((spec, created));
        }
    }

    pub(crate) async fn listed(&self) -> Result<Vec<DynamicObject>, String> {
        let runs = runs::runs(&self.client, &self.namespace);
        let listed = runs.list(&ListParams::default()).await;
        Ok(listed.map_err(|error| error.to_string())?.items)
    }

    /// Names of the runs that pod-affinity holds.
    pub(crate) async fn held(&self) -> Result<Vec<String>, String> {
        let listed = self.listed().await?;
        let held = listed.iter().filter(|run| is_held(run));
        Ok(held.map(ResourceExt::name_any).collect())
    }

    /// Waits until each run that pod-affinity holds has a placeholder, and returns how long that took. The further steps
    /// depend on the control plane, which recovers in its own time.
    pub(crate) async fn until_placeholders_exist(&self) -> Duration {
        let start = Instant::now();
        let sets = sets(&self.client, &self.namespace);
        self.bed
            .until("each held run to have a placeholder", RECOVERED, async || {
                for run in self.listed().await?.iter().filter(|run| is_held(run)) {
                    let found = sets.get_opt(placeholder_name(run).as_str()).await;
                    found
                        .map_err(|error| error.to_string())?
                        .ok_or_else(|| run.name_any())?;
                }
                Ok::<_, String>(())
            })
            .await
            .unwrap();
        start.elapsed()
    }

    /// Waits until pod-affinity holds no run, and returns how long that took.
    pub(crate) async fn until_none_is_held(&self) -> Duration {
        self.until_none_is_held_within(RECOVERED).await
    }

    pub(crate) async fn until_none_is_held_within(&self, limit: Duration) -> Duration {
        let start = Instant::now();
        self.until_held_at_most(0, limit).await;
        start.elapsed()
    }

    /// Waits until pod-affinity holds no more runs than this.
    pub(crate) async fn until_held_at_most(&self, most: usize, limit: Duration) {
        self.bed
            .until(format!("at most {most} runs to be held"), limit, async || {
                let held = self.held().await?;
                if held.len() <= most {
                    Ok(())
                } else {
                    Err(format!("{held:?}"))
                }
            })
            .await
            .unwrap();
    }

    pub(crate) async fn have_all_succeeded(&self) -> Result<(), String> {
        let listed = self.listed().await?;
        let done = listed
            .iter()
            .filter(|run| runs::state(run) == State::Succeeded)
            .count();
        if done >= self.ours.len() {
            Ok(())
        } else {
            Err(format!("{done} of {}", self.ours.len()))
        }
    }

    /// A node that KWOK updated too late is not ready for a while, and a run leaves the node.
    async fn node_events(&self) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let listed = events.list(&ListParams::default()).await.unwrap();
        let unready = listed
            .items
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("NodeNotReady"));
        unready.filter_map(|event| event.note).collect()
    }

    async fn was_on_one_node(&self, spec: &RunSpec) {
        let nodes = nodes_of(self.bed, spec).await;
        if nodes.len() != 1 {
            let reported = notes(&self.client, spec).await;
            let node_events = self.node_events().await;
            panic!(
                "{} was on {nodes:?}; {reported:#?}; {node_events:#?}",
                spec.name()
            );
        }
    }

    /// pod-affinity's runs succeed, each on one node; then users release their runs, which succeed as well; then all objects
    /// are removed.
    pub(crate) async fn all_succeed(&self) {
        for spec in &self.ours {
            self.bed.until_succeeded(spec, SOON * 2).await.unwrap();
            self.was_on_one_node(spec).await;
        }
        for (spec, created) in &self.users {
            self.auditor.its_user_releases(created);
            let released = Patch::Merge(json!({"spec": {"status": null}}));
            runs::runs(&self.client, spec.namespace())
                .patch(spec.name(), &PatchParams::default(), &released)
                .await
                .unwrap();
            self.bed.until_succeeded(spec, SOON).await.unwrap();
            self.was_on_one_node(spec).await;
        }
        until_no_placeholder(self.bed, &self.namespace).await;
        self.auditor.violations().unwrap();
    }
}

pub(crate) fn is_held(run: &DynamicObject) -> bool {
    runs::state(run) == State::Pending && run.annotations().contains_key(keys::HOLD)
}

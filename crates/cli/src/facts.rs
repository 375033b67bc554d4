//! The objects that the explanation of one run is made from.

use crate::events::{RunEvent, latest};
use crate::fit::{BoundVolume, ClusterView, Fit};
use crate::observe::observation;
use crate::requests::{RequestError, RequestResult};
use crate::state::State;
use crate::view::{
    PlaceholderObjects, RunView, claims, is_assistant, is_live, is_opted_out, is_placeholder, label,
    node as bound_to, unschedulable,
};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use placement::config::Config;
use placement::keys;
use placement::node::{self, Cause, NodeFacts, NodeState};
use placement::notes;
use placement::plan::Observation;
use placement::quota_room::RejectedTask;
use placement::statefulset_quota::Quota;
use placement::strategy::Enrolment;
use placement::volume::{NodeNames, pin};
use std::collections::BTreeSet;

/// The run, and the objects around it.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The API server's time.
    pub(crate) now: Timestamp,
    pub(crate) config: RequestResult<Config>,
    pub(crate) view: RunView,
    /// The StatefulSet that has the name of the run's placeholder.
    pub(crate) set: RequestResult<Option<StatefulSet>>,
    /// The run's pods, the placeholder's pod included.
    pub(crate) pods: RequestResult<Vec<Pod>>,
    /// Events about the run, and about its pods that wait.
    pub(crate) events: RequestResult<Vec<RunEvent>>,
    /// The node of [`Facts::node_name`], unless the run is done.
    pub(crate) node: Option<RequestResult<Option<Node>>>,
    /// Read only if a pod of the run waits.
    pub(crate) surroundings: Option<Surroundings>,
    /// The latest rejection of a task's pod by a quota in the namespace.
    pub(crate) refusal: Option<String>,
    /// The volumes of the run's PVCs. This and the following are read only if the plan needs them, or a pod of the run waits.
    pub(crate) volumes: Option<RequestResult<Vec<BoundVolume>>>,
    pub(crate) quota: Option<RequestResult<Quota>>,
    /// The run's TaskRuns whose pods were rejected by a quota.
    pub(crate) rejected_tasks: Option<RequestResult<Vec<RejectedTask>>>,
    /// Why the placeholder's pod cannot be created.
    pub(crate) failed_create: Option<RequestResult<Option<String>>>,
}

/// The nodes of the cluster, and the pods on them.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) nodes: RequestResult<Vec<Node>>,
    pub(crate) pods: PartialPods,
}

/// Pods of all namespaces, or only of the run's namespace if the user may not read the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartialPods {
    pub(crate) pods: Vec<Pod>,
    pub(crate) errors: Vec<RequestError>,
}

impl Facts {
    pub(crate) fn placeholder(&self) -> PlaceholderObjects<'_> {
        PlaceholderObjects {
            set: self.set.as_ref().ok().and_then(Option::as_ref),
            pod: self.all_pods().iter().find(|pod| is_placeholder(pod)),
        }
    }

    pub(crate) fn state(&self) -> State {
        State::of(&self.view, &self.placeholder())
    }

    pub(crate) fn uid(&self) -> &str {
        &self.view.run.key.uid
    }

    pub(crate) fn all_pods(&self) -> &[Pod] {
        self.pods.as_deref().unwrap_or_default()
    }

    /// Pods of the run's tasks.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Pod> {
        let is_task = |pod: &&Pod| !is_placeholder(pod) && !is_assistant(pod);
        self.all_pods().iter().filter(is_task)
    }

    /// Live pods of the run's tasks that the affinity requires on the run's node.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Pod> {
        self.tasks().filter(|pod| is_live(pod) && !is_opted_out(pod))
    }

    /// Pods of the run for which the scheduler finds no node.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Pod> {
        self.all_pods().iter().filter(|pod| waits(pod))
    }

    /// The first waiting pod of a task that the affinity requires on the run's node.
    pub(crate) fn waiting_member(&self) -> Option<&Pod> {
        self.members().find(|pod| waits(pod))
    }

    /// The last event with this reason on the run.
    pub(crate) fn event(&self, reason: &str) -> Option<&RunEvent> {
        latest(self.events.as_deref().unwrap_or_default(), self.uid(), reason)
    }

    /// The event about older runs that come first, if the run is held and has no placeholder.
    pub(crate) fn waits_in_line(&self) -> Option<&RunEvent> {
        let is_held = matches!(self.state(), State::Held) && matches!(self.set, Ok(None));
        let reasons = ["WaitingForNode", "OverCap"].into_iter().filter(|_| is_held);
        let last = reasons
            .filter_map(|reason| self.event(reason))
            .max_by_key(|event| event.at)?;
        (last.reason == "WaitingForNode" && notes::is_about_line(&last.text)).then_some(last)
    }

    /// The latest event of an autoscaler about a pod.
    pub(crate) fn autoscaler_about(&self, pod: &Pod) -> Option<&RunEvent> {
        let uid = pod.metadata.uid.as_deref()?;
        let events = self.events.as_deref().ok()?.iter();
        let answers = events.filter(|event| event.about == uid && event.is_of_autoscaler());
        answers.max_by_key(|event| event.at)
    }

    /// The configuration, or its defaults if it could not be read.
    pub(crate) fn config(&self) -> Config {
        self.config.clone().unwrap_or_default()
    }

    /// The run and its placeholder as the controller observes them.
    pub(crate) fn observation(&self) -> Observation {
        observation(&self.view.run, &self.placeholder(), self.config(), self.now)
    }

    /// The strategy and the isolation that the run has, or would get.
    pub(crate) fn enrolment(&self) -> Enrolment {
        self.observation().enrolment()
    }

    /// The placeholder's StatefulSet is at no replicas.
    pub(crate) fn is_scaled_down(&self) -> bool {
        self.observation()
            .statefulset
            .is_some_and(|set| set.spec.replicas == 0)
    }

    /// The placeholder is at no replicas because it made room in a quota, and the run gave up no node.
    pub(crate) fn has_made_room(&self) -> bool {
        let set = self.observation().statefulset;
        set.is_some_and(|set| set.spec.replicas == 0 && set.spec.previous_node.as_deref() == Some(""))
    }

    /// The node of the placeholder, or of the run's tasks while the placeholder has none.
    pub(crate) fn node_name(&self) -> Option<&str> {
        let mut members = self.members().filter(|_| self.view.run.is_enrolled());
        self.placeholder().node().or_else(|| members.find_map(bound_to))
    }

    /// The node of the placeholder, or the last node of the run by its annotation.
    pub(crate) fn last_node(&self) -> Option<&str> {
        self.placeholder().node().or(self.view.run.node.as_deref())
    }

    /// Why no new pod of the run can start on its node, if the node was read.
    pub(crate) fn node_unusable(&self) -> Option<Cause> {
        let node = self.node.as_ref()?.as_ref().ok()?;
        let pod = self.placeholder().pod.or_else(|| self.members().next());
        let tolerations = pod.and_then(|pod| pod.spec.as_ref()?.tolerations.as_deref());
        let node = node.as_ref().and_then(NodeFacts::from_node);
        match node::state(node.as_ref(), tolerations.unwrap_or_default()) {
            NodeState::Unusable(cause) => Some(cause),
            NodeState::Usable | NodeState::Unknown => None,
        }
    }

    /// The PVC that keeps the run on this node, because no other node can use it, as far as the volumes were read.
    pub(crate) fn only_volume_of(&self, name: &str) -> Option<String> {
        let node = self.node.as_ref().and_then(|node| node.as_ref().ok()?.as_ref());
        let hostname = node.and_then(|node| label(&node.metadata, keys::HOSTNAME));
        let here = NodeNames {
            name,
            hostname: hostname.unwrap_or(name),
        };
        let only_here = self.volumes()?.iter().filter(|volume| volume.is_only_on(here));
        let only_here = only_here.map(|volume| volume.claim().to_owned()).collect();
        pin(&only_here, &self.claims_of_waiting()).map(str::to_owned)
    }

    /// The PVCs of each pod of the run that waits for a node.
    fn claims_of_waiting(&self) -> Vec<BTreeSet<String>> {
        let waiting = self.members().filter(|pod| bound_to(pod).is_none());
        waiting
            .map(|pod| claims(pod).map(str::to_owned).collect())
            .collect()
    }

    /// The volumes of the run's PVCs, if they were read.
    pub(crate) fn volumes(&self) -> Option<&[BoundVolume]> {
        self.volumes.as_ref()?.as_deref().ok()
    }

    /// The nodes of the cluster, if they were read.
    pub(crate) fn nodes(&self) -> Option<&[Node]> {
        self.surroundings.as_ref()?.nodes.as_deref().ok()
    }

    /// The cluster as this waiting pod finds it, if the nodes were read.
    pub(crate) fn fit<'a>(&'a self, pod: &'a Pod) -> Option<Fit<'a>> {
        let cluster = ClusterView {
            nodes: self.nodes()?,
            pods: &self.surroundings.as_ref()?.pods.pods,
            volumes: self.volumes().unwrap_or_default(),
        };
        Some(Fit::new(pod, cluster))
    }

    /// The reads that failed.
    pub(crate) fn errors(&self) -> Vec<&RequestError> {
        let run = &self.view.run;
        // The strategy of a run that is not enrolled, its hold and its moves depend on the configuration.
        let needs_config = !run.done;
        let nodes = self.surroundings.as_ref().and_then(|it| it.nodes.as_ref().err());
        let pods = self.surroundings.iter().flat_map(|it| &it.pods.errors);
        let errors = [
            self.config.as_ref().err().filter(|_| needs_config),
            self.set.as_ref().err(),
            self.pods.as_ref().err(),
            self.events.as_ref().err(),
            error(self.node.as_ref()),
            nodes,
            error(self.volumes.as_ref()),
            error(self.quota.as_ref()),
            error(self.rejected_tasks.as_ref()),
            error(self.failed_create.as_ref()),
        ];
        errors.into_iter().flatten().chain(pods).collect()
    }
}

fn error<T>(read: Option<&RequestResult<T>>) -> Option<&RequestError> {
    read?.as_ref().err()
}

fn waits(pod: &Pod) -> bool {
    unschedulable(pod).is_some() && bound_to(pod).is_none()
}

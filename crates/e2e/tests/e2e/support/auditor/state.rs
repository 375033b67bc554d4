//! The objects that the auditor watches, and the violations that it found.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt};
use placement::keys;
use placement::strategy::{IsolateFrom, Isolation, Scope};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::{Duration, Instant};
use testbed::runs::{self, State};

/// How far the watch of nodes may lag behind the watch of pods.
const BEHIND: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct AuditState {
    pods: BTreeMap<String, BoundPod>,
    sets: BTreeMap<String, Set>,
    pub(super) runs: BTreeMap<String, Run>,
    nodes: BTreeMap<String, LiveNode>,
    /// When each node was first deleted or not ready, by name.
    lost: BTreeMap<String, Instant>,
    /// UIDs of runs that only their users may release.
    pub(super) users: BTreeSet<String>,
    held_since: BTreeMap<String, Instant>,
    pub(super) longest_hold: Duration,
    /// Reasons of failed runs, by name.
    pub(super) failed: BTreeMap<String, String>,
    violations: BTreeMap<String, Violation>,
    /// How many objects of each kind were recorded.
    pub(super) recorded: BTreeMap<&'static str, usize>,
    /// Kinds whose watch failed and has not restarted yet.
    pub(super) unwatched: BTreeSet<&'static str>,
}

/// A violation.
struct Violation {
    since: Instant,
    /// The nodes of the pods, if pods of one run are on different nodes.
    apart: Vec<String>,
}

/// A live pod on a node.
#[derive(Clone)]
pub(super) struct BoundPod {
    namespace: String,
    group: String,
    node: String,
    /// The pods that this pod's anti-affinity keeps off its node.
    isolation: Option<Isolation>,
    enrolled: bool,
    placeholder: bool,
    /// Whether the pod has pod-affinity's terms. Only such pods are checked for their node.
    placed: bool,
}

/// A placeholder's StatefulSet.
#[derive(Clone)]
pub(super) struct Set {
    group: String,
}

#[derive(Clone)]
pub(super) struct Run {
    name: String,
    pub(super) state: State,
    pub(super) ours: bool,
    /// `spec.status` is unset: the run is neither pending nor cancelled.
    released: bool,
}

/// A node that is Ready.
#[derive(Clone)]
pub(super) struct LiveNode {
    name: String,
}

/// A kind of object in the audit state, with the fields that the audit compares.
pub(super) trait Entry: Clone + Sized + Send {
    const KIND: &'static str;
    type Object: Resource + Clone + Debug + DeserializeOwned + Send + 'static;
    /// `None` if the audit no longer needs the object.
    fn from_object(object: &Self::Object) -> Option<Self>;
    fn entries(state: &mut AuditState) -> &mut BTreeMap<String, Self>;
    fn audit(&self, uid: &str, state: &mut AuditState);
    fn on_delete(&self, _: &mut AuditState) {}
}

pub(super) fn uid<K: Resource>(object: &K) -> String {
    object.meta().uid.clone().unwrap()
}

pub(super) fn remove<E: Entry>(state: &mut AuditState, uid: &str) {
    if let Some(entry) = E::entries(state).remove(uid) {
        entry.on_delete(state);
    }
}

pub(super) fn record<E: Entry>(state: &mut AuditState, object: &E::Object) {
    let uid = uid(object);
    match E::from_object(object) {
        Some(entry) => {
            E::entries(state).insert(uid.clone(), entry.clone());
            entry.audit(&uid, state);
            *state.recorded.entry(E::KIND).or_default() += 1;
        }
        None => remove::<E>(state, &uid),
    }
}

impl AuditState {
    pub(super) fn violations(&self) -> BTreeSet<String> {
        self.violations.keys().cloned().collect()
    }

    /// Violations, except pods of one run on different nodes of which one was lost.
    pub(super) fn violations_on_live_nodes(&self) -> BTreeSet<String> {
        let was_lost = |violation: &Violation, node: &String| {
            let lost = self.lost.get(node);
            lost.is_some_and(|at| *at <= violation.since + BEHIND)
        };
        let is_allowed = |violation: &Violation| violation.apart.iter().any(|node| was_lost(violation, node));
        let violations = self
            .violations
            .iter()
            .filter(|(_, violation)| !is_allowed(violation));
        violations.map(|(what, _)| what.clone()).collect()
    }

    fn add_violation(&mut self, what: String, apart: Vec<String>) {
        let since = Instant::now();
        self.violations.entry(what).or_insert(Violation { since, apart });
    }
}

impl Entry for BoundPod {
    const KIND: &'static str = "pods";
    type Object = Pod;

    fn from_object(pod: &Pod) -> Option<Self> {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let node = runs::node(pod).filter(|_| !matches!(phase, Some("Succeeded" | "Failed")))?;
        let labels = pod.labels();
        let is = |key: &str, value: &str| labels.get(key).is_some_and(|found| found == value);
        let enrolled = labels.contains_key(keys::GROUP);
        let placed = enrolled && !is(keys::OPT_IN, "false");
        let isolates = placed && !is(keys::STRATEGY, "colocateAlways");
        let isolation = labels.get(keys::ISOLATION).and_then(|label| label.parse().ok());
        Some(Self {
            namespace: pod.namespace()?,
            group: labels
                .get(keys::GROUP)
                .unwrap_or(&labels[runs::RUN_LABEL])
                .clone(),
            node: node.to_owned(),
            isolation: isolates.then(|| isolation.unwrap_or_default()),
            enrolled,
            placeholder: is(keys::COMPONENT, keys::PLACEHOLDER),
            placed,
        })
    }

    fn entries(state: &mut AuditState) -> &mut BTreeMap<String, Self> {
        &mut state.pods
    }

    fn audit(&self, uid: &str, state: &mut AuditState) {
        let others = state.pods.iter().filter(|(other, _)| *other != uid);
        let violations: Vec<_> = others.filter_map(|(_, other)| self.violation(other)).collect();
        for (what, apart) in violations {
            state.add_violation(what, apart);
        }
    }
}

impl BoundPod {
    /// The violation between two pods, and the nodes if the pods are of one run.
    fn violation(&self, other: &Self) -> Option<(String, Vec<String>)> {
        let Self { group, node, .. } = self;
        let (mine, here) = (other.group == *group, other.node == *node);
        if !mine && here && (self.excludes(other) || other.excludes(self)) {
            let met = format!("{group} and {} share node {node}", other.group);
            return Some((met, Vec::new()));
        }
        let apart = vec![node.clone(), other.node.clone()];
        if mine && !here && self.placed && other.placed {
            return Some((format!("{group} is on {node} and on {}", other.node), apart));
        }
        (mine && self.placeholder && other.placeholder)
            .then(|| (format!("{group} has two placeholders"), Vec::new()))
    }

    /// Whether the anti-affinity of this pod keeps the other pod off its node.
    fn excludes(&self, other: &Self) -> bool {
        self.isolation.is_some_and(|Isolation { scope, from }| {
            (scope == Scope::Cluster || other.namespace == self.namespace)
                && (from == IsolateFrom::All || other.enrolled)
        })
    }
}

impl Entry for LiveNode {
    const KIND: &'static str = "nodes";
    type Object = Node;

    fn from_object(node: &Node) -> Option<Self> {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let ready = conditions.any(|it| it.type_ == "Ready" && it.status == "True");
        ready.then(|| Self {
            name: node.name_any(),
        })
    }

    fn entries(state: &mut AuditState) -> &mut BTreeMap<String, Self> {
        &mut state.nodes
    }

    fn audit(&self, _: &str, _: &mut AuditState) {}

    fn on_delete(&self, state: &mut AuditState) {
        let lost = state.lost.entry(self.name.clone());
        lost.or_insert_with(Instant::now);
    }
}

impl Entry for Set {
    const KIND: &'static str = "sets";
    type Object = StatefulSet;

    fn from_object(set: &StatefulSet) -> Option<Self> {
        let group = set.labels()[keys::GROUP].clone();
        Some(Self { group })
    }

    fn entries(state: &mut AuditState) -> &mut BTreeMap<String, Self> {
        &mut state.sets
    }

    fn audit(&self, uid: &str, state: &mut AuditState) {
        let mut others = state.sets.iter().filter(|(other, _)| *other != uid);
        if others.any(|(_, other)| other.group == self.group) {
            state.add_violation(format!("{} has two StatefulSets", self.group), Vec::new());
        }
    }
}

impl Entry for Run {
    const KIND: &'static str = "runs";
    type Object = DynamicObject;

    fn from_object(run: &DynamicObject) -> Option<Self> {
        Some(Self {
            name: run.name_any(),
            state: runs::state(run),
            ours: run.annotations().contains_key(keys::HOLD),
            released: run.data["spec"].get("status").is_none(),
        })
    }

    fn entries(state: &mut AuditState) -> &mut BTreeMap<String, Self> {
        &mut state.runs
    }

    fn audit(&self, uid: &str, state: &mut AuditState) {
        let Self {
            name,
            state: run_state,
            ours,
            released,
        } = self;
        match run_state {
            State::Pending if *ours => {
                state
                    .held_since
                    .entry(uid.to_owned())
                    .or_insert_with(Instant::now);
            }
            State::Running if *released && state.users.contains(uid) => {
                let what = format!("{name} was released, although its user holds it");
                state.add_violation(what, Vec::new());
            }
            State::Pending | State::Running | State::Succeeded => {}
            State::Failed(reason) => {
                state.failed.insert(name.clone(), reason.clone());
            }
        }
        if *run_state != State::Pending
            && let Some(since) = state.held_since.remove(uid)
        {
            state.longest_hold = state.longest_hold.max(since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(group: &str, node: &str, isolated: bool) -> BoundPod {
        BoundPod {
            namespace: "red".into(),
            group: group.into(),
            node: node.into(),
            isolation: isolated.then(Isolation::default),
            enrolled: true,
            placeholder: false,
            placed: true,
        }
    }

    fn state(pods: [BoundPod; 2]) -> AuditState {
        let mut state = AuditState::default();
        for (number, pod) in pods.into_iter().enumerate() {
            state.pods.insert(number.to_string(), pod.clone());
            pod.audit(&number.to_string(), &mut state);
        }
        state
    }

    fn violations(pods: [BoundPod; 2]) -> usize {
        state(pods).violations().len()
    }

    #[e2e_test]
    fn two_runs_on_one_node_one_run_on_two_nodes_and_two_placeholders_are_violations() {
        let placeholder = BoundPod {
            placeholder: true,
            ..pod("a", "n", true)
        };
        assert_eq!(violations([pod("a", "n", true), pod("b", "n", false)]), 1);
        assert_eq!(violations([pod("a", "n", false), pod("b", "n", false)]), 0);
        assert_eq!(violations([pod("a", "n", true), pod("a", "m", true)]), 1);
        assert_eq!(violations([pod("a", "n", true), pod("b", "m", true)]), 0);
        assert_eq!(violations([placeholder.clone(), placeholder]), 1);
    }

    #[e2e_test]
    fn a_run_excludes_only_the_pods_that_its_isolation_names() {
        let isolated = |isolation: &str| BoundPod {
            isolation: Some(isolation.parse().unwrap()),
            ..pod("a", "n", true)
        };
        let in_blue = |enrolled| BoundPod {
            namespace: "blue".into(),
            enrolled,
            ..pod("b", "n", false)
        };
        let in_red = |enrolled| BoundPod {
            namespace: "red".into(),
            ..in_blue(enrolled)
        };
        for (isolation, kept_off) in [
            ("cluster-all", [true, true, true, true]),
            ("cluster-enrolled", [true, false, true, false]),
            ("namespace-all", [true, true, false, false]),
            ("namespace-enrolled", [true, false, false, false]),
        ] {
            let others = [in_red(true), in_red(false), in_blue(true), in_blue(false)];
            let found = others.map(|other| violations([isolated(isolation), other]) == 1);
            assert_eq!(found, kept_off, "{isolation}");
        }
    }

    #[e2e_test]
    fn pods_of_a_run_may_be_on_two_nodes_only_while_one_of_the_nodes_is_lost() {
        let apart = || state([pod("a", "n", true), pod("a", "m", true)]);
        let lost = |name: &str, at: Instant, mut state: AuditState| {
            state.lost.insert(name.into(), at);
            state.violations_on_live_nodes().len()
        };
        let now = Instant::now();
        assert_eq!(apart().violations_on_live_nodes().len(), 1);
        assert_eq!(lost("n", now, apart()), 0);
        assert_eq!(lost("another", now, apart()), 1);
        assert_eq!(lost("n", now + 2 * BEHIND, apart()), 1, "later");
        let met = state([pod("a", "n", true), pod("b", "n", true)]);
        assert_eq!(lost("n", now, met), 1);
    }

    #[e2e_test]
    fn a_release_of_a_run_that_its_user_holds_is_a_violation() {
        let mut state = AuditState::default();
        state.users.insert("uid".into());
        let run = |state| Run {
            name: "run".into(),
            released: state == State::Running,
            state,
            ours: false,
        };
        run(State::Pending).audit("uid", &mut state);
        assert!(state.violations.is_empty());
        run(State::Running).audit("uid", &mut state);
        assert_eq!(state.violations.len(), 1);
    }
}

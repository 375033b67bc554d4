//! Scenes for the tests of `plan`: a run and its placeholder, changed step by step.

use super::{Action, Enrolment, Observed, Placeholder, PlaceholderPod, Plan, plan};
use crate::config::Config;
use crate::names::RunKey;
use crate::run::{PodTemplate, Run, SpecStatus};
use crate::strategy::{Isolation, Strategy};
use jiff::{SignedDuration, Timestamp};

pub(super) const UID: &str = "run-uid";
pub(super) const SET: &str = "set-uid";
pub(super) const POD: &str = "pod-uid";
pub(super) const NODE: &str = "node-1";

#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) run: Run,
    pub(super) set: Option<Placeholder>,
    pub(super) pod: Option<PlaceholderPod>,
    pub(super) config: Config,
}

/// An opted-in run, created now; nothing holds it and nothing has happened yet.
pub(super) fn fresh() -> Scene {
    Scene {
        run: run(),
        set: None,
        pod: None,
        config: Config::default(),
    }
}

/// Held by us.
pub(super) fn held() -> Scene {
    fresh().change(|scene| {
        scene.run.status = SpecStatus::Pending;
        scene.run.hold = true;
    })
}

/// Running and enrolled.
pub(super) fn enrolled() -> Scene {
    fresh().in_group(UID).change(|scene| scene.run.started = true)
}

/// Done, once enrolled by this strategy, its placeholder still on the node.
pub(super) fn done(strategy: Strategy) -> Scene {
    enrolled()
        .resolved(strategy)
        .on(NODE)
        .change(|scene| scene.run.done = true)
}

pub(super) fn default_enrolment() -> Enrolment {
    Enrolment {
        strategy: Strategy::default(),
        isolation: Isolation::default(),
    }
}

pub(super) fn deletion(set: Option<&str>, pod: Option<&str>) -> Action {
    Action::DeletePlaceholder {
        set: set.map(str::to_owned),
        pod: pod.map(str::to_owned),
    }
}

impl Scene {
    pub(super) fn change(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(super) fn opt_in(self, value: Option<&str>) -> Self {
        self.change(|scene| scene.run.opt_in = value.map(str::to_owned))
    }

    pub(super) fn in_group(self, group: &str) -> Self {
        self.change(|scene| {
            scene.run.group = Some(group.to_owned());
            scene.run.strategy = Some(Strategy::default().to_string());
            scene.run.isolation = Some(Isolation::default().to_string());
        })
    }

    /// The strategy that run and placeholder have as label.
    pub(super) fn resolved(self, strategy: Strategy) -> Self {
        self.change(|scene| scene.run.strategy = Some(strategy.to_string()))
            .with_set()
            .change(|scene| {
                scene.set.as_mut().unwrap().strategy = Some(strategy);
            })
    }

    pub(super) fn created_ago(self, seconds: i64) -> Self {
        self.change(|scene| scene.run.created = Some(now() - SignedDuration::from_secs(seconds)))
    }

    pub(super) fn with_set(self) -> Self {
        self.change(|scene| scene.set = Some(set()))
    }

    pub(super) fn with_pod(self) -> Self {
        self.change(|scene| {
            scene.set.get_or_insert_with(set);
            scene.pod = Some(pod());
        })
    }

    /// The placeholder pod is bound to this node.
    pub(super) fn on(self, node: &str) -> Self {
        self.with_pod()
            .change(|scene| scene.pod.as_mut().unwrap().node = Some(node.to_owned()))
    }

    pub(super) fn adopted(self) -> Self {
        self.change(|scene| scene.pod.as_mut().unwrap().adopted = true)
    }

    pub(super) fn pod_ending(self) -> Self {
        self.change(|scene| scene.pod.as_mut().unwrap().ending = true)
    }

    pub(super) fn set_deleting(self) -> Self {
        self.with_set()
            .change(|scene| scene.set.as_mut().unwrap().deleting = true)
    }

    pub(super) fn foreign_set(self) -> Self {
        self.with_set()
            .change(|scene| scene.set.as_mut().unwrap().owned = false)
    }

    pub(super) fn without_set(self) -> Self {
        self.change(|scene| scene.set = None)
    }

    pub(super) fn plan(&self) -> Plan {
        let observed = Observed {
            run: &self.run,
            placeholder: self.set.as_ref(),
            pod: self.pod.as_ref(),
            config: &self.config,
        };
        plan(&observed, now())
    }

    pub(super) fn action(&self) -> Action {
        self.plan().action
    }
}

pub(super) fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(500_000)
}

fn run() -> Run {
    Run {
        key: RunKey {
            namespace: "ns".to_owned(),
            name: "build".to_owned(),
            uid: UID.to_owned(),
        },
        created: Some(now()),
        deleting: false,
        done: false,
        status: SpecStatus::Unset,
        started: false,
        has_children: false,
        managed_elsewhere: false,
        child: false,
        queued_by_kueue: false,
        opt_in: Some("true".to_owned()),
        group: None,
        strategy: None,
        isolation: None,
        hold: false,
        node: None,
        reserve: None,
        template: PodTemplate::default(),
        claims: Vec::new(),
    }
}

fn set() -> Placeholder {
    Placeholder {
        uid: SET.to_owned(),
        owned: true,
        deleting: false,
        replicas: 1,
        strategy: Some(Strategy::default()),
        isolation: Some(Isolation::default()),
    }
}

fn pod() -> PlaceholderPod {
    PlaceholderPod {
        uid: POD.to_owned(),
        node: None,
        ending: false,
        unschedulable: None,
        adopted: false,
    }
}

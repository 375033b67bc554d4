//! One look at one run: observe, plan, act, report.

use crate::act::{Door, Effect};
use crate::memory::Memory;
use crate::observe::{Seen, Stores};
use crate::refusal::Refused;
use crate::report::{Report, Step};
use jiff::Timestamp;
use placement::config::Config;
use placement::names::RunKey;
use placement::plan::{Action, Plan, Why, plan};
use placement::run::Run;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tracing::{Instrument, field, info_span};

/// All that a look takes.
pub(crate) struct Desk {
    pub(crate) stores: Stores,
    pub(crate) config: watch::Receiver<Arc<Config>>,
    pub(crate) door: Door,
    pub(crate) memory: Memory,
    pub(crate) report: Report,
}

/// How a look ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// There is nothing left to do until something changes.
    pub(crate) at_rest: bool,
    /// When to look again if nothing changes.
    pub(crate) again: Option<Duration>,
}

impl Desk {
    /// Takes the next step for a run.
    pub(crate) async fn settle(&self, run: &Run) -> Result<Settled, Refused> {
        let span = info_span!("reconcile", run = %run.key, uid = run.key.uid, action = field::Empty);
        let look = async {
            let started = Instant::now();
            let settled = self.step(run).await;
            self.report.looked(started.elapsed(), settled.as_ref().err());
            settled
        };
        look.instrument(span).await
    }

    /// When to look again at a run whose last look failed.
    pub(crate) fn retry_after(&self, uid: &str) -> Duration {
        self.memory.with(uid, |known| known.retry_after())
    }

    /// Drops what is remembered of a run that is gone.
    pub(crate) fn vanished(&self, key: &RunKey) {
        self.report
            .vanished(key, self.memory.forget(&key.uid), Timestamp::now());
    }

    async fn step(&self, run: &Run) -> Result<Settled, Refused> {
        let uid = run.key.uid.as_str();
        let seen = self.stores.observe(run, &self.config).await;
        let mut seen = seen.inspect_err(|_| self.memory.with(uid, |known| known.stumbled(uid)))?;
        self.memory.peek(uid, |known| seen.recall(known));
        let first = plan(&seen.of(run), seen.now);
        if first.action != Action::CountPods {
            return self.go_by(run, seen, first).await;
        }
        if let Some(pause) = self.pause(uid, &first.action, &seen) {
            return Ok(paused(&first, pause));
        }
        self.count(run, &mut seen).await?;
        let second = plan(&seen.of(run), seen.now);
        self.go_by(run, seen, second).await
    }

    async fn go_by(&self, run: &Run, seen: Seen, plan: Plan) -> Result<Settled, Refused> {
        if let Action::Leave(why) = plan.action {
            return Ok(self.leave(run, &seen, why));
        }
        if let Some(pause) = self.pause(&run.key.uid, &plan.action, &seen) {
            return Ok(paused(&plan, pause));
        }
        self.take(run, seen, plan).await
    }

    /// Sees what only the API server can tell for sure.
    async fn count(&self, run: &Run, seen: &mut Seen) -> Result<(), Refused> {
        let uid = run.key.uid.as_str();
        let counted = self.door.count(run, seen.node_name()).await;
        let count = counted.inspect_err(|_| {
            self.memory
                .with(uid, |known| known.failed(uid, &Action::CountPods, seen.now));
        })?;
        seen.node = count.node;
        seen.nodes = self.stores.all_nodes();
        seen.census = self.memory.with(uid, |known| {
            Some(known.counted(count.live, count.ended, seen.now))
        });
        Ok(())
    }

    fn pause(&self, uid: &str, action: &Action, seen: &Seen) -> Option<Duration> {
        if *action == Action::NudgePlaceholder && !seen.taken_up {
            // No longer than the plan says; most often the StatefulSet's change of status comes first.
            return Some(Duration::MAX);
        }
        self.memory.with(uid, |known| known.pause(action, seen.now))
    }

    async fn take(
        &self,
        run: &Run,
        mut seen: Seen,
        Plan { action, again, note }: Plan,
    ) -> Result<Settled, Refused> {
        let answer = match &action {
            Action::AwaitNode {
                unschedulable: Some(_),
                ..
            } => self.ask_autoscaler(run, &mut seen).await,
            _ => None,
        };
        let result = self.door.act(run, &seen, &action).await;
        let step = Step {
            run,
            seen: &seen,
            action: &action,
            result: &result,
            ignored: note.as_ref(),
        };
        let more = self.report.step(&self.memory, &step);
        let pause = self.remember(&run.key.uid, &action, &result, &seen);
        result?;
        let again = [pause, more, answer].into_iter().fold(again, sooner);
        Ok(Settled {
            at_rest: action == Action::Steady,
            again,
        })
    }

    /// Hears what an autoscaler says to a placeholder that waits, if it is time, and tells when it is time again.
    async fn ask_autoscaler(&self, run: &Run, seen: &mut Seen) -> Option<Duration> {
        let (uid, pod) = (run.key.uid.as_str(), pod_of(seen)?);
        if self.memory.with(uid, |known| known.is_time_to_ask(seen.now)) {
            seen.autoscaler = self.door.autoscaler(&run.key.namespace, &pod).await;
        }
        self.memory.with(uid, |known| {
            known.autoscaler.clone_from(&seen.autoscaler);
            known.next_question(seen.now)
        })
    }

    /// A guarded write that was overtaken waits like a failure: the next look must come after the cache has moved.
    fn remember(
        &self,
        uid: &str,
        action: &Action,
        result: &Result<Effect, Refused>,
        seen: &Seen,
    ) -> Option<Duration> {
        let now = seen.now;
        self.memory.with(uid, |known| match result {
            Ok(Effect::Nothing) => None,
            Ok(Effect::Written | Effect::Nudged { .. }) => {
                known.took(action, now);
                if let Action::LetGo { .. } | Action::StartOver { .. } = action {
                    known.let_go(pod_of(seen), now);
                }
                known
                    .pause(action, now)
                    .filter(|_| *action == Action::NudgePlaceholder)
            }
            Ok(Effect::ResizeRefused) => {
                known.took(action, now);
                if let Some(pod) = pod_of(seen) {
                    known.refused_resize(pod);
                }
                Some(Duration::ZERO)
            }
            Ok(Effect::Overtaken) | Err(_) => Some(known.failed(uid, action, now)),
        })
    }

    fn leave(&self, run: &Run, seen: &Seen, why: Why) -> Settled {
        let known = match why {
            // It will be ours again.
            Why::HeldElsewhere => None,
            Why::Child | Why::ManagedElsewhere | Why::NotOptedIn | Why::Done => {
                self.memory.forget(&run.key.uid)
            }
        };
        if let Some(known) = known {
            self.report.settled(run, known, seen.now);
        }
        Settled {
            at_rest: true,
            again: None,
        }
    }
}

/// As long as the plan says, unless this is sooner.
fn paused(plan: &Plan, pause: Duration) -> Settled {
    Settled {
        at_rest: false,
        again: sooner(plan.again, Some(pause)),
    }
}

fn pod_of(seen: &Seen) -> Option<String> {
    seen.pod.as_ref().map(|pod| pod.uid.clone())
}

fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
#[path = "desk_move_tests.rs"]
mod move_tests;
#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;

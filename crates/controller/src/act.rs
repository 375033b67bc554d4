//! The one door through which the controller writes: one step of a plan, carried out.
//!
//! Each call has a time limit, since a call that hangs would hang its run. A guarded write that finds the world
//! changed is not an error: the cache is behind, and what changed will wake the run again.

use crate::claims;
use crate::observe::Seen;
use crate::patches;
use crate::refusal::{Fault, Refused, Step, is_gone, is_overtaken};
use crate::view::{PlaceholderPod, PlaceholderSet};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Client, Resource};
use placement::names::RunKey;
use placement::plan::{Action, Enrolment};
use placement::run::Run;
use placement::{keys, placeholder};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;
use std::time::Duration;
use tekton::PipelineRun;
use tracing::debug;

/// Longer than two slow webhooks take, so that the API server is heard first; with the longest backoff still under a
/// minute, so that a call that hangs holds its run no longer than that.
const LIMIT: Duration = Duration::from_secs(25);

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// There was nothing to write.
    Nothing,
    /// It is as the plan wants it.
    Written,
    /// Somebody was faster: decide anew.
    Overtaken,
    /// The StatefulSet's controller was woken; the reason why it has no pod yet, if it gave one.
    Nudged {
        /// Its last complaint.
        complaint: Option<String>,
    },
}

/// The way to the API server.
pub(crate) struct Door {
    client: Client,
    image: String,
}

impl Door {
    /// A door that makes placeholders of this image.
    pub(crate) fn new(client: Client, image: String) -> Self {
        Self { client, image }
    }

    /// Carries out one step.
    pub(crate) async fn act(&self, run: &Run, seen: &Seen, action: &Action) -> Result<Effect, Refused> {
        match action {
            Action::Leave(_) | Action::Steady | Action::LabelledTooLate | Action::AwaitNode { .. } => {
                Ok(Effect::Nothing)
            }
            Action::Enrol(enrolment) => {
                self.merge_run(run, Step::Enrol, patches::enrol(run, *enrolment))
                    .await
            }
            Action::CreatePlaceholder(enrolment) => self.create(run, seen, *enrolment).await,
            Action::NudgePlaceholder => self.nudge(run, seen).await,
            Action::Release {
                enrolment,
                node,
                cause: _,
            } => self.release(run, *enrolment, node.as_deref()).await,
            Action::RecordNode { node } => {
                self.merge_run(run, Step::RecordNode, patches::record_node(run, node))
                    .await
            }
            Action::DeletePlaceholder { set, pod } => self.delete(run, set.as_deref(), pod.as_deref()).await,
            Action::AdoptPod { pod } => self.adopt(run, pod).await,
            Action::OrphanPlaceholder { set } => self.delete_set(run, set, DeleteParams::orphan()).await,
        }
    }

    /// The very run that is meant, as it is now; `None` if it is gone.
    pub(crate) async fn find(&self, key: &RunKey) -> Result<Option<Run>, Refused> {
        let runs: Api<PipelineRun> = self.api(&key.namespace);
        let found = within(Step::Lookup, runs.get_opt(&key.name)).await?;
        Ok(found
            .and_then(|view| view.run())
            .filter(|run| run.key.uid == key.uid))
    }

    async fn release(
        &self,
        run: &Run,
        enrolment: Option<Enrolment>,
        node: Option<&str>,
    ) -> Result<Effect, Refused> {
        let runs: Api<PipelineRun> = self.api(&run.key.namespace);
        let patch = Patch::Json::<()>(patches::release(run, enrolment, node));
        guarded(Step::Release, runs.patch(&run.key.name, &params(), &patch)).await
    }

    async fn merge_run(&self, run: &Run, step: Step, patch: Value) -> Result<Effect, Refused> {
        let runs: Api<PipelineRun> = self.api(&run.key.namespace);
        guarded(step, runs.patch(&run.key.name, &params(), &Patch::Merge(patch))).await
    }

    async fn create(&self, run: &Run, seen: &Seen, enrolment: Enrolment) -> Result<Effect, Refused> {
        let claims = self.mountable(run).await?;
        let run = Run {
            claims,
            ..run.clone()
        };
        let set = placeholder::stateful_set(&run, enrolment, &seen.config, &self.image);
        let sets: Api<PlaceholderSet> = self.api(&run.key.namespace);
        let params = PatchParams::apply(keys::FIELD_MANAGER).force();
        let name = run.key.placeholder();
        within(
            Step::Placeholder,
            sets.patch(name.as_str(), &params, &Patch::Apply(set)),
        )
        .await?;
        Ok(Effect::Written)
    }

    async fn mountable(&self, run: &Run) -> Result<Vec<String>, Refused> {
        let api: Api<PersistentVolumeClaim> = self.api(&run.key.namespace);
        let mut kept = Vec::with_capacity(run.claims.len());
        for name in &run.claims {
            let claim = within(Step::Claims, api.get_opt(name)).await?;
            kept.extend(claim.filter(claims::is_mountable).map(|_| name.clone()));
        }
        Ok(kept)
    }

    async fn nudge(&self, run: &Run, seen: &Seen) -> Result<Effect, Refused> {
        let Some(set) = &seen.set else {
            return Ok(Effect::Overtaken);
        };
        let complaint = self.complaint(&run.key.namespace, &set.uid).await;
        let sets: Api<PlaceholderSet> = self.api(&run.key.namespace);
        let patch = Patch::Merge(patches::nudge(&set.uid, seen.now));
        let name = run.key.placeholder();
        let effect = guarded(Step::Placeholder, sets.patch(name.as_str(), &params(), &patch)).await?;
        Ok(if effect == Effect::Written {
            Effect::Nudged { complaint }
        } else {
            effect
        })
    }

    /// What the StatefulSet's controller last said of its pod. Only for the user's eyes, so that an error in
    /// asking does not keep the nudge from happening.
    async fn complaint(&self, namespace: &str, set: &str) -> Option<String> {
        let events: Api<Event> = self.api(namespace);
        let params = ListParams::default().fields(&format!("involvedObject.uid={set},reason=FailedCreate"));
        match within(Step::Lookup, events.list(&params)).await {
            Ok(list) => list
                .items
                .into_iter()
                .max_by_key(last_seen)
                .and_then(|event| event.message),
            Err(error) => {
                debug!(%error, "cannot read the events of a placeholder");
                None
            }
        }
    }

    async fn delete(&self, run: &Run, set: Option<&str>, pod: Option<&str>) -> Result<Effect, Refused> {
        if let Some(uid) = set {
            self.delete_set(run, uid, DeleteParams::background()).await?;
        }
        if let Some(uid) = pod {
            let pods: Api<PlaceholderPod> = self.api(&run.key.namespace);
            delete(pods, &run.key.placeholder().pod(), uid, DeleteParams::default()).await?;
        }
        Ok(Effect::Written)
    }

    async fn delete_set(&self, run: &Run, uid: &str, params: DeleteParams) -> Result<Effect, Refused> {
        let sets: Api<PlaceholderSet> = self.api(&run.key.namespace);
        delete(sets, run.key.placeholder().as_str(), uid, params).await
    }

    async fn adopt(&self, run: &Run, pod: &str) -> Result<Effect, Refused> {
        let pods: Api<PlaceholderPod> = self.api(&run.key.namespace);
        let patch = Patch::Strategic(patches::adopt(run, pod));
        guarded(
            Step::CleanUp,
            pods.patch(&run.key.placeholder().pod(), &params(), &patch),
        )
        .await
    }

    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// Deletes the object of this UID; that it is gone already is success.
async fn delete<K>(api: Api<K>, name: &str, uid: &str, params: DeleteParams) -> Result<Effect, Refused>
where
    K: Clone + DeserializeOwned + Debug,
{
    let preconditions = Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    };
    let params = params.preconditions(preconditions);
    match within(Step::CleanUp, api.delete(name, &params)).await {
        Err(Refused {
            fault: Fault::Api(error),
            ..
        }) if is_gone(&error) => Ok(Effect::Written),
        other => other.map(|_| Effect::Written),
    }
}

async fn guarded<T>(step: Step, call: impl Future<Output = kube::Result<T>>) -> Result<Effect, Refused> {
    match within(step, call).await {
        Err(Refused {
            fault: Fault::Api(error),
            ..
        }) if is_overtaken(&error) => Ok(Effect::Overtaken),
        other => other.map(|_| Effect::Written),
    }
}

async fn within<T>(step: Step, call: impl Future<Output = kube::Result<T>>) -> Result<T, Refused> {
    let answer = tokio::time::timeout(LIMIT, call).await;
    let answer = answer
        .map_err(|_| Fault::Late(LIMIT))
        .and_then(|it| it.map_err(|e| Fault::Api(Box::new(e))));
    answer.map_err(|fault| Refused { step, fault })
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(keys::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn last_seen(event: &Event) -> Option<jiff::Timestamp> {
    let times = (event.last_timestamp.as_ref(), event.event_time.as_ref());
    times.0.map(|time| time.0).or_else(|| times.1.map(|time| time.0))
}

#[cfg(test)]
#[path = "act_tests.rs"]
mod tests;

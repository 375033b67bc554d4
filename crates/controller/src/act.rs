//! The one door through which the controller writes: one step of a plan, carried out.
//!
//! Each call has a time limit, since a call that hangs would hang its run. A guarded write that finds the world
//! changed is not an error: the cache is behind, and what changed will wake the run again.

use crate::count::TaskPod;
use crate::observe::Seen;
use crate::patches;
use crate::refusal::{Fault, Refused, Step, is_gone, is_no, is_overtaken};
use crate::view::{PlaceholderPod, PlaceholderSet};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, Resource};
use placement::placeholder::patches as placeholder_patches;
use placement::placeholder::wake::Wake;
use placement::plan::{Action, Enrolment};
use placement::run::Run;
use placement::{keys, placeholder};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;
use std::time::Duration;
use tekton::PipelineRun;

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
    /// The server does not resize this pod in place.
    ResizeRefused,
}

/// The way to the API server.
pub(crate) struct Door {
    pub(crate) client: Client,
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
            Action::Leave(_)
            | Action::Steady
            | Action::LabelledTooLate
            | Action::AwaitNode { .. }
            | Action::CountPods
            | Action::AwaitTasks { .. }
            | Action::AwaitFit { .. } => Ok(Effect::Nothing),
            Action::Enrol(enrolment) => {
                self.patch_run(run, Step::Enrol, patches::enrol(run, *enrolment))
                    .await
            }
            Action::Withdraw => self.patch_run(run, Step::Enrol, patches::withdraw(run)).await,
            Action::CreatePlaceholder(enrolment) => self.create(run, seen, *enrolment).await,
            Action::NudgePlaceholder => self.nudge(run, seen).await,
            Action::Release {
                enrolment,
                node,
                cause: _,
            } => {
                let patch = patches::release(run, *enrolment, node.as_deref());
                self.patch_run(run, Step::Release, patch).await
            }
            Action::RecordNode { node } => {
                self.merge_run(run, Step::RecordNode, patches::record_node(run, node))
                    .await
            }
            Action::LetGo { set, .. } => {
                self.dismiss_assistants(run).await?;
                self.scale(run, seen, set, 0).await
            }
            Action::WakeTasks { pods, wake } => self.wake(run, pods, *wake).await,
            Action::Follow { set } => {
                self.recall_assistants(run).await?;
                self.scale(run, seen, set, 1).await
            }
            Action::Shrink { set, pod } => self.shrink(run, seen, set, pod).await,
            Action::RecreateSmall { set, pod, node } => {
                self.recreate(run, seen, set, pod, node.as_deref()).await
            }
            Action::Unpin { set } => self.patch_set(run, placeholder_patches::unpin(set, run)).await,
            Action::StartOver { set, .. } | Action::LeavePod { set } => self.delete_set(run, set).await,
            Action::DeletePlaceholder { set, pod } => self.delete(run, set.as_deref(), pod.as_deref()).await,
            Action::AdoptPod { pod } => self.adopt(run, seen, pod).await,
        }
    }

    async fn patch_run(&self, run: &Run, step: Step, patch: json_patch::Patch) -> Result<Effect, Refused> {
        let runs: Api<PipelineRun> = self.api(&run.key.namespace);
        let patch = Patch::Json::<()>(patch);
        guarded(step, runs.patch(&run.key.name, &params(), &patch)).await
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

    async fn scale(&self, run: &Run, seen: &Seen, set: &str, to: i32) -> Result<Effect, Refused> {
        let from = seen.set.as_ref().map_or(1 - to, |set| set.replicas);
        self.patch_set(run, placeholder_patches::scale(set, from, to))
            .await
    }

    /// A pod that is gone, or is in no group any more, needs no waking.
    async fn wake(&self, run: &Run, names: &[String], wake: Wake) -> Result<Effect, Refused> {
        let pods: Api<TaskPod> = self.api(&run.key.namespace);
        let patch = Patch::Json::<()>(placeholder_patches::wake(run, wake));
        for name in names {
            guarded(Step::Wake, pods.patch(name, &params(), &patch)).await?;
        }
        Ok(Effect::Written)
    }

    /// The template first: a pod that is lost in between is made small, and would otherwise be big for ever.
    async fn shrink(&self, run: &Run, seen: &Seen, set: &str, pod: &str) -> Result<Effect, Refused> {
        let template = self
            .patch_set(run, placeholder_patches::shrink(set, &seen.config))
            .await?;
        if template != Effect::Written {
            return Ok(template);
        }
        let pods: Api<PlaceholderPod> = self.api(&run.key.namespace);
        let patch = Patch::Strategic(placeholder_patches::resize(pod, &seen.config));
        let name = run.key.placeholder().pod();
        match within(
            Step::Shrink,
            pods.patch_subresource("resize", &name, &params(), &patch),
        )
        .await
        {
            Ok(_) => Ok(Effect::Written),
            Err(Refused {
                fault: Fault::Api(error),
                ..
            }) if is_no(&error) => Ok(Effect::ResizeRefused),
            Err(refused) => overtaken(refused),
        }
    }

    async fn recreate(
        &self,
        run: &Run,
        seen: &Seen,
        set: &str,
        pod: &str,
        node: Option<&str>,
    ) -> Result<Effect, Refused> {
        let patch = placeholder_patches::recreate(set, run, node, &seen.config);
        let template = self.patch_set(run, patch).await?;
        if template != Effect::Written {
            return Ok(template);
        }
        let pods: Api<PlaceholderPod> = self.api(&run.key.namespace);
        let name = run.key.placeholder().pod();
        delete(Step::CleanUp, &pods, &name, pod, DeleteParams::default()).await
    }

    async fn patch_set(&self, run: &Run, patch: json_patch::Patch) -> Result<Effect, Refused> {
        let sets: Api<PlaceholderSet> = self.api(&run.key.namespace);
        let patch = Patch::Json::<()>(patch);
        let name = run.key.placeholder();
        guarded(Step::Change, sets.patch(name.as_str(), &params(), &patch)).await
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

    async fn delete(&self, run: &Run, set: Option<&str>, pod: Option<&str>) -> Result<Effect, Refused> {
        if let Some(uid) = set {
            self.delete_set(run, uid).await?;
        }
        if let Some(uid) = pod {
            let pods: Api<PlaceholderPod> = self.api(&run.key.namespace);
            let name = run.key.placeholder().pod();
            delete(Step::CleanUp, &pods, &name, uid, DeleteParams::default()).await?;
        }
        Ok(Effect::Written)
    }

    async fn delete_set(&self, run: &Run, uid: &str) -> Result<Effect, Refused> {
        let sets: Api<PlaceholderSet> = self.api(&run.key.namespace);
        let name = run.key.placeholder();
        delete(
            Step::CleanUp,
            &sets,
            name.as_str(),
            uid,
            DeleteParams::background(),
        )
        .await
    }

    async fn adopt(&self, run: &Run, seen: &Seen, pod: &str) -> Result<Effect, Refused> {
        let pods: Api<PlaceholderPod> = self.api(&run.key.namespace);
        let patch = Patch::Strategic(patches::adopt(
            run,
            pod,
            seen.set.as_ref().map(|set| set.uid.as_str()),
        ));
        guarded(
            Step::CleanUp,
            pods.patch(&run.key.placeholder().pod(), &params(), &patch),
        )
        .await
    }

    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// Deletes the object of this UID; that it is gone already is success.
pub(crate) async fn delete<K>(
    step: Step,
    api: &Api<K>,
    name: &str,
    uid: &str,
    params: DeleteParams,
) -> Result<Effect, Refused>
where
    K: Clone + DeserializeOwned + Debug,
{
    let preconditions = Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    };
    let params = params.preconditions(preconditions);
    match within(step, api.delete(name, &params)).await {
        Err(Refused {
            fault: Fault::Api(error),
            ..
        }) if is_gone(&error) => Ok(Effect::Written),
        other => other.map(|_| Effect::Written),
    }
}

pub(crate) async fn guarded<T>(
    step: Step,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<Effect, Refused> {
    match within(step, call).await {
        Ok(_) => Ok(Effect::Written),
        Err(refused) => overtaken(refused),
    }
}

fn overtaken(refused: Refused) -> Result<Effect, Refused> {
    match &refused.fault {
        Fault::Api(error) if is_overtaken(error) => Ok(Effect::Overtaken),
        Fault::Api(_) | Fault::Late(_) | Fault::NotSynced => Err(refused),
    }
}

pub(crate) async fn within<T>(step: Step, call: impl Future<Output = kube::Result<T>>) -> Result<T, Refused> {
    let answer = tokio::time::timeout(LIMIT, call).await;
    let answer = answer
        .map_err(|_| Fault::Late(LIMIT))
        .and_then(|it| it.map_err(|e| Fault::Api(Box::new(e))));
    answer.map_err(|fault| Refused { step, fault })
}

pub(crate) fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(keys::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

#[cfg(test)]
#[path = "act_move_tests.rs"]
mod move_tests;
#[cfg(test)]
#[path = "act_tests.rs"]
mod tests;

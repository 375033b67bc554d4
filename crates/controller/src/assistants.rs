//! Tekton's assistants of a run: they leave a node with its placeholder, and follow with it.
//!
//! Tekton makes them for runs that mount a claim, unless its `coschedule` is disabled, and no task of an enrolled run
//! hangs on them; see `placement::inject`. But as long as one is on the old node the scheduler sends the tasks there.

use crate::act::{Door, Effect, delete, guarded, params, within};
use crate::members;
use crate::refusal::{Refused, Step};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, Patch};
use placement::placeholder::patches;
use placement::run::Run;
use serde::Deserialize;

#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = StatefulSet)]
#[serde(default)]
struct Assistant {
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    replicas: Option<i32>,
}

#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = Pod)]
#[serde(default)]
struct AssistantPod {
    metadata: ObjectMeta,
}

impl Door {
    /// Sends them away, at once: they have nothing to finish, and on a node that is silent nobody would end them.
    pub(crate) async fn dismiss_assistants(&self, run: &Run) -> Result<(), Refused> {
        self.scale_assistants(run, 1, 0).await?;
        let pods: Api<AssistantPod> = self.api(&run.key.namespace);
        let there = ListParams::default().labels(&members::assistants_of(&run.key));
        for pod in within(Step::Assistants, pods.list(&there)).await?.items {
            if let (Some(name), Some(uid)) = (&pod.metadata.name, &pod.metadata.uid) {
                let at_once = DeleteParams::default().grace_period(0);
                delete(Step::Assistants, &pods, name, uid, at_once).await?;
            }
        }
        Ok(())
    }

    /// Has them back; their own terms take them to where the run is.
    pub(crate) async fn recall_assistants(&self, run: &Run) -> Result<(), Refused> {
        self.scale_assistants(run, 0, 1).await
    }

    async fn scale_assistants(&self, run: &Run, from: i32, to: i32) -> Result<(), Refused> {
        let sets: Api<Assistant> = self.api(&run.key.namespace);
        let there = ListParams::default().labels(&members::assistants_of(&run.key));
        let listed = within(Step::Assistants, sets.list(&there)).await?;
        let to_scale = listed.items.iter().filter(|set| set.spec.replicas == Some(from));
        for set in to_scale {
            if let (Some(name), Some(uid)) = (&set.metadata.name, &set.metadata.uid) {
                let patch = Patch::Json::<()>(patches::scale(uid, from, to));
                let _: Effect = guarded(Step::Assistants, sets.patch(name, &params(), &patch)).await?;
            }
        }
        Ok(())
    }
}

//! Sends all writes of the controller, also those of events.
//!
//! Each request has a timeout, because a hanging request would block its run. A guarded write whose object has changed is not an
//! error: the cache is stale, and the watch of the changed object triggers the run again.

use crate::api_error::{Failure, StepError, is_gone, is_overtaken, is_permanent};
use crate::placeholders::WatchedStatefulSet;
use crate::pods::PodView;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource};
use placement::keys;
use placement::names::RunKey;
use placement::plan::{Observation, Step};
use placement::requests::{Object, Operation, Request, Verb};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fmt::Debug;
use std::time::Duration;
use tekton::PipelineRun;
use tekton::tasks::TaskRun;
use tokio::time::timeout;
use tracing::warn;

/// The timeout of a request. Two slow webhooks take less time, so that the API server's answer arrives first. The timeout and the
/// longest backoff together are less than a minute, so that a hanging request delays its run by less than a minute.
const TIMEOUT: Duration = Duration::from_secs(25);

/// How long the end of a run waits for the pod that keeps the node.
const KEEP_TIMEOUT: Duration = Duration::from_secs(2);

/// The result of a step that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// There was nothing to write.
    Nothing,
    /// The step waits for this pause before it is repeated.
    Paused(Duration),
    /// The objects are as the plan wants them.
    Written,
    /// Another writer changed the object first, so the controller plans again.
    Overtaken,
    /// The API server does not resize this pod in place.
    ResizeRefused,
}

/// Sends the controller's requests to the API server.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    image: String,
    /// Namespace of the installation.
    namespace: String,
}

impl Cluster {
    /// `image` is the image of the placeholders, `namespace` that of the installation.
    pub(crate) fn new(client: Client, image: String, namespace: String) -> Self {
        Self {
            client,
            image,
            namespace,
        }
    }

    /// Sends the requests of a step in order. Stops at a request for the run's own objects that has another effect than `Written`,
    /// because the decision is outdated then.
    pub(crate) async fn write(&self, observed: &Observation, step: &Step) -> Result<Effect, StepError> {
        let requests = step.actions.iter();
        for request in requests.flat_map(|action| action.requests(observed, &self.image)) {
            if matches!(request.object, Object::KeptNode(_)) {
                self.keep_node(&observed.run.key, &request).await;
                continue;
            }
            let effect = self.send(&observed.run.key, &request).await?;
            if effect != Effect::Written && request.object.is_own() {
                return Ok(effect);
            }
        }
        Ok(Effect::Written)
    }

    /// Creates the pod that keeps a node. A failure is only logged: the end of the run neither fails nor waits for it.
    async fn keep_node(&self, key: &RunKey, request: &Request) {
        let late = StepError {
            operation: request.operation,
            fault: Failure::Late(KEEP_TIMEOUT),
        };
        let sent = timeout(KEEP_TIMEOUT, self.send(key, request)).await;
        if let Err(error) = sent.unwrap_or(Err(late)) {
            warn!(run = %key, %error, "could not keep the node after the run");
        }
    }

    pub(crate) async fn send(&self, key: &RunKey, request: &Request) -> Result<Effect, StepError> {
        let (namespace, name) = (key.namespace.as_str(), request.object.name(key));
        let sent = match request.object {
            Object::Run => change(&self.api::<PipelineRun>(namespace), &name, request).await,
            Object::StatefulSet | Object::OtherStatefulSet(_) => {
                change(&self.api::<WatchedStatefulSet>(namespace), &name, request).await
            }
            Object::Pod | Object::OtherPod(_) => {
                change(&self.api::<PodView>(namespace), &name, request).await
            }
            Object::KeptNode(_) => change(&self.api::<PodView>(&self.namespace), &name, request).await,
            Object::TaskRun(_) => change(&self.api::<TaskRun>(namespace), &name, request).await,
        };
        match sent {
            Ok(()) => Ok(Effect::Written),
            Err(refused) => effect(&request.verb, refused),
        }
    }

    /// Creates an event, or increases the count of an existing event.
    pub(crate) async fn publish(&self, namespace: &str, event: &Event, count: i32) -> kube::Result<()> {
        let events: Api<Event> = self.api(namespace);
        match events.create(&PostParams::default(), event).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                count_up(&events, event, count).await
            }
            other => other.map(drop),
        }
    }

    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }
}

async fn change<K>(api: &Api<K>, name: &str, request: &Request) -> Result<(), StepError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let operation = request.operation;
    match &request.verb {
        Verb::Apply(set) => {
            let params = PatchParams::apply(keys::FIELD_MANAGER).force();
            with_timeout(operation, api.patch(name, &params, &Patch::Apply(set)))
                .await
                .map(drop)
        }
        Verb::Create { pod, names } => create_first(operation, api, pod, names).await,
        Verb::Json(patch) => send_patch(operation, api, name, &Patch::Json::<()>(patch.clone())).await,
        Verb::Merge(patch) => send_patch(operation, api, name, &Patch::Merge(patch)).await,
        Verb::Strategic(patch) => send_patch(operation, api, name, &Patch::Strategic(patch)).await,
        Verb::Resize(patch) => {
            let (params, patch) = (params(), Patch::Strategic(patch));
            with_timeout(operation, api.patch_subresource("resize", name, &params, &patch))
                .await
                .map(drop)
        }
        Verb::Delete { uid, at_once } => {
            let params = deletion(&request.object, uid, *at_once);
            with_timeout(operation, api.delete(name, &params)).await.map(drop)
        }
    }
}

/// Creates the pod with the first name that is free. Fails as the last creation failed.
async fn create_first<K>(
    operation: Operation,
    api: &Api<K>,
    pod: &Pod,
    names: &[String],
) -> Result<(), StepError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut pod = pod.clone();
    let mut result = Ok(());
    for name in names {
        pod.metadata.name = Some(name.clone());
        result = with_timeout(operation, create(api, &pod)).await;
        if !result.as_ref().is_err_and(is_taken) {
            break;
        }
    }
    result
}

async fn create<K>(api: &Api<K>, pod: &Pod) -> kube::Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let post = PostParams {
        field_manager: Some(keys::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let body = serde_json::to_vec(pod).map_err(kube::Error::SerdeError)?;
    let request = kube::core::Request::new(api.resource_url()).create(&post, body);
    let request = request.map_err(kube::Error::BuildRequest)?;
    api.clone().into_client().request::<K>(request).await.map(drop)
}

/// Whether an object with the name exists.
fn is_taken(refused: &StepError) -> bool {
    matches!(&refused.fault, Failure::Api(error) if matches!(&**error, kube::Error::Api(status) if status.is_already_exists()))
}

async fn send_patch<K, P>(
    operation: Operation,
    api: &Api<K>,
    name: &str,
    patch: &Patch<P>,
) -> Result<(), StepError>
where
    K: Clone + DeserializeOwned + Debug,
    P: Serialize + Debug,
{
    with_timeout(operation, api.patch(name, &params(), patch))
        .await
        .map(drop)
}

/// The effect of a failed request. A delete has succeeded if the object no longer exists. A failed apply is never overtaken,
/// because another leader applies the same placeholder.
fn effect(verb: &Verb, refused: StepError) -> Result<Effect, StepError> {
    let Failure::Api(error) = &refused.fault else {
        return Err(refused);
    };
    let effect = match verb {
        Verb::Apply(_) => None,
        Verb::Create { .. } => is_taken(&refused).then_some(Effect::Overtaken),
        Verb::Delete { .. } => is_gone(error).then_some(Effect::Written),
        Verb::Resize(_) if is_permanent(error) => Some(Effect::ResizeRefused),
        Verb::Json(_) | Verb::Merge(_) | Verb::Strategic(_) | Verb::Resize(_) => {
            is_overtaken(error).then_some(Effect::Overtaken)
        }
    };
    effect.ok_or(refused)
}

/// Deletes only the object with this UID. The garbage collector then deletes the pod of a StatefulSet.
fn deletion(object: &Object, uid: &str, at_once: bool) -> DeleteParams {
    let params = match object {
        Object::StatefulSet | Object::OtherStatefulSet(_) => DeleteParams::background(),
        Object::Run | Object::Pod | Object::OtherPod(_) | Object::TaskRun(_) | Object::KeptNode(_) => {
            DeleteParams::default()
        }
    };
    let params = params.preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    });
    if at_once { params.grace_period(0) } else { params }
}

async fn count_up(events: &Api<Event>, event: &Event, count: i32) -> kube::Result<()> {
    // A series starts at 2, because the existing event is the first occurrence.
    let series = event.event_time.clone().map(|at| EventSeries {
        count: count.max(2),
        last_observed_time: at,
    });
    let name = event.metadata.name.as_deref().unwrap_or_default();
    let patch = Patch::Merge(json!({"series": series}));
    events
        .patch(name, &PatchParams::default(), &patch)
        .await
        .map(drop)
}

/// Sends a request with the timeout.
pub(crate) async fn with_timeout<T>(
    operation: Operation,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, StepError> {
    let answer = timeout(TIMEOUT, call).await;
    let answer = answer
        .map_err(|_| Failure::Late(TIMEOUT))
        .and_then(|it| it.map_err(|e| Failure::Api(Box::new(e))));
    answer.map_err(|fault| StepError { operation, fault })
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(keys::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

#[cfg(test)]
mod move_tests;
#[cfg(test)]
mod tests;

//! Reads the objects of a [`Snapshot`]. Independent reads run at the same time, because each waits for its own answer.

use super::installation::is_stale;
use super::manifests::{self, Right};
use super::pre::PreSnapshot;
use super::rights::Review;
use super::trial::{self, OtherMutators, Trial};
use super::{Installation, Platform, Snapshot, config_of, placeholder, platform};
use crate::admission::{Admission, Compared, Mechanism, Policy};
use crate::gather::{is_waiting_task, placeholders};
use crate::requests::{RequestAttributes, RequestError, RequestResult, ResourceClient, Server};
use crate::view::{PipelineRun, RunView};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use kube::Resource;
use kube::api::{ApiResource, GroupVersionKind, ListParams};
use placement::coschedule::FEATURE_FLAGS;
use placement::keys;
use runtime::install;
use runtime::tekton_namespace::{self, RunDefinition};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;
use std::time::Duration;
use tokio::join;

/// Requests of one kind at a time.
const AT_ONCE: usize = 8;
/// The time between two reads of the Lease, in which a leader renews it twice.
const RENEWAL: Duration = Duration::from_secs(5);
const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";

/// Reads an installation. The dry runs are made in the namespace `trial`.
pub(crate) async fn snapshot(
    server: &Server,
    namespace: String,
    tekton: Option<String>,
    trial: String,
) -> RequestResult<Snapshot> {
    let now = server.clock().await?;
    let labelled = || ListParams::default().labels(keys::OPT_IN);
    let pending = ListParams::default()
        .labels(keys::GROUP)
        .fields("status.phase=Pending");
    let (runs, namespaces) = (server.reach::<PipelineRun>(None), server.cluster::<Namespace>());
    let (installation, trial, rights, (sets, placeholders), waiting) = join!(
        Box::pin(installation(server, namespace.clone(), tekton)),
        Box::pin(self::trial(server, trial)),
        rights(server, &namespace, manifests::rights(), Subject::ServiceAccounts),
        placeholders(server, None),
        list::<Pod>(server, pending),
    );
    let (lease, secret, config, runs, quotas, limits, namespaces) = join!(
        get(server, &namespace, install::CONTROLLER_LEASE),
        get(server, &namespace, install::CERTIFICATE_SECRET),
        get(server, &namespace, install::CONFIG_MAP),
        runs.collect(labelled(), |run| RunView::of(&run)),
        list(server, ListParams::default()),
        list(server, ListParams::default()),
        namespaces.list(labelled()),
    );
    let snapshot = Snapshot {
        now,
        installation,
        lease,
        renewed: false,
        secret,
        config,
        trial,
        rights,
        runs,
        sets,
        placeholders,
        waiting: waiting.map(|pods| pods.into_iter().filter(is_waiting_task).collect()),
        quotas,
        limits,
        namespaces,
        nodes: None,
    };
    Ok(Box::pin(completed(server, snapshot)).await)
}

/// Reads what depends on the first reads.
async fn completed(server: &Server, snapshot: Snapshot) -> Snapshot {
    let (renewed, nodes) = join!(is_renewed(server, &snapshot), nodes(server, &snapshot));
    Snapshot {
        renewed,
        nodes,
        ..snapshot
    }
}

/// Large clusters have many nodes, so nodes are read only for a configuration whose effect depends on them.
async fn nodes(server: &Server, snapshot: &Snapshot) -> Option<RequestResult<Vec<Node>>> {
    let nodes = server.cluster::<Node>();
    if snapshot.config().pull_images {
        Some(nodes.list(ListParams::default()).await)
    } else {
        None
    }
}

/// Reads the cluster before an installation, and the rights of the user who installs. The dry runs are made in the namespace `trial`.
pub(crate) async fn pre(
    server: &Server,
    namespace: String,
    tekton: Option<String>,
    trial: String,
) -> RequestResult<PreSnapshot> {
    // An API server that does not answer is an error, and not a list of findings.
    server.clock().await?;
    let installation = Box::pin(installation(server, namespace, tekton)).await;
    let namespace = &installation.namespace;
    let mechanism = installation.admission.mechanism();
    let mechanism = mechanism.unwrap_or_else(|| platform::recommended(&installation.platform));
    let config = get::<ConfigMap>(server, namespace, install::CONFIG_MAP).await;
    let config = config_of(&config);
    let (creates, grants, placeholder) = join!(
        rights(server, namespace, manifests::installing(mechanism), Subject::User),
        grants(server, namespace, mechanism),
        placeholder::read(server, trial, &config)
    );
    Ok(PreSnapshot {
        installation,
        creates,
        grants,
        placeholder,
    })
}

/// The rights that the user needs to grant those of the manifests: Kubernetes lets a user grant only rights that the user has,
/// unless the user has the verbs `escalate` and `bind`.
async fn grants(server: &Server, namespace: &str, mechanism: Mechanism) -> RequestResult<Vec<Review>> {
    let free = rights(server, namespace, manifests::granting(mechanism), Subject::User).await?;
    if free.iter().all(|review| review.allowed) {
        return Ok(Vec::new());
    }
    let mut granted = manifests::rights();
    granted.retain(|right| mechanism != Mechanism::Policies || !right.is_for_webhook());
    rights(server, namespace, granted, Subject::User).await
}

async fn get<K>(server: &Server, namespace: &str, name: &str) -> RequestResult<Option<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    server.within(namespace).get(name).await
}

/// The objects of all namespaces.
async fn list<K>(server: &Server, params: ListParams) -> RequestResult<Vec<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    server.reach(None).list(params).await
}

async fn installation(server: &Server, namespace: String, tekton: Option<String>) -> Installation {
    let namespaces = server.cluster::<Namespace>();
    let all = server.within::<Deployment>(&namespace);
    let (platform, found, deployments, admission) = join!(
        platform(server, tekton),
        namespaces.get(&namespace),
        all.list(ListParams::default()),
        admission(server, &namespace)
    );
    Installation {
        platform,
        namespace,
        found,
        deployments,
        admission,
    }
}

/// The namespace of Tekton in the definition of PipelineRuns. Without the right to read the definition, Tekton's default.
pub(crate) async fn tekton_namespace(server: &Server) -> String {
    let definitions = server.cluster::<RunDefinition>();
    let definition = definitions.get(tekton_namespace::DEFINITION).await.ok().flatten();
    let namespace = definition.and_then(RunDefinition::namespace);
    namespace.unwrap_or_else(|| tekton_namespace::DEFAULT.to_owned())
}

async fn platform(server: &Server, tekton_namespace: Option<String>) -> Platform {
    let tekton_namespace = match tekton_namespace {
        Some(named) => named,
        None => self::tekton_namespace(server).await,
    };
    let runs = server.reach::<PipelineRun>(None).attributes("list", None);
    let policies = server.cluster_of(&admission_kind("MutatingAdmissionPolicy"));
    let policies = policies.attributes("list", None);
    let policy_group = format!("{ADMISSION_GROUP}/v1");
    let (kubernetes, serves_runs, serves_policies, tekton, flags) = join!(
        kubernetes(server),
        serves(server, runs, "tekton.dev/v1", "pipelineruns"),
        serves(server, policies, &policy_group, "mutatingadmissionpolicies"),
        get::<ConfigMap>(server, &tekton_namespace, "pipelines-info"),
        get::<ConfigMap>(server, &tekton_namespace, FEATURE_FLAGS)
    );
    Platform {
        kubernetes,
        serves_runs,
        serves_policies,
        tekton_namespace,
        tekton,
        flags,
    }
}

async fn kubernetes(server: &Server) -> RequestResult<String> {
    let mut attributes = server.cluster::<Namespace>().attributes("get", None);
    "/version".clone_into(&mut attributes.resource);
    let info = server
        .answer(attributes, server.client.apiserver_version())
        .await?;
    Ok(info.git_version)
}

/// Whether the API server serves a kind. This needs no right to the objects of the kind.
async fn serves(
    server: &Server,
    attributes: RequestAttributes,
    version: &str,
    resource: &str,
) -> RequestResult<()> {
    let call = server.client.list_api_group_resources(version);
    let known = server.answer(attributes.clone(), call).await?;
    let is_served = known.resources.iter().any(|it| it.name == resource);
    is_served.then_some(()).ok_or(RequestError::NotServed(attributes))
}

/// Reads the webhook configurations and the policies. Usually an installation has only one of the two kinds.
pub(crate) async fn admission(server: &Server, namespace: &str) -> Admission {
    let configurations = server.cluster::<MutatingWebhookConfiguration>();
    let policies = stream::iter(manifests::policies(namespace)).map(|release| async move {
        let found = policy(server, &release).await;
        Compared { release, found }
    });
    let (runs, pods, policies) = join!(
        configurations.get(install::PIPELINE_RUN_WEBHOOK),
        configurations.get(install::POD_WEBHOOK),
        policies.buffered(AT_ONCE).collect()
    );
    Admission {
        webhooks: vec![
            (install::PIPELINE_RUN_WEBHOOK, runs),
            (install::POD_WEBHOOK, pods),
        ],
        policies,
    }
}

async fn policy(server: &Server, release: &Policy) -> RequestResult<Option<Value>> {
    let place = server.cluster_of(&admission_kind(&release.kind));
    let found = place.get(&release.metadata.name).await?;
    Ok(found.map(|object| object.data))
}

/// The resource of a kind in the API group for admission.
pub(crate) fn admission_kind(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(ADMISSION_GROUP, "v1", kind))
}

async fn trial(server: &Server, namespace: String) -> Trial {
    let runs = server.within::<PipelineRun>(&namespace);
    let pods = server.within::<Pod>(&namespace);
    let (run, pod) = (trial::run(), trial::pod());
    let (run, pod) = join!(runs.dry_create(&run), pods.dry_create(&pod));
    let others = match &pod {
        Ok(pod) if !trial::has_terms(pod) => other_mutators(server, &pods).await,
        Ok(_) | Err(_) => None,
    };
    Trial {
        namespace,
        run,
        pod,
        others,
    }
}

/// `None` if nothing shows that pod-affinity changed the pod.
async fn other_mutators(server: &Server, pods: &ResourceClient<Pod>) -> Option<OtherMutators> {
    let pod = pods.dry_create(&trial::pod_to_mark()).await.ok();
    pod.filter(trial::is_marked)?;
    let webhooks = server.cluster::<MutatingWebhookConfiguration>();
    let policies = server.cluster_of(&admission_kind("MutatingAdmissionPolicy"));
    let (webhooks, policies) = join!(
        webhooks.list(ListParams::default()),
        policies.list(ListParams::default())
    );
    Some(OtherMutators::new(webhooks, policies))
}

/// Whose rights the API server reviews.
#[derive(Clone, Copy)]
enum Subject {
    User,
    ServiceAccounts,
}

async fn rights(
    server: &Server,
    namespace: &str,
    rights: Vec<Right>,
    subject: Subject,
) -> RequestResult<Vec<Review>> {
    let reviews = stream::iter(rights).map(|right| async move {
        let allowed = is_allowed(server, namespace, &right, subject).await?;
        Ok(Review { right, allowed })
    });
    reviews.buffered(AT_ONCE).try_collect().await
}

async fn is_allowed(
    server: &Server,
    namespace: &str,
    right: &Right,
    subject: Subject,
) -> RequestResult<bool> {
    let resource_attributes = Some(attributes(namespace, right));
    let status = match subject {
        Subject::User => {
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec {
                    resource_attributes,
                    ..SelfSubjectAccessReviewSpec::default()
                },
                ..SelfSubjectAccessReview::default()
            };
            server.cluster().create(&review).await?.status
        }
        Subject::ServiceAccounts => {
            let groups = [
                "serviceaccounts",
                &format!("serviceaccounts:{namespace}"),
                "authenticated",
            ];
            let review = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    user: Some(format!("system:serviceaccount:{namespace}:{}", right.account)),
                    groups: Some(groups.map(|group| format!("system:{group}")).into()),
                    resource_attributes,
                    ..SubjectAccessReviewSpec::default()
                },
                ..SubjectAccessReview::default()
            };
            server.cluster().create(&review).await?.status
        }
    };
    Ok(status.is_some_and(|status| status.allowed))
}

fn attributes(namespace: &str, right: &Right) -> ResourceAttributes {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (right.resource.as_str(), None),
    };
    ResourceAttributes {
        group: Some(right.group.clone()),
        resource: Some(resource.to_owned()),
        subresource,
        verb: Some(right.verb.clone()),
        name: right.name.clone(),
        namespace: right.namespaced.then(|| namespace.to_owned()),
        ..ResourceAttributes::default()
    }
}

/// Reads a Lease that looks stale a second time: its times are from the holder's clock, which may be wrong.
async fn is_renewed(server: &Server, snapshot: &Snapshot) -> bool {
    let lease = snapshot.lease.as_ref().ok().and_then(Option::as_ref);
    let before = lease.and_then(|lease| lease.spec.clone()).unwrap_or_default();
    if before.holder_identity.is_none() || !is_stale(&before, snapshot) {
        return false;
    }
    tokio::time::sleep(RENEWAL).await;
    let after = get::<Lease>(
        server,
        &snapshot.installation.namespace,
        install::CONTROLLER_LEASE,
    )
    .await;
    let after = after.ok().flatten().and_then(|lease| lease.spec);
    after.is_some_and(|after| after.renew_time != before.renew_time)
}

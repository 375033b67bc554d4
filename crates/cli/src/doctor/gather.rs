//! Looks at everything that the findings need. Questions only, no judgement; all at once, since each waits by itself.

use super::leader::is_stale;
use super::manifests::{self, Policy, Right};
use super::rights::Answer;
use super::{Exam, Platform, Pre, Scope, Suspects, policies, trial};
use crate::admission::{Admission, Compared};
use crate::ask::{Gap, Place, Question, Seen, Server};
use crate::gather::{is_waiting_task, placeholders};
use crate::view::PipelineRun;
use crate::way::Way;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, Namespace, Pod, ResourceQuota, Secret};
use kube::api::{ApiResource, GroupVersionKind, ListParams};
use placement::keys;
use process::install;
use serde_json::Value;
use std::time::Duration;
use tokio::join;

/// Rights that are asked for at a time.
const AT_ONCE: usize = 8;
/// A leader renews every two seconds.
const SECOND_LOOK: Duration = Duration::from_secs(5);

/// Looks at all of it.
pub(crate) async fn exam(server: &Server, scope: Scope, tekton: String) -> Seen<Exam> {
    let now = server.clock().await?;
    let own = &scope.namespace;
    let (installed, admission, tried, runs) = join!(
        installed(server, own),
        admission(server, own),
        tried(server, &scope.trial),
        runs(server)
    );
    let (quotas, ranges) = (
        server.reach::<ResourceQuota>(None),
        server.reach::<LimitRange>(None),
    );
    let (platform, namespaces, rights, quotas, limits) = join!(
        platform(server, tekton),
        labelled_namespaces(server),
        rights(server, own, manifests::rights()),
        quotas.list(ListParams::default()),
        ranges.list(ListParams::default())
    );
    let mut exam = Exam {
        now,
        platform,
        rights,
        namespace: installed.namespace,
        deployments: installed.deployments,
        lease: installed.lease,
        renewed: false,
        admission,
        secret: installed.secret,
        config: installed.config,
        trial_run: tried.run,
        trial_pod: tried.pod,
        suspects: tried.suspects,
        runs: runs.all,
        sets: runs.sets,
        pods: runs.pods,
        waiting: runs.waiting,
        quotas,
        limits,
        namespaces,
        scope,
    };
    exam.renewed = renewed(server, &exam).await;
    Ok(exam)
}

async fn labelled_namespaces(server: &Server) -> Seen<Vec<Namespace>> {
    let labelled = ListParams::default().labels(keys::OPT_IN);
    server.cluster::<Namespace>().list(labelled).await
}

/// Looks at what there is before an installation, and at what the user may do to it.
pub(crate) async fn pre(server: &Server, namespace: String, tekton: String) -> Seen<Pre> {
    // Whether the API server answers at all is told first.
    server.clock().await?;
    let (spaces, deployments) = (
        server.cluster::<Namespace>(),
        server.within::<Deployment>(&namespace),
    );
    let (platform, found, deployments, admission) = join!(
        platform(server, tekton),
        spaces.get(&namespace),
        deployments.list(ListParams::default()),
        admission(server, &namespace)
    );
    let way = admission.way().unwrap_or_else(|| policies::choice(&platform));
    let (creates, grants) = join!(
        own_rights(server, &namespace, manifests::installing(way)),
        grants(server, &namespace, way)
    );
    Ok(Pre {
        platform,
        namespace,
        found,
        deployments,
        admission,
        creates,
        grants,
    })
}

/// Kubernetes lets a user give only rights that the user has, or that the verbs `escalate` and `bind` cover.
async fn grants(server: &Server, namespace: &str, way: Way) -> Seen<Vec<Answer>> {
    let free = own_rights(server, namespace, manifests::granting(way)).await?;
    if free.iter().all(|answer| answer.allowed) {
        return Ok(Vec::new());
    }
    let mut given = manifests::rights();
    given.retain(|right| way != Way::Policies || !right.is_for_webhook());
    own_rights(server, namespace, given).await
}

async fn platform(server: &Server, tekton: String) -> Platform {
    let maps = server.within::<ConfigMap>(&tekton);
    let runs = server.reach::<PipelineRun>(None).question("list", None);
    let policies = server.cluster_of(&policy_kind("MutatingAdmissionPolicy"));
    let policies = policies.question("list", None);
    let (kubernetes, serves_runs, serves_policies, info, flags) = join!(
        kubernetes(server),
        serves(server, runs, "tekton.dev/v1", "pipelineruns"),
        serves(
            server,
            policies,
            "admissionregistration.k8s.io/v1",
            "mutatingadmissionpolicies"
        ),
        maps.get("pipelines-info"),
        maps.get("feature-flags")
    );
    Platform {
        kubernetes,
        serves_runs,
        serves_policies,
        tekton_namespace: tekton,
        tekton: info,
        flags,
    }
}

/// Whether the API server knows a kind, without a right to its objects.
async fn serves(server: &Server, question: Question, version: &str, resource: &str) -> Seen<()> {
    let call = server.client.list_api_group_resources(version);
    let known = server.answer(question.clone(), call).await?;
    let is_there = known.resources.iter().any(|it| it.name == resource);
    if is_there {
        Ok(())
    } else {
        Err(Gap::NotServed(question))
    }
}

struct Installed {
    namespace: Seen<Option<Namespace>>,
    deployments: Seen<Vec<Deployment>>,
    lease: Seen<Option<Lease>>,
    secret: Seen<Option<Secret>>,
    config: Seen<Option<ConfigMap>>,
}

async fn installed(server: &Server, own: &str) -> Installed {
    let maps = server.within::<ConfigMap>(own);
    let spaces = server.cluster::<Namespace>();
    let deployments = server.within::<Deployment>(own);
    let leases = server.within::<Lease>(own);
    let secrets = server.within::<Secret>(own);
    let (namespace, deployments, lease, secret, config) = join!(
        spaces.get(own),
        deployments.list(ListParams::default()),
        leases.get(install::CONTROLLER_LEASE),
        secrets.get(install::CERTIFICATE_SECRET),
        maps.get(install::CONFIG_MAP)
    );
    Installed {
        namespace,
        deployments,
        lease,
        secret,
        config,
    }
}

/// Looks at the webhook configurations and at the policies, of which one kind is usually not there.
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

async fn policy(server: &Server, release: &Policy) -> Seen<Option<Value>> {
    let place = server.cluster_of(&policy_kind(&release.kind));
    let found = place.get(&release.metadata.name).await?;
    Ok(found.map(|mut object| object.data["spec"].take()))
}

/// A kind of policies or bindings.
pub(crate) fn policy_kind(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind))
}

struct Tried {
    run: Seen<PipelineRun>,
    pod: Seen<Pod>,
    suspects: Option<Suspects>,
}

async fn tried(server: &Server, namespace: &str) -> Tried {
    let runs = server.within::<PipelineRun>(namespace);
    let pods = server.within::<Pod>(namespace);
    let (run, pod) = (trial::run(), trial::pod());
    let (run, pod) = join!(runs.dry_create(&run), pods.dry_create(&pod));
    let suspects = match &pod {
        Ok(pod) if !trial::has_terms(pod) => suspects(server, &pods).await,
        Ok(_) | Err(_) => None,
    };
    Tried { run, pod, suspects }
}

/// What else changes pods; `None` if pod-affinity was not asked about a pod at all, as far as that shows.
async fn suspects(server: &Server, pods: &Place<Pod>) -> Option<Suspects> {
    let pod = pods.dry_create(&trial::pod_to_mark()).await.ok();
    pod.filter(trial::is_marked)?;
    let webhooks = server.cluster::<MutatingWebhookConfiguration>();
    let policies = server.cluster_of(&policy_kind("MutatingAdmissionPolicy"));
    let all = ListParams::default;
    let (webhooks, policies) = join!(webhooks.list(all()), policies.list(all()));
    Some(Suspects::of(webhooks, policies))
}

struct Labelled {
    all: Seen<Vec<PipelineRun>>,
    sets: Seen<Vec<k8s_openapi::api::apps::v1::StatefulSet>>,
    pods: Seen<Vec<Pod>>,
    waiting: Seen<Vec<Pod>>,
}

async fn runs(server: &Server) -> Labelled {
    let labelled = ListParams::default().labels(keys::OPT_IN);
    let pending = ListParams::default()
        .labels(keys::GROUP)
        .fields("status.phase=Pending");
    let (runs, pods) = (server.reach::<PipelineRun>(None), server.reach::<Pod>(None));
    let (runs, (sets, placeholders), waiting) = join!(
        runs.list(labelled),
        placeholders(server, None),
        pods.list(pending)
    );
    Labelled {
        all: runs,
        sets,
        pods: placeholders,
        waiting: waiting.map(|pods| pods.into_iter().filter(is_waiting_task).collect()),
    }
}

async fn kubernetes(server: &Server) -> Seen<String> {
    let mut question = server.cluster::<Namespace>().question("get", None);
    "/version".clone_into(&mut question.resource);
    let info = server.answer(question, server.client.apiserver_version()).await?;
    Ok(info.git_version)
}

/// What our accounts may do.
async fn rights(server: &Server, namespace: &str, rights: Vec<Right>) -> Seen<Vec<Answer>> {
    stream::iter(rights)
        .map(|right| async move {
            let reviews = server.cluster::<SubjectAccessReview>();
            let review = reviews.create(&review(namespace, &right)).await?;
            let allowed = review.status.is_some_and(|status| status.allowed);
            Ok(Answer { right, allowed })
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

/// What the user may do.
async fn own_rights(server: &Server, namespace: &str, rights: Vec<Right>) -> Seen<Vec<Answer>> {
    stream::iter(rights)
        .map(|right| async move {
            let reviews = server.cluster::<SelfSubjectAccessReview>();
            let review = reviews.create(&own_review(namespace, &right)).await?;
            let allowed = review.status.is_some_and(|status| status.allowed);
            Ok(Answer { right, allowed })
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

fn review(namespace: &str, right: &Right) -> SubjectAccessReview {
    let accounts = "system:serviceaccounts";
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{}", right.account)),
            groups: Some(vec![
                accounts.to_owned(),
                format!("{accounts}:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(attributes(namespace, right)),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

fn own_review(namespace: &str, right: &Right) -> SelfSubjectAccessReview {
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes(namespace, right)),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    }
}

fn attributes(namespace: &str, right: &Right) -> ResourceAttributes {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, sub)) => (resource.to_owned(), Some(sub.to_owned())),
        None => (right.resource.clone(), None),
    };
    ResourceAttributes {
        group: Some(right.group.clone()),
        resource: Some(resource),
        subresource,
        verb: Some(right.verb.clone()),
        name: right.name.clone(),
        namespace: right.namespaced.then(|| namespace.to_owned()),
        ..ResourceAttributes::default()
    }
}

/// Times in a Lease are its holder's: where they look old, it is looked at again, since that clock may be wrong.
async fn renewed(server: &Server, exam: &Exam) -> bool {
    let Ok(Some(lease)) = &exam.lease else {
        return false;
    };
    let before = lease.spec.clone().unwrap_or_default();
    if before.holder_identity.is_none() || !is_stale(exam, &before) {
        return false;
    }
    tokio::time::sleep(SECOND_LOOK).await;
    let leases = server.within::<Lease>(&exam.scope.namespace);
    let after = leases.get(install::CONTROLLER_LEASE).await.ok().flatten();
    after
        .and_then(|lease| lease.spec)
        .is_some_and(|after| after.renew_time != before.renew_time)
}

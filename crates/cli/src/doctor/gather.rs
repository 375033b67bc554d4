//! Looks at everything that the findings need. Questions only, no judgement; all at once, since each waits by itself.

use super::leader::is_stale;
use super::manifests::{self, Right};
use super::rights::Answer;
use super::{Exam, Scope, trial};
use crate::ask::{Seen, Server};
use crate::gather::{is_waiting_task, placeholders};
use crate::view::PipelineRun;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, Namespace, Pod, ResourceQuota, Secret};
use kube::api::{ListParams, PostParams};
use placement::keys;
use std::time::Duration;
use tokio::join;

/// Rights that are asked for at a time.
const AT_ONCE: usize = 8;
/// A leader renews every two seconds.
const SECOND_LOOK: Duration = Duration::from_secs(5);

/// Looks at all of it.
pub(crate) async fn exam(server: &Server, scope: Scope) -> Seen<Exam> {
    let now = server.clock().await?;
    let own = &scope.namespace;
    let (installed, admission, tried, runs) = join!(
        installed(server, &scope),
        admission(server),
        tried(server, &scope.trial),
        runs(server)
    );
    let (quotas, ranges) = (
        server.reach::<ResourceQuota>(None),
        server.reach::<LimitRange>(None),
    );
    let (kubernetes, rights, quotas, limits) = join!(
        kubernetes(server),
        rights(server, own),
        quotas.list(ListParams::default()),
        ranges.list(ListParams::default())
    );
    let mut exam = Exam {
        now,
        kubernetes,
        rights,
        tekton: installed.tekton,
        flags: installed.flags,
        namespace: installed.namespace,
        deployments: installed.deployments,
        lease: installed.lease,
        renewed: false,
        webhooks: admission,
        secret: installed.secret,
        config: installed.config,
        trial_run: tried.0,
        trial_pod: tried.1,
        runs: runs.all,
        sets: runs.sets,
        pods: runs.pods,
        waiting: runs.waiting,
        quotas,
        limits,
        scope,
    };
    exam.renewed = renewed(server, &exam).await;
    Ok(exam)
}

struct Installed {
    tekton: Seen<Option<ConfigMap>>,
    flags: Seen<Option<ConfigMap>>,
    namespace: Seen<Option<Namespace>>,
    deployments: Seen<Vec<Deployment>>,
    lease: Seen<Option<Lease>>,
    secret: Seen<Option<Secret>>,
    config: Seen<Option<ConfigMap>>,
}

async fn installed(server: &Server, scope: &Scope) -> Installed {
    let tekton = server.within::<ConfigMap>(&scope.tekton);
    let maps = server.within::<ConfigMap>(&scope.namespace);
    let spaces = server.cluster::<Namespace>();
    let deployments = server.within::<Deployment>(&scope.namespace);
    let leases = server.within::<Lease>(&scope.namespace);
    let secrets = server.within::<Secret>(&scope.namespace);
    let (info, flags, namespace, deployments, lease, secret, config) = join!(
        tekton.get("pipelines-info"),
        tekton.get("feature-flags"),
        spaces.get(&scope.namespace),
        deployments.list(ListParams::default()),
        leases.get(keys::CONTROLLER_LEASE),
        secrets.get(keys::CERTIFICATE_SECRET),
        maps.get(keys::CONFIG_MAP)
    );
    Installed {
        tekton: info,
        flags,
        namespace,
        deployments,
        lease,
        secret,
        config,
    }
}

async fn admission(server: &Server) -> Vec<(&'static str, Seen<Option<MutatingWebhookConfiguration>>)> {
    let configurations = server.cluster::<MutatingWebhookConfiguration>();
    let (runs, pods) = join!(
        configurations.get(keys::PIPELINE_RUN_WEBHOOK),
        configurations.get(keys::POD_WEBHOOK)
    );
    vec![(keys::PIPELINE_RUN_WEBHOOK, runs), (keys::POD_WEBHOOK, pods)]
}

async fn tried(server: &Server, namespace: &str) -> (Seen<PipelineRun>, Seen<Pod>) {
    let runs = server.within::<PipelineRun>(namespace);
    let pods = server.within::<Pod>(namespace);
    let (run, pod) = (trial::run(), trial::pod());
    join!(runs.dry_create(&run), pods.dry_create(&pod))
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

async fn rights(server: &Server, namespace: &str) -> Seen<Vec<Answer>> {
    stream::iter(manifests::rights())
        .map(|right| has(server, namespace, right))
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

async fn has(server: &Server, namespace: &str, right: Right) -> Seen<Answer> {
    let reviews = server.cluster::<SubjectAccessReview>();
    let question = reviews.question("create", None);
    let (api, params) = (reviews.api(), PostParams::default());
    let review = review(namespace, &right);
    let answer = server.answer(question, api.create(&params, &review)).await?;
    Ok(Answer {
        right,
        allowed: answer.status.is_some_and(|status| status.allowed),
    })
}

fn review(namespace: &str, right: &Right) -> SubjectAccessReview {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, sub)) => (resource.to_owned(), Some(sub.to_owned())),
        None => (right.resource.clone(), None),
    };
    let accounts = "system:serviceaccounts";
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{}", right.account)),
            groups: Some(vec![
                accounts.to_owned(),
                format!("{accounts}:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(ResourceAttributes {
                group: Some(right.group.clone()),
                resource: Some(resource),
                subresource,
                verb: Some(right.verb.clone()),
                name: right.name.clone(),
                namespace: right.namespaced.then(|| namespace.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
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
    let after = leases.get(keys::CONTROLLER_LEASE).await.ok().flatten();
    after
        .and_then(|lease| lease.spec)
        .is_some_and(|after| after.renew_time != before.renew_time)
}

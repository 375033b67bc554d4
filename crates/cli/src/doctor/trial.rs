//! Do the webhooks work? Tried by creating a run and a pod without creating them.

use super::{Exam, Finding};
use crate::ask::{Gap, Seen};
use crate::view::PipelineRun;
use k8s_openapi::api::core::v1::{Affinity, Pod};
use kube::ResourceExt;
use placement::keys;
use placement::names::Group;
use placement::strategy::{Isolation, Strategy};
use placement::terms::{Terms, terms};
use serde_json::json;

const CHECK: &str = "webhook";
const NAME: &str = "pod-affinity-doctor";

/// A labelled run; with `generateName`, since one of the same name may exist.
pub(super) fn run() -> PipelineRun {
    PipelineRun {
        api_version: "tekton.dev/v1".to_owned(),
        kind: "PipelineRun".to_owned(),
        metadata: kube::api::ObjectMeta {
            generate_name: Some(format!("{NAME}-")),
            labels: Some([(keys::OPT_IN.to_owned(), "true".to_owned())].into()),
            ..kube::api::ObjectMeta::default()
        },
        spec: json!({"pipelineRef": {"name": NAME}}),
        status: json!({}),
    }
}

/// A pod of an enrolled run, which Pod Security restricted lets in.
pub(super) fn pod() -> Pod {
    let pod = json!({
        "metadata": {
            "generateName": format!("{NAME}-"),
            "labels": {keys::GROUP: NAME, keys::STRATEGY: Strategy::default().as_str(), keys::ISOLATION: Isolation::default().as_str()},
        },
        "spec": {
            "automountServiceAccountToken": false,
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "doctor",
                "image": "pod-affinity.invalid/doctor",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "resources": {
                    "requests": {"cpu": "1m", "memory": "4Mi"},
                    "limits": {"cpu": "10m", "memory": "16Mi"},
                },
            }],
        },
    });
    serde_json::from_value(pod).unwrap_or_default()
}

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    vec![
        judged(
            exam,
            &exam.trial_run,
            keys::PIPELINE_RUN_WEBHOOK,
            is_held,
            [
                "A labelled PipelineRun is held when it is created (dry run).",
                "A labelled PipelineRun is not held",
            ],
        ),
        judged(
            exam,
            &exam.trial_pod,
            keys::POD_WEBHOOK,
            has_terms,
            [
                "A pod of a labelled run gets its affinity when it is created (dry run).",
                "A pod of a labelled run gets no affinity",
            ],
        ),
    ]
}

fn judged<K>(
    exam: &Exam,
    tried: &Seen<K>,
    webhook: &str,
    is_as_it_should: impl Fn(&K) -> bool,
    [well, ill]: [&str; 2],
) -> Finding {
    match tried {
        Ok(object) if is_as_it_should(object) => Finding::ok(CHECK, well),
        Ok(_) => Finding::bad(
            CHECK,
            format!(
                "{ill} (dry run in namespace {}): the API server does not ask {webhook}.",
                exam.scope.trial
            ),
            "Apply the release's manifests again; a changed webhook configuration takes some seconds.",
        ),
        Err(Gap::Failed(_, words)) if words.contains(webhook) => unreachable(exam, words),
        Err(Gap::Failed(_, words)) => Finding::warning(
            CHECK,
            format!("{webhook} could not be tried, since something else refuses the dry run: {words}"),
            "Try in another namespace with -n.",
        ),
        Err(gap) => Finding::unseen(CHECK, gap),
    }
}

fn unreachable(exam: &Exam, words: &str) -> Finding {
    Finding::bad(
        CHECK,
        format!("The API server cannot use the webhook: {words}"),
        format!(
            "See the pods and the log of `deployment/{}` in namespace {}, and the findings on its certificate.",
            keys::WEBHOOK_SERVICE,
            exam.scope.namespace
        ),
    )
}

fn is_held(run: &PipelineRun) -> bool {
    run.spec["status"] == keys::PENDING && run.annotations().contains_key(keys::HOLD)
}

fn has_terms(pod: &Pod) -> bool {
    let affinity = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.affinity.clone())
        .unwrap_or_default();
    let wanted = terms(&Group::of(NAME), Strategy::default(), Isolation::default());
    has_both(&affinity, &wanted)
}

fn has_both(affinity: &Affinity, wanted: &Terms) -> bool {
    let with = affinity.pod_affinity.as_ref();
    let with = with.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let apart = affinity.pod_anti_affinity.as_ref();
    let apart = apart.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    with.is_some_and(|terms| terms.contains(&wanted.affinity))
        && wanted
            .anti_affinity
            .iter()
            .all(|term| apart.is_some_and(|terms| terms.contains(term)))
}

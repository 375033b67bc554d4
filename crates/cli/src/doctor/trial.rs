//! Do the webhooks or the policies work? Tried by creating a run and a pod without creating them.

use super::{Exam, Finding};
use crate::ask::{Gap, Seen};
use crate::view::PipelineRun;
use crate::way::Way;
use k8s_openapi::api::core::v1::{Affinity, Pod, PodSpec};
use kube::ResourceExt;
use placement::keys;
use placement::messages;
use placement::names::Group;
use placement::strategy::{Isolation, Strategy};
use placement::terms::{Terms, terms};
use process::install;
use serde_json::json;

const WEBHOOK: &str = "webhook";
const POLICIES: &str = "policies";
const NAME: &str = "pod-affinity-doctor";

/// What changes objects of one kind, and what is said about it.
struct Means {
    check: &'static str,
    name: &'static str,
    /// What messages of the API server name.
    mark: &'static str,
    /// What the API server does not do with it, if objects stay as they are.
    verb: &'static str,
    remedy: &'static str,
}

impl Means {
    fn webhook(name: &'static str) -> Self {
        Self {
            check: WEBHOOK,
            name,
            mark: name,
            verb: "ask",
            remedy: "Apply the release's manifests again; a changed webhook configuration takes some seconds.",
        }
    }

    fn policy(name: &'static str, mark: &'static str) -> Self {
        Self {
            check: POLICIES,
            name,
            mark,
            verb: "evaluate",
            remedy: "Apply overlays/policies again; a changed policy takes some seconds. Runs are held only while the \
                     ServiceAccount pod-affinity-controller exists.",
        }
    }
}

/// For runs and for pods.
fn means(way: Way) -> [Means; 2] {
    match way {
        Way::Webhook | Way::Both => [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK].map(Means::webhook),
        Way::Policies => [
            Means::policy(
                "hold.pipelinerun.pod-affinity.tekton.dev",
                "pipelinerun.pod-affinity.tekton.dev",
            ),
            Means::policy("terms.pod.pod-affinity.tekton.dev", "pod.pod-affinity.tekton.dev"),
        ],
    }
}

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

/// The same with a required podAffinity of others, which pod-affinity makes preferred and marks. Whatever is changed after that,
/// the mark shows that pod-affinity was asked.
pub(super) fn pod_to_mark() -> Pod {
    let others =
        json!([{"topologyKey": keys::HOSTNAME, "labelSelector": {"matchLabels": {keys::APP: NAME}}}]);
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": others}});
    let pod = pod();
    let spec = pod.spec.map(|spec| PodSpec {
        affinity: serde_json::from_value(affinity).unwrap_or_default(),
        ..spec
    });
    Pod { spec, ..pod }
}

pub(super) fn is_marked(pod: &Pod) -> bool {
    pod.annotations().contains_key(keys::RELAXED)
}

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    let [for_runs, for_pods] = means(exam.way());
    let undone = exam.suspects.as_ref();
    let undone = undone.map(|suspects| suspects.finding(for_pods.check, &exam.scope.trial));
    vec![
        judged(
            exam,
            &exam.trial_run,
            &for_runs,
            is_held,
            [
                "A labelled PipelineRun is held when it is created (dry run).",
                "A labelled PipelineRun is not held",
            ],
        ),
        undone.unwrap_or_else(|| {
            judged(
                exam,
                &exam.trial_pod,
                &for_pods,
                has_terms,
                [
                    "A pod of a labelled run gets its affinity when it is created (dry run).",
                    "A pod of a labelled run gets no affinity",
                ],
            )
        }),
    ]
}

fn judged<K>(
    exam: &Exam,
    tried: &Seen<K>,
    means: &Means,
    is_as_it_should: impl Fn(&K) -> bool,
    [well, ill]: [&str; 2],
) -> Finding {
    let Means {
        check,
        name,
        mark: _,
        verb,
        remedy,
    } = *means;
    match tried {
        Ok(object) if is_as_it_should(object) => Finding::ok(check, well),
        Ok(_) => Finding::bad(
            check,
            format!(
                "{ill} (dry run in namespace {}): the API server does not {verb} {name}.",
                exam.scope.trial
            ),
            remedy,
        ),
        Err(Gap::Failed(_, words)) => refused(exam, means, words),
        Err(gap) => Finding::unseen(check, gap),
    }
}

fn refused(exam: &Exam, means: &Means, words: &str) -> Finding {
    let Means {
        check, name, mark, ..
    } = *means;
    match exam.way() {
        _ if messages::is_pipeline_run_unknown(words) => too_early(words),
        Way::Policies if words.contains(mark) => failing(words),
        Way::Webhook | Way::Both if words.contains(mark) => unreachable(exam, words),
        Way::Webhook | Way::Policies | Way::Both => Finding::warning(
            check,
            format!("{name} could not be tried, since something else refuses the dry run: {words}"),
            "Try in another namespace with -n.",
        ),
    }
}

fn too_early(words: &str) -> Finding {
    Finding::warning(
        POLICIES,
        format!("The API server cannot evaluate policies for PipelineRuns yet: {words}"),
        "Run `doctor` again after some seconds: the API server started, or Tekton was installed, a moment ago.",
    )
}

fn failing(words: &str) -> Finding {
    Finding::bad(
        POLICIES,
        format!("The API server cannot evaluate a policy: {words}"),
        "Apply overlays/policies again. If the error persists, see the log of the API server.",
    )
}

fn unreachable(exam: &Exam, words: &str) -> Finding {
    Finding::bad(
        WEBHOOK,
        format!("The API server cannot use the webhook: {words}"),
        format!(
            "See the pods and the log of `deployment/{}` in namespace {}, and the findings on its certificate.",
            install::WEBHOOK_SERVICE,
            exam.scope.namespace
        ),
    )
}

fn is_held(run: &PipelineRun) -> bool {
    run.spec["status"] == keys::PENDING && run.annotations().contains_key(keys::HOLD)
}

/// And no other that its node would have to meet: pod-affinity leaves none of those required.
pub(super) fn has_terms(pod: &Pod) -> bool {
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
    with.is_some_and(|terms| *terms == [wanted.affinity.clone()])
        && wanted
            .anti_affinity
            .iter()
            .all(|term| apart.is_some_and(|terms| terms.contains(term)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::admission::Verdict;

    fn admitted(pod: &Pod) -> Pod {
        let mut pod = serde_json::to_value(pod).unwrap();
        let Verdict::Allow { patch, .. } = placement::admission::pod::admit(&pod) else {
            panic!("not admitted: {pod}")
        };
        json_patch::patch(&mut pod, &patch).unwrap();
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn pod_affinity_gives_both_trial_pods_their_terms_and_marks_the_second() {
        let (first, second) = (admitted(&pod()), admitted(&pod_to_mark()));
        assert!(has_terms(&first) && !is_marked(&first));
        assert!(has_terms(&second) && is_marked(&second));
    }

    #[test]
    fn terms_with_another_required_affinity_beside_them_are_not_as_they_should_be() {
        let mut undone = admitted(&pod());
        let affinity = undone.spec.as_mut().unwrap().affinity.as_mut().unwrap();
        let together = affinity.pod_affinity.as_mut().unwrap();
        let terms = together
            .required_during_scheduling_ignored_during_execution
            .as_mut();
        terms
            .unwrap()
            .push(k8s_openapi::api::core::v1::PodAffinityTerm::default());
        assert!(!has_terms(&undone) && !has_terms(&pod()));
    }
}

//! Whether pod-affinity changes a run and a pod that are created. Both are created in a dry run.

use super::Snapshot;
use super::admission::POLICIES;
use super::finding::{Check, Finding};
use crate::admission::Mechanism;
use crate::requests::{RequestError, RequestResult};
use crate::switch::excludes;
use crate::view::PipelineRun;
use crate::words::list;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, RuleWithOperations};
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodSpec};
use kube::ResourceExt;
use kube::api::DynamicObject;
use placement::names::Group;
use placement::strategy::{Isolation, Strategy};
use placement::terms::terms;
use placement::{keys, messages};
use runtime::install;
use serde::Deserialize;
use serde_json::{Value, json};

const WEBHOOK: Check = Check("webhook");
/// The name of objects that exist only in a dry run.
pub(super) const NAME: &str = "pod-affinity-doctor";
/// Objects that are named; the rest is counted.
const NAMED: usize = 10;
/// The beginning of the name of the policy of the guardrails.
const GUARDRAILS: &str = "guardrails.";
/// The end of the names of pod-affinity's own webhook configurations and policies.
const OWN_SUFFIX: &str = "pod-affinity.tekton.dev";

/// The answers to the dry runs.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) namespace: String,
    pub(crate) run: RequestResult<PipelineRun>,
    pub(crate) pod: RequestResult<Pod>,
    /// Read if pod-affinity changed the pod and the affinity is not the one that pod-affinity gives.
    pub(crate) others: Option<OtherMutators>,
}

/// The webhooks and the policies of others that change pods when they are created, or why a list was not read.
#[derive(Clone, Debug)]
pub(crate) struct OtherMutators([RequestResult<Vec<String>>; 2]);

impl OtherMutators {
    /// Evaluates the rules of webhooks and policies, and neither their selectors nor their conditions.
    pub(super) fn new(
        webhooks: RequestResult<Vec<MutatingWebhookConfiguration>>,
        policies: RequestResult<Vec<DynamicObject>>,
    ) -> Self {
        Self([
            others(webhooks, "MutatingWebhookConfiguration", rules_of_webhooks),
            others(policies, "MutatingAdmissionPolicy", rules_of_policy),
        ])
    }

    fn finding(&self, check: Check, namespace: &str) -> Finding {
        let names: Vec<_> = self.0.iter().flatten().flatten().cloned().collect();
        let unread = self.0.iter().filter_map(|list| list.as_ref().err());
        let unread: String = unread.map(|error| format!(" Not read: {error}.")).collect();
        let who = if names.is_empty() {
            "No other MutatingWebhookConfiguration and no MutatingAdmissionPolicy that was read matches pods: check the \
             admission plugins of the API server."
                .to_owned()
        } else {
            format!(
                "These change pods when they are created: {}.",
                list(&names, NAMED)
            )
        };
        check.bad(
            format!(
                "The affinity of a pod of a labelled run is not the one that pod-affinity gave it (dry run in namespace \
                 {namespace}): something changes it after pod-affinity."
            ),
            format!(
                "Exempt pods with the label {} from it, or have it leave spec.affinity as it is. {who}{unread}",
                keys::GROUP
            ),
        )
    }
}

/// The objects of others that change pods. An API server without such a kind has none.
fn others<T: ResourceExt>(
    seen: RequestResult<Vec<T>>,
    kind: &str,
    rules: fn(&T) -> Vec<RuleWithOperations>,
) -> RequestResult<Vec<String>> {
    let found = match seen {
        Err(RequestError::NotServed(_)) => Vec::new(),
        seen => seen?,
    };
    let others = found.iter().filter(|it| !it.name_any().ends_with(OWN_SUFFIX));
    let others = others.filter(|it| rules(it).iter().any(matches_new_pods));
    Ok(others.map(|it| format!("{kind} {}", it.name_any())).collect())
}

fn rules_of_webhooks(configuration: &MutatingWebhookConfiguration) -> Vec<RuleWithOperations> {
    let webhooks = configuration.webhooks.iter().flatten();
    webhooks
        .flat_map(|it| it.rules.clone().unwrap_or_default())
        .collect()
}

fn rules_of_policy(policy: &DynamicObject) -> Vec<RuleWithOperations> {
    let rules = &policy.data["spec"]["matchConstraints"]["resourceRules"];
    Vec::deserialize(rules).unwrap_or_default()
}

fn matches_new_pods(rule: &RuleWithOperations) -> bool {
    let has = |list: &Option<Vec<String>>, wanted: &[&str]| {
        let mut list = list.iter().flatten();
        list.any(|it| wanted.contains(&it.as_str()))
    };
    has(&rule.api_groups, &["", "*"])
        && has(&rule.resources, &["pods", "*", "*/*"])
        && has(&rule.operations, &["CREATE", "*"])
}

/// A labelled run. The name is generated, so that an existing run does not conflict.
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

/// A pod of an enrolled run that meets the Pod Security Standard restricted.
pub(super) fn pod() -> Pod {
    pod_with(&Value::Null)
}

/// The same pod with a required podAffinity of another program. pod-affinity makes this term preferred and adds an annotation:
/// the annotation shows that pod-affinity changed the pod, also if another program changes the pod later.
pub(super) fn pod_to_mark() -> Pod {
    let term = json!({"topologyKey": keys::HOSTNAME, "labelSelector": {"matchLabels": {keys::APP: NAME}}});
    pod_with(&json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}))
}

fn pod_with(affinity: &Value) -> Pod {
    let pod = json!({
        "metadata": {
            "generateName": format!("{NAME}-"),
            "labels": {
                keys::GROUP: NAME,
                keys::STRATEGY: Strategy::default().as_str(),
                keys::ISOLATION: Isolation::default().as_str(),
            },
        },
        "spec": {
            "affinity": affinity,
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

pub(super) fn is_marked(pod: &Pod) -> bool {
    pod.annotations().contains_key(keys::RELAXED)
}

fn is_held(run: &PipelineRun) -> bool {
    run.spec["status"] == keys::PENDING && run.annotations().contains_key(keys::HOLD)
}

/// Whether the pod has the terms of its group. Another required term is wrong, because pod-affinity makes all others preferred.
pub(super) fn has_terms(pod: &Pod) -> bool {
    let wanted = terms(&Group::of(NAME), Strategy::default(), Isolation::default());
    let [near, apart] = required_terms(pod.spec.as_ref());
    near == [wanted.affinity] && wanted.anti_affinity.iter().all(|it| apart.contains(it))
}

/// The required terms of the podAffinity and of the podAntiAffinity.
pub(super) fn required_terms(spec: Option<&PodSpec>) -> [Vec<PodAffinityTerm>; 2] {
    let affinity = spec.and_then(|spec| spec.affinity.clone()).unwrap_or_default();
    let near = affinity.pod_affinity.unwrap_or_default();
    let apart = affinity.pod_anti_affinity.unwrap_or_default();
    [
        near.required_during_scheduling_ignored_during_execution,
        apart.required_during_scheduling_ignored_during_execution,
    ]
    .map(Option::unwrap_or_default)
}

/// Whether the namespace of the dry runs was switched off.
fn is_excluded(snapshot: &Snapshot) -> bool {
    let objects = snapshot.installation.admission.objects();
    objects
        .into_iter()
        .any(|it| excludes(&it, &snapshot.trial.namespace))
}

/// A dry run: what has to change the object, and the sentences of the finding.
struct DryRun {
    check: Check,
    /// The webhook configuration or the policy.
    name: &'static str,
    /// The part of `name` that messages of the API server contain.
    mark: &'static str,
    well: &'static str,
    ill: &'static str,
}

fn dry_runs(mechanism: Mechanism) -> [DryRun; 2] {
    let (check, names, marks) = match mechanism {
        Mechanism::Webhook | Mechanism::Both => {
            let names = [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK];
            (WEBHOOK, names, names)
        }
        Mechanism::Policies => (
            POLICIES,
            [
                "hold.pipelinerun.pod-affinity.tekton.dev",
                "terms.pod.pod-affinity.tekton.dev",
            ],
            [
                "pipelinerun.pod-affinity.tekton.dev",
                "pod.pod-affinity.tekton.dev",
            ],
        ),
    };
    let of_run = DryRun {
        check,
        name: names[0],
        mark: marks[0],
        well: "A labelled PipelineRun is held when it is created (dry run).",
        ill: "A labelled PipelineRun is not held",
    };
    let of_pod = DryRun {
        name: names[1],
        mark: marks[1],
        well: "A pod of a labelled run gets its affinity when it is created (dry run).",
        ill: "A pod of a labelled run gets no affinity",
        ..of_run
    };
    [of_run, of_pod]
}

pub(super) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let trial = &snapshot.trial;
    let [of_run, of_pod] = dry_runs(snapshot.mechanism());
    let run = of_run.finding(snapshot, trial.run.as_ref().map(is_held));
    let pod = match &trial.others {
        Some(others) => others.finding(of_pod.check, &trial.namespace),
        None => of_pod.finding(snapshot, trial.pod.as_ref().map(has_terms)),
    };
    vec![run, pod]
}

impl DryRun {
    fn finding(&self, snapshot: &Snapshot, is_changed: Result<bool, &RequestError>) -> Finding {
        let (verb, remedy) = match snapshot.mechanism() {
            Mechanism::Webhook | Mechanism::Both => (
                "ask",
                "Apply the release's manifests again; a changed webhook configuration takes some seconds.",
            ),
            Mechanism::Policies => (
                "evaluate",
                "Apply overlays/policies again; a changed policy takes some seconds. Runs are held only while the \
                 ServiceAccount pod-affinity-controller exists.",
            ),
        };
        let (ill, name, namespace) = (self.ill, self.name, &snapshot.trial.namespace);
        match is_changed {
            Ok(true) => self.check.ok(self.well),
            Ok(false) if is_excluded(snapshot) => self.check.warning(
                format!("{ill} (dry run in namespace {namespace}): pod-affinity is switched off in this namespace."),
                format!(
                    "Nothing needs to be done if that is meant; try in another namespace with -n. To switch it on: \
                     `kubectl pod-affinity enable -n {namespace}`."
                ),
            ),
            Ok(false) if snapshot.installation.admission.is_unread() => self.check.warning(
                format!("{ill} (dry run in namespace {namespace}): pod-affinity may be switched off in this namespace."),
                "Run `doctor` again with the right to read webhook configurations and admission policies, or with -n in another \
                 namespace.",
            ),
            Ok(false) => self.check.bad(
                format!("{ill} (dry run in namespace {namespace}): the API server does not {verb} {name}."),
                remedy,
            ),
            Err(RequestError::Failed(_, message)) => self.rejected(snapshot, message),
            Err(error) => self.check.unread(error),
        }
    }

    fn rejected(&self, snapshot: &Snapshot, message: &str) -> Finding {
        // The guardrails have a similar name: their denial is no fault of a policy.
        let is_about_this = message.contains(self.mark) && !message.contains(GUARDRAILS);
        match snapshot.mechanism() {
            _ if messages::is_pipeline_run_unknown(message) => POLICIES.warning(
                format!("The API server cannot evaluate policies for PipelineRuns yet: {message}"),
                "Run `doctor` again after some seconds: the API server started, or Tekton was installed, a moment ago.",
            ),
            Mechanism::Policies if is_about_this => POLICIES.bad(
                format!("The API server cannot evaluate a policy: {message}"),
                "Apply overlays/policies again. If the error persists, see the log of the API server.",
            ),
            Mechanism::Webhook | Mechanism::Both if is_about_this => WEBHOOK.bad(
                format!("The API server cannot use the webhook: {message}"),
                format!(
                    "See the pods and the log of `deployment/{}` in namespace {}, and the findings on its certificate.",
                    install::WEBHOOK_SERVICE,
                    snapshot.installation.namespace
                ),
            ),
            Mechanism::Webhook | Mechanism::Policies | Mechanism::Both => self.check.warning(
                format!("{} could not be tried, since something else refuses the dry run: {message}", self.name),
                "Try in another namespace with -n.",
            ),
        }
    }
}

#[cfg(test)]
mod tests;

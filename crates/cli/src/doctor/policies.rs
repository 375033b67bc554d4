//! Are the admission policies those of this release, where they replace the webhook (overlays/policies)?

use super::manifests::Policy;
use super::{Exam, Finding, versions};
use crate::ask::Seen;
use serde_json::Value;

const CHECK: &str = "policies";
const INSTALLATION: &str = "installation";
/// `MutatingAdmissionPolicy` is v1 since this one.
const OLDEST_MINOR: u32 = 36;
const APPLY: &str =
    "`cargo ship apply -k overlays/policies`, or apply your own kustomization of this overlay again.";

/// A policy or a binding of the release, and the spec of the one in the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    pub(crate) release: Policy,
    pub(crate) found: Seen<Option<Value>>,
}

/// How pod-affinity changes objects that are created. Where neither is there, the webhook is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Webhook,
    Policies,
    Both,
}

impl Way {
    pub(super) fn of(exam: &Exam) -> Self {
        let policies = exam.policies.iter().any(|it| matches!(it.found, Ok(Some(_))));
        let webhook = exam.webhooks.iter().any(|(_, seen)| matches!(seen, Ok(Some(_))));
        match (policies, webhook) {
            (true, true) => Self::Both,
            (true, false) => Self::Policies,
            (false, _) => Self::Webhook,
        }
    }
}

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    match Way::of(exam) {
        Way::Webhook => unseen(exam).into_iter().collect(),
        Way::Policies => installed(exam),
        Way::Both => vec![Finding::warning(
            INSTALLATION,
            "Admission policies and the webhook are both installed: each object is handled twice, which is harmless.",
            "Delete the one that you do not want: see overlays/policies/README.md.",
        )],
    }
}

/// An older API server serves no policies, so that there is nothing to see.
fn unseen(exam: &Exam) -> Option<Finding> {
    if is_old(exam) {
        return None;
    }
    let gap = exam.policies.iter().find_map(|it| it.found.as_ref().err())?;
    Some(Finding::unseen(CHECK, gap))
}

fn is_old(exam: &Exam) -> bool {
    versions::is_older(&exam.platform.kubernetes, OLDEST_MINOR)
}

fn installed(exam: &Exam) -> Vec<Finding> {
    let way = Finding::ok(
        INSTALLATION,
        "Admission policies are installed instead of the webhook (overlays/policies).",
    );
    if is_old(exam) {
        return vec![way, old(exam)];
    }
    let faults: Vec<_> = exam
        .policies
        .iter()
        .filter_map(fault)
        .chain(unseen(exam))
        .collect();
    let whole = faults
        .is_empty()
        .then(|| Finding::ok(CHECK, "All policies and their bindings are as in the release."));
    std::iter::once(way).chain(faults).chain(whole).collect()
}

fn old(exam: &Exam) -> Finding {
    let version = exam.platform.kubernetes.as_deref().unwrap_or_default();
    Finding::bad(
        CHECK,
        format!(
            "Kubernetes {version} is older than 1.{OLDEST_MINOR} and evaluates no MutatingAdmissionPolicy: labelled runs start \
             at once, and their pods get no affinity."
        ),
        format!(
            "Upgrade all API servers to 1.{OLDEST_MINOR} or newer, or install the webhook instead: see docs/install.md."
        ),
    )
}

fn fault(compared: &Compared) -> Option<Finding> {
    let Policy { kind, metadata, spec } = &compared.release;
    let name = &metadata.name;
    match compared.found.as_ref().ok()? {
        None => Some(Finding::bad(
            CHECK,
            format!("{kind} {name} is not there: {}.", consequence(name)),
            APPLY,
        )),
        Some(found) => changed(&format!("{kind} {name}"), &differing(spec, found)),
    }
}

fn changed(which: &str, fields: &[&str]) -> Option<Finding> {
    (!fields.is_empty()).then(|| {
        Finding::warning(
            CHECK,
            format!("{which} differs from the release in {}.", fields.join(", ")),
            format!("Nothing needs to be done if that is meant. Otherwise: {APPLY}"),
        )
    })
}

/// What does not happen without the policy, or without its binding.
fn consequence(name: &str) -> &'static str {
    match name.split('.').next() {
        Some("hold") => "labelled runs start at once, without waiting for their node",
        Some("stray") => "a run without the label can get keys of the run that it was copied from",
        Some("release") => "a labelled run that another holder releases starts without waiting for its node",
        Some("terms") => "the pods of labelled runs get no affinity and land on any nodes",
        Some(_) | None => "bad labels, reserves and podTemplates of labelled runs are not rejected",
    }
}

/// The fields of the release's spec that are others in the cluster.
fn differing<'a>(release: &'a Value, found: &Value) -> Vec<&'a str> {
    let fields = release.as_object().into_iter().flatten();
    fields
        .filter(|(key, value)| !covers(value, &found[key.as_str()]))
        .map(|(key, _)| key.as_str())
        .collect()
}

/// The API server adds defaults to what it is given: only what the release names is compared.
fn covers(release: &Value, found: &Value) -> bool {
    match (release, found) {
        (Value::Object(release), Value::Object(found)) => release
            .iter()
            .all(|(key, value)| found.get(key).is_some_and(|found| covers(value, found))),
        (Value::Array(release), Value::Array(found)) => {
            release.len() == found.len() && release.iter().zip(found).all(|(one, other)| covers(one, other))
        }
        (release, found) => release == found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{deployment, failed, healthy, ill};
    use crate::doctor::{Level, findings, text};
    use crate::fixture::forbidden;
    use serde_json::json;

    /// As the API server returns it, with defaults.
    fn stored(release: &Policy) -> Value {
        let mut spec = release.spec.clone();
        if let Some(rules) = spec.get_mut("matchConstraints") {
            rules["excludeResourceRules"] = json!([]);
        }
        if let Some(parameters) = spec.get_mut("paramRef") {
            parameters["selector"] = json!({});
        }
        spec
    }

    /// Policies, a controller, and nothing of a webhook.
    fn by_policies() -> Exam {
        let mut exam = healthy();
        exam.platform.kubernetes = Ok("v1.36.0".into());
        exam.deployments = Ok(vec![deployment("pod-affinity-controller", 2, 2)]);
        exam.secret = Err(forbidden("get", "secrets"));
        exam.webhooks.iter_mut().for_each(|(_, seen)| *seen = Ok(None));
        for answer in exam.rights.as_mut().unwrap() {
            let taken = ["secrets", "mutatingwebhookconfigurations", "namespaces"];
            answer.allowed = answer.right.account == "pod-affinity-controller"
                && !taken.contains(&answer.right.resource.as_str());
        }
        with_policies(exam)
    }

    fn with_policies(mut exam: Exam) -> Exam {
        for it in &mut exam.policies {
            it.found = Ok(Some(stored(&it.release)));
        }
        exam
    }

    fn of<'a>(exam: &'a mut Exam, kind: &str, name: &str) -> &'a mut Compared {
        let mut policies = exam.policies.iter_mut();
        let found = policies.find(|it| it.release.kind == kind && it.release.metadata.name.starts_with(name));
        found.unwrap()
    }

    #[test]
    fn a_healthy_installation_by_policies_has_nothing_but_good_findings() {
        let findings = findings(&by_policies());
        assert!(findings.iter().all(|finding| finding.level == Level::Ok));
        insta::assert_snapshot!(text(&findings, |_, label| label.to_owned()));
    }

    #[test]
    fn a_policy_and_a_binding_that_are_missing() {
        let mut exam = by_policies();
        of(&mut exam, "MutatingAdmissionPolicyBinding", "terms").found = Ok(None);
        of(&mut exam, "ValidatingAdmissionPolicy", "refuse").found = Ok(None);
        insta::assert_snapshot!(ill(&exam));
    }

    #[test]
    fn a_policy_that_was_changed_as_its_page_says() {
        let mut exam = by_policies();
        let hold = of(&mut exam, "MutatingAdmissionPolicy", "hold");
        let mut spec = stored(&hold.release);
        spec["matchConstraints"]["objectSelector"] = json!({});
        spec["reinvocationPolicy"] = json!("IfNeeded");
        hold.found = Ok(Some(spec));
        insta::assert_snapshot!(ill(&exam));
    }

    #[test]
    fn an_expression_that_is_another_and_one_more_condition_are_changes() {
        let release = json!({"a": [{"expression": "x"}], "b": {"c": 1}});
        assert!(
            differing(
                &release,
                &json!({"a": [{"expression": "x", "d": 1}], "b": {"c": 1, "d": 2}})
            )
            .is_empty()
        );
        assert_eq!(
            differing(&release, &json!({"a": [{"expression": "y"}], "b": {}})),
            ["a", "b"]
        );
        assert_eq!(
            differing(&release, &json!({"a": [{"expression": "x"}, {}], "b": {"c": 1}})),
            ["a"]
        );
    }

    #[test]
    fn policies_beside_the_webhook() {
        insta::assert_snapshot!(ill(&with_policies(healthy())));
    }

    #[test]
    fn an_api_server_that_is_too_old_for_the_policies() {
        let mut exam = by_policies();
        exam.platform.kubernetes = Ok("v1.35.2".into());
        for it in &mut exam.policies {
            if it.release.kind.starts_with("Mutating") {
                it.found = Ok(None);
            }
        }
        insta::assert_snapshot!(ill(&exam));
    }

    #[test]
    fn policies_that_the_user_may_not_see_are_a_gap_where_the_api_server_has_them() {
        let mut exam = healthy();
        for it in &mut exam.policies {
            it.found = Err(forbidden(
                "get",
                "mutatingadmissionpolicies.admissionregistration.k8s.io",
            ));
        }
        insta::assert_snapshot!(ill(&exam));
        exam.platform.kubernetes = Ok("v1.35.2".into());
        assert_eq!(ill(&exam), ill(&healthy()));
    }

    #[test]
    fn policies_that_do_nothing_or_fail() {
        let mut exam = by_policies();
        exam.trial_run = Ok(crate::fixture::run(&json!({"spec": {"status": null}})));
        exam.trial_pod = Err(failed(
            "policy 'terms.pod.pod-affinity.tekton.dev' with binding 'terms.pod.pod-affinity.tekton.dev' denied request: no such key",
        ));
        insta::assert_snapshot!(ill(&exam));
    }

    #[test]
    fn an_api_server_that_started_a_moment_ago_is_asked_again() {
        let mut exam = by_policies();
        exam.trial_run = Err(failed(
            "policy 'hold.pipelinerun.pod-affinity.tekton.dev' denied request: Resource kind tekton.dev/v1, Kind=PipelineRun not found",
        ));
        insta::assert_snapshot!(ill(&exam));
    }

    #[test]
    fn the_policies_of_an_installation_elsewhere_name_its_namespace() {
        let policies = crate::doctor::manifests::policies("elsewhere");
        let namespaces: Vec<_> = policies
            .iter()
            .filter_map(|it| it.spec["paramRef"]["namespace"].as_str())
            .collect();
        assert_eq!(namespaces, ["elsewhere"; 3]);
    }
}

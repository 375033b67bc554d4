//! Are the admission policies those of this release, where they replace the webhook (overlays/policies)?

use super::manifests::Policy;
use super::{Exam, Finding, Platform, versions};
use crate::admission::Compared;
use crate::switch::is_policy_off;
use crate::way::Way;
use serde_json::Value;

const CHECK: &str = "policies";
const INSTALLATION: &str = "installation";
/// `MutatingAdmissionPolicy` is v1 since this one.
const OLDEST_MINOR: u32 = 36;
const APPLY: &str =
    "`cargo ship apply -k overlays/policies`, or apply your own kustomization of this overlay again.";

/// Why the API server cannot do without the webhook, or why that is not known.
fn obstacle(platform: &Platform) -> Option<String> {
    match (&platform.kubernetes, &platform.serves_policies) {
        (Ok(version), _) if is_old(platform) => Some(format!(
            "Kubernetes {version} is older than 1.{OLDEST_MINOR} and evaluates no MutatingAdmissionPolicy"
        )),
        (Err(gap), _) | (Ok(_), Err(gap)) => Some(gap.to_string()),
        (Ok(_), Ok(())) => None,
    }
}

/// The way to install pod-affinity where it is not installed.
pub(super) fn choice(platform: &Platform) -> Way {
    match obstacle(platform) {
        Some(_) => Way::Webhook,
        None => Way::Policies,
    }
}

/// And why.
pub(super) fn advice(platform: &Platform) -> Finding {
    match obstacle(platform) {
        Some(obstacle) => Finding::ok(INSTALLATION, format!("Install the webhook: {obstacle}."))
            .hint("`cargo ship apply -f config/`, or release.yaml of a release."),
        None => Finding::ok(
            INSTALLATION,
            "Install admission policies instead of the webhook: this API server evaluates them.",
        )
        .hint(format!(
            "`cargo ship apply -k overlays/policies`, or release-policies.yaml of a release. All API servers of the cluster \
             must be of 1.{OLDEST_MINOR} or newer."
        )),
    }
}

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    match exam.way() {
        Way::Webhook => unseen(exam).into_iter().chain(recommended(exam)).collect(),
        Way::Policies => installed(exam),
        Way::Both => vec![Finding::warning(
            INSTALLATION,
            "Admission policies and the webhook are both installed: each object is handled twice, which is harmless.",
            "Delete the one that you do not want: see overlays/policies/README.md.",
        )],
    }
}

/// No warning: the webhook is as good as before. Where it is not installed at all, there is something else to report.
fn recommended(exam: &Exam) -> Option<Finding> {
    let is_there = exam.admission.way().is_some();
    (is_there && obstacle(&exam.platform).is_none()).then(|| {
        Finding::ok(
            INSTALLATION,
            "The webhook is installed. This API server can evaluate admission policies instead.",
        )
        .hint(format!(
            "With policies, no call can be lost, and there is no certificate. If all API servers of the cluster are of \
             1.{OLDEST_MINOR} or newer: see overlays/policies/README.md."
        ))
    })
}

/// An older API server serves no policies, so that there is nothing to see.
fn unseen(exam: &Exam) -> Option<Finding> {
    if is_old(&exam.platform) {
        return None;
    }
    let gap = exam
        .admission
        .policies
        .iter()
        .find_map(|it| it.found.as_ref().err())?;
    Some(Finding::unseen(CHECK, gap))
}

fn is_old(platform: &Platform) -> bool {
    versions::is_older(&platform.kubernetes, OLDEST_MINOR)
}

fn installed(exam: &Exam) -> Vec<Finding> {
    let way = Finding::ok(
        INSTALLATION,
        "Admission policies are installed instead of the webhook (overlays/policies).",
    );
    if is_old(&exam.platform) {
        return vec![way, old(exam)];
    }
    let faults: Vec<_> = exam
        .admission
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
        Some(found) if is_policy_off(found) => Some(Finding::bad(
            CHECK,
            format!("{kind} {name} is switched off: {}.", consequence(name)),
            "Switch it on again: `kubectl pod-affinity enable -A`.",
        )),
        Some(found) => changed(&format!("{kind} {name}"), &differing(spec, found)),
    }
}

fn changed(which: &str, fields: &[String]) -> Option<Finding> {
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

/// The fields of the release's spec that are others in the cluster, by their paths.
fn differing(release: &Value, found: &Value) -> Vec<String> {
    let fields = release.as_object().into_iter().flatten();
    fields
        .filter(|(key, value)| !covers(value, &found[key.as_str()]))
        .flat_map(|(key, value)| match differing(value, &found[key.as_str()]) {
            inner if inner.is_empty() => vec![key.clone()],
            inner => inner.iter().map(|field| format!("{key}.{field}")).collect(),
        })
        .collect()
}

/// The API server adds defaults to what it is given: only what the release names is compared. kustomize breaks the lines of
/// expressions in other places, which means nothing.
fn covers(release: &Value, found: &Value) -> bool {
    match (release, found) {
        (Value::Object(release), Value::Object(found)) => release
            .iter()
            .all(|(key, value)| found.get(key).is_some_and(|found| covers(value, found))),
        (Value::Array(release), Value::Array(found)) => {
            release.len() == found.len() && release.iter().zip(found).all(|(one, other)| covers(one, other))
        }
        (Value::String(release), Value::String(found)) => {
            release.split_whitespace().eq(found.split_whitespace())
        }
        (release, found) => release == found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{deployment, failed, healthy, ill};
    use crate::doctor::{Level, findings, text};
    use crate::fixture::{forbidden, not_served};
    use crate::switch::{self, Switch};
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
        exam.admission
            .webhooks
            .iter_mut()
            .for_each(|(_, seen)| *seen = Ok(None));
        for answer in exam.rights.as_mut().unwrap() {
            answer.allowed = !answer.right.is_for_webhook();
        }
        with_policies(exam)
    }

    fn with_policies(mut exam: Exam) -> Exam {
        for it in &mut exam.admission.policies {
            it.found = Ok(Some(stored(&it.release)));
        }
        exam
    }

    fn of<'a>(exam: &'a mut Exam, kind: &str, name: &str) -> &'a mut Compared {
        let mut policies = exam.admission.policies.iter_mut();
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
            ["a", "b.c"]
        );
        assert_eq!(
            differing(&release, &json!({"a": [{"expression": "x"}, {}], "b": {"c": 1}})),
            ["a"]
        );
    }

    #[test]
    fn an_expression_with_other_line_breaks_is_the_same() {
        let release = json!({"a": "x.exists(y,\n  z)"});
        assert!(differing(&release, &json!({"a": "x.exists(y,\n\n  z)"})).is_empty());
        assert_eq!(differing(&release, &json!({"a": "x.exists(y, w)"})), ["a"]);
    }

    #[test]
    fn policies_that_are_switched_off_for_all_namespaces_or_for_one() {
        let mut exam = by_policies();
        for (kind, name, which) in [
            ("MutatingAdmissionPolicy", "hold", Switch::AllOff),
            (
                "ValidatingAdmissionPolicy",
                "refuse",
                Switch::LeaveOut("ci".into()),
            ),
        ] {
            let policy = of(&mut exam, kind, name);
            let spec = stored(&policy.release);
            let mut object = json!({"spec": spec});
            json_patch::patch(&mut object, &switch::policy(&spec, &which)).unwrap();
            policy.found = Ok(Some(object["spec"].take()));
        }
        insta::assert_snapshot!(ill(&exam));
    }

    #[test]
    fn policies_are_recommended_beside_a_webhook_where_the_api_server_evaluates_them() {
        let recommends = |exam: &Exam| {
            let found = findings(exam);
            assert!(found.iter().all(|it| it.level == Level::Ok), "{found:#?}");
            found
                .iter()
                .any(|it| it.sentence.contains("can evaluate admission policies"))
        };
        let mut exam = healthy();
        assert!(recommends(&exam));
        exam.platform.kubernetes = Ok("v1.35.2".into());
        assert!(!recommends(&exam));
        exam = healthy();
        exam.platform.serves_policies = Err(not_served("mutatingadmissionpolicies"));
        assert!(!recommends(&exam));
        assert!(!recommends(&by_policies()));
    }

    #[test]
    fn policies_beside_the_webhook() {
        insta::assert_snapshot!(ill(&with_policies(healthy())));
    }

    #[test]
    fn an_api_server_that_is_too_old_for_the_policies() {
        let mut exam = by_policies();
        exam.platform.kubernetes = Ok("v1.35.2".into());
        for it in &mut exam.admission.policies {
            if it.release.kind.starts_with("Mutating") {
                it.found = Ok(None);
            }
        }
        insta::assert_snapshot!(ill(&exam));
    }

    #[test]
    fn policies_that_the_user_may_not_see_are_a_gap_where_the_api_server_has_them() {
        let mut exam = healthy();
        for it in &mut exam.admission.policies {
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

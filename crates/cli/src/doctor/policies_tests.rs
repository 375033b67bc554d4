//! Policies that are missing, changed, switched off, or on an API server that they do not work on.

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
    assert_eq!(namespaces, ["elsewhere"; 5]);
}

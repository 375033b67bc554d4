//! Policies that are missing, changed or switched off, and API servers that do not evaluate policies.

use super::*;
use crate::doctor::tests::{deployment, failed, healthy, problems};
use crate::doctor::{Level, findings, text};
use crate::fixture::{forbidden, not_served};
use crate::switch::{self, Switch};
use serde_json::json;

/// The object as the API server returns it, with defaults.
fn stored(release: &Policy) -> Value {
    let mut spec = release.spec.clone();
    if let Some(rules) = spec.get_mut("matchConstraints") {
        rules["excludeResourceRules"] = json!([]);
    }
    if let Some(parameters) = spec.get_mut("paramRef") {
        parameters["selector"] = json!({});
    }
    json!({"spec": spec})
}

/// An installation with policies and a controller, and without a webhook.
fn by_policies() -> Snapshot {
    let mut snapshot = healthy();
    snapshot.installation.platform.kubernetes = Ok("v1.36.0".into());
    snapshot.installation.deployments = Ok(vec![deployment("pod-affinity-controller", 2, 2)]);
    snapshot.secret = Err(forbidden("get", "secrets"));
    snapshot
        .installation
        .admission
        .webhooks
        .iter_mut()
        .for_each(|(_, seen)| *seen = Ok(None));
    for answer in snapshot.rights.as_mut().unwrap() {
        answer.allowed = !answer.right.is_for_webhook();
    }
    with_policies(snapshot)
}

fn with_policies(mut snapshot: Snapshot) -> Snapshot {
    for it in &mut snapshot.installation.admission.policies {
        it.found = Ok(Some(stored(&it.release)));
    }
    snapshot
}

fn of<'a>(snapshot: &'a mut Snapshot, kind: &str, name: &str) -> &'a mut Compared {
    let mut policies = snapshot.installation.admission.policies.iter_mut();
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
    let mut snapshot = by_policies();
    of(&mut snapshot, "MutatingAdmissionPolicyBinding", "terms").found = Ok(None);
    of(&mut snapshot, "ValidatingAdmissionPolicy", "refuse").found = Ok(None);
    insta::assert_snapshot!(problems(&snapshot));
}

#[test]
fn a_policy_that_was_changed_as_its_page_says() {
    let mut snapshot = by_policies();
    let hold = of(&mut snapshot, "MutatingAdmissionPolicy", "hold");
    let mut policy = stored(&hold.release);
    policy["spec"]["matchConstraints"]["objectSelector"] = json!({});
    policy["spec"]["reinvocationPolicy"] = json!("IfNeeded");
    hold.found = Ok(Some(policy));
    insta::assert_snapshot!(problems(&snapshot));
}

#[test]
fn another_expression_and_an_added_condition_are_changes() {
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
    let mut snapshot = by_policies();
    for (kind, name, which) in [
        ("MutatingAdmissionPolicy", "hold", Switch::AllOff),
        (
            "ValidatingAdmissionPolicy",
            "refuse",
            Switch::Exclude("ci".into()),
        ),
    ] {
        let policy = of(&mut snapshot, kind, name);
        let mut object = stored(&policy.release);
        let patch = switch::patch(&object, &which);
        json_patch::patch(&mut object, &patch).unwrap();
        policy.found = Ok(Some(object));
    }
    insta::assert_snapshot!(problems(&snapshot));
}

#[test]
fn policies_are_recommended_beside_a_webhook_where_the_api_server_evaluates_them() {
    let recommends = |snapshot: &Snapshot| {
        let found = findings(snapshot);
        assert!(found.iter().all(|it| it.level == Level::Ok), "{found:#?}");
        found
            .iter()
            .any(|it| it.sentence.contains("can evaluate admission policies"))
    };
    let mut snapshot = healthy();
    assert!(recommends(&snapshot));
    snapshot.installation.platform.kubernetes = Ok("v1.35.2".into());
    assert!(!recommends(&snapshot));
    snapshot = healthy();
    snapshot.installation.platform.serves_policies = Err(not_served("mutatingadmissionpolicies"));
    assert!(!recommends(&snapshot));
    assert!(!recommends(&by_policies()));
}

#[test]
fn policies_beside_the_webhook() {
    insta::assert_snapshot!(problems(&with_policies(healthy())));
}

#[test]
fn an_api_server_that_is_too_old_for_the_policies() {
    let mut snapshot = by_policies();
    snapshot.installation.platform.kubernetes = Ok("v1.35.2".into());
    for it in &mut snapshot.installation.admission.policies {
        if it.release.kind.starts_with("Mutating") {
            it.found = Ok(None);
        }
    }
    insta::assert_snapshot!(problems(&snapshot));
}

#[test]
fn policies_that_the_user_may_not_see_are_a_gap_where_the_api_server_has_them() {
    let mut snapshot = healthy();
    for it in &mut snapshot.installation.admission.policies {
        it.found = Err(forbidden(
            "get",
            "mutatingadmissionpolicies.admissionregistration.k8s.io",
        ));
    }
    insta::assert_snapshot!(problems(&snapshot));
    snapshot.installation.platform.kubernetes = Ok("v1.35.2".into());
    assert_eq!(problems(&snapshot), problems(&healthy()));
}

#[test]
fn policies_that_do_nothing_or_fail() {
    let mut snapshot = by_policies();
    snapshot.trial.run = Ok(crate::fixture::run(&json!({"spec": {"status": null}})));
    snapshot.trial.pod = Err(failed(
        "policy 'terms.pod.pod-affinity.tekton.dev' with binding 'terms.pod.pod-affinity.tekton.dev' denied request: no such key",
    ));
    insta::assert_snapshot!(problems(&snapshot));
}

#[test]
fn guardrails_that_deny_the_dry_run_are_no_fault_of_a_policy() {
    let mut snapshot = by_policies();
    snapshot.trial.run = Err(failed(
        "ValidatingAdmissionPolicy 'guardrails.pipelinerun.pod-affinity.tekton.dev' with binding \
         'guardrails.pipelinerun.pod-affinity.tekton.dev' denied request: PipelineRuns in namespace default may not use the label",
    ));
    let found = problems(&snapshot);
    assert!(
        found.contains("something else refuses the dry run") && !found.contains("BAD"),
        "{found}"
    );
}

#[test]
fn an_api_server_that_does_not_know_pipeline_runs_yet() {
    let mut snapshot = by_policies();
    snapshot.trial.run = Err(failed(
        "policy 'hold.pipelinerun.pod-affinity.tekton.dev' denied request: Resource kind tekton.dev/v1, Kind=PipelineRun not found",
    ));
    insta::assert_snapshot!(problems(&snapshot));
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

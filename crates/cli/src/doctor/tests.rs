//! The findings on each fault, in an installation with no other fault.

use super::*;
use crate::admission::Compared;
use crate::fixture::{at, forbidden, merged, not_served, object, placeholder, run, unschedulable, view};
use crate::requests::RequestError;
use k8s_openapi::ByteString;
use runtime::certs::x509::{issue_ca, issue_leaf};
use runtime::certs::{StoredCertificates, service_names};
use serde_json::{Value, json};

pub(super) const OURS: &str = "tekton-pod-affinity";

#[expect(clippy::unnecessary_wraps, reason = "what was seen is always a Result")]
pub(super) fn map(data: &Value) -> RequestResult<Option<ConfigMap>> {
    Ok(Some(object(
        json!({"metadata": {"name": "m"}, "data": data}),
        &json!({}),
    )))
}

pub(super) fn deployment(name: &str, wanted: i32, available: i32) -> Deployment {
    object(
        json!({
            "metadata": {"name": name},
            "spec": {"replicas": wanted, "selector": {}, "template": {}},
            "status": {"availableReplicas": available},
        }),
        &json!({}),
    )
}

#[expect(clippy::unnecessary_wraps, reason = "what was seen is always a Result")]
fn lease(changes: &Value) -> RequestResult<Option<Lease>> {
    let base = json!({"metadata": {"name": "l"}, "spec": {
        "holderIdentity": "controller-1",
        "acquireTime": "2027-01-15T07:00:00.000000Z",
        "renewTime": "2027-01-15T08:01:58.000000Z",
        "leaseDurationSeconds": 15,
    }});
    Ok(Some(object(base, changes)))
}

fn certificates() -> StoredCertificates {
    issued_at(at(0))
}

fn issued_at(when: Timestamp) -> StoredCertificates {
    let authority = issue_ca(when).unwrap();
    let leaf = issue_leaf(&authority, &service_names(OURS), when).unwrap();
    StoredCertificates {
        bundle: authority.certificate.clone(),
        ca: authority.certificate,
        ca_key: authority.key,
        leaf: leaf.certificate,
        leaf_key: leaf.key,
    }
}

fn with_certificates(mut snapshot: Snapshot, stored: &StoredCertificates, bundle: &str) -> Snapshot {
    snapshot.secret = Ok(Some(Secret {
        data: Some(stored.clone().into_data()),
        ..Secret::default()
    }));
    let mut webhooks = manifests::webhooks();
    for one in webhooks
        .iter_mut()
        .flat_map(|it| it.webhooks.iter_mut().flatten())
    {
        one.client_config.ca_bundle =
            Some(ByteString(bundle.as_bytes().to_vec())).filter(|it| !it.0.is_empty());
    }
    let names = runtime::certs::publish::CONFIGURATIONS;
    let webhooks = webhooks.into_iter().map(|it| Ok(Some(it)));
    snapshot.installation.admission.webhooks = names.into_iter().zip(webhooks).collect();
    snapshot
}

pub(super) fn healthy() -> Snapshot {
    let stored = certificates();
    let bundle = stored.bundle.clone();
    with_certificates(bare(), &stored, &bundle)
}

fn bare() -> Snapshot {
    let held = json!({"spec": {"status": "PipelineRunPending"}});
    let rights = manifests::rights().into_iter();
    Snapshot {
        now: at(120),
        installation: bare_installation(),
        lease: lease(&json!({})),
        renewed: false,
        secret: Ok(None),
        config: map(&json!({"_example": "x"})),
        trial: trial::Trial {
            namespace: "default".into(),
            run: Ok(run(&held)),
            pod: Ok(with_terms()),
            others: None,
        },
        rights: Ok(rights
            .map(|right| rights::Review { right, allowed: true })
            .collect()),
        runs: Ok(vec![]),
        sets: Ok(vec![]),
        placeholders: Ok(vec![]),
        waiting: Ok(vec![]),
        quotas: Ok(vec![]),
        limits: Ok(vec![]),
        namespaces: Ok(vec![labelled("team-a", "true"), labelled("team-b", "false")]),
        nodes: None,
    }
}

fn bare_installation() -> Installation {
    Installation {
        platform: Platform {
            kubernetes: Ok("v1.36.3".into()),
            serves_runs: Ok(()),
            serves_policies: Ok(()),
            tekton_namespace: "tekton-pipelines".into(),
            tekton: map(&json!({"version": "v1.15.0"})),
            flags: map(&json!({"coschedule": "workspaces", "enable-wait-exponential-backoff": "true"})),
        },
        namespace: OURS.into(),
        found: Ok(Some(Namespace::default())),
        deployments: Ok(vec![
            deployment("pod-affinity-webhook", 2, 2),
            deployment("pod-affinity-controller", 2, 2),
        ]),
        admission: Admission {
            webhooks: Vec::new(),
            policies: no_policies(),
        },
    }
}

pub(super) fn no_policies() -> Vec<Compared> {
    let release = manifests::policies(OURS).into_iter();
    release
        .map(|release| Compared {
            release,
            found: Ok(None),
        })
        .collect()
}

fn answer(verb: &str, group: &str, resource: &str, name: Option<&str>) -> rights::Review {
    let right = manifests::Right {
        account: "pod-affinity-controller".into(),
        verb: verb.into(),
        group: group.into(),
        resource: resource.into(),
        name: name.map(String::from),
        namespaced: name.is_some(),
    };
    rights::Review {
        right,
        allowed: false,
    }
}

fn with_terms() -> Pod {
    use placement::{names::Group, strategy::Isolation, strategy::Strategy, terms::terms};
    let terms = terms(
        &Group::of("pod-affinity-doctor"),
        Strategy::default(),
        Isolation::default(),
    );
    let list = |term: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    let affinity = json!({
        "podAffinity": list(serde_json::to_value(terms.affinity).unwrap()),
        "podAntiAffinity": list(serde_json::to_value(terms.anti_affinity).unwrap()),
    });
    object(
        json!({"spec": {"containers": [], "affinity": affinity}}),
        &json!({}),
    )
}

/// The findings that are not ok, as text.
pub(super) fn problems(snapshot: &Snapshot) -> String {
    let found: Vec<_> = findings(snapshot)
        .into_iter()
        .filter(|it| it.level != Level::Ok)
        .collect();
    text(&found, |_, label| label.to_owned())
}

pub(super) fn failed(words: &str) -> RequestError {
    let RequestError::Forbidden(attributes) = forbidden("create", "pods") else {
        unreachable!()
    };
    RequestError::Failed(attributes, words.to_owned())
}

macro_rules! problems_of {
    ($($name:ident: $change:expr;)+) => {$(
        #[test]
        fn $name() {
            let mut snapshot = healthy();
            let change: fn(&mut Snapshot) = $change;
            change(&mut snapshot);
            insta::assert_snapshot!(problems(&snapshot));
        }
    )+};
}

#[test]
fn a_healthy_installation_has_nothing_but_good_findings() {
    let findings = findings(&healthy());
    assert!(!is_at_least(&findings, Level::Warning));
    assert!(is_at_least(&findings, Level::Ok));
    insta::assert_snapshot!(text(&findings, |_, label| label.to_owned()));
}

/// A ResourceQuota of three pods, with this many used.
fn quota(namespace: &str, used: &str) -> ResourceQuota {
    object(
        json!({
            "metadata": {"namespace": namespace, "name": "tight"},
            "status": {"hard": {"pods": "3", "requests.cpu": "8"}, "used": {"pods": used, "requests.cpu": "4"}},
        }),
        &json!({}),
    )
}

fn labelled(name: &str, value: &str) -> Namespace {
    object(
        json!({"metadata": {"name": name, "labels": {placement::keys::OPT_IN: value}}}),
        &json!({}),
    )
}

fn least(cpu: &str) -> LimitRange {
    object(
        json!({
            "metadata": {"namespace": "ci", "name": "floor"},
            "spec": {"limits": [{"type": "Container", "min": {"cpu": cpu}}]},
        }),
        &json!({}),
    )
}

#[test]
fn quotas_and_limits_of_other_pods_and_namespaces_are_ignored() {
    let mut snapshot = healthy();
    let done = json!({"metadata": {"namespace": "other"}, "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}});
    let declined = json!({"metadata": {"namespace": "other", "labels": {placement::keys::OPT_IN: "false"}}});
    snapshot.runs = Ok(vec![view(&json!({})), view(&done), view(&declined)]);
    let mut scoped = quota("ci", "3");
    scoped.spec = Some(object(json!({"scopes": ["Terminating"]}), &json!({})));
    let mut selected = quota("ci", "3");
    let terminating = json!({"matchExpressions": [{"scopeName": "BestEffort", "operator": "Exists"}]});
    selected.spec = Some(object(json!({"scopeSelector": terminating}), &json!({})));
    snapshot.quotas = Ok(vec![quota("other", "3"), quota("team-b", "3"), scoped, selected]);
    snapshot.limits = Ok(vec![least("50m"), most("50m")]);
    assert_eq!(problems(&snapshot), problems(&healthy()));
}

#[test]
fn a_quota_that_rejects_terms_across_namespaces_is_a_warning() {
    let mut snapshot = healthy();
    let mut scoped = quota("ci", "3");
    scoped.spec = Some(object(
        json!({"scopes": ["CrossNamespacePodAffinity"]}),
        &json!({}),
    ));
    snapshot.quotas = Ok(vec![scoped]);
    snapshot.runs = Ok(vec![view(&json!({}))]);
    let text = problems(&snapshot);
    assert!(
        text.contains("isolated within their namespace only: ResourceQuota ci/tight"),
        "{text}"
    );
    assert!(!text.contains("no further placeholder"), "{text}");
}

#[test]
fn a_quota_that_is_new_has_used_nothing_yet() {
    let mut snapshot = healthy();
    let new =
        json!({"metadata": {"namespace": "team-a", "name": "new"}, "spec": {"hard": {"count/pods": "1"}}});
    snapshot.quotas = Ok(vec![object(new, &json!({}))]);
    assert!(
        problems(&snapshot).contains("(0 of 1 used, 0"),
        "{}",
        problems(&snapshot)
    );
}

fn most(cpu: &str) -> LimitRange {
    object(
        json!({
            "metadata": {"namespace": "ci", "name": "roof"},
            "spec": {"limits": [{"type": "Pod", "max": {"cpu": cpu, "nvidia.com/gpu": "0"}}]},
        }),
        &json!({}),
    )
}

problems_of! {
    a_quota_without_room_for_the_requests_of_a_placeholder: |snapshot| {
        snapshot.runs = Ok(vec![view(&json!({}))]);
        let full = json!({"status": {"used": {"requests.cpu": "7980m"}}});
        snapshot.quotas = Ok(vec![object(serde_json::to_value(quota("ci", "2")).unwrap(), &full)]);
    };
    quotas_that_have_room: |snapshot| {
        snapshot.runs = Ok(vec![view(&json!({})), view(&json!({"metadata": {"name": "next", "uid": "u2"}}))]);
        let sets = json!({"status": {"hard": {"count/statefulsets.apps": "9"}, "used": {"count/statefulsets.apps": "4"}}});
        let sets = merged(serde_json::to_value(quota("team-a", "3")).unwrap(), &sets);
        snapshot.quotas = Ok(vec![quota("ci", "2"), object(sets, &json!({"status": {"hard": {"pods": null}}}))]);
    };
    a_placeholder_that_requests_more_than_the_maximum: |snapshot| {
        snapshot.runs = Ok(vec![view(&json!({}))]);
        snapshot.config = map(&json!({"default-reserve": "cpu=4,memory=8Gi"}));
        snapshot.limits = Ok(vec![most("2")]);
    };
    a_quota_that_is_used_up: |snapshot| {
        snapshot.runs = Ok(vec![view(&json!({}))]);
        snapshot.quotas = Ok(vec![quota("ci", "3")]);
    };
    a_placeholder_that_requests_less_than_the_minimum: |snapshot| {
        snapshot.runs = Ok(vec![view(&json!({}))]);
        snapshot.limits = Ok(vec![least("100m")]);
    };
    namespaces_whose_label_has_an_unknown_value: |snapshot| {
        snapshot.namespaces = Ok(vec![labelled("team-a", "yes"), labelled("team-b", "true"), labelled("team-c", "True")]);
    };
    webhooks_for_labelled_namespaces_that_are_missing: |snapshot| {
        let found = snapshot.installation.admission.webhooks[0].1.as_mut().unwrap().as_mut().unwrap();
        found.webhooks.as_mut().unwrap().truncate(3);
    };
    versions_that_are_too_old: |snapshot| {
        snapshot.installation.platform.kubernetes = Ok("v1.27.9-gke.1".into());
        snapshot.installation.platform.tekton = map(&json!({"version": "v0.70.0"}));
    };
    a_tekton_that_is_no_longer_supported: |snapshot| snapshot.installation.platform.tekton = map(&json!({"version": "v1.8.2"}));
    a_kubernetes_that_is_newer_than_tested: |snapshot| snapshot.installation.platform.kubernetes = Ok("v1.38.0".into());
    versions_that_are_unknown: |snapshot| {
        snapshot.installation.platform.kubernetes = Ok("odd".into());
        snapshot.installation.platform.tekton = map(&json!({"version": "v2.0.0"}));
    };
    tekton_is_not_there: |snapshot| {
        snapshot.installation.platform.serves_runs = Err(not_served("pipelineruns.tekton.dev"));
        snapshot.runs = Err(not_served("pipelineruns.tekton.dev"));
    };
    nothing_is_installed: |snapshot| {
        snapshot.installation.found = Ok(None);
        snapshot.installation.deployments = Ok(vec![]);
        snapshot.lease = Ok(None);
        snapshot.secret = Ok(None);
        snapshot.installation.admission.webhooks.iter_mut().for_each(|(_, seen)| *seen = Ok(None));
    };
    deployments_that_are_missing_down_or_weak: |snapshot| {
        snapshot.installation.deployments = Ok(vec![deployment("pod-affinity-webhook", 2, 1), deployment("pod-affinity-controller", 2, 0)]);
    };
    a_leader_that_no_longer_renews_its_lease: |snapshot| snapshot.lease = lease(&json!({"spec": {"renewTime": "2027-01-15T08:01:00.000000Z"}}));
    a_leader_whose_clock_is_behind: |snapshot| {
        snapshot.lease = lease(&json!({"spec": {"renewTime": "2027-01-15T08:01:00.000000Z"}}));
        snapshot.renewed = true;
    };
    a_lease_without_a_holder: |snapshot| snapshot.lease = lease(&json!({"spec": {"holderIdentity": ""}}));
    a_certificate_that_expired: |snapshot| {
        let old = issued_at(at(-86_400 * 31));
        *snapshot = with_certificates(snapshot.clone(), &old, &old.bundle);
    };
    a_certificate_that_should_have_been_renewed: |snapshot| {
        let old = issued_at(at(-86_400 * 25));
        *snapshot = with_certificates(snapshot.clone(), &old, &old.bundle);
    };
    a_certificate_for_another_name: |snapshot| {
        snapshot.installation.namespace = "elsewhere".into();
    };
    a_certificate_of_another_ca: |snapshot| {
        let (own, other) = (certificates(), certificates());
        *snapshot = with_certificates(snapshot.clone(), &own, &other.bundle);
    };
    a_certificate_without_its_key: |snapshot| {
        let own = certificates();
        let odd = StoredCertificates { leaf_key: certificates().leaf_key, ..own.clone() };
        *snapshot = with_certificates(snapshot.clone(), &odd, &own.bundle);
    };
    bundles_that_are_empty: |snapshot| *snapshot = with_certificates(snapshot.clone(), &certificates(), "");
    webhooks_that_do_not_answer: |snapshot| {
        let down = |name: &str| failed(&format!("Internal error occurred: failed calling webhook \"{name}\": connection refused"));
        snapshot.trial.run = Err(down(runtime::install::PIPELINE_RUN_WEBHOOK));
        snapshot.trial.pod = Err(down(runtime::install::POD_WEBHOOK));
    };
    webhooks_that_are_not_called: |snapshot| {
        snapshot.trial.run = Ok(run(&json!({"spec": {"status": null}})));
        snapshot.trial.pod = Ok(Pod::default());
    };
    a_namespace_that_is_switched_off: |snapshot| {
        snapshot.trial.namespace = "ci".into();
        snapshot.trial.run = Ok(run(&json!({"spec": {"status": null}})));
        snapshot.trial.pod = Ok(Pod::default());
        for (_, seen) in &mut snapshot.installation.admission.webhooks {
            let mut found = serde_json::to_value(seen.as_ref().unwrap()).unwrap();
            let off = crate::switch::patch(&found, &crate::switch::Switch::Exclude("ci".into()));
            json_patch::patch(&mut found, &off).unwrap();
            *seen = Ok(serde_json::from_value(found).unwrap());
        }
    };
    a_tekton_whose_flags_are_not_found: |snapshot| snapshot.installation.platform.flags = Ok(None);
    a_dry_run_that_a_quota_rejects: |snapshot| snapshot.trial.pod = Err(failed("exceeded quota: tight"));
    webhook_configurations_that_were_changed: |snapshot| {
        for (_, seen) in &mut snapshot.installation.admission.webhooks {
            let Ok(Some(found)) = seen else { continue };
            let first = &mut found.webhooks.as_mut().unwrap()[0];
            if first.reinvocation_policy.as_deref() == Some("Never") {
                first.object_selector = None;
                first.rules = None;
            } else {
                first.failure_policy = Some("Ignore".into());
            }
        }
    };
    rights_that_are_missing: |snapshot| {
        snapshot.rights = Ok(vec![
            answer("get", "apps", "statefulsets", None),
            answer("patch", "apps", "statefulsets", None),
            answer("update", "", "secrets", Some("pod-affinity-webhook-certs")),
        ]);
    };
    a_coschedule_mode_that_gets_in_the_way: |snapshot| snapshot.installation.platform.flags = map(&json!({"coschedule": "pipelineruns"}));
    runs_that_wait_for_too_long: |snapshot| {
        snapshot.now = at(400);
        snapshot.lease = lease(&json!({"spec": {"renewTime": "2027-01-15T08:06:38.000000Z"}}));
        let waits = json!({"metadata": {"name": "waits", "uid": "w1"}});
        snapshot.runs = Ok(vec![view(&json!({})), view(&waits)]);
        snapshot.placeholders = Ok(vec![placeholder("waits", "w1", None, &unschedulable("no node"))]);
        let task = json!({"metadata": {"namespace": "web", "name": "t-pod", "creationTimestamp": at(0).to_string(),
            "labels": {"tekton.dev/pipelineRun": "t"}}});
        snapshot.waiting = Ok(vec![object(merged(task, &unschedulable("too big")), &json!({}))]);
    };
    a_run_that_no_controller_releases: |snapshot| {
        snapshot.now = at(700);
        snapshot.lease = lease(&json!({"spec": {"renewTime": "2027-01-15T08:11:38.000000Z"}}));
        snapshot.runs = Ok(vec![view(&json!({}))]);
    };
    a_user_without_rights: |snapshot| {
        snapshot.secret = Err(forbidden("get", "secrets"));
        snapshot.lease = Err(forbidden("get", "leases.coordination.k8s.io"));
        snapshot.rights = Err(forbidden("create", "subjectaccessreviews.authorization.k8s.io"));
        snapshot.trial.run = Err(forbidden("create", "pipelineruns.tekton.dev"));
        snapshot.config = Err(forbidden("get", "configmaps"));
        snapshot.namespaces = Err(forbidden("list", "namespaces"));
        snapshot.installation.platform.flags = Err(forbidden("get", "configmaps"));
        snapshot.installation.deployments = Err(forbidden("list", "deployments.apps"));
    };
}

#[test]
fn without_the_right_to_read_admission_an_installation_without_the_webhook_is_not_bad() {
    let mut snapshot = healthy();
    let Installation {
        admission,
        deployments,
        ..
    } = &mut snapshot.installation;
    *deployments = Ok(vec![deployment("pod-affinity-controller", 2, 2)]);
    for (_, found) in &mut admission.webhooks {
        *found = Err(forbidden("get", "mutatingwebhookconfigurations"));
    }
    for policy in &mut admission.policies {
        policy.found = Err(forbidden("get", "mutatingadmissionpolicies"));
    }
    snapshot.trial.run = Ok(run(&json!({"spec": {"status": null}})));
    let findings = findings(&snapshot);
    let bad: Vec<_> = findings.iter().filter(|it| it.level == Level::Bad).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let off = findings
        .iter()
        .find(|it| it.sentence.contains("may be switched off"));
    assert_eq!(off.map(|it| it.level), Some(Level::Warning), "{findings:#?}");
}

#[test]
fn each_mistake_in_the_configuration_is_a_finding() {
    let mut snapshot = healthy();
    snapshot.config = map(&json!({"release-when": "now", "hold-dedline": "5m"}));
    let found: Vec<_> = findings(&snapshot)
        .into_iter()
        .filter(|it| it.level == Level::Bad || it.sentence.contains("hold-dedline"))
        .collect();
    assert_eq!(found.len(), 2);
    assert!(
        found[0].level == Level::Warning && found[0].sentence.contains("hold-dedline: unknown key"),
        "{found:#?}"
    );
    assert!(
        found[1].sentence.contains("release-when: unknown moment"),
        "{found:#?}"
    );
}

/// A snapshot in which the controller's Deployment names another tool for certificates.
fn with_external_certificates() -> Snapshot {
    let variable = json!({"name": "POD_AFFINITY_CERTIFICATES", "value": "external"});
    with_variable(&variable)
}

fn with_variable(variable: &Value) -> Snapshot {
    let mut snapshot = healthy();
    let containers = json!([{"name": "controller", "env": [variable]}]);
    let deployment = object(
        json!({
            "metadata": {"name": "pod-affinity-controller"},
            "spec": {"replicas": 2, "selector": {}, "template": {"spec": {"containers": containers}}},
            "status": {"availableReplicas": 2},
        }),
        &json!({}),
    );
    let deployments = snapshot.installation.deployments.as_mut().unwrap();
    deployments[1] = deployment;
    snapshot
}

#[test]
fn with_certificates_of_an_own_ca_the_controller_needs_no_right_and_no_remedy_deletes_the_key() {
    let mut snapshot = with_external_certificates();
    let right = answer("update", "", "secrets", Some("pod-affinity-webhook-certs"));
    snapshot.rights = Ok(vec![right]);
    let is_ok = |finding: &Finding| finding.level == Level::Ok;
    assert!(findings(&snapshot).iter().all(is_ok));
    snapshot.now = at(29 * 24 * 60 * 60);
    let certificate = |snapshot: &Snapshot| {
        let mut findings = findings(snapshot).into_iter();
        let about = findings.find(|finding| finding.check == "certificate").unwrap();
        (about.level, about.remedy.unwrap())
    };
    let (level, remedy) = certificate(&snapshot);
    assert!(
        level == Level::Warning && remedy.contains("certs/README.md"),
        "{remedy}"
    );
    snapshot.secret = Ok(None);
    let (level, remedy) = certificate(&snapshot);
    assert!(
        level == Level::Bad && remedy.contains("certs/README.md"),
        "{remedy}"
    );
}

#[test]
fn a_certificate_in_mounted_files_needs_no_secret() {
    let mut snapshot =
        with_variable(&json!({"name": "POD_AFFINITY_TLS_CERT_FILE", "value": "/certs/tls.crt"}));
    snapshot.secret = Ok(None);
    let is_ok = |finding: &Finding| finding.level == Level::Ok;
    assert!(findings(&snapshot).iter().all(is_ok));
    let configuration = snapshot.installation.admission.webhooks[0].1.as_mut().unwrap();
    configuration.as_mut().unwrap().webhooks = Some(Vec::new());
    let bad: Vec<_> = findings(&snapshot).into_iter().filter(|it| !is_ok(it)).collect();
    assert!(
        bad.iter()
            .any(|it| it.check == "certificate" && it.sentence.contains("no caBundle")),
        "{bad:?}"
    );
}

#[test]
fn with_cert_manager_the_controller_needs_no_right_to_certificates() {
    let mut snapshot = healthy();
    let right = answer("update", "", "secrets", Some("pod-affinity-webhook-certs"));
    snapshot.rights = Ok(vec![right]);
    assert!(
        findings(&snapshot)
            .iter()
            .any(|finding| finding.level == Level::Bad)
    );
    let configuration = snapshot.installation.admission.webhooks[0]
        .1
        .as_mut()
        .unwrap()
        .as_mut()
        .unwrap();
    let annotation = ("cert-manager.io/inject-ca-from".to_owned(), "x/y".to_owned());
    configuration.metadata.annotations = Some([annotation].into());
    assert!(
        findings(&snapshot)
            .iter()
            .all(|finding| finding.level == Level::Ok)
    );
}

#[test]
fn a_hint_is_no_warning() {
    let mut snapshot = healthy();
    snapshot.installation.platform.flags = map(&json!({}));
    let findings = findings(&snapshot);
    assert!(findings.iter().all(|finding| finding.level == Level::Ok));
    assert!(findings.iter().any(|finding| finding.remedy.is_some()));
}

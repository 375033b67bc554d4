//! `doctor` finds each planted fault, one after another, and finds nothing on a healthy installation with the webhook or
//! with policies.

use crate::support::SOON;
use crate::support::cli::{CliOutput, plain, tool};
use crate::support::install::{POLICIES, install};
use crate::support::objects::admission;
use crate::support::pool;
use crate::support::runs::create;
use crate::support::testbeds::whole;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use placement::keys;
use runtime::install;
use serde_json::{Value, json};
use testbed::apply::{api_of, apply_all};
use testbed::runs::RunSpec;
use testbed::{Nodes, Part, Testbed};

const OURS: &str = "tekton-pod-affinity";
const CONTROLLERS: [Part; 2] = [Part::Controller(0), Part::Controller(1)];
const WEBHOOKS: [Part; 2] = [Part::Webhook(0), Part::Webhook(1)];

/// A certificate for the Service's names that expired in 2020.
const EXPIRED: &str = include_str!("cli_expired.pem");

/// An object that a test breaks and repairs.
struct Original {
    api: Api<DynamicObject>,
    before: DynamicObject,
}

impl Original {
    async fn read(
        client: &Client,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Self {
        let object = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace},
        });
        let (api, name) = api_of(client, &object).unwrap();
        let before = api.get(&name).await.unwrap();
        Self { api, before }
    }

    async fn patch(&self, patch: &Value) {
        let patch = Patch::Merge(patch);
        self.api
            .patch(&self.before.name_any(), &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    async fn delete(&self) {
        self.api
            .delete(&self.before.name_any(), &DeleteParams::default())
            .await
            .unwrap();
    }

    /// Restores the original object.
    async fn restore(self) {
        let mut object = self.before;
        object.metadata.resource_version = None;
        object.metadata.uid = None;
        object.metadata.managed_fields = None;
        let name = object.name_any();
        let done = match self.api.get_opt(&name).await.unwrap() {
            Some(spoilt) => {
                object.metadata.resource_version = spoilt.metadata.resource_version;
                self.api.replace(&name, &PostParams::default(), &object).await
            }
            None => self.api.create(&PostParams::default(), &object).await,
        };
        done.unwrap();
    }
}

async fn diagnose(bed: &Testbed) -> (CliOutput, String) {
    let said = tool(bed, "doctor").await;
    let text = plain(&said.out);
    (said, text)
}

/// Waits until doctor reports an error with these words, and returns all errors.
async fn until_found(bed: &Testbed, words: &str) -> Vec<String> {
    bed.until(format!("doctor to find {words:?}"), SOON, async || {
        let (said, text) = diagnose(bed).await;
        let bad: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("BAD"))
            .map(String::from)
            .collect();
        if bad.iter().any(|line| line.contains(words)) {
            assert_eq!(said.code, Some(1), "{text}");
            Ok(bad)
        } else {
            Err(text)
        }
    })
    .await
    .unwrap()
}

pub(crate) async fn until_healthy(bed: &Testbed) {
    bed.until("doctor to find nothing", SOON, async || {
        let (said, text) = diagnose(bed).await;
        if said.code == Some(0) && text.ends_with("No problems found.\n") {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await
    .unwrap();
}

#[e2e_test(webhook)]
async fn doctor_finds_each_planted_fault_and_nothing_on_a_healthy_installation() {
    let bed = whole(3).await;
    until_healthy(&bed).await;
    let data: Value = serde_json::from_str(&tool(&bed, "doctor -o json").await.out).unwrap();
    assert!(
        data["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|finding| finding["level"] == "ok"),
        "{data:#}"
    );

    let pre = tool(&bed, "doctor --pre --fail-on=warning").await;
    assert!(
        pre.code == Some(0) && plain(&pre.out).contains("upgrades what is installed"),
        "{pre:?}"
    );

    the_webhook_is_killed(&bed).await;
    a_key_of_the_configuration_is_wrong(&bed).await;
    a_right_is_missing(&bed).await;
    a_webhook_configuration_is_deleted(&bed).await;
    an_object_selector_was_changed(&bed).await;
    a_flag_of_tekton_is_in_the_way(&bed).await;
    a_deployment_is_scaled_to_nothing(&bed).await;
    a_namespace_has_no_room_for_placeholders(&bed).await;
    until_healthy(&bed).await;

    // Faults that a running controller would repair at once come last.
    kill(&bed, &CONTROLLERS);
    a_bundle_is_empty(&bed).await;
    a_certificate_has_expired(&bed).await;
    nobody_leads_and_a_run_is_stuck(&bed).await;
    start_again(&bed, &CONTROLLERS).await;
    bed.configure(&[("hold-deadline", None)]).await.unwrap();
    until_healthy(&bed).await;
}

#[e2e_test(policies)]
async fn doctor_recommends_policies_and_then_finds_only_missing_or_switched_off_policies() {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 2)).await.unwrap();
    let pre = tool(&bed, "doctor --pre --fail-on=warning").await;
    let recommended = "Install admission policies instead of the webhook";
    assert!(
        pre.code == Some(0) && plain(&pre.out).contains(recommended),
        "{pre:?}"
    );
    install(&bed, POLICIES).await;
    until_healthy(&bed).await;
    let pre = tool(&bed, "doctor --pre --fail-on=warning").await;
    let installed = "Admission policies are installed.";
    assert!(
        pre.code == Some(0) && plain(&pre.out).contains(installed),
        "{pre:?}"
    );

    a_policy_is_deleted(&bed).await;
    another_policy_takes_the_affinity_away(&bed).await;
    policies_are_switched_off(&bed).await;
    until_healthy(&bed).await;
}

async fn a_policy_is_deleted(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let name = "terms.pod.pod-affinity.tekton.dev";
    let kind = "MutatingAdmissionPolicy";
    let policy = Original::read(&client, "admissionregistration.k8s.io/v1", kind, None, name).await;
    policy.delete().await;
    let bad = until_found(bed, "A pod of a labelled run gets no affinity").await;
    let gone = format!("{kind} {name} is not there");
    assert!(bad.iter().any(|line| line.contains(&gone)), "{bad:#?}");
    policy.restore().await;
    until_healthy(bed).await;
}

/// The API server evaluates policies in any order, and in another order after each change of a policy. The test repeats the
/// change until the other policy is evaluated after pod-affinity's.
async fn another_policy_takes_the_affinity_away(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let (name, kinds) = (
        "zzz",
        ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"],
    );
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]});
    let change = "[JSONPatch{op: 'replace', path: '/spec/affinity', value: {}}]";
    let policy = json!({
        "matchConstraints": {"resourceRules": [rule]},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConditions": [{"name": "has-affinity", "expression": "has(object.spec.affinity)"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": change}}],
    });
    let specs = [policy, json!({"policyName": name})];
    let objects: Vec<_> = (kinds.iter().zip(&specs))
        .map(|(kind, spec)| admission(kind, name, spec))
        .collect();
    apply_all(&client, &objects).await.unwrap();
    let version = "admissionregistration.k8s.io/v1";
    let policy = Original::read(&client, version, kinds[0], None, name).await;
    let mut tries = 0;
    let text = bed.until("doctor to find that an affinity is undone", SOON, async || {
        tries += 1;
        policy
            .patch(&json!({"metadata": {"annotations": {"tries": tries.to_string()}}}))
            .await;
        let (_, text) = diagnose(bed).await;
        if text.contains("something changes it after pod-affinity") {
            Ok(text)
        } else {
            Err(text)
        }
    });
    let text = text.await.unwrap();
    assert!(
        text.contains("These change pods when they are created: MutatingAdmissionPolicy zzz."),
        "{text}"
    );
    policy.delete().await;
    Original::read(&client, version, kinds[1], None, name)
        .await
        .delete()
        .await;
    until_healthy(bed).await;
}

async fn policies_are_switched_off(bed: &Testbed) {
    let said = tool(bed, "disable -A").await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let bad = until_found(bed, "A labelled PipelineRun is not held").await;
    assert_eq!(
        bad.iter().filter(|line| line.contains("is switched off")).count(),
        7,
        "{bad:#?}"
    );
    let said = tool(bed, "enable -A").await;
    assert_eq!(said.code, Some(0), "{said:?}");
}

fn kill(bed: &Testbed, parts: &[Part]) {
    for part in parts {
        bed.kill(*part).unwrap();
    }
}

async fn start_again(bed: &Testbed, parts: &[Part]) {
    for part in parts {
        bed.start_again(*part).await.unwrap();
    }
}

async fn the_webhook_is_killed(bed: &Testbed) {
    kill(bed, &WEBHOOKS);
    let bad = until_found(bed, "The API server cannot use the webhook: ").await;
    assert_eq!(bad.len(), 2, "for runs and for pods: {bad:#?}");
    start_again(bed, &WEBHOOKS).await;
    until_healthy(bed).await;
}

async fn a_key_of_the_configuration_is_wrong(bed: &Testbed) {
    bed.configure(&[("hold-deadline", Some("soon"))]).await.unwrap();
    let bad = until_found(bed, "hold-deadline: \"soon\" is not a duration").await;
    assert_eq!(bad.len(), 1, "{bad:#?}");
    bed.configure(&[("hold-deadline", None)]).await.unwrap();
}

async fn a_right_is_missing(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let role = Original::read(
        &client,
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        None,
        "pod-affinity-controller",
    )
    .await;
    let mut rules = role.before.data["rules"].clone();
    for rule in rules.as_array_mut().unwrap() {
        if rule["resources"] == json!(["statefulsets"]) {
            rule["verbs"]
                .as_array_mut()
                .unwrap()
                .retain(|verb| verb != "delete");
        }
    }
    role.patch(&json!({"rules": rules})).await;
    let bad = until_found(bed, "ServiceAccount pod-affinity-controller").await;
    assert!(bad[0].contains("may not delete statefulsets.apps."), "{bad:#?}");
    role.restore().await;
    until_healthy(bed).await;
}

async fn a_webhook_configuration_is_deleted(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let webhook = configuration(&client, install::POD_WEBHOOK).await;
    webhook.delete().await;
    let bad = until_found(bed, "A pod of a labelled run gets no affinity").await;
    let gone = format!("{} is not there", install::POD_WEBHOOK);
    assert!(bad.iter().any(|line| line.contains(&gone)), "{bad:#?}");
    webhook.restore().await;
    until_healthy(bed).await;
}

async fn configuration(client: &Client, name: &str) -> Original {
    Original::read(
        client,
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        None,
        name,
    )
    .await
}

async fn an_object_selector_was_changed(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let webhook = configuration(&client, install::PIPELINE_RUN_WEBHOOK).await;
    let mut webhooks = webhook.before.data["webhooks"].clone();
    webhooks[0]["objectSelector"] = json!({"matchLabels": {"other": "label"}});
    webhook.patch(&json!({"webhooks": webhooks})).await;
    let bad = until_found(bed, "A labelled PipelineRun is not held").await;
    let changed = "was changed (objectSelector)";
    assert!(bad.iter().any(|line| line.contains(changed)), "{bad:#?}");
    webhook.restore().await;
    until_healthy(bed).await;
}

async fn a_flag_of_tekton_is_in_the_way(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let flags = Original::read(
        &client,
        "v1",
        "ConfigMap",
        Some("tekton-pipelines"),
        "feature-flags",
    )
    .await;
    flags
        .patch(&json!({"data": {"coschedule": "isolate-pipelinerun"}}))
        .await;
    let bad = until_found(bed, "coschedule is isolate-pipelinerun").await;
    assert_eq!(bad.len(), 1, "{bad:#?}");
    flags.restore().await;
}

async fn a_deployment_is_scaled_to_nothing(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let webhook = Original::read(
        &client,
        "apps/v1",
        "Deployment",
        Some(OURS),
        "pod-affinity-webhook",
    )
    .await;
    webhook.patch(&json!({"spec": {"replicas": 0}})).await;
    until_found(bed, "Deployment pod-affinity-webhook is scaled to 0").await;
    webhook.patch(&json!({"spec": {"replicas": 2}})).await;
    until_healthy(bed).await;
}

async fn a_namespace_has_no_room_for_placeholders(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let (of_all, within) = (
        json!({"name": "tight", "labels": {keys::OPT_IN: "true"}}),
        json!({"name": "tight", "namespace": "tight"}),
    );
    let hard = json!({"count/statefulsets.apps": "0", "pods": "9"});
    let limits = json!([{"type": "Container", "max": {"cpu": "10m"}}]);
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": of_all}),
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": within, "spec": {"hard": hard}}),
        json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": within, "spec": {"limits": limits}}),
    ];
    apply_all(&client, &objects).await.unwrap();
    let bad = until_found(
        bed,
        "count/statefulsets.apps of ResourceQuota tight/tight (0 of 0 used",
    )
    .await;
    assert_eq!(bad.len(), 1, "{bad:#?}");
    let (_, text) = diagnose(bed).await;
    for warning in [
        "A LimitRange maximum is lower than the requests of a placeholder",
        "pods of ResourceQuota tight/tight (0 of 9 used, 0 labelled runs)",
    ] {
        assert!(text.contains(warning), "{warning}: {text}");
    }
    let namespace = Original::read(&client, "v1", "Namespace", None, "tight").await;
    namespace
        .patch(&json!({"metadata": {"labels": {keys::OPT_IN: null}}}))
        .await;
}

async fn a_bundle_is_empty(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let webhook = configuration(&client, install::POD_WEBHOOK).await;
    let mut webhooks = webhook.before.data["webhooks"].clone();
    webhooks[0]["clientConfig"]["caBundle"] = json!(null);
    webhook.patch(&json!({"webhooks": webhooks})).await;
    let bad = until_found(bed, "has no caBundle").await;
    assert!(
        bad.iter().any(|line| line.contains(install::POD_WEBHOOK)),
        "{bad:#?}"
    );
    webhook.restore().await;
}

async fn a_certificate_has_expired(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let secret = Original::read(&client, "v1", "Secret", Some(OURS), install::CERTIFICATE_SECRET).await;
    secret.patch(&json!({"stringData": {"tls.crt": EXPIRED}})).await;
    until_found(bed, "The webhook's certificate expired").await;
    secret.restore().await;
}

async fn nobody_leads_and_a_run_is_stuck(bed: &Testbed) {
    bed.configure(&[("hold-deadline", Some("1s"))]).await.unwrap();
    create(
        bed,
        &RunSpec::new("default", "stuck")
            .task("only", &[])
            .opted_in("true"),
    )
    .await;
    until_found(bed, "was the last to lead").await;
    let bad = until_found(bed, "Held for longer than hold-deadline").await;
    assert!(bad.iter().any(|line| line.contains("default/stuck")), "{bad:#?}");
}

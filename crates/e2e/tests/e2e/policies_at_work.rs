//! The admission policies together with the controller, and together with policies of other owners that change the same
//! objects.

use crate::policies_and_webhook::{Answer, POLICIES, install_both, pod, send};
use crate::policies_corpus::with_reserve;
use crate::support::SOON;
use crate::support::objects::admission;
use crate::support::runs::{create, nodes_after, nodes_of};
use crate::support::testbeds::fresh_by;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use placement::keys;
use serde_json::{Value, json};
use testbed::apply::{api_of, apply_all};
use testbed::runs::{RunSpec, runs};
use testbed::{Admission, Testbed};

/// Name of the other owner's policy.
const OTHER: &str = "zzz";

#[e2e_test(policies)]
async fn with_policies_a_run_has_one_node_since_its_creation_or_its_release_by_the_user() {
    let release = Patch::Merge(json!({"spec": {"status": null}}));
    let bed = fresh_by(Admission::Webhook, 6).await;
    let client = install_both(&bed).await;
    let first = RunSpec::diamond(POLICIES, "first").opted_in("true");
    assert_eq!(nodes_after(&bed, &first).await.len(), 1);

    let second = RunSpec::diamond(POLICIES, "second").opted_in("true");
    create(&bed, &second.clone().spec("status", json!(keys::PENDING))).await;
    let api = runs(&client, POLICIES);
    let released = api
        .patch(second.name(), &PatchParams::default(), &release)
        .await
        .unwrap();
    assert_eq!(released.data["spec"]["status"], keys::PENDING);
    bed.until_succeeded(&second, SOON).await.unwrap();
    assert_eq!(nodes_of(&bed, &second).await.len(), 1);

    // A policy cannot read the time, and the hold has a deadline nevertheless.
    let nowhere = json!({"podTemplate": {"nodeSelector": {"nowhere": "true"}}});
    let third = RunSpec::new(POLICIES, "third").task("only", &[]).opted_in("true");
    let third = third.spec("taskRunTemplate", nowhere);
    create(&bed, &third.clone().spec("status", json!(keys::PENDING))).await;
    let released = api.patch(third.name(), &PatchParams::default(), &release).await;
    assert_eq!(released.unwrap().annotations()[keys::HOLD], "released");
    let is_dated = |run: &DynamicObject| {
        let mark = run.annotations().get(keys::HOLD);
        mark.is_some_and(|mark| mark.parse::<Timestamp>().is_ok())
    };
    bed.until_run(&third, "to have a dated hold", SOON, is_dated)
        .await
        .unwrap();
}

#[e2e_test(policies)]
async fn a_pod_whose_affinity_another_policy_removes_gets_its_terms_again() {
    let bed = fresh_by(Admission::Webhook, 0).await;
    let client = install_both(&bed).await;
    let usual = send(&client, POLICIES, &pod()).await;
    let take_away = "[JSONPatch{op: 'replace', path: '/spec/affinity', value: {}},
        JSONPatch{op: 'add', path: '/metadata/labels/seen', value: 'true'}]";
    add_policy(&client, ["", "pods"], "has(object.spec.affinity)", take_away).await;
    let is_seen = |pod: &Value| pod["metadata"]["labels"]["seen"] == "true";
    let after = until_accepted(&bed, &client, &pod(), is_seen).await;
    let Answer::Accepted(usual) = usual else {
        panic!("rejected")
    };
    assert!(usual["spec"]["affinity"]["podAffinity"].is_object(), "{usual}");
    assert_eq!(after["spec"], usual["spec"]);
}

#[e2e_test(policies)]
async fn a_run_that_another_policy_labels_is_held_after_the_change_that_the_page_describes() {
    let bed = fresh_by(Admission::Webhook, 0).await;
    let client = install_both(&bed).await;
    let mut run = with_reserve("");
    run["metadata"]["labels"] = json!({"team": "blue"});
    let label =
        "[JSONPatch{op: 'add', path: '/metadata/labels/tekton.dev~1custom-pod-affinity', value: 'true'}]";
    let unlabelled = "!('tekton.dev/custom-pod-affinity' in object.metadata.labels)";
    add_policy(&client, ["tekton.dev", "pipelineruns"], unlabelled, label).await;
    let is_labelled = |run: &Value| run["metadata"]["labels"][keys::OPT_IN] == "true";
    let is_held = |run: &Value| run["spec"]["status"] == keys::PENDING;
    until_accepted(&bed, &client, &run, |run| is_labelled(run) && !is_held(run)).await;

    let changed = Patch::Merge(json!({
        "spec": {"reinvocationPolicy": "IfNeeded", "matchConstraints": {"objectSelector": {"matchExpressions": null}}},
    }));
    let hold = admission(
        "MutatingAdmissionPolicy",
        "hold.pipelinerun.pod-affinity.tekton.dev",
        &json!({}),
    );
    let (api, name) = api_of(&client, &hold).unwrap();
    api.patch(&name, &PatchParams::default(), &changed).await.unwrap();
    until_accepted(&bed, &client, &run, |run| is_labelled(run) && is_held(run)).await;
}

/// The reason why pod-affinity's policies use JSON patches.
#[e2e_test(policies, second)]
async fn an_apply_configuration_cannot_add_terms_to_a_pod() {
    let bed = fresh_by(Admission::Webhook, 0).await;
    let client = install_both(&bed).await;
    let term = "Object.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution";
    let affinity = format!(
        "Object{{spec: Object.spec{{affinity: Object.spec.affinity{{podAffinity: Object.spec.affinity.podAffinity{{
            requiredDuringSchedulingIgnoredDuringExecution: [{term}{{topologyKey: 'kubernetes.io/hostname'}}]
        }}}}}}}}"
    );
    let applied = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": affinity}});
    add_mutation(&client, ["", "pods"], "true", &applied).await;
    let pods: Api<Pod> = Api::namespaced(client, POLICIES);
    let mut pod: Pod = serde_json::from_value(pod()).unwrap();
    pod.metadata.namespace = Some(POLICIES.to_owned());
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let rejected = bed.until("the policy to be evaluated", SOON, async || {
        let created = pods.create(&dry_run, &pod).await;
        created.err().ok_or("accepted")
    });
    let error = rejected.await.unwrap().to_string();
    assert!(error.contains("may not mutate atomic arrays"), "{error}");
}

/// The API server evaluates policies in any order, and in another order after each change of a policy. The test repeats the
/// change until the object is as expected.
async fn until_accepted(
    bed: &Testbed,
    client: &Client,
    document: &Value,
    is_so: impl Fn(&Value) -> bool,
) -> Value {
    let mut tries = 0;
    bed.until("all policies to be evaluated", SOON, async || {
        tries += 1;
        change_other_policy(client, tries).await;
        match send(client, POLICIES, document).await {
            Answer::Accepted(object) if is_so(&object) => Ok(object),
            other => Err(other),
        }
    })
    .await
    .unwrap()
}

async fn change_other_policy(client: &Client, tries: usize) {
    let (api, _) = api_of(client, &admission("MutatingAdmissionPolicy", OTHER, &json!({}))).unwrap();
    let change = Patch::Merge(json!({"metadata": {"annotations": {"tries": tries.to_string()}}}));
    api.patch(OTHER, &PatchParams::default(), &change).await.unwrap();
}

/// Adds a policy that applies this change on creation if the condition is true.
async fn add_policy(client: &Client, of: [&str; 2], condition: &str, change: &str) {
    let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": change}});
    add_mutation(client, of, condition, &mutation).await;
}

async fn add_mutation(client: &Client, [group, resource]: [&str; 2], condition: &str, mutation: &Value) {
    let rule = json!({
        "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE"],
    });
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule]},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConditions": [{"name": "condition", "expression": condition}],
        "mutations": [mutation],
    });
    let binding = json!({"policyName": OTHER});
    let objects = [
        admission("MutatingAdmissionPolicy", OTHER, &spec),
        admission("MutatingAdmissionPolicyBinding", OTHER, &binding),
    ];
    apply_all(client, &objects).await.unwrap();
}

//! pod-affinity's pods under Pod Security `restricted`, as the API server enforces it, and in a cluster that assigns users
//! as OpenShift does.

use crate::support::SOON;
use crate::support::events::{reasons, until_event};
use crate::support::kubectl::{parsed, workspace};
use crate::support::objects::admission;
use crate::support::placeholders::{bound_placeholder, pods};
use crate::support::runs::{create, let_succeed, nodes_of};
use crate::support::testbeds::{fresh, installed};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use placement::keys;
use serde_json::{Value, json};
use testbed::product::NAMESPACE;
use testbed::runs::RunSpec;
use testbed::{Admission, Testbed, apply};

/// Creates a pod in a dry run.
async fn tried(client: &Client, namespace: &str, template: &Value) -> Result<Pod, Error> {
    let mut pod = template.clone();
    pod["metadata"]["name"] = json!("tried");
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    pods(client, namespace)
        .create(&dry_run, &serde_json::from_value(pod).unwrap())
        .await
}

/// The API server reads the namespace's labels by a watch.
async fn until_enforced(bed: &Testbed, client: &Client, namespace: &str) {
    let careless = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let what = format!("restricted to be enforced in {namespace}");
    bed.until(what, SOON, async || {
        match tried(client, namespace, &careless).await {
            Err(error) if error.to_string().contains("violates PodSecurity \"restricted") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

#[e2e_test(webhook)]
async fn the_processes_are_admitted_where_restricted_is_enforced() {
    let bed = installed().await;
    let client = bed.client().await.unwrap();
    until_enforced(&bed, &client, NAMESPACE).await;
    for template in templates() {
        tried(&client, NAMESPACE, &template).await.unwrap();
    }
}

/// The pods of the Deployments in config/.
fn templates() -> Vec<Value> {
    let files: &[&str] = match Admission::of_environment().unwrap() {
        Admission::Webhook => &["700-webhook.yaml", "701-controller.yaml"],
        Admission::Policies => &["701-controller.yaml"],
    };
    let template = |file: &&str| {
        let objects = parsed(&std::fs::read_to_string(workspace().join("config").join(file)).unwrap());
        let mut objects = objects.into_iter();
        let deployment = objects.find(|object| object["kind"] == "Deployment");
        deployment.unwrap()["spec"]["template"].take()
    };
    files.iter().map(template).collect()
}

#[e2e_test]
async fn a_placeholder_gets_its_node_where_restricted_is_enforced() {
    let bed = &installed().await;
    let (client, namespace) = (
        bed.client().await.unwrap(),
        bed.namespace("restricted").await.unwrap(),
    );
    let enforced =
        Patch::Merge(json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}));
    Api::<Namespace>::all(client.clone())
        .patch(&namespace, &PatchParams::default(), &enforced)
        .await
        .unwrap();
    until_enforced(bed, &client, &namespace).await;
    // The pod of the task is rejected in this namespace, so that the run and its placeholder end soon.
    let run = RunSpec::new(&namespace, "run").task("only", &[]).opted_in("true");
    create(bed, &run).await;
    let note = until_event(bed, &run, "Released").await;
    assert!(note.contains("go to node "), "{note}");
}

/// The user id that is assigned to a namespace.
const ASSIGNED: i64 = 1_000_650_000;
const CONSTRAINTS: &str = "restricted-v2";

/// Simulates the users, groups and volumes of the `SecurityContextConstraints` `restricted-v2` by policies: a pod without a
/// user gets the assigned one, and a pod with another user is rejected. OpenShift itself is not tested.
async fn assign_users(bed: &Testbed, namespaces: &[&str]) {
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]});
    let here = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces});
    let pods = json!({"resourceRules": [rule], "namespaceSelector": {"matchExpressions": [here]}});
    let assign = json!({
        "matchConstraints": pods, "failurePolicy": "Fail", "reinvocationPolicy": "Never",
        "matchConditions": [{"name": "names-none", "expression": NAMES_NONE}],
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": ASSIGN}}],
    });
    let refuse = json!({
        "matchConstraints": pods, "failurePolicy": "Fail",
        "validations": ALLOWED.map(|expression| json!({"expression": expression})),
    });
    let denies = json!({"policyName": CONSTRAINTS, "validationActions": ["Deny"]});
    let objects = [
        ("MutatingAdmissionPolicy", assign),
        (
            "MutatingAdmissionPolicyBinding",
            json!({"policyName": CONSTRAINTS}),
        ),
        ("ValidatingAdmissionPolicy", refuse),
        ("ValidatingAdmissionPolicyBinding", denies),
    ];
    let client = bed.client().await.unwrap();
    let objects = objects.map(|(kind, spec)| admission(kind, CONSTRAINTS, &spec));
    apply::apply_all(&client, &objects).await.unwrap();
    let container = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let of = |user: Option<i64>| {
        let pod =
            json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": user});
        let container = json!({"name": "c", "image": "i", "securityContext": container});
        json!({"spec": {"securityContext": pod, "containers": [container]}})
    };
    for namespace in namespaces {
        bed.until("users to be assigned, and others refused", SOON, async || {
            let assigned = tried(&client, namespace, &of(None)).await;
            let assigned = user(&assigned.map_err(|error| error.to_string())?);
            match tried(&client, namespace, &of(Some(65_532))).await {
                Err(error) if assigned == Some(ASSIGNED) && error.to_string().contains(CONSTRAINTS) => Ok(()),
                another => Err(format!("{assigned:?} is assigned, another gives {another:?}")),
            }
        })
        .await
        .unwrap();
    }
}

const NAMES_NONE: &str = "!object.spec.?securityContext.?runAsUser.hasValue()";
const ASSIGN: &str = "Object{spec: Object.spec{securityContext: Object.spec.securityContext{
    runAsUser: 1000650000, fsGroup: 1000650000,
    seLinuxOptions: Object.spec.securityContext.seLinuxOptions{level: 's0:c26,c5'}}}}";
const ALLOWED: [&str; 3] = [
    "object.spec.securityContext.runAsUser == 1000650000 && object.spec.securityContext.fsGroup == 1000650000",
    "(object.spec.containers + object.spec.?initContainers.orValue([])).all(it, !it.?securityContext.?runAsUser.hasValue())",
    "object.spec.?volumes.orValue([]).all(it, has(it.configMap) || has(it.downwardAPI) || has(it.emptyDir) || \
     has(it.persistentVolumeClaim) || has(it.projected) || has(it.secret))",
];

fn user(pod: &Pod) -> Option<i64> {
    pod.spec.as_ref()?.security_context.as_ref()?.run_as_user
}

#[e2e_test(policies)]
async fn pods_run_with_assigned_users_as_on_openshift_and_a_labelled_run_succeeds() {
    let bed = fresh(2).await;
    let client = bed.client().await.unwrap();
    let namespace = bed.namespace("assigned").await.unwrap();
    assign_users(&bed, &[NAMESPACE, &namespace]).await;
    for template in templates() {
        let pod = tried(&client, NAMESPACE, &template).await.unwrap();
        assert_eq!(user(&pod), Some(ASSIGNED));
    }
    let spec = RunSpec::diamond(&namespace, "run")
        .opted_in("true")
        .ending("hang");
    let spec = spec.annotation(keys::RESERVE, "cpu=2");
    let run = create(&bed, &spec).await;
    assert_eq!(user(&bound_placeholder(&bed, &run).await), Some(ASSIGNED));
    let_succeed(&bed, &spec).await;
    assert_eq!(nodes_of(&bed, &spec).await.len(), 1);
    let reported = reasons(&client, &spec).await;
    assert!(
        !reported.contains(&"PlaceholderReturned".to_owned()),
        "{reported:?}"
    );
}

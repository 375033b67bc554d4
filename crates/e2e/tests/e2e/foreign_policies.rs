//! Admission policies of other owners change the pods of runs and their placeholders.

use crate::support::SOON;
use crate::support::cli::{on_one_line, tool};
use crate::support::controller::configure;
use crate::support::events::reasons;
use crate::support::objects::{admission, cpu, node_of, still_node};
use crate::support::placeholders::{placeholder_name, pods};
use crate::support::runs::{create, nodes_of, until_released};
use crate::support::testbeds::fresh;
use k8s_openapi::api::core::v1::{Pod, Taint};
use kube::Client;
use kube::api::PostParams;
use placement::keys;
use serde_json::{Value, json};
use testbed::apply::apply_all;
use testbed::runs::RunSpec;
use testbed::{Nodes, Testbed};

const POLICY: &str = "of-another-owner";

/// Adds a policy that changes pods with this label, and waits until the API server applies the policy.
async fn add_policy(bed: &Testbed, rules: Value, (key, value): (&str, &str), changes: &str) {
    let client = bed.client().await.unwrap();
    let labels = "object.metadata.labels";
    let condition = format!("has({labels}) && '{key}' in {labels} && {labels}['{key}'] == '{value}'");
    let spec = json!({
        "matchConstraints": {"resourceRules": rules},
        "reinvocationPolicy": "IfNeeded",
        "matchConditions": [{"name": "condition", "expression": condition}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": changes}}],
    });
    let objects = [
        admission("MutatingAdmissionPolicy", POLICY, &spec),
        admission(
            "MutatingAdmissionPolicyBinding",
            POLICY,
            &json!({"policyName": POLICY}),
        ),
    ];
    apply_all(&client, &objects).await.unwrap();
    until_applied(bed, &client, (key, value)).await;
}

async fn until_applied(bed: &Testbed, client: &Client, (key, value): (&str, &str)) {
    let resources = json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "10m"}});
    let probe = json!({
        "metadata": {"name": "probe", "labels": {key: value}},
        "spec": {
            "nodeSelector": {}, "tolerations": [],
            "containers": [{"name": "main", "image": "testbed.invalid/main", "resources": resources}],
        },
    });
    let probe: Pod = serde_json::from_value(probe).unwrap();
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    bed.until("the policy to apply", SOON, async || {
        let created = pods(client, "default").create(&params, &probe).await;
        let spec = created.map_err(|error| error.to_string())?.spec.unwrap();
        let is_changed = spec.node_selector.is_some_and(|labels| !labels.is_empty())
            || spec.containers[0]
                .resources
                .as_ref()
                .unwrap()
                .requests
                .as_ref()
                .unwrap()["cpu"]
                .0
                != "10m";
        is_changed
            .then_some(())
            .ok_or_else(|| "a pod as created".to_owned())
    })
    .await
    .unwrap();
}

fn rule(operation: &str, resource: &str) -> Value {
    json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]})
}

#[e2e_test]
async fn a_policy_that_raises_requests_causes_one_resize_or_one_recreation() {
    let bed = &*fresh(0).await;
    let client = bed.client().await.unwrap();
    let resources = "/spec/containers/0/resources";
    let raise = format!(
        "quantity(object.spec.containers[0].resources.requests['cpu']).isLessThan(quantity('200m')) ? [
            JSONPatch{{op: 'replace', path: '{resources}/requests/cpu', value: '200m'}},
            JSONPatch{{op: 'replace', path: '{resources}/limits/cpu', value: '200m'}}
        ] : []"
    );
    let rules = json!([rule("CREATE", "pods"), rule("UPDATE", "pods/resize")]);
    add_policy(bed, rules, (keys::COMPONENT, keys::PLACEHOLDER), &raise).await;
    let pre = tool(bed, "doctor --pre").await;
    let raised =
        "Admission raises the requests of a placeholder from cpu=50m, memory=100Mi to cpu=200m, memory=100Mi";
    assert!(
        pre.code == Some(0) && on_one_line(&pre.out).contains(raised),
        "{pre:?}"
    );
    // KWOK's nodes reject a resize.
    bed.add_nodes(&Nodes::new("rejects", 1)).await.unwrap();
    still_node(bed, &client, "resizes-0").await;
    for node in ["resizes-0", "rejects-0"] {
        let template = json!({"podTemplate": {"nodeSelector": {keys::HOSTNAME: node}}});
        let run = RunSpec::new("default", node)
            .task("only", &[])
            .spec("taskRunTemplate", template)
            .opted_in("true")
            .annotation(keys::RESERVE, "cpu=2")
            .ending("hang");
        let created = create(bed, &run).await;
        until_released(bed, &run).await;
        let name = placeholder_name(&created).pod();
        let placeholder = pods(&client, "default").get(&name).await.unwrap();
        assert_eq!(cpu(&placeholder), "200m", "{node}");
        assert_eq!(node_of(&placeholder), node);
    }
}

#[e2e_test]
async fn a_placeholder_goes_where_a_policy_sends_the_tasks() {
    let bed = fresh(2).await;
    let taint = Taint {
        key: "dedicated".to_owned(),
        value: Some("ci".to_owned()),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    let nodes = Nodes {
        taints: vec![taint],
        ..Nodes::new("pool", 2).label("pool", "ci")
    };
    bed.add_nodes(&nodes).await.unwrap();
    let send = "[
        JSONPatch{op: 'add', path: '/spec/nodeSelector', value: {'pool': 'ci'}},
        JSONPatch{op: 'add', path: '/spec/tolerations/-', value: Object.spec.tolerations{key: 'dedicated', operator: 'Exists'}}
    ]";
    let label = ("app.kubernetes.io/managed-by", "tekton-pipelines");
    add_policy(&bed, json!([rule("CREATE", "pods")]), label, send).await;
    let settings = [
        ("placeholder-node-selector", Some("pool=ci")),
        ("placeholder-tolerations", Some("dedicated=ci:NoSchedule")),
    ];
    configure(&bed, &settings).await;
    let run = RunSpec::diamond("default", "run").opted_in("true");
    create(&bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert!(
        nodes_of(&bed, &run)
            .await
            .iter()
            .all(|node| node.starts_with("pool-"))
    );
    let reported = reasons(&bed.client().await.unwrap(), &run).await;
    assert!(!reported.contains(&"MovedOff".to_owned()), "{reported:?}");
}

/// As on GKE Autopilot, which restricts pods that must not be evicted.
#[e2e_test]
async fn doctor_reports_a_policy_that_rejects_placeholders_before_the_installation() {
    let bed = &*fresh(0).await;
    let client = bed.client().await.unwrap();
    let annotations = "object.metadata.?annotations.orValue({})";
    let expression = format!(
        "!('{}' in {annotations} && has(object.spec.affinity))",
        keys::SAFE_TO_EVICT
    );
    let rejects = json!({
        "matchConstraints": {"resourceRules": [rule("CREATE", "pods")]},
        "validations": [{"expression": expression, "message": "extended duration pods have no affinity"}],
    });
    let binding = json!({"policyName": POLICY, "validationActions": ["Deny"]});
    let objects = [
        admission("ValidatingAdmissionPolicy", POLICY, &rejects),
        admission("ValidatingAdmissionPolicyBinding", POLICY, &binding),
    ];
    apply_all(&client, &objects).await.unwrap();
    bed.until("doctor to report the policy", SOON, async || {
        let pre = tool(bed, "doctor --pre").await;
        let text = on_one_line(&pre.out);
        let is_reported = text
            .contains("The API server rejects a placeholder (dry run in namespace default)")
            && text.contains("extended duration pods have no affinity");
        (is_reported && pre.code == Some(1)).then_some(()).ok_or(text)
    })
    .await
    .unwrap();
}

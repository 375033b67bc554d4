//! The objects of the Helm chart: those of kustomize for each variant, and the changes that values make.

use crate::support::helm::{Chart, chart};
use crate::support::install::{overlay, own_ca};
use crate::support::kubectl::{file, kubectl, rendered, workspace};
use crate::support::pool;
use crate::support::ship_program::released;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use testbed::product::NAMESPACE;
use testbed::{Definitions, Helm, Options};

const IMAGE: &str = "ko://pod-affinity";
const VERSION: &str = "app.kubernetes.io/version";
/// The components that a value adds.
const ADDED: [(&str, &str); 5] = [
    ("guardrails.enabled", "guardrails"),
    ("monitoring.enabled", "monitoring"),
    ("releaseOnUninstall", "release-all"),
    ("reservedLabel.enabled", "reserved-label"),
    ("warmNodes.enabled", "warm-nodes"),
];
/// "a certificate", in base64.
const AUTHORITY: &str = "YSBjZXJ0aWZpY2F0ZQ==";

/// Objects by kind and name.
type Objects = BTreeMap<String, Value>;

fn by_name(objects: Vec<Value>) -> Objects {
    let name = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    let named = objects.into_iter().map(|object| (name(&object), object));
    named.collect()
}

/// What the chart should have of a kustomization: all objects except the Namespace, with this image.
fn expected(folder: &Path, image: &str) -> Objects {
    let text = json!(rendered(folder)).to_string().replace(IMAGE, image);
    let mut objects: Vec<Value> = serde_json::from_str(&text).unwrap();
    objects.retain(|object| object["kind"] != "Namespace");
    by_name(objects)
}

/// The chart's objects without the version, which is a label of each object.
fn of_chart(chart: &Chart, values: &Value) -> Objects {
    let mut objects = by_name(chart.objects(values));
    for (name, object) in &mut objects {
        let labels = object["metadata"]["labels"].as_object_mut().unwrap();
        assert_eq!(labels.remove(VERSION), Some(json!("v1.0.0")), "{name}");
        if let Some(labels) = object.pointer_mut("/spec/template/metadata/labels") {
            labels.as_object_mut().unwrap().remove(VERSION);
        }
    }
    objects
}

async fn released_chart(folder: &Path) -> (Chart, String) {
    let release = released(folder, "v1.0.0");
    let image = std::fs::read_to_string(release.join("image.txt")).unwrap();
    (chart(Helm::V3, &release, "1.0.0").await, image.trim().to_owned())
}

/// Values that install one way of admission and nothing else. Without an API server, the chart has no Job for the uninstallation: `kubectl
/// apply` would execute the Job at once.
fn alone(admission: &str, webhook: &Value) -> Value {
    json!({"admission": admission, "webhook": webhook})
}

/// The object of this kind and name.
fn object<'a>(objects: &'a Objects, kind: &str, name: &str) -> &'a Value {
    &objects[&format!("\"{kind}\" \"{name}\"")]
}

#[e2e_test(second)]
async fn the_chart_has_the_objects_of_kustomize_for_each_variant() {
    let folder = tempfile::tempdir().unwrap();
    let (chart, image) = released_chart(folder.path()).await;
    chart.run(&["lint", "--strict"]);
    let external = json!({"certificates": "external", "caBundle": AUTHORITY});
    let variants: [(PathBuf, Value); 5] = [
        (overlay("policies"), alone("policies", &json!({}))),
        // The leader writes the bundle, whatever the value of an earlier release was.
        (
            workspace().join("config"),
            alone("webhook", &json!({"caBundle": AUTHORITY})),
        ),
        (overlay("fail-open"), alone("webhook", &json!({"failOpen": true}))),
        (
            overlay("cert-manager"),
            alone("webhook", &json!({"certificates": "cert-manager"})),
        ),
        (
            own_ca(folder.path(), "a certificate"),
            alone("webhook", &external),
        ),
    ];
    for (kustomization, values) in &variants {
        let (expected, found) = (expected(kustomization, &image), of_chart(&chart, values));
        assert_eq!(found, expected, "{}", kustomization.display());
        assert_eq!(chart.template(values), chart.template(values));
    }
    for (value, component) in ADDED {
        let mut values = variants[1].1.clone();
        let mut objects = expected(&variants[1].0, &image);
        match value.split_once('.') {
            Some((key, enabled)) => values[key] = json!({enabled: true}),
            None => values[value] = json!(true),
        }
        objects.extend(expected(
            &workspace().join("config/components").join(component),
            &image,
        ));
        assert_eq!(of_chart(&chart, &values), objects, "{component}");
    }
}

/// Values that differ from the defaults.
fn many_values() -> Value {
    json!({
        "admission": "webhook",
        "image": "mirror.example.com/pod-affinity@sha256:1",
        "imagePullSecrets": [{"name": "mirror"}],
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"infra": "true"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "config": {"max-runs": 1_000_000, "isolate-from": "enrolled", "hold-deadline": "1h30m", "move-after": "never", "keep-node-for": 0},
        "controller": {"replicas": 3, "resources": {"limits": {"memory": "1Gi"}}},
        "webhook": {"replicas": 4, "hostNetwork": true, "port": 9443, "metricsPort": 9080},
        "monitoring": {"enabled": true, "labels": {"release": "prometheus"}},
        "warmNodes": {"enabled": true, "replicas": 5, "nodeSelector": {"pool": "ci"}},
        "guardrails": {"enabled": true, "config": {"namespaces": ["team-a", "team-b"]}},
        "reservedLabel": {"enabled": true, "config": {"pods": ["system:serviceaccount:ci:tekton"]}},
        "releaseOnUninstall": true,
    })
}

#[e2e_test(second)]
async fn each_value_of_the_chart_changes_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let (chart, _) = released_chart(folder.path()).await;
    let values = many_values();
    let objects = of_chart(&chart, &values);
    let text = json!(objects).to_string();
    assert!(
        !text.contains("registry.invalid") && text.matches("mirror.example.com").count() == 5,
        "{text}"
    );
    let workloads = [
        ("Deployment", "pod-affinity-controller"),
        ("Deployment", "pod-affinity-webhook"),
        ("Job", "pod-affinity-release-all"),
    ];
    for (kind, name) in workloads {
        let pod = &object(&objects, kind, name)["spec"]["template"]["spec"];
        assert_eq!(
            pod["nodeSelector"],
            json!({"infra": "true", "kubernetes.io/os": "linux"}),
            "{name}"
        );
        assert_eq!(pod["tolerations"], values["tolerations"], "{name}");
        assert_eq!(pod["priorityClassName"], "system-cluster-critical", "{name}");
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "mirror"}]), "{name}");
    }
    let controller = &object(&objects, "Deployment", "pod-affinity-controller")["spec"];
    assert_eq!(controller["replicas"], 3);
    let resources = &controller["template"]["spec"]["containers"][0]["resources"];
    assert_eq!(
        *resources,
        json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}})
    );
    on_the_network_of_the_node(&object(&objects, "Deployment", "pod-affinity-webhook")["spec"]);
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        let labels = &object(&objects, kind, "pod-affinity")["metadata"]["labels"];
        assert_eq!(labels["release"], "prometheus", "{kind}");
    }
    let warm = &object(&objects, "Deployment", "pod-affinity-warm-nodes")["spec"];
    assert_eq!(warm["replicas"], 5);
    let warm = &warm["template"]["spec"];
    assert_eq!(
        warm["nodeSelector"],
        json!({"pool": "ci", "kubernetes.io/os": "linux"})
    );
    assert_eq!(
        (&warm["tolerations"], &warm["priorityClassName"]),
        (&Value::Null, &json!("pod-affinity-warm-node"))
    );
    let data = |name: &str| object(&objects, "ConfigMap", name)["data"].clone();
    let config = data("config-pod-affinity");
    assert_eq!(
        (&config["max-runs"], &config["isolate-from"]),
        (&json!("1000000"), &json!("enrolled"))
    );
    assert_eq!(data("config-guardrails")["namespaces"], "team-a\nteam-b");
    assert_eq!(
        data("config-reserved-label")["pods"],
        "system:serviceaccount:ci:tekton"
    );
}

fn on_the_network_of_the_node(webhook: &Value) {
    assert_eq!(webhook["replicas"], 4);
    let pod = &webhook["template"]["spec"];
    assert_eq!(pod["hostNetwork"], true);
    let update = &webhook["strategy"]["rollingUpdate"];
    assert_eq!(*update, json!({"maxSurge": 0, "maxUnavailable": 1}));
    let ports = pod["containers"][0]["ports"].as_array().unwrap().iter();
    assert_eq!(
        ports.map(|port| &port["containerPort"]).collect::<Vec<_>>(),
        [9443, 9080]
    );
    let variables = pod["containers"][0]["env"].to_string();
    assert!(
        variables.contains(r#""POD_AFFINITY_LISTEN","value":"[::]:9443""#),
        "{variables}"
    );
    assert!(
        variables.contains(r#""POD_AFFINITY_ADMIN_LISTEN","value":"[::]:9080""#),
        "{variables}"
    );
}

#[e2e_test(second)]
async fn the_chart_rejects_values_that_install_nothing_useful() {
    let folder = tempfile::tempdir().unwrap();
    let (chart, _) = released_chart(folder.path()).await;
    for (values, words) in [
        (
            json!({}),
            "set admission to policies (Kubernetes 1.36 and newer) or webhook",
        ),
        (json!({"admission": "webhooks"}), "admission"),
        (json!({"admission": "webhook", "replicas": 3}), "replicas"),
        (
            json!({"admission": "webhook", "config": {"max-run": 3}}),
            "max-run",
        ),
        (
            json!({"admission": "webhook", "config": {"hold-deadline": 600}}),
            "hold-deadline",
        ),
        (
            json!({"admission": "webhook", "config": {"move-after": "60"}}),
            "move-after",
        ),
        (
            json!({"admission": "webhook", "config": {"keep-node-for": 5}}),
            "keep-node-for",
        ),
        (
            json!({"admission": "webhook", "image": IMAGE}),
            "cargo ship chart",
        ),
    ] {
        let error = chart.rejected(&values, "tekton-pod-affinity");
        assert!(error.contains(words), "{values}: {error}");
    }
    let error = chart.rejected(&json!({"admission": "webhook"}), "default");
    assert!(error.contains("--namespace tekton-pod-affinity"), "{error}");
}

/// The API server rejects fields that its definitions do not have.
#[e2e_test(second)]
async fn the_api_server_accepts_the_objects_of_the_chart() {
    let options = Options {
        tekton: false,
        ..Options::default()
    };
    let bed = pool::start(options).await;
    bed.define(Definitions::CertManager).await.unwrap();
    bed.define(Definitions::PrometheusOperator).await.unwrap();
    kubectl(&bed, &["create", "namespace", NAMESPACE]);
    let (chart, _) = released_chart(bed.folder()).await;
    let mut with_policies = many_values();
    with_policies["admission"] = json!("policies");
    let mut with_cert_manager = many_values();
    with_cert_manager["webhook"]["certificates"] = json!("cert-manager");
    for values in [many_values(), with_policies, with_cert_manager] {
        let objects = chart.objects(&values);
        let file = file(&bed, "objects", &objects);
        let apply = ["apply", "--server-side", "--dry-run=server", "--filename", &file];
        assert_eq!(kubectl(&bed, &apply).lines().count(), objects.len());
    }
}

//! The manifests in config/ against the code: names and paths that both must agree on, rights without wildcards, and
//! pods that pass Pod Security `restricted`. Reads files only.

use crate::args::{Args, Command};
use clap::Parser;
use placement::coschedule::FEATURE_FLAGS;
use placement::opt_in::NamespaceLabel;
use placement::{config::Config, keys};
use runtime::install;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const LABELS: [&str; 3] = [
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/part-of",
];
const IMAGE: &str = "ko://pod-affinity";
const CLUSTER_WIDE: [&str; 5] = [
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingWebhookConfiguration",
    "PriorityClass",
];

fn config() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config")
}

fn files() -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(config())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

/// Every document of config/, in the order in which kubectl would apply them.
fn manifests() -> Vec<Value> {
    files()
        .iter()
        .flat_map(|file| documents(&fs::read_to_string(file).unwrap()))
        .collect()
}

fn documents(text: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

fn of_kind(kind: &str) -> Vec<Value> {
    manifests()
        .into_iter()
        .filter(|one| one["kind"] == kind)
        .collect()
}

fn named(kind: &str, name: &str) -> Value {
    let found = of_kind(kind)
        .into_iter()
        .find(|one| one["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("config/ has no {kind} {name}"))
}

fn rules(object: &Value) -> Vec<Value> {
    object["rules"].as_array().unwrap().clone()
}

fn all_rules() -> Vec<Value> {
    let roles = of_kind("ClusterRole").into_iter().chain(of_kind("Role"));
    roles.flat_map(|role| rules(&role)).collect()
}

fn webhooks(configuration: &str) -> Vec<Value> {
    let configuration = named("MutatingWebhookConfiguration", configuration);
    configuration["webhooks"].as_array().unwrap().clone()
}

/// The webhook that a configuration is named after.
fn webhook(name: &str) -> Value {
    webhooks(name)
        .into_iter()
        .find(|webhook| webhook["name"] == name)
        .unwrap()
}

fn container(deployment: &Value) -> Value {
    let containers = deployment["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap();
    assert_eq!(containers.len(), 1);
    containers[0].clone()
}

fn command_of(deployment: &str) -> Command {
    let container = container(&named("Deployment", deployment));
    let args = container["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arg| arg.as_str().unwrap().to_owned());
    let image = ["--placeholder-image=x".to_owned()];
    let rest = if deployment.ends_with("controller") {
        image.as_slice()
    } else {
        &[]
    };
    Args::parse_from(
        ["pod-affinity".to_owned()]
            .into_iter()
            .chain(args)
            .chain(rest.iter().cloned()),
    )
    .command
}

fn port(deployment: &str, name: &str) -> Value {
    let container = container(&named("Deployment", deployment));
    let ports = container["ports"].as_array().unwrap();
    ports.iter().find(|port| port["name"] == name).unwrap()["containerPort"].clone()
}

#[test]
fn each_object_has_the_common_labels_and_the_namespace_of_the_installation() {
    for object in manifests() {
        let metadata = &object["metadata"];
        for label in LABELS {
            assert!(
                metadata["labels"][label].is_string(),
                "{label} is missing on {metadata}"
            );
        }
        assert_eq!(metadata["labels"][keys::APP], keys::APP_NAME);
        let cluster_wide = CLUSTER_WIDE.contains(&object["kind"].as_str().unwrap());
        let namespace = if cluster_wide {
            Value::Null
        } else {
            json!(keys::NAMESPACE)
        };
        assert_eq!(metadata["namespace"], namespace, "{metadata}");
    }
}

#[test]
fn the_kustomization_names_every_file() {
    let base: Value =
        serde_yaml::from_str(&fs::read_to_string(config().join("Kustomization")).unwrap()).unwrap();
    let named: Vec<_> = files()
        .iter()
        .map(|file| file.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(base["resources"], json!(named));
}

#[test]
fn the_names_of_objects_match_the_constants_in_the_code() {
    let known = [
        ("Namespace", keys::NAMESPACE),
        ("ConfigMap", install::CONFIG_MAP),
        ("Secret", install::CERTIFICATE_SECRET),
        ("Service", install::WEBHOOK_SERVICE),
        ("PriorityClass", placement::kept_node::PRIORITY_CLASS),
    ];
    for (kind, name) in known {
        named(kind, name);
    }
    let configurations = of_kind("MutatingWebhookConfiguration");
    let names: Vec<_> = configurations
        .iter()
        .map(|one| one["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK]);
}

#[test]
fn both_webhooks_have_the_served_paths_and_no_ca_bundle() {
    for (name, path) in [
        (install::PIPELINE_RUN_WEBHOOK, keys::PIPELINE_RUN_PATH),
        (install::POD_WEBHOOK, keys::POD_PATH),
    ] {
        let webhook = webhook(name);
        assert_eq!(webhook["name"], name);
        let service = json!({"name": install::WEBHOOK_SERVICE, "namespace": keys::NAMESPACE, "path": path, "port": 443});
        assert_eq!(webhook["clientConfig"], json!({"service": service}));
    }
}

#[test]
fn both_webhooks_fail_closed_after_10_seconds_and_exclude_system_namespaces() {
    for name in [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK] {
        let webhook = webhook(name);
        assert_eq!(webhook["failurePolicy"], "Fail");
        assert_eq!(webhook["timeoutSeconds"], 10);
        assert_eq!(webhook["sideEffects"], "None");
        assert_eq!(webhook["matchPolicy"], "Equivalent");
        let expected = json!([left_out()]);
        assert_eq!(webhook["namespaceSelector"]["matchExpressions"], expected);
    }
}

#[test]
fn the_pipeline_run_webhook_is_called_for_created_runs_with_the_opt_in_label() {
    let webhook = webhook(install::PIPELINE_RUN_WEBHOOK);
    let rule = json!([{"apiGroups": ["tekton.dev"], "apiVersions": ["v1"], "resources": ["pipelineruns"], "operations": ["CREATE"], "scope": "Namespaced"}]);
    assert_eq!(webhook["rules"], rule);
    assert_eq!(
        webhook["objectSelector"],
        json!({"matchExpressions": [{"key": keys::OPT_IN, "operator": "Exists"}]})
    );
    assert_eq!(webhook["reinvocationPolicy"], "Never");
}

#[test]
fn the_webhook_for_runs_that_lost_the_opt_in_label_differs_only_in_its_selectors() {
    let all = webhooks(install::PIPELINE_RUN_WEBHOOK);
    assert_eq!(all.len(), 3 + NamespaceLabel::all().count());
    let mut stray = all[1].clone();
    let selector = json!({"matchExpressions": [
        {"key": keys::GROUP, "operator": "Exists"},
        {"key": keys::OPT_IN, "operator": "DoesNotExist"},
    ]});
    assert_eq!(stray["objectSelector"], selector);
    let namespaces = json!([left_out(), of_namespace("NotIn", &OPTING_IN)]);
    assert_eq!(stray["namespaceSelector"]["matchExpressions"], namespaces);
    for key in ["name", "objectSelector", "namespaceSelector"] {
        stray[key] = all[0][key].clone();
    }
    assert_eq!(stray, all[0]);
}

/// Values of a Namespace's label that opt its runs in.
const OPTING_IN: [&str; 5] = ["true", "", "colocateAlways", "colocateCompleted", "isolateAlways"];

fn left_out() -> Value {
    json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": keys::EXCLUDED_NAMESPACES})
}

fn of_namespace(operator: &str, values: &[&str]) -> Value {
    json!({"key": keys::OPT_IN, "operator": operator, "values": values})
}

/// The labels of Namespaces for which the API server asks about a run without the label, as the path says.
fn asked_for(label: NamespaceLabel) -> Vec<Value> {
    match label {
        NamespaceLabel::Means("true") => vec![of_namespace("In", &OPTING_IN[..2])],
        NamespaceLabel::Means(value) => vec![of_namespace("In", &[value])],
        NamespaceLabel::Unknown => vec![
            json!({"key": keys::OPT_IN, "operator": "Exists"}),
            of_namespace("NotIn", &[&OPTING_IN[..], &["false"]].concat()),
        ],
    }
}

/// They come last, so that a run that one of them labels is not sent a second time.
#[test]
fn the_webhooks_for_labelled_namespaces_differ_only_in_selectors_path_and_failure_policy() {
    let all = webhooks(install::PIPELINE_RUN_WEBHOOK);
    let not_labelled = json!([{"key": keys::OPT_IN, "operator": "DoesNotExist"}]);
    for (label, entry) in NamespaceLabel::all().zip(&all[3..]) {
        let mut entry = entry.clone();
        assert_eq!(entry["clientConfig"]["service"]["path"], label.path());
        assert_eq!(entry["objectSelector"]["matchExpressions"], not_labelled);
        let namespaces = [vec![left_out()], asked_for(label)].concat();
        assert_eq!(
            entry["namespaceSelector"]["matchExpressions"],
            json!(namespaces),
            "{label:?}"
        );
        let stops_runs = label != NamespaceLabel::Unknown;
        assert_eq!(entry["failurePolicy"] == "Fail", stops_runs);
        for key in [
            "name",
            "clientConfig",
            "objectSelector",
            "namespaceSelector",
            "failurePolicy",
        ] {
            entry[key] = all[0][key].clone();
        }
        assert_eq!(entry, all[0]);
    }
}

/// Policy and binding of a file of the component policies.
fn policy(name: &str) -> [Value; 2] {
    let file = config().join(format!("components/policies/admission/{name}.yaml"));
    documents(&fs::read_to_string(file).unwrap()).try_into().unwrap()
}

#[test]
fn the_policies_for_labelled_namespaces_and_for_labelled_runs_differ_only_in_selectors() {
    let [hold, binding] = policy("hold");
    let [mut other, mut its_binding] = policy("hold-by-namespace");
    let constraints = &other["spec"]["matchConstraints"];
    assert_eq!(
        constraints["objectSelector"]["matchExpressions"],
        json!([{"key": keys::OPT_IN, "operator": "DoesNotExist"}])
    );
    assert_eq!(
        constraints["namespaceSelector"]["matchExpressions"],
        json!([left_out(), of_namespace("In", &OPTING_IN)])
    );
    for selector in ["objectSelector", "namespaceSelector"] {
        other["spec"]["matchConstraints"][selector] = hold["spec"]["matchConstraints"][selector].clone();
    }
    for object in [&mut other, &mut its_binding] {
        object["metadata"]["name"] = hold["metadata"]["name"].clone();
    }
    its_binding["spec"]["policyName"] = hold["metadata"]["name"].clone();
    assert_eq!((other, its_binding), (hold, binding));
}

#[test]
fn the_policy_that_warns_has_the_selectors_of_the_webhook_that_warns() {
    let [warn, binding] = policy("warn");
    let all = webhooks(install::PIPELINE_RUN_WEBHOOK);
    for selector in ["objectSelector", "namespaceSelector"] {
        assert_eq!(warn["spec"]["matchConstraints"][selector], all[7][selector]);
    }
    assert_eq!(binding["spec"]["validationActions"], json!(["Warn"]));
}

#[test]
fn the_webhook_for_releases_is_called_for_updates_and_fails_open() {
    let all = webhooks(install::PIPELINE_RUN_WEBHOOK);
    let mut release = all[2].clone();
    assert_eq!(release["rules"][0]["operations"], json!(["UPDATE"]));
    assert_eq!(release["failurePolicy"], "Ignore");
    let conditions = release["matchConditions"].to_string();
    for part in [keys::PENDING, keys::HOLD] {
        assert!(conditions.contains(&format!("'{part}'")), "{conditions}");
    }
    for key in ["name", "rules", "failurePolicy", "matchConditions"] {
        release[key] = all[0][key].clone();
    }
    release.as_object_mut().unwrap().remove("matchConditions");
    assert_eq!(release, all[0]);
}

#[test]
fn the_pod_webhook_is_called_for_created_pods_of_groups_except_opted_out_tasks() {
    let webhook = webhook(install::POD_WEBHOOK);
    let rule = json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"], "scope": "Namespaced"}]);
    assert_eq!(webhook["rules"], rule);
    let selector = json!([
        {"key": keys::GROUP, "operator": "Exists"},
        {"key": keys::OPT_IN, "operator": "NotIn", "values": ["false"]},
    ]);
    assert_eq!(webhook["objectSelector"]["matchExpressions"], selector);
    assert_eq!(webhook["reinvocationPolicy"], "IfNeeded");
}

#[test]
fn no_rbac_rule_has_a_wildcard() {
    for rule in all_rules() {
        assert!(!rule.to_string().contains('*'), "{rule}");
        assert!(rule["nonResourceURLs"].is_null(), "{rule}");
    }
}

#[test]
fn rbac_rules_for_secrets_configurations_and_the_lease_have_resource_names() {
    let expected = BTreeMap::from([
        ("secrets", vec![json!([install::CERTIFICATE_SECRET])]),
        (
            "configmaps",
            vec![json!([install::CONFIG_MAP]), json!([FEATURE_FLAGS])],
        ),
        (
            "mutatingwebhookconfigurations",
            vec![json!([install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK])],
        ),
        ("leases", vec![json!([install::CONTROLLER_LEASE])]),
    ]);
    for rule in all_rules() {
        let resource = rule["resources"][0].as_str().unwrap();
        let only_create = rule["verbs"] == json!(["create"]);
        if let Some(names) = expected.get(resource).filter(|_| !only_create) {
            assert!(names.contains(&rule["resourceNames"]), "{rule}");
            assert_eq!(rule["resources"].as_array().unwrap().len(), 1, "{rule}");
        }
    }
}

#[test]
fn the_role_of_the_webhook_allows_only_reads_of_secrets() {
    assert!(
        of_kind("ClusterRoleBinding")
            .iter()
            .all(|binding| binding["subjects"][0]["name"] != "pod-affinity-webhook")
    );
    let rules = rules(&named("Role", "pod-affinity-webhook"));
    assert_eq!(rules.len(), 1);
    assert_eq!(
        (&rules[0]["resources"], &rules[0]["verbs"]),
        (&json!(["secrets"]), &json!(["list", "watch"]))
    );
}

#[test]
fn each_role_has_a_binding_and_each_binding_names_existing_objects() {
    let both = |kinds: [&str; 2]| kinds.into_iter().flat_map(of_kind).collect::<Vec<_>>();
    let bindings = both(["RoleBinding", "ClusterRoleBinding"]);
    let name = |object: &Value| object["metadata"]["name"].clone();
    let bound: Vec<_> = bindings.iter().map(|it| it["roleRef"]["name"].clone()).collect();
    assert_eq!(
        bound,
        both(["Role", "ClusterRole"]).iter().map(name).collect::<Vec<_>>()
    );
    for binding in bindings {
        let role = &binding["roleRef"];
        named(role["kind"].as_str().unwrap(), role["name"].as_str().unwrap());
        let subjects = binding["subjects"].as_array().unwrap();
        assert_eq!(subjects.len(), 1);
        assert_eq!(subjects[0]["namespace"], keys::NAMESPACE);
        named("ServiceAccount", subjects[0]["name"].as_str().unwrap());
    }
}

#[test]
fn the_commands_listen_on_the_declared_container_ports() {
    let Command::Webhook(webhook) = command_of("pod-affinity-webhook") else {
        panic!()
    };
    assert_eq!(
        port("pod-affinity-webhook", "https-webhook"),
        webhook.listen.port()
    );
    assert_eq!(
        port("pod-affinity-webhook", "http-metrics"),
        webhook.admin.admin_listen.port()
    );
    let Command::Controller(controller) = command_of("pod-affinity-controller") else {
        panic!()
    };
    assert_eq!(
        port("pod-affinity-controller", "http-metrics"),
        controller.admin.admin_listen.port()
    );
}

#[test]
fn services_select_the_pods_and_ports_of_their_deployments() {
    for service in of_kind("Service") {
        let deployment = named("Deployment", service["metadata"]["name"].as_str().unwrap());
        let selector = &service["spec"]["selector"];
        assert_eq!(selector, &deployment["spec"]["selector"]["matchLabels"]);
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        assert!(
            selector
                .as_object()
                .unwrap()
                .iter()
                .all(|(key, value)| labels[key] == *value)
        );
        for port_of_service in service["spec"]["ports"].as_array().unwrap() {
            port(
                deployment["metadata"]["name"].as_str().unwrap(),
                port_of_service["targetPort"].as_str().unwrap(),
            );
        }
    }
}

#[test]
fn pods_are_restricted_and_drain_within_their_grace_period() {
    for deployment in of_kind("Deployment") {
        let pod = &deployment["spec"]["template"]["spec"];
        let container = container(&deployment);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert!(
            pod["securityContext"]["runAsUser"].is_null()
                && container["securityContext"]["runAsUser"].is_null(),
            "OpenShift chooses one of the namespace's own"
        );
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let expected = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}});
        assert_eq!(container["securityContext"], expected);
        assert!(
            container["resources"]["requests"]["cpu"].is_string()
                && container["resources"]["requests"]["memory"].is_string()
        );
        assert!(
            container["resources"]["limits"]["cpu"].is_null(),
            "a CPU limit slows admission down"
        );
        assert_eq!(pod["terminationGracePeriodSeconds"], 30);
    }
    let Command::Webhook(webhook) = command_of("pod-affinity-webhook") else {
        panic!()
    };
    assert!((webhook.drain_delay + webhook.drain_deadline).as_secs() < 30);
}

#[test]
fn probes_have_the_served_paths() {
    for deployment in of_kind("Deployment") {
        let container = container(&deployment);
        let asked = |probe: &str| container[probe]["httpGet"].clone();
        assert_eq!(
            asked("readinessProbe"),
            json!({"path": "/readyz", "port": "http-metrics"})
        );
        assert_eq!(
            asked("livenessProbe"),
            json!({"path": "/livez", "port": "http-metrics"})
        );
    }
}

#[test]
fn webhook_controller_and_placeholder_have_the_same_image() {
    let deployments = of_kind("Deployment");
    assert!(
        deployments
            .iter()
            .all(|deployment| container(deployment)["image"] == IMAGE)
    );
    let controller = container(&named("Deployment", "pod-affinity-controller"));
    let environment = controller["env"].as_array().unwrap();
    let image = environment
        .iter()
        .find(|variable| variable["name"] == "POD_AFFINITY_IMAGE")
        .unwrap();
    assert_eq!(image["value"], IMAGE);
}

#[test]
fn a_rolling_update_stops_no_webhook_replica_before_the_next_replica_is_ready() {
    let deployment = named("Deployment", "pod-affinity-webhook");
    assert_eq!(
        deployment["spec"]["strategy"]["rollingUpdate"],
        json!({"maxUnavailable": 0, "maxSurge": 1})
    );
    assert!(deployment["spec"]["replicas"].as_u64().unwrap() >= 2);
    let budget = named("PodDisruptionBudget", "pod-affinity-webhook");
    assert_eq!(budget["spec"]["selector"], deployment["spec"]["selector"]);
}

#[test]
fn the_secret_in_the_manifests_is_empty() {
    let secret = named("Secret", install::CERTIFICATE_SECRET);
    assert_eq!(secret["type"], "Opaque");
    assert!(secret["data"].is_null() && secret["stringData"].is_null());
}

/// What the ConfigMap shows, key by key.
pub(crate) fn example() -> BTreeMap<String, String> {
    let data = named("ConfigMap", install::CONFIG_MAP)["data"]["_example"].clone();
    serde_yaml::from_str(data.as_str().unwrap()).unwrap()
}

#[test]
fn the_example_in_the_config_map_shows_every_key_with_its_default() {
    let data = named("ConfigMap", install::CONFIG_MAP)["data"].clone();
    let shipped: BTreeMap<String, String> = serde_json::from_value(data).unwrap();
    assert_eq!(Config::parse(&shipped), Ok(Config::default()));
    let example = example();
    assert_eq!(
        example.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        Config::KEYS.iter().copied().collect()
    );
    assert_eq!(Config::parse(&example), Ok(Config::default()));
}

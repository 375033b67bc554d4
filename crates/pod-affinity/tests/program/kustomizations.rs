//! The kustomizations: which objects each component adds, changes and removes, and that components can be combined in any order.
//!
//! kubectl builds them in a copy of the folders, because a user adds the file ca.crt to certs/own-ca.

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::thread;
use tempfile::TempDir;

const FAIL_OPEN: &str = "config/components/fail-open";
const GUARDRAILS: &str = "config/components/guardrails";
const MONITORING: &str = "config/components/monitoring";
const POLICIES: &str = "config/components/policies";
const RELEASE_ALL: &str = "config/components/release-all";
const RESERVED_LABEL: &str = "config/components/reserved-label";
const WARM_NODES: &str = "config/components/warm-nodes";
const CERT_MANAGER: &str = "certs/cert-manager";
const OWN_CA: &str = "certs/own-ca";
/// A part of the other components of certs/.
const EXTERNAL: &str = "certs/external";

/// Each component, and the objects that it adds (+), changes (~) and removes (-).
const COMPONENTS: [(&str, &[&str]); 10] = [
    (
        FAIL_OPEN,
        &[
            "~ MutatingWebhookConfiguration pipelinerun.mutation.webhook.pod-affinity.tekton.dev",
            "~ MutatingWebhookConfiguration pod.mutation.webhook.pod-affinity.tekton.dev",
        ],
    ),
    (
        GUARDRAILS,
        &[
            "+ ConfigMap config-guardrails",
            "+ ValidatingAdmissionPolicy guardrails.pipelinerun.pod-affinity.tekton.dev",
            "+ ValidatingAdmissionPolicyBinding guardrails.pipelinerun.pod-affinity.tekton.dev",
        ],
    ),
    (
        MONITORING,
        &[
            "+ ConfigMap pod-affinity-dashboard",
            "+ PrometheusRule pod-affinity",
            "+ ServiceMonitor pod-affinity",
        ],
    ),
    (
        POLICIES,
        &[
            "+ MutatingAdmissionPolicy hold-by-namespace.pipelinerun.pod-affinity.tekton.dev",
            "+ MutatingAdmissionPolicy hold.pipelinerun.pod-affinity.tekton.dev",
            "+ MutatingAdmissionPolicy release.pipelinerun.pod-affinity.tekton.dev",
            "+ MutatingAdmissionPolicy stray.pipelinerun.pod-affinity.tekton.dev",
            "+ MutatingAdmissionPolicy terms.pod.pod-affinity.tekton.dev",
            "+ MutatingAdmissionPolicyBinding hold-by-namespace.pipelinerun.pod-affinity.tekton.dev",
            "+ MutatingAdmissionPolicyBinding hold.pipelinerun.pod-affinity.tekton.dev",
            "+ MutatingAdmissionPolicyBinding release.pipelinerun.pod-affinity.tekton.dev",
            "+ MutatingAdmissionPolicyBinding stray.pipelinerun.pod-affinity.tekton.dev",
            "+ MutatingAdmissionPolicyBinding terms.pod.pod-affinity.tekton.dev",
            "+ ValidatingAdmissionPolicy refuse.pipelinerun.pod-affinity.tekton.dev",
            "+ ValidatingAdmissionPolicy warn.pipelinerun.pod-affinity.tekton.dev",
            "+ ValidatingAdmissionPolicyBinding refuse.pipelinerun.pod-affinity.tekton.dev",
            "+ ValidatingAdmissionPolicyBinding warn.pipelinerun.pod-affinity.tekton.dev",
            "- ClusterRole pod-affinity-controller-webhook",
            "- ClusterRoleBinding pod-affinity-controller-webhook",
            "- Deployment pod-affinity-webhook",
            "- MutatingWebhookConfiguration pipelinerun.mutation.webhook.pod-affinity.tekton.dev",
            "- MutatingWebhookConfiguration pod.mutation.webhook.pod-affinity.tekton.dev",
            "- PodDisruptionBudget pod-affinity-webhook",
            "- Role pod-affinity-controller-certificates",
            "- Role pod-affinity-webhook",
            "- RoleBinding pod-affinity-controller-certificates",
            "- RoleBinding pod-affinity-webhook",
            "- Secret pod-affinity-webhook-certs",
            "- Service pod-affinity-webhook",
            "- ServiceAccount pod-affinity-webhook",
            "~ Deployment pod-affinity-controller",
        ],
    ),
    (
        RELEASE_ALL,
        &[
            "+ ClusterRole pod-affinity-release-all",
            "+ ClusterRoleBinding pod-affinity-release-all",
            "+ Job pod-affinity-release-all",
            "+ Role pod-affinity-release-all",
            "+ RoleBinding pod-affinity-release-all",
            "+ ServiceAccount pod-affinity-release-all",
        ],
    ),
    (
        RESERVED_LABEL,
        &[
            "+ ConfigMap config-reserved-label",
            "+ ValidatingAdmissionPolicy reserved-label-of-pods.pod-affinity.tekton.dev",
            "+ ValidatingAdmissionPolicy reserved-label-of-templates.pod-affinity.tekton.dev",
            "+ ValidatingAdmissionPolicyBinding reserved-label-of-pods.pod-affinity.tekton.dev",
            "+ ValidatingAdmissionPolicyBinding reserved-label-of-templates.pod-affinity.tekton.dev",
        ],
    ),
    (
        WARM_NODES,
        &[
            "+ Deployment pod-affinity-warm-nodes",
            "+ PriorityClass pod-affinity-warm-node",
        ],
    ),
    (
        CERT_MANAGER,
        &[
            "+ Certificate pod-affinity-authority",
            "+ Certificate pod-affinity-webhook",
            "+ Issuer pod-affinity-authority",
            "+ Issuer pod-affinity-self-signed",
            "- Role pod-affinity-controller-certificates",
            "- RoleBinding pod-affinity-controller-certificates",
            "- Secret pod-affinity-webhook-certs",
            "~ Deployment pod-affinity-controller",
            "~ MutatingWebhookConfiguration pipelinerun.mutation.webhook.pod-affinity.tekton.dev",
            "~ MutatingWebhookConfiguration pod.mutation.webhook.pod-affinity.tekton.dev",
        ],
    ),
    (
        OWN_CA,
        &[
            "- Role pod-affinity-controller-certificates",
            "- RoleBinding pod-affinity-controller-certificates",
            "- Secret pod-affinity-webhook-certs",
            "~ Deployment pod-affinity-controller",
            "~ MutatingWebhookConfiguration pipelinerun.mutation.webhook.pod-affinity.tekton.dev",
            "~ MutatingWebhookConfiguration pod.mutation.webhook.pod-affinity.tekton.dev",
        ],
    ),
    (
        EXTERNAL,
        &[
            "- Role pod-affinity-controller-certificates",
            "- RoleBinding pod-affinity-controller-certificates",
            "- Secret pod-affinity-webhook-certs",
            "~ Deployment pod-affinity-controller",
        ],
    ),
];

/// Objects by kind and name.
type Objects = BTreeMap<String, Value>;

static BASE: LazyLock<Objects> = LazyLock::new(|| combined(&[]));

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folders with kustomizations, with the file of a CA.
fn copy() -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    let copied = Command::new("cp")
        .args(["-r", "config", "certs", "overlays"])
        .arg(copy.path())
        .current_dir(workspace())
        .status();
    assert!(copied.unwrap().success());
    fs::write(copy.path().join(OWN_CA).join("ca.crt"), "a certificate").unwrap();
    copy
}

fn build(folder: &Path) -> Objects {
    let output = Command::new("kubectl").arg("kustomize").arg(folder).output();
    let output = output.unwrap();
    assert!(
        output.status.success(),
        "{}: {}",
        folder.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    serde_yaml::Deserializer::from_slice(&output.stdout)
        .map(|document| Value::deserialize(document).unwrap())
        .map(|object| (name_of(&object), object))
        .collect()
}

fn name_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// The base with components, in this order.
fn combined(components: &[&str]) -> Objects {
    let copy = copy();
    let folder = copy.path().join("combined");
    let components: Vec<_> = components.iter().map(|folder| format!("../{folder}")).collect();
    let kustomization = json!({"resources": ["../config"], "components": components});
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("kustomization.yaml"), kustomization.to_string()).unwrap();
    build(&folder)
}

fn names() -> [&'static str; COMPONENTS.len()] {
    COMPONENTS.map(|(folder, _)| folder)
}

/// What differs from the base.
fn difference(objects: &Objects) -> BTreeSet<String> {
    let names: BTreeSet<_> = BASE.keys().chain(objects.keys()).collect();
    let sign = |name: &str| match (BASE.get(name), objects.get(name)) {
        (None, _) => Some('+'),
        (_, None) => Some('-'),
        (before, after) => (before != after).then_some('~'),
    };
    names
        .into_iter()
        .filter_map(|name| Some(format!("{} {name}", sign(name)?)))
        .collect()
}

/// The differences of several components: an object that one of them removes is not changed.
fn expected(components: &[&str]) -> BTreeSet<String> {
    let all = COMPONENTS
        .iter()
        .filter(|(folder, _)| components.contains(folder));
    let mut lines: BTreeSet<_> = all
        .flat_map(|(_, lines)| lines.iter().map(|line| (*line).to_owned()))
        .collect();
    let removed = lines.iter().filter_map(|line| line.strip_prefix('-'));
    for changed in removed.map(|object| format!("~{object}")).collect::<Vec<_>>() {
        lines.remove(&changed);
    }
    lines
}

/// With the component `policies`, the objects of cert-manager have no use. `policies` removes these objects only if it comes after
/// certs/cert-manager.
fn without_unused(mut objects: Objects, components: &[&str]) -> Objects {
    if components.contains(&POLICIES) {
        objects.retain(|_, object| object["apiVersion"] != "cert-manager.io/v1");
    }
    objects
}

/// The same objects in both orders, with the differences of each component.
fn is_independent_of_order(components: &[&str]) {
    let reversed: Vec<_> = components.iter().rev().copied().collect();
    let [forward, backward] =
        [components, &reversed].map(|order| without_unused(combined(order), components));
    assert_eq!(forward, backward, "{components:?}");
    let mut expected = expected(components);
    if components.contains(&POLICIES) {
        expected.retain(|line| !line.starts_with("+ Certificate") && !line.starts_with("+ Issuer"));
    }
    assert_eq!(difference(&forward), expected, "{components:?}");
}

fn webhooks(objects: &Objects) -> Vec<&Value> {
    let configurations = objects.values();
    let webhooks = configurations.filter_map(|object| object["webhooks"].as_array());
    webhooks.flatten().collect()
}

fn container_of_controller(objects: &Objects) -> &Value {
    &objects["Deployment pod-affinity-controller"]["spec"]["template"]["spec"]["containers"][0]
}

#[test]
fn each_component_has_a_test_and_no_json_patches() {
    let folders = ["config/components", "certs"].into_iter().flat_map(|parent| {
        let entries = fs::read_dir(workspace().join(parent)).unwrap();
        let entries = entries.map(Result::unwrap).filter(|entry| entry.path().is_dir());
        entries.map(move |entry| format!("{parent}/{}", entry.file_name().into_string().unwrap()))
    });
    assert_eq!(
        folders.collect::<BTreeSet<_>>(),
        names().map(str::to_owned).into()
    );
    for folder in names() {
        let text = fs::read_to_string(workspace().join(folder).join("kustomization.yaml")).unwrap();
        let kustomization: Value = serde_yaml::from_str(&text).unwrap();
        assert_eq!(kustomization["kind"], "Component", "{folder}");
        assert!(
            !text.contains("op:"),
            "{folder}: JSON patches address lists by index"
        );
    }
}

#[test]
fn each_component_adds_changes_and_removes_only_its_own_objects() {
    for (folder, lines) in COMPONENTS {
        let lines: BTreeSet<_> = lines.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(difference(&combined(&[folder])), lines, "{folder}");
    }
}

#[test]
fn each_pair_of_components_can_be_combined_in_both_orders() {
    let names = names().into_iter().filter(|folder| *folder != EXTERNAL);
    let names: Vec<_> = names.collect();
    let pairs = names.iter().enumerate().flat_map(|(index, one)| {
        let others = &names[..index];
        others.iter().map(|other| [*other, *one])
    });
    let pairs: Vec<_> = pairs.collect();
    assert_eq!(pairs.len(), 9 * 8 / 2);
    thread::scope(|scope| {
        for pairs in pairs.chunks(pairs.len().div_ceil(2)) {
            scope.spawn(|| pairs.iter().for_each(|pair| is_independent_of_order(pair)));
        }
    });
}

#[test]
fn all_components_can_be_combined_in_both_orders() {
    is_independent_of_order(&names());
    let of_webhook = names().into_iter().filter(|folder| *folder != POLICIES);
    is_independent_of_order(&of_webhook.collect::<Vec<_>>());
}

#[test]
fn fail_open_changes_only_the_failure_policy_and_keeps_the_order_of_the_webhooks() {
    let objects = combined(&[FAIL_OPEN]);
    let mut webhooks_of_base: Vec<_> = webhooks(&BASE).into_iter().cloned().collect();
    for webhook in &mut webhooks_of_base {
        webhook["failurePolicy"] = json!("Ignore");
    }
    assert_eq!(webhooks(&objects), webhooks_of_base.iter().collect::<Vec<_>>());
}

#[test]
fn own_ca_trusts_the_ca_of_the_user_in_each_webhook() {
    let objects = combined(&[OWN_CA]);
    let bundles = webhooks(&objects);
    let bundles = bundles
        .iter()
        .map(|webhook| webhook["clientConfig"]["caBundle"].clone());
    // "a certificate", in base64.
    let expected = json!("YSBjZXJ0aWZpY2F0ZQ==");
    assert_eq!(bundles.collect::<Vec<_>>(), vec![expected; webhooks(&BASE).len()]);
}

/// Without a webhook, no other tool issues a certificate: the flag overrides the variable.
#[test]
fn the_controller_issues_no_certificate_in_any_combination_with_policies() {
    for components in [&[POLICIES][..], &[POLICIES, EXTERNAL], &[EXTERNAL, POLICIES]] {
        let objects = combined(components);
        let mut args = container_of_controller(&BASE)["args"].clone();
        args.as_array_mut().unwrap().push(json!("--certificates=none"));
        assert_eq!(container_of_controller(&objects)["args"], args, "{components:?}");
    }
    let objects = combined(&[EXTERNAL]);
    let container = container_of_controller(&objects);
    let external = json!({"name": "POD_AFFINITY_CERTIFICATES", "value": "external"});
    assert!(container["env"].as_array().unwrap().contains(&external));
    assert_eq!(
        container["args"],
        container_of_controller(&BASE)["args"],
        "a flag would override the variable"
    );
}

#[test]
fn each_overlay_is_the_base_with_one_component_and_is_documented() {
    let copy = copy();
    let pages = [
        "certs/README.md",
        "docs/install.md",
        "overlays/policies/README.md",
    ];
    let pages = pages.map(|page| fs::read_to_string(workspace().join(page)).unwrap());
    let overlays = [
        ("cert-manager", CERT_MANAGER),
        ("fail-open", FAIL_OPEN),
        ("own-ca", OWN_CA),
        ("policies", POLICIES),
    ];
    let entries = fs::read_dir(workspace().join("overlays")).unwrap();
    let found: BTreeSet<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, overlays.map(|(name, _)| name.to_owned()).into());
    for (name, component) in overlays {
        let overlay = copy.path().join("overlays").join(name);
        assert_eq!(build(&overlay), combined(&[component]), "{name}");
        let command = format!("cargo ship apply -k overlays/{name}");
        assert!(pages.iter().any(|page| page.contains(&command)), "{command}");
    }
}

/// These are also applied to an existing installation.
#[test]
fn components_that_only_add_objects_can_be_built_alone() {
    for folder in [MONITORING, RELEASE_ALL, RESERVED_LABEL, WARM_NODES] {
        let alone = build(&workspace().join(folder));
        let added: BTreeSet<_> = alone.keys().map(|name| format!("+ {name}")).collect();
        assert_eq!(added, expected(&[folder]));
    }
}

/// kubectl and cargo ship read `-f config/` without its subfolders, and a file without an ending is no manifest.
#[test]
fn the_base_folder_has_only_manifests_and_a_kustomization_without_an_extension() {
    let entries = fs::read_dir(workspace().join("config")).unwrap();
    let others = entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().extension().is_none_or(|ending| ending != "yaml"))
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                entry.file_type().unwrap().is_dir(),
            )
        });
    let expected = [
        ("Kustomization".to_owned(), false),
        ("components".to_owned(), true),
    ];
    assert_eq!(others.collect::<BTreeSet<_>>(), expected.into());
}

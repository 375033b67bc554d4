//! Executes the commands and manifests of the pages on an installation: kubectl, the plugin and the API server accept them,
//! and they have the effects that the pages describe.

use crate::support::SOON;
use crate::support::install::{WEBHOOK, follow, install};
use crate::support::kubectl::{kubectl, parsed, printed, workspace};
use crate::support::pages::{CREATE_CA, block, blocks};
use crate::support::placeholders::{placeholder_name, sets, until_no_placeholder};
use crate::support::pool;
use crate::support::runs::{create, held_for_good, nodes_of};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use testbed::product::NAMESPACE;
use testbed::runs::{self, RunSpec, State};
use testbed::{Nodes, Testbed};

/// The name of a run on the pages.
const RUN: &str = "build-7";
/// Runbooks search logs for errors. Here grep may find none.
const FIND_OR_NOT: &str = "grep() { command grep \"$@\" || [ $? = 1 ]; }\n";

/// One test, because all steps need the same installation.
#[e2e_test(policies)]
async fn the_commands_of_the_pages_are_accepted_and_do_what_the_pages_say() {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 6)).await.unwrap();
    install(&bed, WEBHOOK).await;
    std::os::unix::fs::symlink(
        workspace().join("examples").canonicalize().unwrap(),
        bed.folder().join("examples"),
    )
    .unwrap();
    the_release_is_rolled_out(&bed).await;
    a_first_run_has_one_node(&bed).await;
    fragments_are_of_valid_objects(&bed).await;
    a_policy_adds_the_label(&bed).await;
    a_network_policy_selects_the_webhook(&bed);
    a_node_is_emptied(&bed).await;
    the_tool_and_the_runbooks_are_followed(&bed).await;
}

async fn run_commands(bed: &Testbed, commands: &str) -> String {
    follow(bed, commands, &RunSpec::new("default", RUN)).await
}

async fn the_release_is_rolled_out(bed: &Testbed) {
    let [release, _] = blocks("README.md", "## Install").try_into().unwrap();
    for commands in [block("docs/install.md", "## From a release"), release] {
        run_commands(bed, &commands.replace("release-policies.yaml", "release.yaml")).await;
    }
}

async fn a_first_run_has_one_node(bed: &Testbed) {
    run_commands(bed, &block("README.md", "## A first run")).await;
    run_commands(bed, &block("docs/install.md", "## Check")).await;
    let placed = bed.until("two runs to have a node", SOON, async || {
        let nodes = "jsonpath={.items[*].metadata.annotations.pod-affinity\\.tekton\\.dev/node}";
        let nodes = kubectl(bed, &["get", "pipelineruns", "--output", nodes]);
        if nodes.split_whitespace().count() == 2 {
            Ok(())
        } else {
            Err(nodes)
        }
    });
    placed.await.unwrap();
    let client = bed.client().await.unwrap();
    for run in runs::runs(&client, "default")
        .list(&ListParams::default())
        .await
        .unwrap()
    {
        let run = RunSpec::new("default", &run.name_any());
        bed.until_succeeded(&run, SOON).await.unwrap();
        assert_eq!(nodes_of(bed, &run).await.len(), 1, "{}", run.name());
    }
    kubectl(bed, &["delete", "pipelineruns", "--all"]);
    until_no_placeholder(bed, "default").await;
}

/// Adds the labels and annotations of a page's example to a run.
fn like(mut run: RunSpec, page: &str, heading: &str) -> RunSpec {
    let [shown] = parsed(&block(page, heading)).try_into().unwrap();
    let pairs = |field: &str| shown["metadata"][field].as_object().cloned().unwrap_or_default();
    for (key, value) in pairs("labels") {
        run = run.label(&key, value.as_str().unwrap());
    }
    for (key, value) in pairs("annotations") {
        run = run.annotation(&key, value.as_str().unwrap());
    }
    run
}

async fn fragments_are_of_valid_objects(bed: &Testbed) {
    let blocks = [
        block("docs/integrations.md", "## Required labels and other policies"),
        block("docs/plan.md", "### Caps"),
    ];
    let blocks = blocks.map(|block| parsed(&block).swap_remove(0));
    let data = blocks.iter().flat_map(|block| block["data"].as_object().unwrap());
    let data: Vec<_> = data.map(|(key, value)| (key.as_str(), value.as_str())).collect();
    bed.configure(&data).await.unwrap();
    let nowhere = json!({"podTemplate": {"nodeSelector": {"nowhere": "true"}}});
    let run = RunSpec::new("default", "as-shown")
        .task("only", &[])
        .label("team", "blue")
        .spec("taskRunTemplate", nowhere);
    let run = like(run, "README.md", "# pod-affinity");
    let run = like(run, "docs/authors.md", "## Put a run on one node");
    let created = create(bed, &run).await;
    assert_eq!(runs::state(&created), State::Pending);
    let name = placeholder_name(&created).to_string();
    let placeholder = bed.until("its placeholder", SOON, async || {
        let api = sets(&bed.client().await.unwrap(), "default");
        api.get(&name).await.map_err(|error| error.to_string())
    });
    let pod = placeholder.await.unwrap().spec.unwrap().template;
    let metadata = pod.metadata.unwrap();
    let (labels, annotations) = (metadata.labels.unwrap(), metadata.annotations.unwrap());
    assert_eq!(
        (labels["cost-center"].as_str(), labels["team"].as_str()),
        ("42", "blue")
    );
    assert!(annotations["example.com/purpose"].ends_with(", and does no work"));
    let resources = pod.spec.unwrap().containers.swap_remove(0).resources.unwrap();
    assert_eq!(resources.requests.unwrap()["cpu"].0, "4100m");
    kubectl(bed, &["delete", "pipelineruns", "--all"]);
}

async fn a_policy_adds_the_label(bed: &Testbed) {
    let policy = bed.folder().join("policy.yaml");
    std::fs::write(
        &policy,
        block("docs/integrations.md", "### Add the label by a policy"),
    )
    .unwrap();
    let policy = policy.to_str().unwrap();
    let namespace = bed.namespace("ci").await.unwrap();
    kubectl(bed, &["label", "namespace", &namespace, "one-node-per-run=true"]);
    kubectl(bed, &["apply", "--server-side", "-f", policy]);
    let held = bed.until("a run to get the label", SOON, async || {
        let run = RunSpec::diamond(&namespace, "without-label");
        let client = bed.client().await.unwrap();
        let created = dry_run(&client, &run).await?;
        if runs::state(&created) == State::Pending {
            Ok(())
        } else {
            Err(created.labels().len().to_string())
        }
    });
    held.await.unwrap();
    let elsewhere = create(bed, &RunSpec::diamond("default", "without-label")).await;
    assert_eq!(runs::state(&elsewhere), State::Running);
    kubectl(bed, &["delete", "-f", policy]);
}

async fn dry_run(client: &Client, run: &RunSpec) -> Result<DynamicObject, String> {
    let object = serde_json::from_value(run.manifest.clone()).unwrap();
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let api = runs::runs(client, run.namespace());
    api.create(&params, &object)
        .await
        .map_err(|error| error.to_string())
}

fn a_network_policy_selects_the_webhook(bed: &Testbed) {
    let text = block("docs/integrations.md", "## Network policies");
    let file = bed.folder().join("network-policy.yaml");
    std::fs::write(&file, &text).unwrap();
    kubectl(bed, &["apply", "--server-side", "-f", file.to_str().unwrap()]);
    let [policy] = parsed(&text).try_into().unwrap();
    let wanted = policy["spec"]["podSelector"]["matchLabels"].as_object().unwrap();
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap()))
        .collect();
    let ports = "jsonpath={range .items[*]}{.metadata.labels.app\\.kubernetes\\.io/component} {.spec.containers[*].ports[*].containerPort}{\"\\n\"}{end}";
    let wanted = wanted.join(",");
    let of_webhook = ["get", "pods", "--namespace", NAMESPACE, "--selector", &wanted];
    let pods = kubectl(bed, &[&of_webhook[..], &["--output", ports]].concat());
    assert_eq!(pods, "webhook 8443 8080\nwebhook 8443 8080\n");
    let rules = policy["spec"]["ingress"].as_array().unwrap().iter();
    let open: Vec<_> = rules
        .flat_map(|rule| rule["ports"].as_array().unwrap())
        .map(|port| &port["port"])
        .collect();
    assert_eq!(open, [8443, 8080]);
}

/// A node without a run. Replicas of pod-affinity may be on it; they are evicted.
async fn a_node_is_emptied(bed: &Testbed) {
    let commands = block("docs/nodes.md", "## Drains and upgrades");
    let printed = run_commands(bed, &commands.replace("$NODE", "node-0")).await;
    assert!(printed.contains("node/node-0 drained"), "{printed}");
    kubectl(bed, &["uncordon", "node-0"]);
}

async fn the_tool_and_the_runbooks_are_followed(bed: &Testbed) {
    held_for_good(bed, "default", RUN).await;
    run_commands(
        bed,
        &block("docs/troubleshooting.md", "# Troubleshooting").replace("RUN", RUN),
    )
    .await;
    for line in lines_of_runbooks() {
        let line = line.replace("NAMESPACE", "default").replace("RUN", RUN);
        let printed = run_commands(bed, &format!("{FIND_OR_NOT}{line}")).await;
        let finds_the_run = line.contains("WaitingForNode") || line.contains("explain");
        assert!(!finds_the_run || printed.contains(RUN), "{line}: {printed:?}");
    }
    // These commands release the run, and switch pod-affinity off for the namespace.
    run_commands(bed, &block("docs/cli.md", "# The command line tool")).await;
    kubectl(bed, &["delete", "pipelinerun", RUN]);
    create(bed, &RunSpec::diamond("default", RUN).opted_in("true")).await;
    for heading in ["## wait", "### explain as data", "## timeline", "## cost"] {
        // An example of the output may come first.
        let commands = blocks("docs/cli.md", heading).pop().unwrap();
        run_commands(bed, &commands).await;
    }
    completion_is_installed(bed).await;
}

/// Each line once: many pages begin with the same command.
fn lines_of_runbooks() -> BTreeSet<String> {
    let blocks = blocks("docs/runbooks/", "## Diagnosis");
    blocks
        .iter()
        .flat_map(|block| block.lines().map(String::from))
        .collect()
}

async fn completion_is_installed(bed: &Testbed) {
    let completions = bed.folder().join(".local/share/bash-completion/completions");
    std::fs::create_dir_all(&completions).unwrap();
    for commands in blocks("docs/cli.md", "### Shell completion") {
        run_commands(bed, &format!("HOME=$PWD\n{commands}")).await;
    }
    let script = std::fs::read_to_string(completions.join("kubectl-pod_affinity")).unwrap();
    assert!(script.contains("complete"), "{script}");
    let completed = run_commands(bed, "kubectl __complete pod-affinity doc").await;
    assert!(completed.starts_with("doctor"), "{completed}");
}

/// With a CA of its own.
#[e2e_test]
fn the_certificate_of_the_page_is_valid_for_both_names_of_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = blocks("certs/README.md", "## Your own CA").swap_remove(0);
    let verify = "openssl verify -CAfile ca.crt -purpose sslserver -verify_hostname $name tls.crt
        openssl verify -CAfile ca.crt -purpose sslserver -verify_hostname $name.cluster.local tls.crt";
    let commands = [CREATE_CA, &certificate, verify].join("\n");
    let output = Command::new("sh")
        .args(["-euc", &commands])
        .current_dir(&folder)
        .output();
    let verified = printed(&output.unwrap());
    assert_eq!(verified.matches("tls.crt: OK").count(), 2, "{verified}");
}

#[e2e_test]
fn the_kustomizations_on_the_page_about_operation_change_what_the_page_says() {
    let [label, links, address] = blocks("docs/operation.md", "### Alerts and dashboard")
        .try_into()
        .unwrap();
    for object in kustomized(&[("kustomization.yaml", &label)]) {
        assert_eq!(
            object["metadata"]["labels"]["release"], "kube-prometheus-stack",
            "{object:#}"
        );
    }
    let files = [
        ("kustomization.yaml", links.as_str()),
        ("address.yaml", address.as_str()),
    ];
    let mut objects = kustomized(&files);
    objects.retain(|object| object["kind"] == "PrometheusRule");
    let [rules] = objects.try_into().unwrap();
    for alert in rules["spec"]["groups"][0]["rules"].as_array().unwrap() {
        let page = format!("/docs/runbooks/{}.md", alert["alert"].as_str().unwrap());
        let link = alert["annotations"]["runbook"].as_str().unwrap();
        assert!(
            link.starts_with("https://git.example.com/") && link.ends_with(&page),
            "{link}"
        );
    }
}

#[e2e_test]
fn the_kustomization_that_combines_components_has_the_objects_of_each() {
    let combined = block("docs/install.md", "### Combine components");
    let objects = kustomized(&[("kustomization.yaml", &combined)]);
    let of_kind = |kind: &str| -> Vec<_> { objects.iter().filter(|object| object["kind"] == kind).collect() };
    assert!(!of_kind("Certificate").is_empty() && of_kind("ServiceMonitor").len() == 1);
    for configuration in of_kind("MutatingWebhookConfiguration") {
        assert_eq!(configuration["webhooks"][0]["failurePolicy"], "Ignore");
    }
}

#[e2e_test]
fn the_kustomization_that_has_the_policy_hold_evaluated_for_all_runs_changes_only_this_policy() {
    let patches = block("overlays/policies/README.md", "## What is different");
    let resources = "resources: [PATH/overlays/policies]\n";
    let shipped = kustomized(&[("kustomization.yaml", resources)]);
    let changed = kustomized(&[("kustomization.yaml", &format!("{resources}{patches}"))]);
    let different: Vec<_> = changed
        .iter()
        .filter(|object| !shipped.contains(object))
        .collect();
    let [hold] = different.try_into().unwrap();
    assert_eq!(
        hold["metadata"]["name"],
        "hold.pipelinerun.pod-affinity.tekton.dev"
    );
    assert_eq!(hold["spec"]["reinvocationPolicy"], "IfNeeded");
    assert!(hold["spec"]["matchConstraints"].get("objectSelector").is_none());
}

#[e2e_test]
fn the_kustomization_of_warm_nodes_sets_their_number_size_pool_and_image() {
    let settings = block("config/components/warm-nodes/README.md", "## Settings");
    let mut objects = kustomized(&[("kustomization.yaml", &settings)]);
    objects.retain(|object| object["kind"] == "Deployment");
    let [warm] = objects.try_into().unwrap();
    let pod = &warm["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(warm["spec"]["replicas"], 3);
    assert_eq!(container["resources"]["requests"]["cpu"], "4");
    assert_eq!(pod["nodeSelector"]["pool"], "ci");
    assert_eq!(pod["tolerations"][0]["key"], "ci");
    assert_eq!(
        container["image"],
        "registry.example.com/team/pod-affinity:v0.1.0"
    );
}

/// The output of kustomize for a folder with these files. Resources in other folders have relative paths.
fn kustomized(files: &[(&str, &str)]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let here = workspace().canonicalize().unwrap();
    let up = "../".repeat(folder.components().count() - 1);
    let path = format!("{up}{}", here.strip_prefix("/").unwrap().display());
    for (name, text) in files {
        std::fs::write(Path::new(&folder).join(name), text.replace("PATH", &path)).unwrap();
    }
    let output = Command::new("kubectl").arg("kustomize").arg(&folder).output();
    parsed(&printed(&output.unwrap()))
}

//! The Helm chart on a real API server: it adopts an installation, is upgraded and rolled back while runs are held and running, and
//! is uninstalled without a lost run. The objects of the chart are those of config/, whose behaviour other tests show.

use crate::install_docs::until_nothing_is_left;
use crate::support::SOON;
use crate::support::helm::{chart, shell};
use crate::support::kubectl::{call, file, kubectl, parsed, printed};
use crate::support::pages::block;
use crate::support::placeholders::bound_placeholder;
use crate::support::pool;
use crate::support::runs::{bound_task, create, held_for_good, let_end, until_released};
use crate::support::ship_program::released;
use crate::support::testbeds::stop_controllers;
use kube::ResourceExt;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::product::{Installed, NAMESPACE};
use testbed::program::PRODUCT;
use testbed::runs::{RunSpec, State, runs, state};
use testbed::{Helm, Nodes, Testbed};

/// The account and the Job of the hook.
const HOOK: &str = "pod-affinity-release-all";
const KINDS: &str = "deployments,configmaps,mutatingwebhookconfigurations,mutatingadmissionpolicies";

/// The commands below a heading of the page.
fn page(heading: &str) -> String {
    block("docs/helm.md", heading)
}

/// Two releases, whose charts have the names of the page.
async fn releases(bed: &Testbed, helm: Helm) -> [PathBuf; 2] {
    let releases = ["v1.0.0", "v1.1.0"].map(|version| released(bed.folder(), version));
    for (release, version, name) in [(&releases[0], "1.0.0", "0.1.0"), (&releases[1], "1.1.0", "0.2.0")] {
        let chart = chart(helm, release, version).await;
        chart.named(bed, &format!("pod-affinity-{name}.tgz"));
    }
    releases
}

async fn follow(bed: &Testbed, helm: Helm, commands: &str) -> String {
    printed(&shell(bed, helm, commands).await.output().unwrap())
}

fn manifests(release: &Path) -> Vec<Value> {
    parsed(&std::fs::read_to_string(release.join("release-policies.yaml")).unwrap())
}

#[e2e_test(nightly, policies)]
async fn helm_3_adopts_upgrades_rolls_back_and_uninstalls_without_a_lost_run() {
    lifecycle(Helm::V3, "").await;
}

#[e2e_test(nightly, policies)]
async fn helm_4_adopts_upgrades_rolls_back_and_uninstalls_without_a_lost_run() {
    // Else the next upgrade conflicts with fields that belong to kubectl.
    lifecycle(Helm::V4, " --server-side=false").await;
}

async fn lifecycle(helm: Helm, adopt: &str) {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 6)).await.unwrap();
    let [old, new] = releases(&bed, helm).await;
    let installed = installed_by_kubectl(&bed, &old).await;
    let held = held_for_good(&bed, "default", "held").await;
    let running = RunSpec::diamond("default", "running")
        .opted_in("true")
        .ending("hang");
    let enrolled = create(&bed, &running).await;
    let placeholder = bound_placeholder(&bed, &enrolled).await.uid();

    let adoption = page("## Adopt an installation");
    follow(&bed, helm, &(adoption.trim_end().to_owned() + adopt)).await;
    assert!(all_are_of_helm(&bed, "v1.0.0"));
    let upgrade = page("## Upgrade with Helm");
    bed.roll_out(&installed, manifests(&new), async |_| {
        follow(&bed, helm, &upgrade).await;
        Ok(())
    })
    .await
    .unwrap();
    assert!(all_are_of_helm(&bed, "v1.1.0"));
    let before = generations(&bed);
    follow(&bed, helm, &upgrade).await;
    assert_eq!(generations(&bed), before, "the same upgrade changes nothing");
    let rollback = "helm rollback pod-affinity 1 --namespace tekton-pod-affinity";
    follow(&bed, helm, rollback).await;
    assert!(all_are_of_helm(&bed, "v1.0.0"));

    let api = runs(&bed.client().await.unwrap(), "default");
    assert_eq!(state(&api.get("held").await.unwrap()), State::Pending);
    assert_eq!(bound_placeholder(&bed, &enrolled).await.uid(), placeholder);
    bound_task(&bed, &running, "fetch").await;
    uninstall(&bed, helm).await;
    until_released(&bed, &held).await;
    bed.add_nodes(&Nodes::new("nowhere", 1).label("nowhere", "true"))
        .await
        .unwrap();
    let_end(&bed, &running).await;
    for run in [&held, &running] {
        bed.until_succeeded(run, SOON).await.unwrap();
    }
    until_nothing_is_left(&bed).await;
}

async fn installed_by_kubectl(bed: &Testbed, release: &Path) -> Installed {
    bed.install(manifests(release), &[], async |objects| {
        printed(&call(
            bed,
            "kubectl",
            &["apply", "-f", &file(bed, "old", &objects)],
        ));
        Ok(())
    })
    .await
    .unwrap()
}

/// Whether Helm manages all objects of the chart, with this version.
fn all_are_of_helm(bed: &Testbed, version: &str) -> bool {
    let selector = format!("app.kubernetes.io/part-of=pod-affinity,app.kubernetes.io/version={version}");
    let managed = format!("{selector},app.kubernetes.io/managed-by=Helm");
    let names = |selector: &str| {
        kubectl(
            bed,
            &[
                "get",
                KINDS,
                "--all-namespaces",
                "--output=name",
                "--selector",
                selector,
            ],
        )
    };
    let (all, of_helm) = (names(&selector), names(&managed));
    all == of_helm && all.contains("hold.pipelinerun") && all.contains("pod-affinity-controller")
}

/// The generation of each object, which counts changes of its spec.
fn generations(bed: &Testbed) -> String {
    let each = "--output=jsonpath={range .items[*]}{.metadata.name} {.metadata.generation}{\"\\n\"}{end}";
    kubectl(bed, &["get", KINDS, "--namespace", NAMESPACE, each])
}

/// Uninstalls the chart. The testbed runs the process of the Job, because KWOK only simulates its pod.
async fn uninstall(bed: &Testbed, helm: Helm) {
    let mut commands = shell(bed, helm, &page("## Uninstall with Helm")).await;
    let uninstalling = tokio::task::spawn_blocking(move || printed(&commands.output().unwrap()));
    let pod = bed.until("the pod of the hook", SOON, async || {
        let selector = format!("--selector=batch.kubernetes.io/job-name={HOOK}");
        let pods = [
            "get",
            "pods",
            "--namespace",
            NAMESPACE,
            "--output=name",
            &selector,
        ];
        let pod = kubectl(bed, &pods);
        if pod.is_empty() {
            Err("none")
        } else {
            Ok(pod.trim().to_owned())
        }
    });
    let pod = pod.await.unwrap();
    // On real nodes, the change of the Deployment ends its pods.
    stop_controllers(bed);
    let account = bed.kubeconfig_of(NAMESPACE, HOOK).await.unwrap();
    let mut hook = Command::new(PRODUCT.path().unwrap());
    hook.arg("release-all").env("KUBECONFIG", account);
    println!("{}", printed(&hook.output().unwrap()));
    let succeeded = r#"{"status":{"phase":"Succeeded"}}"#;
    let patch = ["patch", &pod, "--namespace", NAMESPACE, "--subresource=status"];
    kubectl(
        bed,
        &[&patch[..], &["--type=merge", "--patch", succeeded]].concat(),
    );
    uninstalling.await.unwrap();
    bed.stop_pod_affinity();
}

#[e2e_test(nightly, policies)]
async fn auto_of_helm_3_keeps_the_installed_way_and_the_switch_of_the_page_works() {
    switch(Helm::V3).await;
}

#[e2e_test(nightly, policies)]
async fn auto_of_helm_4_keeps_the_installed_way_and_the_switch_of_the_page_works() {
    switch(Helm::V4).await;
}

async fn switch(helm: Helm) {
    let bed = pool::bare().await;
    releases(&bed, helm).await;
    follow(&bed, helm, &page("## Install with Helm")).await;
    assert_eq!(admission(&bed, helm).await, "MutatingAdmissionPolicy");
    let policies = page("### Policies or webhook");
    let deletion = "kubectl delete mutatingwebhookconfigurations -l app.kubernetes.io/part-of=pod-affinity\n";
    let webhook = policies
        .replace(deletion, "")
        .replace("admission=policies", "admission=webhook")
        .replacen("--set ", "--set webhook.failOpen=true --set ", 1);
    let (first, then) = webhook.split_once("sleep 5").unwrap();
    follow(&bed, helm, first).await;
    assert_eq!(failure_policies(&bed), ["Ignore"], "until the webhook is active");
    follow(&bed, helm, then).await;
    assert!(failure_policies(&bed).contains(&"Fail".to_owned()));
    let by_default = "upgrade pod-affinity pod-affinity-0.2.0.tgz --reset-values";
    follow(&bed, helm, &helm_calls(by_default)).await;
    assert_eq!(admission(&bed, helm).await, "MutatingWebhookConfiguration");
    follow(&bed, helm, &policies).await;
    follow(&bed, helm, &page("## Upgrade with Helm")).await;
    assert_eq!(admission(&bed, helm).await, "MutatingAdmissionPolicy");
    let configurations = ["get", "mutatingwebhookconfigurations", "--output=name"];
    assert!(!kubectl(&bed, &configurations).contains("pod-affinity"));
}

/// The different failure policies of pod-affinity's webhooks that change runs and pods.
fn failure_policies(bed: &Testbed) -> Vec<String> {
    let path = "--output=jsonpath={.items[*].webhooks[*].failurePolicy}";
    let selector = "--selector=app.kubernetes.io/part-of=pod-affinity";
    let text = kubectl(bed, &["get", "mutatingwebhookconfigurations", selector, path]);
    let mut policies: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
    policies.sort();
    policies.dedup();
    policies
}

fn helm_calls(words: &str) -> String {
    format!("helm {words} --namespace {NAMESPACE}")
}

/// The kind of objects that change runs in the installed chart.
async fn admission(bed: &Testbed, helm: Helm) -> &'static str {
    let manifest = follow(bed, helm, &helm_calls("get manifest pod-affinity")).await;
    let kinds = ["MutatingAdmissionPolicy", "MutatingWebhookConfiguration"];
    let mut found = kinds
        .into_iter()
        .filter(|kind| manifest.contains(&format!("kind: {kind}\n")));
    let only = found.next().unwrap();
    assert_eq!(found.next(), None);
    only
}

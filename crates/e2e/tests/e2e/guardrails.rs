//! The component guardrails: which namespaces may use the label, which strategies, and how much a run may reserve.

use crate::support::SOON;
use crate::support::kubectl::{rendered, workspace};
use crate::support::objects::tried;
use crate::support::runs::{bound_task, create};
use crate::support::testbeds::fresh;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt};
use placement::keys;
use serde_json::json;
use testbed::product::NAMESPACE;
use testbed::runs::{RunSpec, runs};
use testbed::{Testbed, apply};

const CONFIG_MAP: &str = "config-guardrails";

fn labelled(value: &str) -> RunSpec {
    RunSpec::new("default", "run").task("only", &[]).opted_in(value)
}

fn reserving(reserve: &str) -> RunSpec {
    labelled("true").annotation(keys::RESERVE, reserve)
}

/// Waits until the API server rejects the run with a message that contains this text.
async fn until_rejected(bed: &Testbed, client: &Client, run: &RunSpec, text: &str) {
    bed.until(format!("a rejection: {text}"), SOON, async || {
        match tried(client, &run.manifest).await {
            Err(message) if message.contains(text) && message.contains(CONFIG_MAP) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

/// A run that Tekton would have created for a task of the other run.
fn nested_in(root: &DynamicObject, name: &str) -> RunSpec {
    let mut run = RunSpec::new("default", name).task("only", &[]).opted_in("true");
    run.manifest["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": root.name_any(), "uid": root.uid(), "controller": true,
    }]);
    run
}

/// Neither admission nor guardrails change or check the labels of a nested run.
async fn a_nested_run_that_becomes_a_root_run_is_checked(bed: &Testbed) {
    let runs = runs(&bed.client().await.unwrap(), "default");
    let root = runs.get("held").await.unwrap();
    let nested = nested_in(&root, "nested").label(keys::STRATEGY, "isolateAlways");
    let nested = create(bed, &nested.spec("status", json!("PipelineRunPending"))).await;
    let alone = json!({"metadata": {"ownerReferences": null, "labels": {keys::GROUP: nested.uid()}}});
    let alone = runs
        .patch("nested", &PatchParams::default(), &Patch::Merge(alone))
        .await;
    let rejected = alone.unwrap_err().to_string();
    assert!(rejected.contains("may not be isolateAlways"), "{rejected}");
}

#[e2e_test]
async fn guardrails_reject_what_their_config_map_does_not_allow_and_nothing_else() {
    let bed = fresh(2).await;
    let client = bed.client().await.unwrap();
    tried(&client, &labelled("isolateAlways").manifest).await.unwrap();
    let component = rendered(&workspace().join("config/components/guardrails"));
    apply::apply_all(&client, &component).await.unwrap();
    until_rejected(
        &bed,
        &client,
        &labelled("isolateAlways"),
        "may not be isolateAlways",
    )
    .await;
    for reserve in ["cpu=17", "cpu=1,memory=65Gi", "nvidia.com/gpu=1"] {
        until_rejected(&bed, &client, &reserving(reserve), "cpu=16, memory=64Gi").await;
    }
    for allowed in [
        labelled(""),
        labelled("false"),
        labelled("colocateAlways"),
        reserving("auto"),
        reserving("cpu=16000m, memory=64Gi"),
    ] {
        tried(&client, &allowed.manifest).await.unwrap();
    }
    // The user holds the run, so the label is not final yet.
    let held = RunSpec::new("default", "held").task("only", &[]).opted_in("true");
    create(&bed, &held.spec("status", json!("PipelineRunPending"))).await;
    let strategy = Patch::Merge(json!({"metadata": {"labels": {keys::STRATEGY: "isolateAlways"}}}));
    let (runs, params) = (runs(&client, "default"), PatchParams::default());
    let rejected = runs.patch("held", &params, &strategy).await.unwrap_err();
    let rejected = rejected.to_string();
    assert!(rejected.contains("may not be isolateAlways"), "{rejected}");
    // Without a limit on exponents, the API server would compare for hours.
    let reserve = |amount: &str| Patch::Merge(json!({"metadata": {"annotations": {keys::RESERVE: amount}}}));
    let rejected = runs
        .patch("held", &params, &reserve("cpu=1e2000000000"))
        .await
        .unwrap_err();
    assert!(
        rejected.to_string().contains("allows at most cpu=16"),
        "{rejected}"
    );
    runs.patch("held", &params, &reserve("cpu=1e1")).await.unwrap();
    // A strategy that the user wrote before the label counts as well.
    let hold = RunSpec::new("default", "late")
        .task("only", &[])
        .label(keys::STRATEGY, "isolateAlways");
    create(&bed, &hold.spec("status", json!("PipelineRunPending"))).await;
    let label = Patch::Merge(json!({"metadata": {"labels": {keys::OPT_IN: "true"}}}));
    let rejected = runs.patch("late", &params, &label).await.unwrap_err().to_string();
    assert!(rejected.contains("may not be isolateAlways"), "{rejected}");
    a_nested_run_that_becomes_a_root_run_is_checked(&bed).await;
    // A run that exists continues, whatever the settings are.
    let run = labelled("true");
    let root = create(&bed, &run).await;
    let plain = RunSpec::new("default", "plain").task("only", &[]).ending("hang");
    create(&bed, &plain).await;
    bound_task(&bed, &plain, "only").await;
    let too_late = Patch::Merge(json!({"metadata": {"labels": {keys::OPT_IN: "isolateAlways"}}}));
    let plain = runs.patch("plain", &params, &too_late).await.unwrap();
    runs.patch("plain", &params, &reserve("cpu=17")).await.unwrap();
    let group = Patch::Merge(json!({"metadata": {"labels": {keys::GROUP: plain.uid()}}}));
    let rejected = runs
        .patch("plain", &params, &group)
        .await
        .unwrap_err()
        .to_string();
    assert!(rejected.contains("may not be isolateAlways"), "{rejected}");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let wrong = Patch::Merge(json!({"data": {"reserve": "cpu=16\nmemory=64GB"}}));
    maps.patch(CONFIG_MAP, &params, &wrong).await.unwrap();
    until_rejected(&bed, &client, &reserving("memory=900Ti"), "memory=64GB").await;
    let none =
        Patch::Merge(json!({"data": {"namespaces": "team-a\nteam-b", "strategies": "*", "reserve": "*"}}));
    maps.patch(CONFIG_MAP, &params, &none).await.unwrap();
    until_rejected(
        &bed,
        &client,
        &labelled("true"),
        "in namespace default may not use",
    )
    .await;
    tried(&client, &nested_in(&root, "child").manifest).await.unwrap();
    bed.until_succeeded(&run, SOON).await.unwrap();
    let unlabelled = RunSpec::new("default", "unlabelled").task("only", &[]);
    tried(&client, &unlabelled.manifest).await.unwrap();
    let team = bed.namespace("team-a").await.unwrap();
    let run = RunSpec::new(&team, "run").task("only", &[]);
    let run = run.opted_in("isolateAlways").annotation(keys::RESERVE, "cpu=1k");
    tried(&client, &run.manifest).await.unwrap();
}

//! The component reserved-label: only Tekton and pod-affinity create pods with the label of a PipelineRun.

use crate::support::SOON;
use crate::support::events::events;
use crate::support::kubectl::{rendered, workspace};
use crate::support::objects::tried;
use crate::support::placeholders::{bound_placeholder, placeholder_name, sets};
use crate::support::pvcs::{create_pvc, with_pvc};
use crate::support::runs::{create, let_succeed};
use crate::support::testbeds::fresh;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::runs::{RUN_LABEL, RunSpec};
use testbed::{Testbed, apply};

fn template() -> Value {
    json!({
        "metadata": {"labels": {RUN_LABEL: "a-run", "app": "a"}},
        "spec": {"containers": [{"name": "main", "image": "testbed.invalid/main"}], "restartPolicy": "Always"},
    })
}

fn workload(group: &str, kind: &str, extra: &Value) -> Value {
    let mut object = json!({
        "apiVersion": group, "kind": kind, "metadata": {"name": "mine", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template()},
    });
    json_patch::merge(&mut object["spec"], extra);
    object
}

/// The objects that a tenant can create, each with the label on its pods.
fn objects() -> Vec<Value> {
    let mut pod = template();
    json_patch::merge(
        &mut pod,
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine", "namespace": "default"}}),
    );
    let job = json!({"selector": null, "template": {"spec": {"restartPolicy": "Never"}}});
    let controller = json!({"selector": {"app": "a", "matchLabels": null}});
    vec![
        pod,
        workload("apps/v1", "StatefulSet", &json!({"serviceName": "mine"})),
        workload("apps/v1", "Deployment", &json!({})),
        workload("apps/v1", "DaemonSet", &json!({})),
        workload("apps/v1", "ReplicaSet", &json!({})),
        workload("batch/v1", "Job", &job),
        workload("v1", "ReplicationController", &controller),
    ]
}

async fn install(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let component = rendered(&workspace().join("config/components/reserved-label"));
    apply::apply_all(&client, &component).await.unwrap();
    bed.until("the policies to take effect", SOON, async || {
        for object in objects() {
            match tried(&client, &object).await {
                Err(message) if message.contains("config-reserved-label") => {}
                other => return Err(format!("{}: {other:?}", object["kind"])),
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// Otherwise, a tenant could get pods with the label from the assistants of Tekton.
async fn a_statefulset_that_is_scaled_up_gets_no_pod(bed: &Testbed, run: &DynamicObject) {
    let client = bed.client().await.unwrap();
    let sets = sets(&client, "default");
    let assistant = bed.until("Tekton's assistant to exist", SOON, async || {
        let listed = sets.list(&ListParams::default()).await;
        let listed = listed.map_err(|error| error.to_string())?;
        let mut names = listed.iter().map(ResourceExt::name_any);
        let is_other = |name: &String| *name != placeholder_name(run).as_str();
        names.find(is_other).ok_or_else(|| "there is none".to_owned())
    });
    let assistant = assistant.await.unwrap();
    let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
    sets.patch(&assistant, &PatchParams::default(), &two)
        .await
        .unwrap();
    bed.until("the second pod to be rejected", SOON, async || {
        let reported = events(&client, "default", &assistant).await;
        let notes: Vec<_> = reported.filter_map(|event| event.note).collect();
        let is_it = |note: &String| note.contains("whose StatefulSets have one replica");
        notes.iter().any(is_it).then_some(()).ok_or(format!("{notes:?}"))
    })
    .await
    .unwrap();
}

#[e2e_test]
async fn a_tenant_cannot_create_pods_with_the_label_of_a_run_and_runs_are_as_without_the_policy() {
    let bed = fresh(2).await;
    let client = bed.client().await.unwrap();
    for object in objects() {
        tried(&client, &object).await.unwrap();
    }
    install(&bed).await;
    let mut unlabelled = objects().remove(0);
    unlabelled["metadata"]["labels"] = json!({"app": "a"});
    tried(&client, &unlabelled).await.unwrap();

    create_pvc(&bed, "source", None).await;
    let run = RunSpec::diamond("default", "run").opted_in("true").ending("hang");
    let run = with_pvc(run, "source");
    let created = create(&bed, &run).await;
    bound_placeholder(&bed, &created).await;
    a_statefulset_that_is_scaled_up_gets_no_pod(&bed, &created).await;
    let_succeed(&bed, &run).await;
}

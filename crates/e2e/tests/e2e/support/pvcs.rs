//! PVCs that runs mount.

use crate::support::SOON;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use testbed::Testbed;
use testbed::runs::RunSpec;

/// Creates a PVC in the default namespace that is bound to a volume, in a zone or anywhere.
pub(crate) async fn create_pvc(bed: &Testbed, name: &str, zone: Option<&str>) {
    let mut volume = json!({"hostPath": {"path": "/tmp"}});
    if let Some(zone) = zone {
        let here = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]});
        volume["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}});
    }
    create_pvc_of(bed, name, volume).await;
}

/// Creates a PVC in the default namespace that is bound to this volume. The access mode is `ReadWriteOnce`, unless the volume
/// has another one.
pub(crate) async fn create_pvc_of(bed: &Testbed, name: &str, mut volume: Value) {
    let client = bed.client().await.unwrap();
    let (volumes, pvcs): (Api<PersistentVolume>, Api<PersistentVolumeClaim>) = (
        Api::all(client.clone()),
        Api::namespaced(client.clone(), "default"),
    );
    volume["capacity"] = json!({"storage": "1Gi"});
    if volume["accessModes"].is_null() {
        volume["accessModes"] = json!(["ReadWriteOnce"]);
    }
    let modes = volume["accessModes"].clone();
    volume["claimRef"] = json!({"namespace": "default", "name": name});
    let volume = json!({"metadata": {"name": name}, "spec": volume});
    let request = json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": modes,
            "storageClassName": "",
            "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    volumes
        .create(&PostParams::default(), &serde_json::from_value(volume).unwrap())
        .await
        .unwrap();
    pvcs.create(&PostParams::default(), &serde_json::from_value(request).unwrap())
        .await
        .unwrap();
    bed.until(format!("PVC {name} to be bound"), SOON, async || {
        let pvc = pvcs.get(name).await.map_err(|error| error.to_string())?;
        let phase = pvc.status.and_then(|status| status.phase);
        if phase.as_deref() == Some("Bound") {
            Ok(())
        } else {
            Err(format!("{phase:?}"))
        }
    })
    .await
    .unwrap();
}

/// Mounts the PVC in every task.
pub(crate) fn with_pvc(run: RunSpec, pvc: &str) -> RunSpec {
    with_workspace(run, &json!({"persistentVolumeClaim": {"claimName": pvc}}))
}

/// Adds a workspace with this volume to every task.
pub(crate) fn with_workspace(run: RunSpec, volume: &Value) -> RunSpec {
    with_workspace_of(run, "source", volume, |_| true)
}

/// Adds a workspace with this volume to the tasks whose names match.
pub(crate) fn with_workspace_of(
    mut run: RunSpec,
    name: &str,
    volume: &Value,
    mounts: impl Fn(&str) -> bool,
) -> RunSpec {
    let mut workspace = volume.clone();
    workspace["name"] = json!(name);
    push(&mut run.manifest["spec"]["workspaces"], workspace);
    let pipeline = &mut run.manifest["spec"]["pipelineSpec"];
    push(&mut pipeline["workspaces"], json!({"name": name}));
    for task in pipeline["tasks"].as_array_mut().unwrap() {
        if mounts(task["name"].as_str().unwrap()) {
            push(&mut task["workspaces"], json!({"name": name}));
            push(&mut task["taskSpec"]["workspaces"], json!({"name": name}));
        }
    }
    run
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        _ => *list = json!([item]),
    }
}

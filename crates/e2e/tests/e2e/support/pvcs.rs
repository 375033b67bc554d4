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
    let mut workspace = volume.clone();
    workspace["name"] = json!("source");
    let mut run = run.spec("workspaces", json!([workspace]));
    run.manifest["spec"]["pipelineSpec"]["workspaces"] = json!([{"name": "source"}]);
    let tasks = run.manifest.pointer_mut("/spec/pipelineSpec/tasks");
    for task in tasks.unwrap().as_array_mut().unwrap() {
        task["workspaces"] = json!([{"name": "source"}]);
        task["taskSpec"]["workspaces"] = json!([{"name": "source"}]);
    }
    run
}

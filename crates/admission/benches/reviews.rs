//! Reviews of a given size, as the API server sends them for pods of Tekton. Also used by `crates/bench`.

use serde_json::{Value, json};

/// A pod of an enrolled run, of about this many bytes.
pub(crate) fn pod(bytes: usize) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "run-build-pod",
            "namespace": "default",
            "labels": {
                "app.kubernetes.io/managed-by": "tekton-pipelines",
                "pod-affinity.tekton.dev/group": "00000000-0000-4000-8000-000000000000",
                "pod-affinity.tekton.dev/strategy": "colocateCompleted",
                "pod-affinity.tekton.dev/isolation": "cluster-all",
                "tekton.dev/custom-pod-affinity": "true",
                "tekton.dev/pipelineRun": "run",
                "tekton.dev/pipelineTask": "build",
            },
        },
        "spec": {"containers": [{"name": "step", "image": "registry/step", "env": []}], "restartPolicy": "Never"},
    });
    // What makes pods of pipelines large: environments, one entry of some hundred bytes after the other.
    let mut index = 0;
    while pod.to_string().len() + 100 < bytes {
        let entry = json!({"name": format!("VARIABLE_{index}"), "value": "v".repeat(bytes.min(16_000) / 80)});
        if let Some(env) = pod
            .pointer_mut("/spec/containers/0/env")
            .and_then(Value::as_array_mut)
        {
            env.push(entry);
        }
        index += 1;
    }
    pod
}

/// The review of a pod's creation.
pub(crate) fn review(pod: &Value) -> String {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "00000000-0000-4000-8000-000000000001",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "run-build-pod",
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "system:serviceaccount:tekton-pipelines:tekton-pipelines-controller"},
            "object": pod,
            "oldObject": null,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
    .to_string()
}

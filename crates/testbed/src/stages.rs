//! KWOK stages: the next state of a fake node and of its pods, and the delay.
//!
//! KWOK's own module provides the stages that make nodes Ready, start pods and delete pods; the testbed provides the stages of
//! Tekton's pods.

use crate::apply;
use crate::binaries::Built;
use crate::error::{Error, Result};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Annotation of a PipelineRun (or of one task): how long its pods run, such as `3s`.
pub const DURATION: &str = "testbed.pod-affinity.tekton.dev/duration";
/// Annotation of a PipelineRun (or of one task): `succeed`, `fail`, `fail-once` (first try) or `hang`.
pub const OUTCOME: &str = "testbed.pod-affinity.tekton.dev/outcome";
/// Annotation of a PipelineRun or a Task: the termination message of its pods, from which Tekton reads the results of the task.
pub const MESSAGE: &str = "testbed.pod-affinity.tekton.dev/message";
/// How long a task's pod runs without the annotation.
const DEFAULT_MILLISECONDS: u64 = 1000;
/// Stages that are used unchanged.
const FROM_MODULE: [&str; 6] = [
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-delete.yaml",
    "volume/fast/pvc-provision.yaml",
    "volume/fast/pvc-delete.yaml",
    "volume/fast/pv-bind.yaml",
    "volume/fast/pv-delete.yaml",
];
/// Stages that get one more condition.
const NODE_READY: &str = "node/fast/node-initialize.yaml";
const POD_READY: &str = "pod/fast/pod-ready.yaml";
/// The image volumes of a pod.
const IMAGES: &str = "(.spec.volumes // [])[] | .image";
const HOSTNAME: &str = r#".metadata.labels["kubernetes.io/hostname"]"#;

/// All stages as one YAML file, for nodes whose kubelets have this version.
pub(crate) fn render(built: &Built, kubelet_version: &str) -> Result<String> {
    let own = [
        node_hostname(),
        task_ends("succeed", 0, "Completed", "Succeeded"),
        task_ends("fail", 1, "Error", "Failed"),
    ];
    let stages = own.into_iter().chain(from_module(built)?);
    let text: String = stages.map(|stage| format!("---\n{stage:#}\n")).collect();
    // The autoscaler's nodes have no valid kubelet version, and in-place resize is refused on such nodes.
    Ok(text.replace("{{ or $nodeInfo.kubeletVersion $kwokVersion }}", kubelet_version))
}

fn from_module(built: &Built) -> Result<Vec<Value>> {
    let stage = |file: &str| apply::documents(&built.asset("kustomize/stage").join(file));
    // A node without its hostname label must not become Ready, because a pod there would be outside every topology domain.
    let mut all = restricted(stage(NODE_READY)?, NODE_READY, HOSTNAME, "Exists")?;
    // A pod with image volumes never starts, as if the pull of the images did not end.
    all.extend(restricted(stage(POD_READY)?, POD_READY, IMAGES, "DoesNotExist")?);
    for file in FROM_MODULE {
        all.extend(stage(file)?);
    }
    Ok(all)
}

/// The stage of a file, with one more condition.
fn restricted(mut stage: Vec<Value>, file: &str, key: &str, operator: &str) -> Result<Vec<Value>> {
    let expressions = stage
        .first_mut()
        .and_then(|stage| stage.pointer_mut("/spec/selector/matchExpressions"));
    let expressions = expressions
        .and_then(Value::as_array_mut)
        .ok_or_else(|| Error::Manifest {
            file: PathBuf::from(file),
            problem: "it has no matchExpressions".into(),
        })?;
    expressions.push(json!({"key": key, "operator": operator}));
    Ok(stage)
}

/// Nodes of the cluster autoscaler share the labels of their template. A hostname in the template would put all nodes into one
/// topology domain, so the template lacks this label, and every node gets its own label here.
fn node_hostname() -> Value {
    let template = "labels:\n  kubernetes.io/hostname: {{ .metadata.name }}\n";
    stage(
        "node-hostname",
        "Node",
        &json!([{"key": HOSTNAME, "operator": "DoesNotExist"}]),
        &json!({"patches": [{"root": "metadata", "type": "merge", "template": template}]}),
    )
}

/// Tekton copies the annotations of a run to its pods, so the annotations apply to each pod, or to the pods of one task.
fn task_ends(outcome: &str, exit_code: u8, reason: &str, phase: &str) -> Value {
    let selector = json!([
        {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
        {"key": ".status.phase", "operator": "In", "values": ["Running"]},
        {"key": ".metadata.ownerReferences.[].kind", "operator": "In", "values": ["TaskRun"]},
        {"key": outcome_expression(), "operator": "In", "values": [outcome]},
    ]);
    let next = json!({"statusTemplate": terminated(exit_code, reason, phase)});
    let mut stage = stage(&format!("task-{outcome}s"), "Pod", &selector, &next);
    stage["spec"]["delay"] = json!({
        "durationMilliseconds": DEFAULT_MILLISECONDS,
        "durationFrom": {"jq": {"expression": format!(".metadata.annotations[{DURATION:?}]")}},
    });
    stage
}

/// The name of a retry's pod ends with `-retry` and a number.
fn outcome_expression() -> String {
    format!(
        "(.metadata.annotations[{OUTCOME:?}] // \"succeed\") as $o | if $o != \"fail-once\" then $o \
         elif (.metadata.name | test(\"-retry[0-9]+$\")) then \"succeed\" else \"fail\" end"
    )
}

/// The termination message of a task with this result, in the format of Tekton's entrypoint.
pub fn result(name: &str, value: &str) -> String {
    const RESULT_OF_A_TASK: u8 = 1;
    json!([{"key": name, "value": value, "type": RESULT_OF_A_TASK}]).to_string()
}

fn terminated(exit_code: u8, reason: &str, phase: &str) -> String {
    format!(
        "{{{{ $now := Now }}}}
{{{{ $message := or (index .metadata.annotations {MESSAGE:?}) \"\" }}}}
containerStatuses:
{{{{ range .spec.containers }}}}
- name: {{{{ .name | Quote }}}}
  image: {{{{ .image | Quote }}}}
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: {exit_code}
      reason: {reason}
      message: {{{{ $message | Quote }}}}
      startedAt: {{{{ $now | Quote }}}}
      finishedAt: {{{{ $now | Quote }}}}
{{{{ end }}}}
phase: {phase}
"
    )
}

fn stage(name: &str, kind: &str, expressions: &Value, next: &Value) -> Value {
    json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": expressions},
            "next": next,
        },
    })
}

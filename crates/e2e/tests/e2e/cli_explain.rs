//! `explain` and `nodes` on waiting runs: each reason that keeps a run off a node, and missing rights.

use crate::support::SOON;
use crate::support::cli::{LONG, delete, explain_until, only, plain, section, tool, tool_as};
use crate::support::objects::cordon;
use crate::support::placeholders::{placeholder_name, pods, until_no_placeholder};
use crate::support::pvcs::create_pvc;
use crate::support::runs::{create, let_succeed, let_task_end, until_moved_from};
use crate::support::testbeds::fresh;
use k8s_openapi::api::core::v1::Taint;
use serde_json::json;
use testbed::runs::RunSpec;
use testbed::{Nodes, Testbed};

#[e2e_test]
async fn explain_prints_each_reason_that_keeps_a_waiting_run_off_each_node() {
    let bed = fresh(0).await;
    create(&bed, &only("early").opted_in("true")).await;
    // The run is enrolled after the scheduler has reported on its placeholder.
    let text = explain_until(&bed, "early", "when the run was labelled").await;
    assert_eq!(
        text,
        "\
PipelineRun default/early: WaitingForNode

Label        tekton.dev/custom-pod-affinity is \"true\", the default strategy; when the run was labelled, that was colocateCompleted: all pods on one node; no other PipelineRun's pods can use it until it is done (colocateCompleted).

Held         by pod-affinity for <age>, until its placeholder has a node; at the latest in <age> (hold-deadline 10m). To keep it Pending until you release it: `kubectl annotate pipelinerun -n default early pod-affinity.tekton.dev/hold-`.

Placeholder  pod custom-pod-affinity-<hash>-0, made <age> ago, not on any node yet.

Node         none yet. The scheduler reports: \"<words>\".
             - the cluster has no nodes

Autoscaler   none has answered the placeholder so far.

Released     not yet.

Tasks        no pod so far.

Controller   in state HeldUnscheduled. Waits for a node.

What would help
  * Add a node, or let an autoscaler do it.
"
    );
    delete(&bed, "early").await;
    until_no_placeholder(&bed, "default").await;
    occupied_and_unfit(&bed).await;
    picky(&bed).await;
    zonal(&bed).await;
    with_few_rights(&bed).await;
    moving(&bed).await;
}

async fn until_no_pod(bed: &Testbed, name: &str) {
    let pods = pods(&bed.client().await.unwrap(), "default");
    bed.until(format!("no pod {name}"), SOON, async || {
        match pods.get_opt(name).await {
            Ok(None) => Ok(()),
            other => Err(other),
        }
    })
    .await
    .unwrap();
}

/// A run moves off its node for a task that fits nowhere, and follows the task to a node that is added.
async fn moving(bed: &Testbed) {
    bed.configure(&[("move-after", Some("1s"))]).await.unwrap();
    let spec = RunSpec::new("default", "mover")
        .task("small", &[])
        .sized_task("large", &["small"], &json!({"cpu": "64"}))
        .opted_in("true")
        .ending("hang");
    let run = create(bed, &spec).await;
    let_task_end(bed, &spec, "small").await;
    explain_until(bed, "mover", "NoNodeFits").await;
    until_no_pod(bed, &placeholder_name(&run).pod()).await;
    let text = explain_until(bed, "mover", "NoNodeFits").await;
    assert!(text.starts_with("PipelineRun default/mover: Moving\n"), "{text}");
    assert_eq!(
        section(&text, "Node"),
        "\
Node         none at the moment: the run moved off its node, and takes the node that its next pod, mover-large-pod, finds. It was on east-0 before.
             - cordoned-0: is cordoned and has not enough cpu: 8 is free, 64 is asked for
             - east-0: has not enough cpu: 8 is free, 64 is asked for
             - small-0: has not enough cpu: 20m is free, 64 is asked for
             - tainted-0: has the taint gpu=yes:NoSchedule, which the run does not tolerate and has not enough cpu: 8 is free, 64 is asked for
             - taken-0: is occupied by run other of namespace default (colocateCompleted) and has not enough cpu: 7950m is free, 64 is asked for
What would help
  * Add a node that is large enough, or let an autoscaler do it: the run moves there by itself.
  * Have the node chosen for this task from the start: annotate the next run with pod-affinity.tekton.dev/reserve: \"cpu=64\"."
    );
    assert!(
        text.contains("\nPlaceholder  custom-pod-affinity-<hash>, scaled to 0"),
        "{text}"
    );
    assert!(
        text.contains(
            "\
Tasks        2 pods, 1 on node east-0 and 1 on none yet.
             - small: succeeded on east-0
             - large: waits. The scheduler reports: \"<words>\".
"
        ),
        "{text}"
    );
    bed.add_nodes(&Nodes::new("huge", 1).size("96", "256Gi"))
        .await
        .unwrap();
    until_moved_from(bed, &spec, "east-0").await;
    let_succeed(bed, &spec).await;
    let there = "\nNode         was huge-0, which this run does not keep.\n";
    let text = explain_until(bed, "mover", there).await;
    assert!(text.starts_with("PipelineRun default/mover: Done\n"), "{text}");
    assert!(
        text.contains("\nTasks        2 pods; the run has moved and was on east-0 and huge-0.\n"),
        "{text}"
    );
}

async fn occupied_and_unfit(bed: &Testbed) {
    bed.add_nodes(&Nodes::new("taken", 1)).await.unwrap();
    create(bed, &only("other").opted_in("true").lasting(LONG)).await;
    let text = explain_until(bed, "other", "only: running").await;
    assert_eq!(
        text,
        "\
PipelineRun default/other: Running

Label        tekton.dev/custom-pod-affinity is \"true\", the default strategy; when the run was labelled, that was colocateCompleted: all pods on one node; no other PipelineRun's pods can use it until it is done (colocateCompleted).

Held         by pod-affinity for <age>.

Placeholder  pod custom-pod-affinity-<hash>-0, made <age> ago, on node taken-0.

Node         taken-0.

Released     <age> ago. All pods of this run go to node taken-0; no other PipelineRun's pods can use it until it is done (colocateCompleted).

Tasks        1 pod, on node taken-0.
             - only: running on taken-0

Controller   in state RunningOnNode. Nothing to do.
"
    );
    bed.add_nodes(&Nodes::new("small", 1).size("20m", "1Gi"))
        .await
        .unwrap();
    let mut tainted = Nodes::new("tainted", 1);
    tainted.taints = vec![Taint {
        key: "gpu".into(),
        value: Some("yes".into()),
        effect: "NoSchedule".into(),
        ..Taint::default()
    }];
    bed.add_nodes(&tainted).await.unwrap();
    bed.add_nodes(&Nodes::new("cordoned", 1)).await.unwrap();
    cordon(bed, "cordoned-0").await;
    create(bed, &only("build").opted_in("true")).await;
    let text = explain_until(bed, "build", "The scheduler reports").await;
    assert_eq!(
        section(&text, "Node"),
        "\
Node         none yet. The scheduler reports: \"<words>\".
             - cordoned-0: is cordoned
             - small-0: has not enough cpu: 20m is free, 50m is asked for
             - tainted-0: has the taint gpu=yes:NoSchedule, which the run does not tolerate
             - taken-0: is occupied by run other of namespace default (colocateCompleted)
What would help
  * Let pods onto cordoned-0 again: `kubectl uncordon cordoned-0`.
  * Tolerate the taint gpu=yes:NoSchedule in the run's spec.taskRunTemplate.podTemplate.tolerations, if the run may use such nodes."
    );
    let nodes = tool(bed, "nodes").await;
    assert_eq!(
        nodes.out,
        "\
NODE         STATE                     RUN             TASK-PODS   FREE-CPU   FREE-MEMORY
cordoned-0   Free,SchedulingDisabled   -               0           8          32Gi
small-0      Free                      -               0           20m        1Gi
tainted-0    Free                      -               0           8          32Gi
taken-0      Taken                     default/other   1           7950m      32668Mi
"
    );
    delete(bed, "build").await;
}

async fn picky(bed: &Testbed) {
    let template = json!({"podTemplate": {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }});
    create(
        bed,
        &only("picky").opted_in("true").spec("taskRunTemplate", template),
    )
    .await;
    let text = explain_until(bed, "picky", "The scheduler reports").await;
    let text = section(&text, "Node");
    assert!(
        text.contains("- tainted-0: lacks the label disk=ssd (nodeSelector)\n"),
        "{text}"
    );
    assert!(
        text.contains("- taken-0: lacks the label disk=ssd (nodeSelector) and is occupied by run other"),
        "{text}"
    );
    assert!(
        text.contains("Add a node with the labels that the run's podTemplate requires"),
        "{text}"
    );
    delete(bed, "picky").await;
}

async fn zonal(bed: &Testbed) {
    create_pvc(bed, "cache", Some("west")).await;
    bed.add_nodes(&Nodes::new("east", 1).zone("east")).await.unwrap();
    let workspace = json!([{"name": "source", "persistentVolumeClaim": {"claimName": "cache"}}]);
    let mut spec = only("zonal")
        .opted_in("true")
        .task_field("workspaces", json!([{"name": "source"}]))
        .spec("workspaces", workspace);
    spec.manifest["spec"]["pipelineSpec"]["workspaces"] = json!([{"name": "source"}]);
    spec.manifest["spec"]["pipelineSpec"]["tasks"][0]["taskSpec"]["workspaces"] = json!([{"name": "source"}]);
    create(bed, &spec).await;
    let text = explain_until(bed, "zonal", "The scheduler reports").await;
    let text = section(&text, "Node");
    let reason = "- east-0: cannot use the volume of PVC cache (topology.kubernetes.io/zone in west)";
    assert!(text.contains(reason), "{text}");
    assert!(
        text.contains("* Add a node that can use the volume of PVC cache"),
        "{text}"
    );
}

/// A user who may read the runs and pods of one namespace, and nothing at cluster scope.
async fn with_few_rights(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let rule = json!([
        {"apiGroups": ["tekton.dev"], "resources": ["pipelineruns"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods", "events", "persistentvolumeclaims"], "verbs": ["get", "list"]},
        {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["get"]},
    ]);
    let meta = json!({"name": "reader", "namespace": "default"});
    let objects = [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": rule}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
        }),
    ];
    testbed::apply::apply_all(&client, &objects).await.unwrap();
    let reader = bed.kubeconfig_of("default", "reader").await.unwrap();
    // The API server reads a new RoleBinding by a watch.
    let said = bed.until("the rights of the reader", SOON, async || {
        let said = tool_as(&reader, "explain zonal").await;
        if said.code == Some(0) {
            Ok(said)
        } else {
            Err(format!("{said:?}"))
        }
    });
    let said = said.await.unwrap();
    assert_eq!(
        section(&plain(&said.out), "Not read")
            .lines()
            .take(5)
            .collect::<Vec<_>>(),
        [
            "Not read     so the output above is incomplete:",
            "             - you lack the right to get configmaps config-pod-affinity in namespace tekton-pod-affinity",
            "             - you lack the right to list nodes",
            "             - you lack the right to get persistentvolumes cache",
            "             - you lack the right to list pods in all namespaces",
        ]
    );
    let listed = tool_as(&reader, "list").await;
    assert!(
        listed.out.contains("other") && listed.code == Some(0),
        "{listed:?}"
    );
    assert_eq!(
        listed.err,
        "note: you lack the right to list statefulsets.apps in namespace default\n"
    );
    let nodes = tool_as(&reader, "nodes").await;
    assert_eq!(
        (nodes.code, nodes.err.as_str()),
        (Some(3), "error: you lack the right to list nodes\n")
    );
    let doctor = tool_as(&reader, "doctor").await;
    let text = plain(&doctor.out);
    assert_eq!(doctor.code, Some(0), "{text}");
    for right in [
        "get leases.coordination.k8s.io pod-affinity-controller in namespace tekton-pod-affinity",
        "get secrets pod-affinity-webhook-certs in namespace tekton-pod-affinity",
        "create pipelineruns.tekton.dev in namespace default",
        "create subjectaccessreviews.authorization.k8s.io",
    ] {
        assert!(
            text.contains(&format!("Not checked: you lack the right to {right}.")),
            "{right}: {text}"
        );
    }
}

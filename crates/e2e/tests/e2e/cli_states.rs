//! `explain` and `list` on runs in every state except waiting.

use crate::support::SOON;
use crate::support::cli::{LONG, delete, explain_until, only, plain, section, tool, until_output_contains};
use crate::support::objects::quota;
use crate::support::runs::create;
use crate::support::testbeds::fresh;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use placement::keys;
use serde_json::json;
use testbed::runs::{self, RunSpec};
use testbed::{Nodes, Testbed};

#[e2e_test]
async fn runs_in_all_other_states_are_explained_and_listed() {
    let bed = fresh(1).await;
    finished(&bed).await;
    reserved(&bed).await;
    unplaceable(&bed).await;
    held_by_its_user(&bed).await;
    too_late(&bed).await;
    left_alone(&bed).await;
    refused(&bed).await;
    unknown(&bed).await;
    let listed = tool(&bed, "list -o json").await;
    let listed: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
    let states: Vec<_> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            format!(
                "{} {}",
                row["name"].as_str().unwrap(),
                row["state"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        states,
        [
            "done Done",
            "late TooLate",
            "queued HeldElsewhere",
            "reserved Reserved",
            "waits WaitingForNode"
        ]
    );
    let sorted = tool(
        &bed,
        "get pr -l tekton.dev/custom-pod-affinity=true --sort-by state --no-headers",
    )
    .await
    .out;
    assert!(
        sorted.starts_with("done ") && sorted.lines().last().unwrap().starts_with("waits "),
        "{sorted}"
    );
    let names = tool(&bed, "list -A -o name").await.out;
    assert_eq!(names.lines().next(), Some("pipelinerun.tekton.dev/declined"));
}

async fn finished(bed: &Testbed) {
    let spec = only("done").opted_in("true").lasting("1s");
    create(bed, &spec).await;
    bed.until_succeeded(&spec, SOON).await.unwrap();
    let text = explain_until(bed, "done", "deleted when").await;
    assert_eq!(
        text,
        "\
PipelineRun default/done: Done

Label        tekton.dev/custom-pod-affinity is \"true\", the default strategy; when the run was labelled, that was colocateCompleted: all pods on one node; no other PipelineRun's pods can use it until it is done (colocateCompleted).

Held         by pod-affinity for <age>.

Placeholder  deleted when the run was done.

Node         was node-0, which this run does not keep.

Released     <age> ago. All pods of this run go to node node-0; no other PipelineRun's pods can use it until it is done (colocateCompleted).

Tasks        1 pod, on node node-0.
             - only: succeeded on node-0

Outcome      succeeded <age> ago.
"
    );
}

/// One run reserves the node, and the next run waits for the node.
async fn reserved(bed: &Testbed) {
    let spec = only("reserved").opted_in("isolateAlways").lasting("1s");
    create(bed, &spec).await;
    bed.until_succeeded(&spec, SOON).await.unwrap();
    let text = explain_until(bed, "reserved", "PipelineRun default/reserved: Reserved").await;
    assert_eq!(
        section(&text, "Node"),
        "\
Node         node-0 stays reserved until this PipelineRun is deleted, or an autoscaler removes the node (isolateAlways).
What would help
  * Delete the run when its node is needed: `kubectl delete pipelinerun -n default reserved`."
    );
    create(bed, &only("waits").opted_in("true")).await;
    let text = explain_until(bed, "waits", "The scheduler reports").await;
    assert_eq!(
        section(&text, "Node"),
        "\
Node         none yet. The scheduler reports: \"<words>\".
             - node-0: is reserved by the finished run reserved of namespace default (isolateAlways)
What would help
  * Delete a finished run that keeps a node: `kubectl delete pipelinerun -n default reserved`."
    );
    let nodes = tool(bed, "nodes -o wide").await.out;
    assert!(
        nodes.contains("node-0   Reserved   default/reserved   0"),
        "{nodes}"
    );
}

/// A second waiting run, which fits on no node that the test adds.
async fn unplaceable(bed: &Testbed) {
    delete(bed, "waits").await;
    let template = json!({"podTemplate": {"nodeSelector": {"disk": "ssd"}}});
    create(
        bed,
        &only("waits").opted_in("true").spec("taskRunTemplate", template),
    )
    .await;
    explain_until(bed, "waits", "lacks the label disk=ssd").await;
}

async fn held_by_its_user(bed: &Testbed) {
    create(
        bed,
        &only("queued")
            .opted_in("true")
            .spec("status", json!("PipelineRunPending")),
    )
    .await;
    let text = explain_until(bed, "queued", "when the run was labelled").await;
    assert_eq!(
        text,
        "\
PipelineRun default/queued: HeldElsewhere

Label        tekton.dev/custom-pod-affinity is \"true\", the default strategy; when the run was labelled, that was colocateCompleted: all pods on one node; no other PipelineRun's pods can use it until it is done (colocateCompleted).

Held         by another holder: spec.status was PipelineRunPending when the run was created, and that holder releases it. Then pod-affinity holds it until its placeholder has a node.

Placeholder  none yet: a run that waits in a queue occupies no node.

Released     not yet.

Tasks        no pod so far.

What would help
  * Let it start, if it was you who held it: `kubectl patch pipelinerun -n default queued --type=json -p '[{\"op\":\"remove\",\"path\":\"/spec/status\"}]'`.
"
    );
}

async fn too_late(bed: &Testbed) {
    bed.add_nodes(&Nodes::new("late", 1)).await.unwrap();
    let spec = only("late").lasting(LONG);
    create(bed, &spec).await;
    let text = explain_until(bed, "late", "only: running").await;
    assert!(
        text.starts_with("PipelineRun default/late: NotLabelled\n"),
        "{text}"
    );
    let api = runs::runs(&bed.client().await.unwrap(), "default");
    let label = Patch::Merge(json!({"metadata": {"labels": {keys::OPT_IN: "true"}}}));
    let run = api.patch("late", &PatchParams::default(), &label).await.unwrap();
    let text = explain_until(bed, "late", "TooLate").await;
    assert_eq!(run.name_any(), "late");
    assert_eq!(
        text,
        "\
PipelineRun default/late: TooLate

Label        tekton.dev/custom-pod-affinity is \"true\", but the run started before pod-affinity could hold it. Pods of this run may already be on several nodes, so pod-affinity changes nothing.

Tasks        1 pod, on node late-0.
             - only: running on late-0

Controller   in state Unenrolled. Nothing is done, because the run started before it was held.

What would help
  * Create the run with the label tekton.dev/custom-pod-affinity: \"true\".
"
    );
}

/// Runs that pod-affinity ignores, or ignores since a change.
async fn left_alone(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let namespace = bed.namespace("aside").await.unwrap();
    let run = |name: &str| RunSpec::new(&namespace, name).task("only", &[]).lasting(LONG);
    create(bed, &run("declined").opted_in("false")).await;
    let elsewhere = json!("example.com/other");
    create(bed, &run("managed").opted_in("true").spec("managedBy", elsewhere)).await;
    let root = create(bed, &run("misspelt").opted_in("false")).await;
    let mut nested = run("nested").opted_in("true");
    nested.manifest["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "misspelt", "uid": root.uid(), "controller": true,
    }]);
    create(bed, &nested).await;
    let mut ending = run("ending").opted_in("false");
    ending.manifest["metadata"]["finalizers"] = json!(["testbed.pod-affinity.tekton.dev/stays"]);
    create(bed, &ending).await;
    let api = runs::runs(&client, &namespace);
    api.delete("ending", &DeleteParams::default()).await.unwrap();
    // Tekton's writes restore the labels that Tekton has read before.
    let label = Patch::Merge(json!({"metadata": {"labels": {keys::OPT_IN: "perhaps"}}}));
    bed.until("the label perhaps to stay", SOON, async || {
        let read = api.get("misspelt").await.map_err(|error| error.to_string())?;
        let is_running = read.labels().contains_key("tekton.dev/pipeline");
        if is_running && read.labels().get(keys::OPT_IN).map(String::as_str) == Some("perhaps") {
            return Ok(());
        }
        let patched = api.patch("misspelt", &PatchParams::default(), &label).await;
        patched.map_err(|error| error.to_string())?;
        Err(format!("{:?}", read.labels()))
    })
    .await
    .unwrap();
    let mut reported = Vec::new();
    for name in ["declined", "ending", "managed", "misspelt", "nested"] {
        let text = plain(&tool(bed, &format!("explain -n {namespace} {name}")).await.out);
        reported.push(section(&text, "PipelineRun").lines().next().unwrap().to_owned());
        reported.push(section(&text, "Label").lines().next().unwrap().to_owned());
    }
    assert_eq!(
        reported,
        [
            "PipelineRun aside/declined: Declined",
            "Label        tekton.dev/custom-pod-affinity is \"false\": pod-affinity ignores this run.",
            "PipelineRun aside/ending: BeingDeleted",
            "Label        tekton.dev/custom-pod-affinity is \"false\": pod-affinity ignores this run.",
            "PipelineRun aside/managed: ManagedElsewhere",
            "Label        spec.managedBy names another controller than Tekton, so pod-affinity ignores this run.",
            "PipelineRun aside/misspelt: Invalid",
            "Label        label tekton.dev/custom-pod-affinity has the unknown value \"perhaps\"; valid values are \
             colocateAlways, colocateCompleted, isolateAlways to choose a strategy, \"true\" or \"\" for the default \
             one, and \"false\" to opt out. pod-affinity ignores this run.",
            "PipelineRun aside/nested: Nested",
            "Label        PipelineRun misspelt started this run. This run uses the node of PipelineRun misspelt, is not held, and \
             has no placeholder.",
        ]
    );
}

/// A held run whose placeholder is rejected.
async fn refused(bed: &Testbed) {
    let namespace = bed.namespace("full").await.unwrap();
    quota(bed, &namespace, "count/statefulsets.apps", "0").await;
    create(
        bed,
        &RunSpec::new(&namespace, "held")
            .task("only", &[])
            .opted_in("true"),
    )
    .await;
    let line = format!("explain -n {namespace} held");
    let text = plain(&until_output_contains(bed, &line, "PlaceholderRefused").await.out);
    assert_eq!(
        text,
        "\
PipelineRun full/held: Held

Label        tekton.dev/custom-pod-affinity is \"true\", the default strategy, which is colocateCompleted: all pods on one node; no other PipelineRun's pods can use it until it is done (colocateCompleted).

Held         by pod-affinity for <age>, until its placeholder has a node; at the latest in <age> (hold-deadline 10m). To keep it Pending until you release it: `kubectl annotate pipelinerun -n full held pod-affinity.tekton.dev/hold-`.

Placeholder  none yet.

Node         none yet.

Released     not yet.

Tasks        no pod so far.

Controller   in state HeldWithoutPlaceholder. Next step: create placeholder. A pause may come first.

Events       of pod-affinity on the run:
             - <age> ago, PlaceholderRefused: The placeholder could not be created; the controller retries: statefulsets.apps \"custom-pod-affinity-<hash>\" is forbidden: exceeded quota: tight, requested: count/statefulsets.apps=1, used: count/statefulsets.apps=0, limited: count/statefulsets.apps=0. Raise the ResourceQuota of this namespace or remove what uses it up.
"
    );
}

async fn unknown(bed: &Testbed) {
    let said = tool(bed, "describe pr/reservd").await;
    assert_eq!(said.code, Some(1));
    assert_eq!(
        said.err,
        "error: there is no PipelineRun reservd in namespace default. Did you mean reserved?\n"
    );
}

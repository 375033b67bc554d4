//! The recipe of examples/node-local: static local volumes. Each run gets the volume on its node.

use crate::support::SOON;
use crate::support::events::{notes, reasons};
use crate::support::install::follow;
use crate::support::kubectl::{kubectl, parsed, workspace};
use crate::support::objects::{cordon, node_of, uncordon};
use crate::support::pages::block;
use crate::support::runs::{bound_task, create, let_end, let_task_end, nodes_of};
use crate::support::testbeds::fresh;
use serde_json::json;
use testbed::Testbed;
use testbed::runs::RunSpec;

const PAGE: &str = "examples/node-local/README.md";
/// The node in the commands of the page.
const NODE: &str = "node-1";
const NODES: [&str; 2] = ["node-0", "node-1"];

/// The run of the example, with another name.
pub(crate) fn example(name: &str) -> RunSpec {
    let file = std::fs::read_to_string(workspace().join("examples/node-local/run.yaml")).unwrap();
    let [mut manifest] = parsed(&file).try_into().unwrap();
    let metadata = &mut manifest["metadata"];
    metadata["generateName"].take();
    metadata["namespace"] = json!("default");
    metadata["name"] = json!(name);
    RunSpec { manifest }
}

/// Executes the commands of the page for this node.
pub(crate) async fn follow_page(bed: &Testbed, heading: &str, node: &str) {
    let folder = workspace().join("examples/node-local").canonicalize().unwrap();
    let commands = block(PAGE, heading).replace(&format!("NODE={NODE}"), &format!("NODE={node}"));
    let commands = format!("cd {}\n{commands}", folder.display());
    follow(bed, &commands, &RunSpec::new("default", "unused")).await;
}

/// The field of the volume of this node.
fn volume(bed: &Testbed, node: &str, field: &str) -> String {
    let name = format!("node-local-{node}");
    let field = format!("--output=jsonpath={{{field}}}");
    kubectl(bed, &["get", "persistentvolume", &name, &field])
}

async fn until_phase(bed: &Testbed, node: &str, phase: &str) {
    bed.until(format!("the volume of {node} to be {phase}"), SOON, async || {
        let found = volume(bed, node, ".status.phase");
        if found == phase { Ok(()) } else { Err(found) }
    })
    .await
    .unwrap();
}

/// The node of a run that has succeeded without a move, after a comparison with the PVC of its volume.
async fn node_with_volume(bed: &Testbed, run: &RunSpec) -> String {
    bed.until_succeeded(run, SOON).await.unwrap();
    let [node] = nodes_of(bed, run)
        .await
        .into_iter()
        .collect::<Vec<_>>()
        .try_into()
        .unwrap();
    let pvc = volume(bed, &node, ".spec.claimRef.name");
    let owner = "--output=jsonpath={.metadata.ownerReferences[0].name}";
    assert_eq!(
        kubectl(bed, &["get", "persistentvolumeclaim", &pvc, owner]),
        run.name()
    );
    let reported = reasons(&bed.client().await.unwrap(), run).await;
    assert!(!reported.contains(&"MovedOff".to_owned()), "{reported:?}");
    node
}

#[e2e_test(second)]
async fn each_run_gets_the_volume_of_its_node_and_keeps_node_and_volume() {
    // The third node has no volume.
    let bed = fresh(3).await;
    for node in NODES {
        follow_page(&bed, "## Volumes", node).await;
    }
    let reserves = example("reserves").opted_in("isolateAlways").lasting("1s");
    create(&bed, &reserves).await;
    let reserved = node_with_volume(&bed, &reserves).await;
    let other = NODES.into_iter().find(|node| *node != reserved).unwrap();
    let cordoned = a_cordoned_node_is_kept(&bed, other).await;
    a_later_run_waits_for_the_volume(&bed, &cordoned, other).await;
    the_volume_of_a_deleted_run_is_used_again(&bed, &reserves, &reserved).await;
    follow_page(&bed, "## A run", NODE).await;
    let name = kubectl(
        &bed,
        &[
            "get",
            "pipelineruns",
            "--output=jsonpath={.items[*].metadata.name}",
        ],
    );
    node_with_volume(&bed, &RunSpec::new("default", &name)).await;
}

pub(crate) async fn the_volume_of_a_deleted_run_is_used_again(bed: &Testbed, run: &RunSpec, node: &str) {
    kubectl(bed, &["delete", "pipelinerun", run.name()]);
    until_phase(bed, node, "Released").await;
    follow_page(bed, "## Use a volume again", node).await;
    until_phase(bed, node, "Available").await;
}

async fn a_cordoned_node_is_kept(bed: &Testbed, node: &str) -> RunSpec {
    let run = example("cordoned").ending("hang");
    create(bed, &run).await;
    assert_eq!(node_of(&bound_task(bed, &run, "write").await), node);
    cordon(bed, node).await;
    let_task_end(bed, &run, "write").await;
    let pvc = volume(bed, node, ".spec.claimRef.name");
    let reason = format!("its PVC {pvc} can be used on no other node");
    let client = bed.client().await.unwrap();
    bed.until("the run to say why it stays", SOON, async || {
        let notes = notes(&client, &run).await;
        let mut unfit = notes.iter().filter(|(name, _)| name == "NodeUnfit");
        let says_so = unfit.any(|(_, note)| note.contains(&reason));
        says_so.then_some(()).ok_or(notes)
    })
    .await
    .unwrap();
    uncordon(bed, node).await;
    let_end(bed, &run).await;
    assert_eq!(node_with_volume(bed, &run).await, node);
    run
}

/// The earlier run is done, but still has its PVC.
async fn a_later_run_waits_for_the_volume(bed: &Testbed, earlier: &RunSpec, node: &str) {
    let run = example("later").lasting("1s");
    create(bed, &run).await;
    bed.until("the later run to wait for a volume", SOON, async || {
        let pods = kubectl(
            bed,
            &[
                "get",
                "pods",
                "--output=jsonpath={.items[*].status.conditions[*].message}",
            ],
        );
        let waits = pods.contains("didn't find available persistent volumes to bind");
        waits.then_some(()).ok_or(pods)
    })
    .await
    .unwrap();
    kubectl(bed, &["delete", "pipelinerun", earlier.name()]);
    until_phase(bed, node, "Released").await;
    follow_page(bed, "## Use a volume again", node).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(nodes_of(bed, &run).await, [node.to_owned()].into());
    the_volume_of_a_deleted_run_is_used_again(bed, &run, node).await;
}

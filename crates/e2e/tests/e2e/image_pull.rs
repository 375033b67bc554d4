//! The node of a run pulls the images of the tasks ahead, and the run never waits for the pull. Pods with image volumes never start on
//! simulated nodes: see `testbed/src/stages.rs`.

use crate::support::objects::{cordon, node_of};
use crate::support::placeholders::bound_placeholder;
use crate::support::runs::{bound_task, create, let_succeed, let_task_end};
use crate::support::testbeds::fresh;
use kube::api::DynamicObject;
use placement::keys;
use serde_json::json;
use testbed::Testbed;
use testbed::runs::RunSpec;

#[e2e_test]
async fn a_run_starts_moves_and_ends_while_no_pull_of_its_images_ends() {
    let bed = fresh(2).await;
    let other = json!({"steps": [{"name": "step", "image": "testbed.invalid/other", "script": "true"}]});
    let run = RunSpec::new("default", "run")
        .task("a", &[])
        .task("b", &["a"])
        .task_field("taskSpec", other)
        .opted_in("true")
        .annotation(keys::PULL_IMAGES, "true")
        .ending("hang");
    let created = create(&bed, &run).await;
    let first = node_of(&bound_task(&bed, &run, "a").await);
    pulls_on(&bed, &created, &first).await;
    cordon(&bed, &first).await;
    let_task_end(&bed, &run, "a").await;
    let second = node_of(&bound_task(&bed, &run, "b").await);
    assert_ne!(first, second);
    pulls_on(&bed, &created, &second).await;
    let_succeed(&bed, &run).await;
}

/// Checks that the placeholder is on this node, and that it has the images and does not run. API servers older than 1.35 remove the
/// images.
async fn pulls_on(bed: &Testbed, run: &DynamicObject, node: &str) {
    let placeholder = bound_placeholder(bed, run).await;
    assert_eq!(node_of(&placeholder), node);
    let version = bed.client().await.unwrap().apiserver_version().await.unwrap();
    let expected: &[&str] = match version.minor.parse::<u32>().unwrap() {
        ..35 => &[],
        35.. => &["testbed.invalid/step", "testbed.invalid/other"],
    };
    let volumes = placeholder.spec.unwrap().volumes.unwrap_or_default();
    let images = volumes.into_iter().filter_map(|volume| volume.image?.reference);
    assert_eq!(images.collect::<Vec<_>>(), expected);
    let phase = placeholder.status.unwrap().phase;
    assert!(
        expected.is_empty() || phase.as_deref() == Some("Pending"),
        "{phase:?}"
    );
}

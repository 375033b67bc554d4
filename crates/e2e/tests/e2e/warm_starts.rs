//! Runs prefer the nodes of earlier runs of the same Pipeline, and never wait for such a node.

use crate::support::cli::{on_one_line, tool};
use crate::support::events::until_event;
use crate::support::objects::node_of;
use crate::support::placeholders::until_no_placeholder;
use crate::support::runs::{bound_task, create, let_succeed, nodes_of, of_pipeline};
use crate::support::testbeds::fresh;
use placement::keys;
use serde_json::json;
use testbed::Testbed;
use testbed::runs::RunSpec;

async fn build(bed: &Testbed, name: &str) -> RunSpec {
    let run = RunSpec::new("default", name).task("only", &[]).ending("hang");
    let run = run.opted_in("true").annotation(keys::WARM, "true");
    of_pipeline(bed, run, json!({"name": "build"})).await
}

/// Ends the run, and waits until its node is free.
async fn end(bed: &Testbed, run: &RunSpec) {
    let_succeed(bed, run).await;
    until_no_placeholder(bed, "default").await;
}

#[e2e_test]
async fn runs_of_a_pipeline_take_the_node_of_the_run_before_and_another_node_at_once_if_it_is_taken() {
    let bed = fresh(4).await;
    let first = build(&bed, "first").await;
    create(&bed, &first).await;
    let cold = until_event(&bed, &first, "Released").await;
    assert!(cold.contains("a cold start: no earlier run"), "{cold}");
    let warm_node = node_of(&bound_task(&bed, &first, "only").await);
    end(&bed, &first).await;
    for name in ["second", "third", "fourth"] {
        let run = build(&bed, name).await;
        create(&bed, &run).await;
        let warm = until_event(&bed, &run, "Released").await;
        assert!(warm.contains("a warm start"), "{warm}");
        end(&bed, &run).await;
        assert_eq!(nodes_of(&bed, &run).await, [warm_node.clone()].into());
    }
    let [occupies, finds_another] = [build(&bed, "occupies").await, build(&bed, "finds-another").await];
    for run in [&occupies, &finds_another] {
        create(&bed, run).await;
        bound_task(&bed, run, "only").await;
        until_event(&bed, run, "Released").await;
    }
    let cold = on_one_line(&tool(&bed, "explain finds-another").await.out);
    assert!(
        cold.contains(&format!(
            "a cold start: the nodes of the latest runs of the same Pipeline, {warm_node}, were not free"
        )),
        "{cold}"
    );
}

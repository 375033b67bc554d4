//! `timeline` draws the events of a real cluster: a run that moved, and an unlabelled run. `cost` reports the
//! node time of the run that moved.

use crate::cli_cost::{NodeTime, TASK, the_metrics_and_the_report_have_the_same_time};
use crate::support::SOON;
use crate::support::cli::{only, tool, until_output_contains};
use crate::support::runs::{bound_task, create, small_then};
use crate::support::testbeds::fresh;
use testbed::Nodes;

/// The lines of one node's lane: the node, and the runs on it.
fn lane(text: &str, name: &str) -> Vec<String> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(name));
    let first = lines.next().into_iter();
    let runs = lines.take_while(|line| line.starts_with("  "));
    first.chain(runs).map(str::to_owned).collect()
}

fn bar<'a>(lane: &'a [String], run: &str) -> &'a str {
    let is_its = |line: &&String| line.split_whitespace().next() == Some(run);
    let found = lane.iter().find(is_its);
    found.unwrap_or_else(|| panic!("{run}: {lane:#?}"))
}

#[e2e_test]
async fn timeline_draws_a_run_that_moved_on_both_of_its_nodes_and_an_unlabelled_one_where_it_ran() {
    let bed = fresh(0).await;
    let add = async |name, cpu| {
        let nodes = Nodes::new(name, 1).label("node.kubernetes.io/instance-type", name);
        bed.add_nodes(&nodes.size(cpu, "32Gi")).await.unwrap()
    };
    add("small", "2").await;
    let before = NodeTime::read(&bed).await;
    let moves = small_then("4").lasting(&format!("{TASK}s"));
    create(&bed, &moves).await;
    bound_task(&bed, &moves, "small").await;
    add("large", "8").await;
    bed.until_succeeded(&moves, SOON).await.unwrap();
    let plain = only("plain").lasting("2s");
    create(&bed, &plain).await;
    bed.until_succeeded(&plain, SOON).await.unwrap();

    let drawn = until_output_contains(&bed, "timeline --since=0", "moved")
        .await
        .out;
    println!("{drawn}");
    let (small, large) = (lane(&drawn, "small-0"), lane(&drawn, "large-0"));
    assert!(
        bar(&small, "run").contains('█') && bar(&small, "run").contains('>'),
        "{drawn}"
    );
    assert!(
        bar(&large, "run").contains('█') && bar(&large, "run").contains('>'),
        "{drawn}"
    );
    let grey = [&small, &large].into_iter().flatten();
    assert!(
        grey.clone()
            .any(|line| line.trim_start().starts_with("plain") && line.contains('─')),
        "{drawn}"
    );

    for (format, begin) in [("svg", "<svg"), ("html", "<!doctype html>")] {
        let picture = tool(&bed, &format!("timeline -o {format}")).await;
        assert_eq!((picture.code, picture.err.as_str()), (Some(0), ""));
        assert!(picture.out.to_lowercase().starts_with(begin), "{}", picture.out);
        for name in ["small-0", "large-0", "plain"] {
            assert!(picture.out.contains(name), "{format}: {name}");
        }
    }
    the_metrics_and_the_report_have_the_same_time(&bed, &moves, before).await;
    let none = tool(&bed, "timeline -n kube-public").await;
    assert!(
        none.err.contains("No PipelineRuns in namespace kube-public"),
        "{}",
        none.err
    );
}

//! `cargo demo`: labelled runs with pod-affinity beside the same runs without pod-affinity, on a real control plane.

mod picture;
mod scene;
mod screen;

use scene::Placements;
use screen::Screen;
use std::process::ExitCode;
use std::time::Instant;
use testbed::pace::AS_SHIPPED;
use testbed::program::{PLUGIN, PRODUCT};
use testbed::{Error, NodeGroup, Options, Testbed, Versions};

/// Nodes at the start. One more run than nodes makes the autoscaler add a node.
const NODES: usize = 2;
const RUNS: usize = NODES + 1;
const GROUP: &str = "pool";

#[tokio::main]
async fn main() -> ExitCode {
    tokio::select! {
        outcome = demo() => match outcome {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("demo: {error}");
                ExitCode::FAILURE
            }
        },
        () = testbed::interrupted() => ExitCode::from(130),
    }
}

async fn demo() -> Result<bool, Error> {
    let mut screen = Screen::new();
    screen.title("A control plane: API server, scheduler, Tekton, cluster autoscaler");
    let versions = Versions::of_environment()?;
    tokio::task::block_in_place(|| testbed::build_for_autoscaler(versions))?;
    let bed = Testbed::start(Options::default()).await?;
    bed.start_autoscaler(&[NodeGroup::new(GROUP, NODES, NODES + 4)])
        .await?;
    let startup = bed.startup().as_secs_f32();
    println!("{versions}, started in {startup:.1} s, {NODES} nodes");

    screen.title(&format!(
        "{RUNS} runs without pod-affinity, which is compiled meanwhile"
    ));
    let start = Instant::now();
    let compiling = tokio::task::spawn_blocking(|| PRODUCT.path().and_then(|_| PLUGIN.path()));
    let without = scene::play(&bed, &mut screen, "plain", None).await?;

    screen.title(&format!(
        "The same {RUNS} runs, labelled {}: \"true\"",
        testbed::runs::OPT_IN
    ));
    // The installation needs the same binary and reports a failed build.
    let _ = compiling.await;
    bed.install_pod_affinity_with(&[AS_SHIPPED]).await?;
    let with = scene::play(&bed, &mut screen, "labelled", Some("true")).await?;

    screen.title("The timelines of both, drawn by kubectl pod-affinity timeline");
    for page in picture::draw(&bed, start.elapsed()).await? {
        println!("{}", page.display());
    }

    screen.title("The autoscaler removes its nodes");
    scene::until_nodes_are_back(&bed, &mut screen).await?;

    screen.title("Which run was on which node(s)");
    table(&without, &with);
    Ok(verdict(&screen, &with))
}

fn table(without: &Placements, with: &Placements) {
    println!("{:<8} {:<36} with pod-affinity", "run", "without pod-affinity");
    for (index, (before, after)) in without.iter().zip(with).enumerate() {
        println!("{:<8} {:<36} {}", index + 1, nodes(before), nodes(after));
    }
}

fn nodes(of: &std::collections::BTreeSet<String>) -> String {
    of.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// True if every labelled run had exactly one node and no two runs shared a node.
fn verdict(screen: &Screen, with: &Placements) -> bool {
    let one_each = with.iter().all(|nodes| nodes.len() == 1);
    let distinct: std::collections::BTreeSet<_> = with.iter().flatten().collect();
    let good = one_each && distinct.len() == RUNS;
    println!();
    screen.verdict(
        good,
        if good {
            "every labelled run had one node of its own"
        } else {
            "a labelled run had more than one node, or shared its node"
        },
    );
    good
}

//! `cargo testbed up`: keeps a control plane running in the foreground.

use testbed::{Nodes, Options, Testbed};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let bed = Testbed::start(Options::default()).await?;
    println!("started in {:.1?}: {}", bed.startup(), bed.folder().display());
    bed.add_nodes(&Nodes::new("node", 3)).await?;
    println!("export KUBECONFIG={}", bed.kubeconfig().display());
    tokio::signal::ctrl_c().await?;
    Ok(())
}

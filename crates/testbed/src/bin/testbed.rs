//! `cargo testbed`: builds the parts, or keeps a control plane running in the foreground.

use clap::{Args, Parser, Subcommand};
use std::process::ExitCode;
use testbed::pace::AS_SHIPPED;
use testbed::{Admission, Error, Kubernetes, NodeGroup, Nodes, Options, Tekton, Testbed, Versions};

/// A real Kubernetes control plane with Tekton on this machine: no container, nothing but loopback.
#[derive(Debug, Parser)]
#[command(name = "cargo testbed", bin_name = "cargo testbed")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build every part that is not in the cache yet, and end.
    Build,
    /// Start a control plane and keep it until Ctrl-C.
    Up(Up),
}

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Up {
    /// Nodes to start with (fake ones, 8 CPU and 32 GiB each).
    #[arg(long, default_value_t = 2)]
    nodes: usize,
    /// Run the cluster autoscaler; it may add up to this many nodes.
    #[arg(long, value_name = "MAX")]
    autoscaler: Option<usize>,
    /// Run Karpenter.
    #[arg(long, conflicts_with = "autoscaler")]
    karpenter: bool,
    /// Run an OCI registry.
    #[arg(long)]
    registry: bool,
    /// Leave Tekton out.
    #[arg(long, conflicts_with = "pod_affinity")]
    no_tekton: bool,
    /// Install pod-affinity from this checkout.
    #[arg(long)]
    pod_affinity: bool,
    /// What runs and pods pass when they are created.
    #[arg(long, value_enum, default_value_t, requires = "pod_affinity")]
    admission: Admission,
    /// Version of the API server, the controller manager and the scheduler.
    #[arg(long, value_enum, default_value_t)]
    kubernetes: Kubernetes,
    /// Version of Tekton.
    #[arg(long, value_enum, default_value_t, conflicts_with = "no_tekton")]
    tekton: Tekton,
}

impl Up {
    fn versions(&self) -> Versions {
        Versions {
            kubernetes: self.kubernetes,
            tekton: self.tekton,
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Build => tokio::task::block_in_place(testbed::build_all),
        Command::Up(up) => run(&up).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testbed: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(up: &Up) -> Result<(), Error> {
    tokio::select! {
        outcome = serve(up) => outcome,
        () = testbed::interrupted() => {
            eprintln!("testbed: stopped");
            Ok(())
        }
    }
}

fn options(up: &Up) -> Options {
    Options {
        tekton: !up.no_tekton,
        // Tools that check an installation read its Deployments.
        deployments: up.pod_affinity,
        admission: Some(up.admission),
        versions: Some(up.versions()),
        ..Options::default()
    }
}

async fn serve(up: &Up) -> Result<(), Error> {
    if up.autoscaler.is_some() && !up.no_tekton {
        tokio::task::block_in_place(|| testbed::build_for_autoscaler(up.versions()))?;
    }
    let bed = Testbed::start(options(up)).await?;
    println!(
        "{}, started in {:.1} s",
        bed.versions(),
        bed.startup().as_secs_f32()
    );
    bed.add_nodes(&Nodes::new("node", up.nodes)).await?;
    if let Some(max) = up.autoscaler {
        bed.start_autoscaler(&[NodeGroup::new("pool", 0, max)]).await?;
    }
    if up.karpenter {
        bed.start_karpenter().await?;
    }
    if up.registry {
        println!("registry: {}", bed.start_registry().await?);
    }
    if up.pod_affinity {
        bed.install_pod_affinity_with(&[AS_SHIPPED]).await?;
        println!(
            "pod-affinity is installed: label a PipelineRun {}=true",
            testbed::runs::OPT_IN
        );
    }
    tell(&bed);
    bed.until_a_part_dies().await
}

fn tell(bed: &Testbed) {
    println!("state and logs: {}", bed.folder().display());
    println!("\nIn another terminal:\n");
    println!("  export KUBECONFIG={}", bed.kubeconfig().display());
    println!("  kubectl get nodes\n  kubectl create -f examples/\n  kubectl get pipelineruns,pods -o wide\n");
    println!(
        "Pods run no containers: a task succeeds after 1 s, unless annotations of its run set another result:"
    );
    println!("  {}: 30s", testbed::kwok::DURATION);
    println!(
        "  {}: succeed | fail | fail-once | hang\n",
        testbed::kwok::OUTCOME
    );
    println!("Ctrl-C stops the testbed.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_affinity_is_installed_with_its_deployments_and_by_the_webhook_unless_policies_are_asked_for() {
        let asked = |line: &[&str]| match Cli::parse_from(line).command {
            Command::Up(up) => Some((options(&up).deployments, options(&up).admission?)),
            Command::Build => None,
        };
        let up = ["testbed", "up"];
        let installed = ["testbed", "up", "--pod-affinity"];
        let policies = ["testbed", "up", "--pod-affinity", "--admission=policies"];
        assert_eq!(asked(&up), Some((false, Admission::Webhook)));
        assert_eq!(asked(&installed), Some((true, Admission::Webhook)));
        assert_eq!(asked(&policies), Some((true, Admission::Policies)));
    }

    #[test]
    fn a_testbed_runs_the_default_versions_unless_others_are_asked_for() {
        let asked = |line: &[&str]| match Cli::parse_from(line).command {
            Command::Up(up) => options(&up).versions,
            Command::Build => None,
        };
        let older = ["testbed", "up", "--kubernetes=1.34", "--tekton=1.12"];
        let versions = Versions {
            kubernetes: Kubernetes::V1_34,
            tekton: Tekton::V1_12,
        };
        assert_eq!(asked(&["testbed", "up"]), Some(Versions::default()));
        assert_eq!(asked(&older), Some(versions));
    }
}

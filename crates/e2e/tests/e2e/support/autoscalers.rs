//! A testbed with an autoscaler, and the nodes that are left when the runs have ended.

use super::SOON;
use super::pool::PooledTestbed;
use super::testbeds::fresh;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use std::time::{Duration, Instant};
use testbed::runs;
use testbed::{NodeGroup, Nodes, Part, Testbed};

/// Number of nodes of 2 CPU that exist from the start and stay.
pub(crate) const FIXED: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Autoscaler {
    Cluster,
    Karpenter,
}

impl Autoscaler {
    pub(crate) fn part(self) -> Part {
        match self {
            Self::Cluster => Part::ClusterAutoscaler,
            Self::Karpenter => Part::Karpenter,
        }
    }
}

/// A testbed with a few nodes and an autoscaler that adds nodes.
pub(crate) async fn bed(autoscaler: Autoscaler) -> PooledTestbed {
    let bed = fresh(0).await;
    bed.add_nodes(&Nodes::new("fixed", FIXED).size("2", "8Gi"))
        .await
        .unwrap();
    match autoscaler {
        Autoscaler::Cluster => {
            let groups = [
                NodeGroup::new("two", 0, 30).size("2", "8Gi"),
                NodeGroup::new("eight", 0, 30).size("8", "32Gi"),
            ];
            bed.start_autoscaler(&groups).await.unwrap();
        }
        Autoscaler::Karpenter => bed.start_karpenter().await.unwrap(),
    }
    bed
}

pub(crate) async fn delete_runs(bed: &Testbed) {
    let api = runs::runs(&bed.client().await.unwrap(), "default");
    api.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .unwrap();
}

/// Waits until only the fixed nodes and this many others are left, and returns how long that took.
pub(crate) async fn until_left(bed: &Testbed, others: usize) -> Duration {
    let start = Instant::now();
    let nodes: Api<Node> = Api::all(bed.client().await.unwrap());
    bed.until(format!("{others} new nodes to be left"), SOON, async || {
        let listed = nodes
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let names: Vec<_> = listed.items.iter().map(ResourceExt::name_any).collect();
        let fixed = names.iter().filter(|name| name.starts_with("fixed")).count();
        if (fixed, names.len()) == (FIXED, FIXED + others) {
            Ok(())
        } else {
            Err(names.join(" "))
        }
    })
    .await
    .unwrap();
    start.elapsed()
}

//! Karpenter with its kwok provider, which has its own list of node sizes, from 1 CPU up.

use crate::apply;
use crate::binaries::{self, Built};
use crate::error::Result;
use crate::part::{Launch, Part};
use crate::probe;
use crate::recipe::KARPENTER;
use crate::testbed::{READY, Testbed, built};
use serde_json::{Value, json};

/// Label of every node that Karpenter creates.
pub const NODE_POOL: &str = "karpenter.sh/nodepool";
const NAMESPACE: &str = "kube-system";

impl Testbed {
    /// Starts Karpenter with one node pool that allows every size and removes empty nodes quickly.
    pub async fn start_karpenter(&self) -> Result<()> {
        let [built] = built(|| binaries::ensure([&KARPENTER])).await?;
        let client = self.client().await?;
        for folder in ["pkg/apis/crds", "kwok/apis/crds"] {
            apply::apply_all(&client, &apply::documents(&built.asset(folder))?).await?;
        }
        self.until("Karpenter's kinds to be served", READY, async || {
            apply::apply_all(&client, &pool())
                .await
                .map_err(|error| error.to_string())
        })
        .await?;
        let health = self.port()?;
        self.launch(Part::Karpenter, self.karpenter(&built, health)?)?;
        self.until("Karpenter to be ready", READY, async || {
            probe::get(health, "/readyz").await
        })
        .await
        .map(drop)
    }

    fn karpenter(&self, built: &Built, health: u16) -> Result<Launch> {
        Ok(Launch::new(built.program("karpenter"))
            .env("KUBECONFIG", self.kubeconfig().display().to_string())
            .env("KUBERNETES_MIN_VERSION", "v1.28.0")
            .env("SYSTEM_NAMESPACE", NAMESPACE)
            .env("KARPENTER_SERVICE", "karpenter")
            .env("METRICS_PORT", self.port()?.to_string())
            .env("HEALTH_PROBE_PORT", health.to_string())
            .env("FEATURE_GATES", "CapacityBuffer=true")
            .env("DISABLE_LEADER_ELECTION", "true"))
    }
}

fn pool() -> [Value; 2] {
    let class = json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}});
    let spot = json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]});
    let pool = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {
                "requirements": [spot],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "expireAfter": "Never",
            }},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5s", "budgets": [{"nodes": "100%"}]},
        },
    });
    [class, pool]
}

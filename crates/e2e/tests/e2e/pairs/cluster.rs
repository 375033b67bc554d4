//! The cluster that all pairs share: pools of nodes, the objects by which pods reach them, pods that fill nodes, databases,
//! and storage drivers.

use super::AT_ONCE;
use super::manifest::DATABASE;
use super::place::{Place, runtime_class};
use crate::support::SOON;
use crate::support::fake_csi::Attacher;
use crate::support::fake_csi::Provisioner;
use crate::support::fake_csi::add_attaching_nodes;
use crate::support::objects::cordon;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::api::Api;
use placement::keys;
use serde_json::{Value, json};
use testbed::{Nodes, Testbed, apply};

/// Nodes of each pool: one for each run, one for the control run, and those with a database, which a run may have to avoid.
const NODES: usize = AT_ONCE + 1 + DATABASES + 1;
/// Number of nodes with a database in each pool.
const DATABASES: usize = 2;
/// Pods that fill a node except for one CPU.
const FILLER: &str = "filler";
/// The Role of an account that listens to events and creates runs.
pub(super) const LISTENER: &str = "listener";

/// The storage drivers, which run as long as the test.
pub(super) struct Cluster {
    attacher: Attacher,
    _provisioner: Provisioner,
}

impl Cluster {
    pub(super) async fn create(bed: &Testbed) -> Self {
        let drivers = Self {
            attacher: Attacher::start(bed).await,
            _provisioner: Provisioner::start(bed).await,
        };
        for place in Place::ALL {
            add_attaching_nodes(bed, &place.nodes(place.pool(), NODES)).await;
        }
        out_of_use(bed).await;
        let client = bed.client().await.unwrap();
        let classes = [runtime_class(), priority_class()];
        apply::apply_all(&client, &classes).await.unwrap();
        let neighbours = [fillers(), databases(), listener()];
        apply::apply_all(&client, &neighbours).await.unwrap();
        for name in [FILLER, DATABASE] {
            until_ready(bed, &client, name).await;
        }
        drivers
    }

    /// Fails if a volume was attached to two nodes at once.
    pub(super) fn assert_no_volume_attached_twice(self) {
        self.attacher.assert_never_attached_twice();
    }
}

async fn out_of_use(bed: &Testbed) {
    let nodes = Nodes::new("out-of-use", 2).zone(Place::Anywhere.zone());
    for node in bed.add_nodes(&nodes).await.unwrap() {
        cordon(bed, &node).await;
    }
}

fn priority_class() -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000,
    })
}

fn fillers() -> Value {
    let nodes = (0..NODES).map(|number| format!("{}-{number}", Place::Busy.pool()));
    one_on_each(FILLER, &nodes.collect::<Vec<_>>(), &json!({"cpu": "7"}))
}

fn databases() -> Value {
    let of_place = |place: Place| (0..DATABASES).map(move |number| format!("{}-{number}", place.pool()));
    let nodes = Place::ALL.into_iter().flat_map(of_place);
    one_on_each(DATABASE, &nodes.collect::<Vec<_>>(), &json!({}))
}

/// A Deployment with one pod on each of these nodes, which tolerates all taints.
fn one_on_each(app: &str, nodes: &[String], requests: &Value) -> Value {
    let selector = json!({"matchLabels": {"app": app}});
    let apart = json!({"topologyKey": keys::HOSTNAME, "labelSelector": selector});
    let replicas = nodes.len();
    let there = json!({"key": keys::HOSTNAME, "operator": "In", "values": nodes});
    let affinity = json!({
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [there]}],
        }},
    });
    let container =
        json!({"name": "main", "image": "testbed.invalid/main", "resources": {"requests": requests}});
    let tolerations = json!([{"operator": "Exists"}]);
    let pod = json!({"affinity": affinity, "containers": [container], "tolerations": tolerations});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "default", "name": app},
        "spec": {
            "replicas": replicas,
            "selector": selector,
            "template": {"metadata": {"labels": {"app": app}}, "spec": pod},
        },
    })
}

fn listener() -> Value {
    let creates = json!({"apiGroups": ["tekton.dev"], "resources": ["pipelineruns"], "verbs": ["create"]});
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"namespace": "default", "name": LISTENER},
        "rules": [creates],
    })
}

async fn until_ready(bed: &Testbed, client: &Client, name: &str) {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    bed.until(format!("all pods of {name} to be ready"), SOON, async || {
        let deployment = deployments.get(name).await.map_err(|error| error.to_string())?;
        let wanted = deployment.spec.and_then(|spec| spec.replicas);
        let ready = deployment.status.and_then(|status| status.ready_replicas);
        if ready == wanted {
            Ok(())
        } else {
            Err(format!("{ready:?} of {wanted:?}"))
        }
    })
    .await
    .unwrap();
}

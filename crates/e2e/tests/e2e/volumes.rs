//! Volumes in both of Tekton's settings that go with pod-affinity: a run is where its volumes can be used, however they are
//! bound.

use crate::attacher::Attacher;
use crate::beds::{SOON, create, fresh, nodes_of, reasons};
use crate::claims::{claim_of, with_claim, with_workspace};
use crate::moves_with_claims::add_attaching_nodes;
use crate::provisioner::{IMMEDIATE, ITS_ZONE, Provisioner, WITH_THE_FIRST_POD};
use placement::keys;
use serde_json::json;
use testbed::runs::RunSpec;
use testbed::{Nodes, Testbed};

async fn zones(bed: &Testbed) {
    for zone in ["east", ITS_ZONE] {
        add_attaching_nodes(bed, &Nodes::new(zone, 2).zone(zone)).await;
    }
}

/// One volume that Tekton makes for each of two runs, one for each way to bind it.
async fn each_run_is_where_its_volume_is(bed: &Testbed, attacher: &Attacher) {
    let runs = [IMMEDIATE, WITH_THE_FIRST_POD].map(|class| {
        let template = json!({"spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}},
        }});
        let run = RunSpec::diamond("default", class).opted_in("true").lasting("1s");
        with_workspace(run, &json!({"volumeClaimTemplate": template}))
    });
    for run in &runs {
        create(bed, run).await;
    }
    for run in &runs {
        bed.until_succeeded(run, SOON).await.unwrap();
        let nodes = nodes_of(bed, run).await;
        assert_eq!(nodes.len(), 1, "{}: {nodes:?}", run.name());
        for node in nodes {
            assert!(
                run.name() != IMMEDIATE || node.starts_with(ITS_ZONE),
                "the volume of {} is in another zone than {node}",
                run.name()
            );
            attacher.until_attached(bed, &node).await;
        }
    }
    let told = reasons(&bed.client().await.unwrap(), &runs[1]).await;
    assert!(!told.contains(&"MovedOff".to_owned()), "{told:?}");
}

#[e2e_test]
async fn a_run_is_where_the_volume_is_that_tekton_makes_for_it() {
    let bed = fresh(0).await;
    bed.configure(&[("move-after", Some("2s"))]).await.unwrap();
    let (attacher, _provisioner) = (Attacher::start(&bed).await, Provisioner::start(&bed).await);
    zones(&bed).await;
    each_run_is_where_its_volume_is(&bed, &attacher).await;
    attacher.never_attached_twice();
}

#[e2e_test]
async fn without_tektons_assistants_a_run_is_where_its_volume_is_all_the_same() {
    let bed = fresh(0).await;
    bed.configure(&[("move-after", Some("2s"))]).await.unwrap();
    bed.feature_flags(&[("coschedule", "disabled")]).await.unwrap();
    let (attacher, _provisioner) = (Attacher::start(&bed).await, Provisioner::start(&bed).await);
    zones(&bed).await;
    let exclusive = on_the_node_of_a_volume_of_one_pod(&bed);
    tokio::join!(each_run_is_where_its_volume_is(&bed, &attacher), exclusive);
    attacher.never_attached_twice();
}

/// The scheduler lets one pod at a time have such a volume: it must be a task's, and the placeholder has to know the node
/// without mounting it.
async fn on_the_node_of_a_volume_of_one_pod(bed: &Testbed) {
    let here = json!({"key": keys::HOSTNAME, "operator": "In", "values": ["east-1"]});
    let disk = json!({
        "local": {"path": "/tmp"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        "accessModes": ["ReadWriteOncePod"],
    });
    claim_of(bed, "exclusive", disk).await;
    let run = RunSpec::diamond("default", "exclusive").opted_in("true");
    let run = with_claim(run.lasting("1s"), "exclusive");
    create(bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(nodes_of(bed, &run).await, ["east-1".to_owned()].into());
    let told = reasons(&bed.client().await.unwrap(), &run).await;
    assert!(!told.contains(&"MovedOff".to_owned()), "{told:?}");
}

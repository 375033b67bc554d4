//! Volumes in both of Tekton's settings that pod-affinity supports: a run is on a node on which its volumes can be used, for
//! each volume binding mode.

use crate::support::SOON;
use crate::support::assistants::until_assistants_on;
use crate::support::controller::until_reconciled;
use crate::support::events::{reasons, until_event};
use crate::support::fake_csi::{
    Attacher, DEFAULT_ZONE, IMMEDIATE, Provisioner, WITH_THE_FIRST_POD, add_attaching_nodes,
};
use crate::support::objects::node_of;
use crate::support::placeholders::pods;
use crate::support::pvcs::{create_pvc_of, with_pvc, with_workspace};
use crate::support::runs::{bound_task, create, let_succeed, let_task_end, nodes_of, until_unschedulable};
use crate::support::testbeds::fresh;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use placement::keys;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use testbed::runs::{self, RunSpec};
use testbed::{Nodes, Testbed};

async fn zones(bed: &Testbed) {
    for zone in ["east", DEFAULT_ZONE] {
        add_attaching_nodes(bed, &Nodes::new(zone, 2).zone(zone)).await;
    }
}

/// Tekton creates a PVC of this storage class for the run.
fn with_volume_of(run: RunSpec, class: &str) -> RunSpec {
    let template = json!({"spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class,
        "resources": {"requests": {"storage": "1Gi"}},
    }});
    with_workspace(run, &json!({"volumeClaimTemplate": template}))
}

/// Tekton creates one volume for each of two runs, one run for each volume binding mode.
async fn each_run_is_where_its_volume_is(bed: &Testbed, attacher: &Attacher) {
    let runs = [IMMEDIATE, WITH_THE_FIRST_POD].map(|class| {
        let run = RunSpec::diamond("default", class).opted_in("true").lasting("1s");
        with_volume_of(run, class)
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
                run.name() != IMMEDIATE || node.starts_with(DEFAULT_ZONE),
                "the volume of {} is in another zone than {node}",
                run.name()
            );
            attacher.until_attached(bed, &node).await;
        }
    }
    let reported = reasons(&bed.client().await.unwrap(), &runs[1]).await;
    assert!(!reported.contains(&"MovedOff".to_owned()), "{reported:?}");
}

#[e2e_test]
async fn a_run_is_on_a_node_of_the_volume_that_tekton_creates_for_it() {
    let bed = fresh(0).await;
    let (attacher, _provisioner) = (Attacher::start(&bed).await, Provisioner::start(&bed).await);
    zones(&bed).await;
    each_run_is_where_its_volume_is(&bed, &attacher).await;
    attacher.assert_never_attached_twice();
}

#[e2e_test]
async fn a_run_keeps_its_node_while_its_volume_is_created() {
    let bed = fresh(0).await;
    bed.configure(&[("move-after", Some("1s"))]).await.unwrap();
    let west = Nodes::new(DEFAULT_ZONE, 2).zone(DEFAULT_ZONE);
    add_attaching_nodes(&bed, &west).await;
    let _attacher = Attacher::start(&bed).await;
    Provisioner::create_classes(&bed).await;
    let run = RunSpec::new("default", "run").task("only", &[]).opted_in("true");
    let run = with_volume_of(run, IMMEDIATE);
    create(&bed, &run).await;
    until_unschedulable(&bed, &run, "only", Duration::from_secs(4)).await;
    until_reconciled(&bed, &run).await;
    let _provisioner = Provisioner::start(&bed).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    let reported = reasons(&bed.client().await.unwrap(), &run).await;
    assert!(!reported.contains(&"MovedOff".to_owned()), "{reported:?}");
}

#[e2e_test]
async fn without_tektons_assistants_a_run_is_on_a_node_of_its_volume_as_well() {
    let bed = fresh(0).await;
    bed.feature_flags(&[("coschedule", "disabled")]).await.unwrap();
    let (attacher, _provisioner) = (Attacher::start(&bed).await, Provisioner::start(&bed).await);
    zones(&bed).await;
    let exclusive = on_the_node_of_a_volume_of_one_pod(&bed);
    tokio::join!(each_run_is_where_its_volume_is(&bed, &attacher), exclusive);
    attacher.assert_never_attached_twice();
}

/// The scheduler allows one pod at a time to use such a volume. This pod must be a task's, so the placeholder must find the
/// node without mounting the volume.
async fn on_the_node_of_a_volume_of_one_pod(bed: &Testbed) {
    let here = json!({"key": keys::HOSTNAME, "operator": "In", "values": ["east-1"]});
    let disk = json!({
        "local": {"path": "/tmp"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        "accessModes": ["ReadWriteOncePod"],
    });
    create_pvc_of(bed, "exclusive", disk).await;
    let run = RunSpec::diamond("default", "exclusive").opted_in("true");
    let run = with_pvc(run.lasting("1s"), "exclusive");
    create(bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(nodes_of(bed, &run).await, ["east-1".to_owned()].into());
    let reported = reasons(&bed.client().await.unwrap(), &run).await;
    assert!(!reported.contains(&"MovedOff".to_owned()), "{reported:?}");
}

/// Runs without and with the label, each kind in its own zone.
const BOTH: [(&str, Option<&str>); 2] = [("plain", None), ("labelled", Some("true"))];

/// Places the run in this zone, and mounts the zone's PVC.
fn in_zone((zone, label): (&str, Option<&str>), run: RunSpec) -> RunSpec {
    let here = json!({"podTemplate": {"nodeSelector": {"topology.kubernetes.io/zone": zone}}});
    let run = with_pvc(run.spec("taskRunTemplate", here), zone);
    label.into_iter().fold(run, RunSpec::opted_in)
}

fn one_task(name: &str) -> RunSpec {
    RunSpec::new("default", name).task("a", &[])
}

/// The names of the pods on a node.
async fn names_on(client: &Client, node: &str) -> Result<BTreeSet<String>, String> {
    let all = pods(client, "default").list(&ListParams::default()).await;
    let all = all.map_err(|error| error.to_string())?;
    let here = all.iter().filter(|pod| runs::node(pod) == Some(node));
    Ok(here.map(ResourceExt::name_any).collect())
}

/// Waits until the attach-detach controller reports that a volume of a pod on this node is used by pods of another node. It
/// reports this once, for the pods that exist then: the placeholder or Tekton's assistant, and not for later tasks.
async fn until_volume_is_used_elsewhere(bed: &Testbed, node: &str) {
    let client = bed.client().await.unwrap();
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let failed = ListParams::default().fields("reason=FailedAttachVolume");
    let what = format!("a pod on {node} to be kept from its volume");
    bed.until(what, SOON, async || {
        let here = names_on(&client, node).await?;
        let reported = events.list(&failed).await.map_err(|error| error.to_string())?;
        let reported = reported.items.into_iter().filter_map(|event| {
            let pod = event.involved_object.name.filter(|pod| here.contains(pod))?;
            Some((pod, event.message?))
        });
        let reported: Vec<_> = reported.collect();
        if reported
            .iter()
            .any(|(_, it)| it.contains("Volume is already used by pod(s)"))
        {
            Ok(())
        } else {
            Err(format!("{reported:?}"))
        }
    })
    .await
    .unwrap();
}

/// Two concurrent runs that mount one PVC, each on its own node.
struct Pair<'a> {
    bed: &'a Testbed,
    attacher: &'a Attacher,
    second: RunSpec,
    /// The node of the second run.
    other: String,
}

impl<'a> Pair<'a> {
    /// KWOK starts pods without their volumes, so the task of the second run hangs until the test ends it, as with a kubelet
    /// until the volume is attached.
    async fn start(
        bed: &'a Testbed,
        attacher: &'a Attacher,
        kind: (&str, Option<&str>),
        first: &RunSpec,
    ) -> Self {
        let (zone, _) = kind;
        Attacher::create_pvc(bed, zone).await;
        add_attaching_nodes(bed, &Nodes::new(zone, 2).zone(zone)).await;
        create(bed, first).await;
        let node = node_of(&bound_task(bed, first, "a").await);
        attacher.until_attached(bed, &node).await;
        let second = in_zone(kind, one_task(&format!("{zone}-second")).ending("hang"));
        create(bed, &second).await;
        let other = node_of(&bound_task(bed, &second, "a").await);
        assert_ne!(node, other, "{zone}");
        until_volume_is_used_elsewhere(bed, &other).await;
        Self {
            bed,
            attacher,
            second,
            other,
        }
    }

    /// Lets the first run end.
    async fn ends(self) {
        self.attacher.until_attached(self.bed, &self.other).await;
        let_succeed(self.bed, &self.second).await;
    }
}

#[e2e_test]
async fn of_two_runs_with_one_volume_the_second_waits_until_the_first_is_done_labelled_or_not() {
    let bed = fresh(0).await;
    let attacher = Attacher::start(&bed).await;
    let [plain, labelled] = BOTH.map(async |kind| {
        let first = in_zone(kind, one_task(&format!("{}-first", kind.0)).ending("hang"));
        let pair = Pair::start(&bed, &attacher, kind, &first).await;
        let_succeed(&bed, &first).await;
        pair.ends().await;
    });
    tokio::join!(plain, labelled);
    attacher.assert_never_attached_twice();
}

/// Without Tekton's assistants, only the placeholder mounts the volume then.
#[e2e_test]
async fn between_two_tasks_of_a_run_its_volume_does_not_go_to_another_run_that_waits_for_it() {
    let bed = fresh(0).await;
    bed.feature_flags(&[("coschedule", "disabled")]).await.unwrap();
    let attacher = Attacher::start(&bed).await;
    let first = one_task("first").task("b", &["a"]).ending("hang");
    let first = in_zone(BOTH[1], first);
    let pair = Pair::start(&bed, &attacher, BOTH[1], &first).await;
    let_task_end(&bed, &first, "a").await;
    bound_task(&bed, &first, "b").await;
    add_attaching_nodes(&bed, &Nodes::new("marker", 1)).await;
    attacher.until_changes_are_handled(&bed, "marker-0").await;
    assert!(!attacher.has_detached(BOTH[1].0), "between the tasks");
    let_succeed(&bed, &first).await;
    pair.ends().await;
    attacher.assert_never_attached_twice();
}

/// Creates a `ReadWriteOncePod` volume in this zone.
async fn volume_of_one_pod(bed: &Testbed, zone: &str) {
    let here = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]});
    let disk = json!({
        "hostPath": {"path": "/tmp"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        "accessModes": ["ReadWriteOncePod"],
    });
    create_pvc_of(bed, zone, disk).await;
}

/// The scheduler's message about an unschedulable pod.
fn verdict(pod: &Pod) -> Option<String> {
    let mut conditions = pod.status.clone()?.conditions?.into_iter();
    let scheduled = conditions.find(|it| it.type_ == "PodScheduled" && it.status == "False");
    scheduled?.message
}

/// Waits until the scheduler reports that another pod uses the volume of the run's only task that waits.
async fn until_single_pod_volume_is_used(bed: &Testbed, run: &RunSpec) {
    let client = bed.client().await.unwrap();
    let what = format!("another pod to have the volume of {}", run.name());
    bed.until(what, SOON, async || {
        let pods = runs::pods(&client, run.namespace(), run.name()).await;
        let pods = pods.map_err(|error| error.to_string())?;
        let verdicts: Vec<_> = pods.iter().filter_map(verdict).collect();
        match &verdicts[..] {
            [verdict] if verdict.contains("ReadWriteOncePod access mode") => Ok(()),
            _ => Err(format!("{verdicts:?}")),
        }
    })
    .await
    .unwrap();
}

/// Tekton's assistant uses the volume before the task that needs the volume exists. A labelled run that is stuck moves off the node
/// together with its assistant, and the task is scheduled first on the next node. Each task that finds the assistant there again costs
/// a move.
#[e2e_test]
async fn if_tektons_assistant_uses_a_single_pod_volume_a_plain_run_hangs_and_a_labelled_run_succeeds() {
    let bed = fresh(0).await;
    bed.configure(&[("move-after", Some("2s"))]).await.unwrap();
    let runs = BOTH.map(|kind| {
        let run = RunSpec::new("default", kind.0).task("a", &["before"]);
        in_zone(kind, run).task("before", &[]).ending("hang")
    });
    let mut nodes = BTreeSet::new();
    for ((zone, _), run) in BOTH.iter().zip(&runs) {
        bed.add_nodes(&Nodes::new(zone, 1).zone(zone)).await.unwrap();
        volume_of_one_pod(&bed, zone).await;
        create(&bed, run).await;
        nodes.insert(format!("{zone}-0"));
        until_assistants_on(&bed, &nodes).await;
        let_task_end(&bed, run, "before").await;
    }
    let [plain, labelled] = &runs;
    until_single_pod_volume_is_used(&bed, plain).await;
    until_event(&bed, labelled, "MovedOff").await;
    let_succeed(&bed, labelled).await;
    until_single_pod_volume_is_used(&bed, plain).await;
}

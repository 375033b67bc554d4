//! Kueue queues labelled runs by a quota of nodes: a run whose Workload is not admitted has no placeholder.
//!
//! tekton-kueue, which connects Tekton and Kueue, is no Go module that others can build. This file has a stand-in for the parts of
//! tekton-kueue that matter here: runs are created Pending with the name of their queue, as by its webhook; each run gets a Workload,
//! which requests one node; the run is released when Kueue admits the Workload, and the Workload ends with the run.

use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::cli::tool;
use crate::support::runs::{create, let_end, nodes_of};
use crate::support::testbeds::fresh;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Client, ResourceExt};
use placement::keys;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use testbed::Testbed;
use testbed::apply::apply_all;
use testbed::runs::{self, RunSpec, State};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What tekton-kueue requests for each run. Kueue counts the resource; no node has it.
const NODES: &str = "tekton.dev/pipelineruns";
const QUEUE: &str = "runs";
/// Nodes in the quota: fewer than nodes in the cluster.
const QUOTA: usize = 2;
const API_VERSION: &str = "kueue.x-k8s.io/v1beta2";
/// A pause of the stand-in.
const PAUSE: Duration = Duration::from_millis(200);

fn queues() -> Vec<Value> {
    let covered = json!({"name": NODES, "nominalQuota": QUOTA.to_string()});
    let group = json!({"coveredResources": [NODES], "flavors": [{"name": "nodes", "resources": [covered]}]});
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let mut local = object("LocalQueue", QUEUE, json!({"clusterQueue": QUEUE}));
    local["metadata"]["namespace"] = json!("default");
    vec![
        object("ResourceFlavor", "nodes", json!({})),
        object(
            "ClusterQueue",
            QUEUE,
            json!({"namespaceSelector": {}, "resourceGroups": [group]}),
        ),
        local,
    ]
}

/// The stand-in for tekton-kueue.
struct StandIn {
    runs: Api<DynamicObject>,
    workloads: Api<DynamicObject>,
}

impl StandIn {
    fn start(client: &Client) -> JoinHandle<()> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "Workload"));
        let stand_in = Self {
            runs: runs::runs(client, "default"),
            workloads: Api::namespaced_with(client.clone(), "default", &kind),
        };
        tokio::spawn(async move {
            loop {
                stand_in.visit().await.unwrap();
                sleep(PAUSE).await;
            }
        })
    }

    async fn visit(&self) -> kube::Result<()> {
        let queued = ListParams::default().labels(keys::KUEUE_QUEUE_NAME);
        for run in self.runs.list(&queued).await? {
            let name = run.name_any();
            match self.workloads.get_opt(&name).await? {
                None => drop(
                    self.workloads
                        .create(&PostParams::default(), &workload(&run))
                        .await?,
                ),
                Some(workload) if runs::state(&run).is_over() && !has(&workload, "Finished") => {
                    let finished = json!({"status": {"conditions": with_condition(&workload, "Finished")}});
                    let finished = Patch::Merge(finished);
                    self.workloads
                        .patch_status(&name, &PatchParams::default(), &finished)
                        .await?;
                }
                Some(workload) if has(&workload, "Admitted") && runs::state(&run) == State::Pending => {
                    let released = Patch::Merge(json!({"spec": {"status": null}}));
                    self.runs.patch(&name, &PatchParams::default(), &released).await?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

fn workload(run: &DynamicObject) -> DynamicObject {
    let container =
        json!({"name": "node", "image": "testbed.invalid/node", "resources": {"requests": {NODES: "1"}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let workload = json!({
        "apiVersion": API_VERSION, "kind": "Workload",
        "metadata": {"name": run.name_any(), "ownerReferences": [
            {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": run.name_any(), "uid": run.uid()},
        ]},
        "spec": {
            "queueName": run.labels()[keys::KUEUE_QUEUE_NAME],
            "priority": run.annotations().get("priority").map_or(0, |priority| priority.parse().unwrap()),
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    });
    serde_json::from_value(workload).unwrap()
}

fn conditions(workload: &DynamicObject) -> Vec<Value> {
    let conditions = &workload.data["status"]["conditions"];
    conditions.as_array().cloned().unwrap_or_default()
}

fn has(workload: &DynamicObject, kind: &str) -> bool {
    let is_true = |condition: &Value| condition["type"] == kind && condition["status"] == "True";
    conditions(workload).iter().any(is_true)
}

fn with_condition(workload: &DynamicObject, kind: &str) -> Vec<Value> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let new = json!({"type": kind, "status": "True", "reason": "Succeeded", "message": "done", "lastTransitionTime": now});
    conditions(workload).into_iter().chain([new]).collect()
}

fn queued(name: &str) -> RunSpec {
    RunSpec::new("default", name)
        .task("only", &[])
        .opted_in("true")
        .label(keys::KUEUE_QUEUE_NAME, QUEUE)
        .spec("status", json!(keys::PENDING))
        .ending("hang")
}

/// Waits until exactly these runs run, and asserts that no other run has a placeholder.
async fn until_running(bed: &Testbed, client: &Client, names: &[&str]) {
    let api = runs::runs(client, "default");
    let sets = crate::support::placeholders::sets(client, "default");
    bed.until(format!("{names:?} to run"), SOON, async || {
        let listed = api
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let running: BTreeSet<_> = listed
            .iter()
            .filter(|run| runs::state(run) == State::Running && run.annotations().contains_key(keys::NODE))
            .map(ResourceExt::name_any)
            .collect();
        let expected: BTreeSet<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let placeholders = sets
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        assert!(placeholders.items.len() <= QUOTA, "{placeholders:#?}");
        (running == expected)
            .then_some(())
            .ok_or_else(|| format!("{running:?}"))
    })
    .await
    .unwrap();
}

#[e2e_test(nightly)]
async fn kueue_holds_labelled_runs_in_its_order_by_a_quota_of_nodes() {
    let bed = fresh(4).await;
    bed.start_kueue().await.unwrap();
    let client = bed.client().await.unwrap();
    apply_all(&client, &queues()).await.unwrap();
    let auditor = Auditor::start(&bed).await;
    let stand_in = StandIn::start(&client);
    let [first, second, third] = ["first", "second", "third"].map(queued);
    let urgent = queued("urgent").annotation("priority", "100");
    for run in [&first, &second] {
        create(&bed, run).await;
    }
    until_running(&bed, &client, &["first", "second"]).await;
    for run in [&third, &urgent] {
        create(&bed, run).await;
    }
    bed.until("the other runs to be queued by Kueue", SOON, async || {
        let listed = tool(&bed, "list --no-headers").await.out;
        let held = listed
            .lines()
            .filter(|line| line.contains("HeldElsewhere"))
            .count();
        (held == 2).then_some(()).ok_or(listed)
    })
    .await
    .unwrap();
    let_end(&bed, &first).await;
    until_running(&bed, &client, &["second", "urgent"]).await;
    let_end(&bed, &second).await;
    until_running(&bed, &client, &["urgent", "third"]).await;
    for run in [&urgent, &third] {
        let_end(&bed, run).await;
    }
    for run in [&first, &second, &third, &urgent] {
        bed.until_succeeded(run, SOON).await.unwrap();
        assert_eq!(nodes_of(&bed, run).await.len(), 1, "{}", run.name());
    }
    assert!(
        !stand_in.is_finished(),
        "the stand-in for tekton-kueue has failed"
    );
    stand_in.abort();
    auditor.assert_no_violation();
}

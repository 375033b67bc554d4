use super::*;
use crate::fixture::{Caches, Server, at, node as node_json, nothing, observed_pod, reconciler};
use placement::plan::Read;
use serde_json::{Value, json};

fn seen_on(node: &str) -> Observation {
    Observation {
        pod: Some(observed_pod(Some(node))),
        ..nothing()
    }
}

/// Volumes are read only where no task lives, because the run keeps its node while one does.
#[tokio::test]
async fn a_pvc_that_only_this_node_can_use_is_found_by_its_volume_whether_a_pod_or_only_the_run_names_it() {
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]});
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [here]}]});
    let volume = json!({"metadata": {"name": "pv-1"}, "spec": {"nodeAffinity": {"required": terms}}});
    let mounted = json!([{"name": "ws", "persistentVolumeClaim": {"claimName": "disk"}}]);
    let cases = [
        ("Succeeded", &mounted, None, "n1", Some("disk")),
        ("Succeeded", &mounted, None, "n2", None),
        ("Running", &mounted, None, "n1", None),
        ("Succeeded", &json!([]), Some("disk"), "n1", Some("disk")),
        ("Succeeded", &json!([]), None, "n1", None),
    ];
    for (phase, volumes, of_run, hostname, pinned_by_volume) in cases {
        let mut server = Server::start();
        let labels = json!({"kubernetes.io/hostname": hostname});
        server.answer(200, node_json("n1", &json!({"metadata": {"labels": labels}})));
        let pod = json!({"metadata": {}, "spec": {"nodeName": "n1", "volumes": volumes}, "status": {"phase": phase}});
        server.answer(200, json!({"metadata": {}, "items": [pod]}));
        let claim = json!({"metadata": {"name": "disk"}, "spec": {"volumeName": "pv-1"}});
        server.answer(200, claim);
        server.answer(200, volume.clone());
        let (reconciler, ..) = reconciler(&Caches::ready(), &server);
        let mut observed = seen_on("n1");
        observed.run.claims.extend(of_run.map(str::to_owned));
        let inputs = reconciler.read_one(Read::Tasks, &mut observed).await.unwrap();
        let found = inputs.tasks.as_ref().unwrap().pinned_by_volume.as_deref();
        assert_eq!(found, pinned_by_volume, "{phase}, {of_run:?} on {hostname}");
        if pinned_by_volume.is_some() {
            assert_eq!(server.calls()[3].line, "GET /api/v1/persistentvolumes/pv-1");
        }
    }
}

/// The volume `disk` can be used on node n1 only, and pods mount it or another PVC.
#[tokio::test]
async fn of_pods_that_wait_one_that_mounts_no_volume_of_this_node_only_lets_the_run_leave() {
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]});
    let only_here = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}});
    let mounting = |pvc: &str| {
        let volumes = json!([{"name": "ws", "persistentVolumeClaim": {"claimName": pvc}}]);
        json!({"metadata": {}, "spec": {"volumes": volumes}, "status": {"phase": "Pending"}})
    };
    for (waiting, pinned_by_volume) in [(["disk", "disk"], Some("disk")), (["disk", "anywhere"], None)] {
        let mut server = Server::start();
        let mut pods = waiting.map(mounting).to_vec();
        pods.push(json!({"metadata": {}, "spec": {"nodeName": "n1"}, "status": {"phase": "Succeeded"}}));
        server.answer(200, node_json("n1", &json!({})));
        server.answer(200, json!({"metadata": {}, "items": pods}));
        if pinned_by_volume.is_none() {
            server.answer(200, json!({"metadata": {}, "spec": {}}));
        }
        server.answer(200, json!({"metadata": {}, "spec": {"volumeName": "pv-1"}}));
        server.answer(200, json!({"metadata": {}, "spec": {"nodeAffinity": only_here}}));
        let (reconciler, ..) = reconciler(&Caches::ready(), &server);
        let mut observed = seen_on("n1");
        observed.run.claims = vec!["of-no-pod".to_owned()];
        let inputs = reconciler.read_one(Read::Tasks, &mut observed).await.unwrap();
        let found = inputs.tasks.as_ref().unwrap().pinned_by_volume.as_deref();
        assert_eq!(found, pinned_by_volume, "{waiting:?}");
    }
}

/// Counts the PVCs that the controller reads while 20 pods wait. Each pod mounts this number of PVCs, and no PVC exists.
async fn claims_read(of_each: usize) -> usize {
    let mut server = Server::start();
    let pods = (0..20).map(|pod| {
        let volume = |number| json!({"persistentVolumeClaim": {"claimName": format!("{pod}-{number}")}});
        let volumes: Vec<_> = (0..of_each).map(volume).collect();
        json!({"metadata": {}, "spec": {"volumes": volumes}, "status": {"phase": "Pending"}})
    });
    server.answer(200, node_json("n1", &json!({})));
    server.answer(200, json!({"metadata": {}, "items": pods.collect::<Vec<_>>()}));
    (0..100).for_each(|_| server.refuse(404, "NotFound", "not found"));
    let (reconciler, ..) = reconciler(&Caches::ready(), &server);
    let inputs = reconciler
        .read_one(Read::Tasks, &mut seen_on("n1"))
        .await
        .unwrap();
    assert_eq!(inputs.tasks.as_ref().unwrap().pinned_by_volume, None);
    server.calls().len() - 2
}

#[tokio::test]
async fn the_pvcs_of_the_first_pod_that_can_use_another_node_are_read_up_to_a_limit() {
    assert_eq!(claims_read(1).await, 1);
    assert_eq!(claims_read(100).await, MOST_CLAIMS);
}

fn count(pods: &[Value]) -> TaskPods {
    count_at(pods, Some("n1"))
}

fn count_at(pods: &[Value], there: Option<&str>) -> TaskPods {
    let pods = pods
        .iter()
        .map(|pod| serde_json::from_value::<PodView>(pod.clone()).unwrap());
    pods.fold(TaskPods::default(), |count, pod| count.and(&pod, there))
}

fn pod(node: Option<&str>, phase: &str, ended: Option<i64>) -> Value {
    let state = ended.map(|second| json!({"terminated": {"finishedAt": at(second).to_string()}}));
    json!({
        "metadata": {}, "spec": {"nodeName": node},
        "status": {"phase": phase, "containerStatuses": [{"state": state.unwrap_or_else(|| json!({}))}]},
    })
}

#[test]
fn a_pod_is_active_from_its_binding_until_its_end() {
    let mut leaving = pod(Some("n1"), "Running", None);
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let pods = [
        pod(None, "Pending", None),
        pod(Some("n1"), "Pending", None),
        pod(Some("n1"), "Running", None),
        leaving,
        pod(Some("n1"), "Failed", None),
        pod(Some("n1"), "Succeeded", Some(1)),
    ];
    assert_eq!(count(&pods).live.len(), 3);
}

#[test]
fn a_pod_on_another_node_than_the_placeholder_is_no_reason_to_keep_that() {
    let pods = [pod(Some("n2"), "Running", None), pod(Some(""), "Pending", None)];
    assert_eq!(
        (
            count_at(&pods, Some("n1")).live.len(),
            count_at(&pods, None).live.len()
        ),
        (0, 1)
    );
}

#[test]
fn the_end_is_that_of_the_last_pod_that_ended() {
    let pods = [
        pod(Some("n1"), "Succeeded", Some(5)),
        pod(Some("n1"), "Failed", Some(7)),
        pod(Some("n1"), "Running", Some(9)),
    ];
    assert_eq!(count(&pods).ended, Some(at(7)));
    assert_eq!(count(&[]).ended, None);
}

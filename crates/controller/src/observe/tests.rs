use super::*;
use crate::api_error::ErrorCause;
use crate::fixture::{Caches, at, clock, run, view};
use crate::index::index;
use crate::memory::Memory;
use placement::coschedule::Coschedule;
use placement::cross_namespace_quota::TermsRejected;
use serde_json::{Value, json};

#[tokio::test]
async fn a_runs_placeholder_and_pod_are_found_by_name_in_its_namespace() {
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    caches.add_pod(&run(), "p1", Some("n1"));
    let observed = caches
        .stores
        .observe(run(), &caches.config, &clock(), &Memory::default())
        .await
        .unwrap();
    assert_eq!(observed.statefulset.map(|set| set.uid).as_deref(), Some("s1"));
    assert_eq!(observed.pod.unwrap().node.as_deref(), Some("n1"));
}

#[test]
fn a_run_needs_the_usage_of_the_latest_run_of_its_pipeline_in_its_namespace() {
    let mut caches = Caches::ready();
    let record = |uid: &str, second: i64, used: &str, pipeline: &str, namespace: &str| {
        let metadata = json!({
            "namespace": namespace, "creationTimestamp": at(second).to_string(), "annotations": {keys::USED: used},
        });
        (
            uid.to_owned(),
            json!({"metadata": metadata, "spec": {"pipelineRef": {"name": pipeline}}}),
        )
    };
    for (uid, changes) in [
        record("old", 1, "cpu=9", "build", "ns"),
        record("latest", 5, "cpu=4", "build", "ns"),
        record("odd", 7, "lots", "build", "ns"),
        record("of-other", 8, "cpu=7", "test", "ns"),
        record("elsewhere", 9, "cpu=8", "build", "other"),
    ] {
        caches.add_held_run_with(&uid, &uid, &changes);
    }
    let run = |pipeline: &str| {
        let spec = json!({"spec": {"pipelineRef": {"name": pipeline}}});
        view("next", "u9", &spec).run().unwrap()
    };
    let need = caches.stores.need(&run("build")).unwrap();
    assert_eq!(need.source, Source::Record("latest".to_owned()));
    assert_eq!(need.requests.to_string(), "cpu=4");
    assert_eq!(caches.stores.need(&run("unknown")), None);
}

#[test]
fn the_warm_nodes_are_those_of_the_latest_successful_runs_of_the_pipeline_in_the_namespace() {
    let mut caches = Caches::ready();
    let ended = |second: i64, node: &str, status: &str, pipeline: &str, namespace: &str| {
        let metadata = json!({
            "namespace": namespace, "creationTimestamp": at(second).to_string(), "annotations": {keys::NODE: node},
        });
        let condition = json!({"type": "Succeeded", "status": status});
        json!({
            "metadata": metadata, "spec": {"pipelineRef": {"name": pipeline}, "status": null}, "status": {"conditions": [condition]},
        })
    };
    for (number, changes) in [
        ended(1, "too-old", "True", "build", "ns"),
        ended(2, "n1", "True", "build", "ns"),
        ended(3, "n2", "True", "build", "ns"),
        ended(4, "n1", "True", "build", "ns"),
        ended(5, "failed", "False", "build", "ns"),
        ended(6, "runs", "Unknown", "build", "ns"),
        ended(7, "of-other", "True", "test", "ns"),
        ended(8, "elsewhere", "True", "build", "other"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("u{number}");
        caches.add_held_run_with(&name, &name, &changes);
    }
    let run = view("next", "u9", &json!({"spec": {"pipelineRef": {"name": "build"}}}));
    assert_eq!(caches.stores.warm_nodes(&run.run().unwrap()).to_string(), "n1,n2");
    let embedded = view("next", "u9", &json!({}));
    assert_eq!(caches.stores.warm_nodes(&embedded.run().unwrap()).to_string(), "");
}

#[tokio::test]
async fn a_done_run_knows_the_pod_that_keeps_its_node() {
    let mut caches = Caches::ready();
    caches.add_kept_node("pod-affinity-kept-node-0", 9);
    for (uid, keeps_node) in [("u1", true), ("u2", false)] {
        let mut done = Run { done: true, ..run() };
        done.key.uid = uid.to_owned();
        let (config, memory) = (&caches.config, Memory::default());
        let observed = caches.stores.observe(done, config, &clock(), &memory).await;
        let facts = observed.unwrap().cluster;
        assert_eq!((facts.keeps_node, facts.kept_nodes.len()), (keeps_node, 1));
    }
}

#[test]
fn others_of_the_namespace_have_a_part_in_its_quotas_if_tekton_starts_them_soon_or_has_started_them() {
    let mut caches = Caches::ready();
    let claim = json!({"spec": {"workspaces": [{"persistentVolumeClaim": {"claimName": "c"}}]}});
    let with = |mut changes: Value| {
        json_patch::merge(&mut changes, &claim);
        changes
    };
    let over = json!({"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}});
    let elsewhere = json!({"metadata": {"namespace": "other"}});
    let not_ours = json!({"metadata": {"annotations": null}});
    let of_group = |uid: &str| json!({keys::GROUP: uid, keys::OPT_IN: "true"});
    let held_elsewhere = json!({"metadata": {"annotations": null, "labels": of_group("u7")}});
    let runs =
        json!({"metadata": {"annotations": null, "labels": of_group("u10")}, "spec": {"status": null}});
    let mut queued = json!({"metadata": {"annotations": null, "labels": of_group("u11")}});
    queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("q");
    let over_cap = json!({"metadata": {"annotations": {keys::HOLD: "over-cap"}}});
    let deleting = json!({"metadata": {"deletionTimestamp": at(9).to_string()}});
    for (uid, changes) in [
        ("u4", over),
        ("u5", elsewhere),
        ("u6", not_ours),
        ("u7", held_elsewhere),
        ("u8", over_cap),
        ("u9", deleting),
        ("u1", json!({})),
    ] {
        caches.add_held_run_with(uid, uid, &with(changes));
    }
    caches.add_held_run_with("mounts-nothing", "u3", &json!({}));
    let is_beside = |caches: &Caches, mode| caches.stores.has_assistants_beside(&run().key, mode);
    assert!(!is_beside(&caches, Coschedule::Workspaces));
    assert!(
        is_beside(&caches, Coschedule::IsolatePipelineRun),
        "also a run without PVCs"
    );
    caches.add_held_run_with("counts", "u2", &claim);
    assert!(is_beside(&caches, Coschedule::Workspaces));
    caches.add_held_run_with("runs", "u10", &runs);
    caches.add_held_run_with("queued", "u11", &queued);
    let others = caches.stores.with_part_in_quotas(&run().key).into_iter();
    let names = others.map(|other| other.key.name);
    assert_eq!(
        names.collect::<BTreeSet<_>>(),
        BTreeSet::from(["counts", "mounts-nothing", "queued", "runs"].map(str::to_owned))
    );
}

#[tokio::test]
async fn a_run_of_the_same_name_in_another_namespace_or_life_sees_neither() {
    let mut caches = Caches::ready();
    caches.add_set(&run(), "s1");
    let (mut elsewhere, mut recreated) = (run(), run());
    elsewhere.key.namespace = "other".into();
    recreated.key.uid = "u2".into();
    for other in [elsewhere, recreated] {
        let observed = caches
            .stores
            .observe(other.clone(), &caches.config, &clock(), &Memory::default())
            .await
            .unwrap();
        assert!(
            observed.statefulset.is_none() && observed.pod.is_none(),
            "{other:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_before_the_first_lists_are_in() {
    let (empty, ready) = (Caches::empty(), Caches::ready());
    let lacks = |lack: fn(&mut Stores, Stores)| {
        let mut stores = ready.stores.clone();
        lack(&mut stores, empty.stores.clone());
        stores
    };
    let lacking = [
        ("sets", lacks(|stores, empty| stores.sets = empty.sets)),
        ("pods", lacks(|stores, empty| stores.pods = empty.pods)),
        ("nodes", lacks(|stores, empty| stores.nodes = empty.nodes)),
        ("waiting", lacks(|stores, empty| stores.waiting = empty.waiting)),
        (
            "autoscalers",
            lacks(|stores, empty| stores.autoscalers = empty.autoscalers),
        ),
        (
            "failed_creates",
            lacks(|stores, empty| stores.failed_creates = empty.failed_creates),
        ),
    ];
    for (list, stores) in lacking {
        let memory = Memory::default();
        let observed = stores.observe(run(), &ready.config, &clock(), &memory).await;
        let cause = observed.err().map(|refused| <&str>::from(refused.cause()));
        assert_eq!(cause, Some("not_synced"), "{list}");
    }
}

#[tokio::test]
async fn the_configuration_is_the_one_in_force_now() {
    let caches = Caches::ready();
    let changed = Config {
        placeholder_cpu: "1".into(),
        ..Config::default()
    };
    caches.set_config(changed.clone());
    let observed = caches
        .stores
        .observe(run(), &caches.config, &clock(), &Memory::default())
        .await
        .unwrap();
    assert_eq!(*observed.config, changed);
}

#[tokio::test]
async fn each_mode_of_tektons_flag_is_observed() {
    let mut caches = Caches::ready();
    for (mode, changes, expected) in [
        ("workspaces", false, Coschedule::Workspaces),
        ("pipelineruns", true, Coschedule::PipelineRuns),
        ("isolate-pipelinerun", true, Coschedule::IsolatePipelineRun),
        ("disabled", true, Coschedule::Disabled),
    ] {
        assert_eq!(caches.set_coschedule(mode), changes, "{mode}");
        let (clock, memory) = (clock(), Memory::default());
        let observed = caches
            .stores
            .observe(run(), &caches.config, &clock, &memory)
            .await;
        assert_eq!(observed.unwrap().cluster.coschedule, expected);
    }
}

#[test]
fn all_labelled_runs_are_warned_of_a_change_of_the_flag() {
    let mut caches = Caches::ready();
    caches.add_held_run("build", "u1");
    caches.add_held_run_with("unlabelled", "u2", &json!({"metadata": {"labels": null}}));
    let names: Vec<_> = caches
        .stores
        .labelled_runs()
        .into_iter()
        .map(|run| run.name)
        .collect();
    assert_eq!(names, ["build"]);
}

/// An older `ClusterRole` may lack the right to these lists.
#[tokio::test(start_paused = true)]
async fn no_run_is_observed_before_the_lists_of_quotas_and_of_tektons_flags_have_arrived_or_failed() {
    let mut caches = Caches::ready();
    let (quotas, quota_writer) = index();
    let (flags, flag_writer) = index();
    caches.stores.quotas = quotas;
    caches.stores.tekton_flags = flags;
    let (clock, memory) = (clock(), Memory::default());
    let observe = async || {
        let observed = caches
            .stores
            .observe(run(), &caches.config, &clock, &memory)
            .await;
        observed.map(|_| ()).map_err(|error| error.cause())
    };
    assert_eq!(observe().await, Err(ErrorCause::NotSynced));
    quota_writer.on_error()();
    assert_eq!(observe().await, Err(ErrorCause::NotSynced));
    flag_writer.on_error()();
    assert_eq!(observe().await, Ok(()));
}

/// The API server requires a quota for terms across namespaces. Once the namespace has a quota, older events do not count.
#[tokio::test]
async fn after_a_placeholder_was_rejected_for_its_terms_no_run_of_the_namespace_has_them() {
    let lacks = "insufficient quota to match these scopes: [{CrossNamespacePodAffinity Exists []}]";
    let mut caches = Caches::ready();
    let mut other = run();
    other.key.uid = "u2".into();
    let rejected = async |caches: &Caches, namespace: &str| {
        let mut run = run();
        run.key.namespace = namespace.into();
        let memory = Memory::default();
        let observed = caches
            .stores
            .observe(run, &caches.config, &clock(), &memory)
            .await;
        observed.unwrap().cluster.terms_rejected
    };
    caches.add_failed_create(&other, 1, "exceeded quota: few");
    assert_eq!(rejected(&caches, "ns").await, None);
    caches.add_failed_create(&other, 2, lacks);
    assert_eq!(rejected(&caches, "ns").await, Some(TermsRejected::WithoutQuota));
    assert_eq!(rejected(&caches, "other").await, None);
    caches.add_scoped_quota("roomy", "CrossNamespacePodAffinity", "9");
    assert_eq!(rejected(&caches, "ns").await, None);
}

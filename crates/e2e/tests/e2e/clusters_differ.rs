//! Features of real clusters: sandboxes on tainted nodes, pod templates with more requirements than a node, and users who
//! change runs later.

use crate::support::SOON;
use crate::support::controller::until_tekton_labelled;
use crate::support::events::{reasons, until_event};
use crate::support::objects::{another_pod, quota};
use crate::support::placeholders::{bound_placeholder, pods, until_no_placeholder};
use crate::support::runs::{
    bound_task, create, labelled_by_its_pipeline, let_end_once_bound, let_succeed, nodes_after,
};
use crate::support::testbeds::{fresh, installed};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Taint};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use placement::keys;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testbed::runs::{self, RunSpec, State};
use testbed::{Nodes, Part, Testbed, apply};

fn with_template(run: RunSpec, template: &Value) -> RunSpec {
    run.spec("taskRunTemplate", json!({"podTemplate": template}))
}

fn away_from(app: &str) -> Value {
    let them = json!({"topologyKey": keys::HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}});
    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [them]}})
}

/// Nodes that only pods of a RuntimeClass tolerate. The toleration is in the RuntimeClass, and is missing in the pods that
/// Tekton creates.
async fn sandbox(bed: &Testbed) {
    let taint = Taint {
        key: "sandbox".into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    let nodes = Nodes::new("sandbox", 2).label("pool", "sandbox");
    bed.add_nodes(&Nodes {
        taints: vec![taint],
        ..nodes
    })
    .await
    .unwrap();
    let class = json!({
        "metadata": {"name": "sandbox"},
        "handler": "sandbox",
        "scheduling": {
            "nodeSelector": {"pool": "sandbox"},
            "tolerations": [{"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"}],
        },
    });
    let classes: Api<RuntimeClass> = Api::all(bed.client().await.unwrap());
    classes
        .create(&PostParams::default(), &serde_json::from_value(class).unwrap())
        .await
        .unwrap();
}

#[e2e_test]
async fn a_run_can_use_a_node_that_its_pods_tolerate_by_their_runtime_class() {
    let bed = fresh(2).await;
    sandbox(&bed).await;
    let run = RunSpec::diamond("default", "run").opted_in("true").lasting("1s");
    let run = with_template(run, &json!({"runtimeClassName": "sandbox"}));
    let nodes = nodes_after(&bed, &run).await;
    assert!(
        nodes.len() == 1 && nodes.iter().all(|node| node.starts_with("sandbox")),
        "{nodes:?}"
    );
    let reported = reasons(&bed.client().await.unwrap(), &run).await;
    assert!(!reported.contains(&"MovedOff".to_owned()), "{reported:?}");
}

#[e2e_test]
async fn a_run_with_its_own_anti_affinity_uses_the_node_that_another_run_leaves() {
    let bed = fresh(1).await;
    let first = RunSpec::new("default", "first").task("only", &[]);
    let first = first.opted_in("true").ending("hang");
    let created = create(&bed, &first).await;
    bound_placeholder(&bed, &created).await;
    let second = RunSpec::new("default", "second")
        .task("only", &[])
        .opted_in("true");
    let second = with_template(second, &json!({"affinity": away_from("database")}));
    create(&bed, &second).await;
    until_event(&bed, &second, "WaitingForNode").await;
    let_succeed(&bed, &first).await;
    bed.until_succeeded(&second, SOON).await.unwrap();
}

/// The scheduler of Kubernetes 1.36 does not requeue such a task, so pod-affinity requeues the task each minute.
#[e2e_test]
async fn a_task_with_its_own_anti_affinity_starts_after_the_other_pod_is_deleted() {
    let bed = fresh(1).await;
    another_pod(&bed, "node-0", "database", "0").await;
    let run = RunSpec::new("default", "run").task("only", &[]).opted_in("true");
    let run = with_template(run, &json!({"affinity": away_from("database")}));
    create(&bed, &run).await;
    until_event(&bed, &run, "NoNodeFits").await;
    let pods = pods(&bed.client().await.unwrap(), "default");
    pods.delete("database-node-0", &DeleteParams::default())
        .await
        .unwrap();
    bed.until_succeeded(&run, SOON).await.unwrap();
}

/// How much later a run with a rejected pod ends: usually three seconds, on a busy machine with the fifth attempt, after 30 s.
/// Tekton alone needs a minute.
const REFUSAL: Duration = Duration::from_secs(40);
/// The first two pauses before pod-affinity tells Tekton to try again.
const PAUSES: Duration = Duration::from_secs(6);

/// Each placeholder counts as one pod in the quota, and Tekton alone tries again only after a minute. Tekton starts these
/// runs after all placeholders were created, so that the room that placeholders make is available for tasks only.
#[e2e_test]
async fn tasks_whose_quota_is_used_by_placeholders_have_their_pods_a_few_seconds_later() {
    let bed = fresh(4).await;
    let namespace = bed.namespace("quota").await.unwrap();
    quota(&bed, &namespace, "pods", "3").await;
    bed.kill(Part::TektonController).unwrap();
    let runs = create_three(&bed, |name| RunSpec::new(&namespace, name).opted_in("true")).await;
    for run in &runs {
        until_event(&bed, run, "Released").await;
    }
    bed.start_again(Part::TektonController).await.unwrap();
    until_all_succeed(&bed, &runs).await;
    let refused = first_room(&bed, &namespace).await;
    let last = last_pod(&bed, &runs).await;
    let waited = last.duration_since(refused);
    println!(
        "three runs, and a quota of three pods: the last one was made {waited:.1?} after a placeholder made room"
    );
    assert!(last < refused + REFUSAL, "{waited:?}");
    until_no_placeholder(&bed, &namespace).await;
}

/// The placeholder of a held run may take the room that another placeholder made for a task. Tekton tries the task again
/// after pauses, so the bound cannot be lower.
#[e2e_test]
async fn successive_runs_with_an_exhausted_quota_end_at_most_one_pause_later() {
    let bed = fresh(4).await;
    let namespace = bed.namespace("quota").await.unwrap();
    quota(&bed, &namespace, "pods", "3").await;
    let begun = Instant::now();
    let plain = create_three(&bed, |name| RunSpec::new(&namespace, &format!("plain-{name}"))).await;
    until_all_succeed(&bed, &plain).await;
    let plain = begun.elapsed();
    let begun = Instant::now();
    let runs = create_three(&bed, |name| RunSpec::new(&namespace, name).opted_in("true")).await;
    until_all_succeed(&bed, &runs).await;
    let labelled = begun.elapsed();
    println!("the same, one after the other: {plain:.1?} without the label, {labelled:.1?} with it");
    assert!(labelled < plain + REFUSAL + PAUSES, "{labelled:?}");
    assert!(rooms(&bed, &runs).await > 0);
}

/// A quota of limits rejects pods without limits. Tekton's pods have none, unless a `LimitRange` adds them.
#[e2e_test]
async fn a_labelled_run_succeeds_with_a_quota_of_limits_and_a_limit_range() {
    let bed = fresh(2).await;
    let namespace = bed.namespace("limits").await.unwrap();
    let client = bed.client().await.unwrap();
    let range = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"namespace": namespace, "name": "limits"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "500m", "memory": "256Mi"}}]},
    });
    apply::apply(&client, &range).await.unwrap();
    quota(&bed, &namespace, "limits.cpu", "2").await;
    let run = RunSpec::diamond(&namespace, "run").opted_in("true").lasting("1s");
    let nodes = nodes_after(&bed, &run).await;
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    let reported = reasons(&client, &run).await;
    assert!(
        reported.contains(&"Released".to_owned()) && !reported.contains(&"MadeRoom".to_owned()),
        "{reported:?}"
    );
    until_no_placeholder(&bed, &namespace).await;
}

/// Creates three runs of one task each. Tekton's pod for a second task could be rejected with and without the label, because
/// quotas count a pod for a moment after its end.
async fn create_three(bed: &Testbed, run: impl Fn(&str) -> RunSpec) -> [RunSpec; 3] {
    let runs = ["one", "two", "three"].map(|name| run(name).task("only", &[]));
    for run in &runs {
        create(bed, run).await;
    }
    runs
}

async fn until_all_succeed(bed: &Testbed, runs: &[RunSpec]) {
    for run in runs {
        bed.until_succeeded(run, SOON * 2).await.unwrap();
    }
}

/// When the first placeholder of the namespace made room.
async fn first_room(bed: &Testbed, namespace: &str) -> Timestamp {
    let events: Api<Event> = Api::namespaced(bed.client().await.unwrap(), namespace);
    let events = events.list(&ListParams::default()).await.unwrap();
    let rooms = events
        .iter()
        .filter(|event| event.reason.as_deref() == Some("MadeRoom"));
    let times = rooms.map(|event| event.event_time.as_ref().unwrap().0);
    times.min().expect("a placeholder made room")
}

/// When the pod of the last task was created.
async fn last_pod(bed: &Testbed, runs: &[RunSpec]) -> Timestamp {
    let client = bed.client().await.unwrap();
    let mut times = Vec::new();
    for run in runs {
        let pods = runs::pods(&client, run.namespace(), run.name()).await.unwrap();
        times.extend(pods.iter().map(|pod| pod.creation_timestamp().unwrap().0));
    }
    times.into_iter().max().expect("the runs have pods")
}

/// Number of runs with an event that their placeholder made room.
async fn rooms(bed: &Testbed, runs: &[RunSpec]) -> usize {
    let client = bed.client().await.unwrap();
    let mut rooms = 0;
    for run in runs {
        let reported = reasons(&client, run).await;
        rooms += usize::from(reported.contains(&"MadeRoom".to_owned()));
    }
    rooms
}

#[e2e_test]
async fn a_run_with_required_affinity_to_other_pods_is_rejected_with_the_name_of_the_field() {
    let bed = &installed().await;
    let cache = json!({"topologyKey": keys::HOSTNAME, "labelSelector": {"matchLabels": {"app": "cache"}}});
    let tied =
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [cache]}}});
    let run = with_template(RunSpec::diamond("default", "tied"), &tied);
    let client = bed.client().await.unwrap();
    let refused = run
        .clone()
        .opted_in("true")
        .create(&client)
        .await
        .unwrap_err()
        .to_string();
    for word in [
        "default/tied",
        "spec.taskRunTemplate.podTemplate.affinity.podAffinity",
        "preferred",
    ] {
        assert!(refused.contains(word), "{word} is missing in: {refused}");
    }
    run.create(&client)
        .await
        .expect("without the label the run is ignored");
}

/// Tekton adds its default template to a run after the webhook has processed the run.
#[e2e_test]
async fn a_required_affinity_that_tekton_adds_by_default_is_made_preferred_and_reported() {
    let bed = fresh(2).await;
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let cache = json!({"topologyKey": keys::HOSTNAME, "labelSelector": {"matchLabels": {"app": "cache"}}});
    let template = json!({"affinity": {"podAffinity": {required: [cache]}}}).to_string();
    bed.tekton_config("config-defaults", &[("default-pod-template", &template)])
        .await
        .unwrap();
    let cache = json!({
        "metadata": {"name": "cache", "labels": {"app": "cache"}},
        "spec": {"containers": [{"name": "main", "image": "testbed.invalid/main"}]},
    });
    let client = bed.client().await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    pods.create(&PostParams::default(), &serde_json::from_value(cache).unwrap())
        .await
        .unwrap();

    let unlabelled = RunSpec::diamond("default", "unlabelled").lasting("1s");
    create(&bed, &unlabelled).await;
    bed.until_succeeded(&unlabelled, SOON).await.unwrap();
    let run = RunSpec::diamond("default", "run").opted_in("true").lasting("1s");
    assert_eq!(nodes_after(&bed, &run).await.len(), 1);
    let note = until_event(&bed, &run, "AffinityRelaxed").await;
    assert!(note.contains("default-pod-template"), "{note}");
    for (name, marked) in [("unlabelled", false), ("run", true)] {
        let tasks = runs::pods(&client, "default", name).await.unwrap();
        let is_marked = |pod: &Pod| pod.annotations().contains_key(keys::RELAXED) == marked;
        assert!(tasks.iter().all(is_marked), "{name}");
    }
}

#[e2e_test]
async fn a_label_on_a_pipeline_is_too_late_and_the_run_runs_as_without_it() {
    let bed = fresh(3).await;
    let run = RunSpec::new("default", "run")
        .task("a", &[])
        .task("b", &[])
        .task("c", &["a"])
        .ending("hang");
    let run = labelled_by_its_pipeline(&bed, run).await;
    let_end_once_bound(&bed, [&run], &["a", "b"]).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    let client = bed.client().await.unwrap();
    let pods = runs::pods(&client, "default", "run").await.unwrap();
    assert_eq!(pods.len(), 3);
    assert!(
        pods.iter().all(|pod| !pod.labels().contains_key(keys::GROUP)),
        "no pod is in a group"
    );
}

#[e2e_test(webhook)]
async fn without_the_webhook_a_labelled_run_runs_as_without_the_label() {
    let bed = fresh(2).await;
    let run = RunSpec::diamond("kube-system", "run")
        .opted_in("true")
        .lasting("1s");
    create(&bed, &run).await;
    let done = bed.until_succeeded(&run, SOON).await.unwrap();
    assert!(!done.labels().contains_key(keys::GROUP), "{:?}", done.labels());
    let reported = reasons(&bed.client().await.unwrap(), &run).await;
    // A run with a placeholder has an event with one of these reasons.
    let ours = ["Held", "Enrolled"].map(str::to_owned);
    assert!(
        !reported.iter().any(|reason| ours.contains(reason)),
        "{reported:?}"
    );
}

#[e2e_test]
async fn a_user_who_takes_over_the_hold_keeps_the_run_held_until_its_release() {
    let bed = fresh(1).await;
    let client = bed.client().await.unwrap();
    let first = RunSpec::diamond("default", "first")
        .opted_in("true")
        .ending("hang");
    create(&bed, &first).await;
    bound_task(&bed, &first, "fetch").await;
    let run = RunSpec::diamond("default", "run").opted_in("true").ending("hang");
    let held = create(&bed, &run).await;
    until_tekton_labelled(&bed, &run).await;
    let api = runs::runs(&client, "default");
    // The command of docs/troubleshooting.md: `kubectl annotate pipelinerun run pod-affinity.tekton.dev/hold-`.
    let take_over = Patch::Merge(json!({"metadata": {"annotations": {keys::HOLD: null}}}));
    // Tekton may write the annotation again that Tekton read before.
    bed.kill(Part::TektonController).unwrap();
    api.patch("run", &PatchParams::default(), &take_over)
        .await
        .unwrap();
    bed.start_again(Part::TektonController).await.unwrap();
    let_succeed(&bed, &first).await;
    until_no_placeholder(&bed, "default").await;
    assert_eq!(runs::state(&api.get("run").await.unwrap()), State::Pending);

    let release = Patch::Merge(json!({"spec": {"status": null}}));
    let released = api.patch("run", &PatchParams::default(), &release).await.unwrap();
    assert!(
        released.annotations().contains_key(keys::HOLD),
        "it waits for its node, like any other"
    );
    bound_placeholder(&bed, &held).await;
    let_end_once_bound(&bed, [&run], &["fetch"]).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
}

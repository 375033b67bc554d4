//! Holds of runs, and who may release them.

use crate::support::SOON;
use crate::support::controller::{has_group, until_reconciled, until_tekton_labelled};
use crate::support::custom_runs::{custom_run, run_of_custom_task};
use crate::support::events::until_event;
use crate::support::objects::node_of;
use crate::support::placeholders::{bound_placeholder, placeholder_name, sets, until_no_placeholder};
use crate::support::runs::{bound_task, create, let_end_once_bound, let_succeed, nodes_of};
use crate::support::testbeds::{fresh, installed, kill_webhooks, start_controllers, stop_controllers};
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use placement::keys;
use serde_json::{Value, json};
use testbed::runs::{self, RunSpec, State};
use testbed::{Part, Testbed, apply};

fn released(run: &DynamicObject) -> bool {
    run.data["spec"].get("status").is_none()
}

async fn until_enrolled(bed: &Testbed, run: &RunSpec) -> DynamicObject {
    bed.until_run(run, "to be enrolled", SOON, has_group)
        .await
        .unwrap()
}

async fn patch(bed: &Testbed, run: &RunSpec, patch: Value) -> DynamicObject {
    let api = runs::runs(&bed.client().await.unwrap(), run.namespace());
    api.patch(run.name(), &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap()
}

async fn change_label(bed: &Testbed, run: &RunSpec, value: &Value) -> DynamicObject {
    until_tekton_labelled(bed, run).await;
    patch(bed, run, json!({"metadata": {"labels": {keys::OPT_IN: value}}})).await
}

/// Creates runs, waits until each is ready, and changes their labels. Checks that each run is released and in no group. Tekton is
/// stopped meanwhile: Tekton may write labels again that were removed after Tekton had read the run.
async fn leave<const N: usize>(
    bed: &Testbed,
    changes: [(&str, Value); N],
    ready: impl AsyncFn(&Testbed, &RunSpec),
) {
    let runs = changes.map(|(name, value)| {
        (
            RunSpec::new("default", name).task("only", &[]).opted_in("true"),
            value,
        )
    });
    for (run, _) in &runs {
        create(bed, run).await;
        ready(bed, run).await;
        until_tekton_labelled(bed, run).await;
    }
    bed.kill(Part::TektonController).unwrap();
    for (run, value) in &runs {
        change_label(bed, run, value).await;
        let left = bed.until_run(run, "to be released", SOON, released);
        let left = left.await.unwrap();
        for key in [keys::GROUP, keys::STRATEGY, keys::ISOLATION] {
            assert!(!left.labels().contains_key(key), "{}: {key}", run.name());
        }
    }
    bed.start_again(Part::TektonController).await.unwrap();
    until_no_placeholder(bed, "default").await;
}

/// Checks that the controller had the time to release an enrolled run or to take over the hold, and did neither.
async fn is_held_by_another(bed: &Testbed, spec: &RunSpec) {
    let run = until_reconciled(bed, spec).await;
    assert_eq!(runs::state(&run), State::Pending, "{}", spec.name());
    assert!(!run.annotations().contains_key(keys::HOLD), "{}", spec.name());
}

/// Releases a run as the owner of the hold does.
async fn release(bed: &Testbed, run: &RunSpec) -> DynamicObject {
    patch(bed, run, json!({"spec": {"status": null}})).await
}

#[e2e_test]
async fn a_labelled_run_is_held_until_its_placeholder_has_a_node_and_reports_the_node() {
    let bed = &installed().await;
    let namespace = bed.namespace("held").await.unwrap();
    let spec = RunSpec::diamond(&namespace, "run")
        .opted_in("true")
        .ending("hang");
    let held = create(bed, &spec).await;
    assert_eq!(runs::state(&held), State::Pending);
    assert!(held.annotations().contains_key(keys::HOLD));
    let placeholder = bound_placeholder(bed, &held).await;
    let run = bed
        .until_run(&spec, "to be released", SOON, released)
        .await
        .unwrap();
    assert_eq!(run.labels()[keys::GROUP], held.uid().unwrap());
    assert_eq!(run.labels()[keys::STRATEGY], "colocateCompleted");
    assert_eq!(
        Some(run.annotations()[keys::NODE].as_str()),
        runs::node(&placeholder)
    );
    assert!(!run.annotations().contains_key(keys::HOLD));
    let_end_once_bound(bed, [&spec], &["fetch"]).await;
    bed.until_succeeded(&spec, SOON).await.unwrap();
}

#[e2e_test]
async fn a_run_that_its_user_holds_stays_held_until_the_user_releases_it() {
    let bed = &installed().await;
    let namespace = bed.namespace("users-hold").await.unwrap();
    let spec = RunSpec::diamond(&namespace, "run")
        .opted_in("true")
        .ending("hang")
        .spec("status", json!("PipelineRunPending"));
    let held = create(bed, &spec).await;
    assert!(
        !held.annotations().contains_key(keys::HOLD),
        "this hold is the user's"
    );
    let enrolled = until_enrolled(bed, &spec).await;
    assert_eq!(runs::state(&enrolled), State::Pending);
    is_held_by_another(bed, &spec).await;
    let set = sets(&bed.client().await.unwrap(), &namespace)
        .get_opt(&placeholder_name(&held).to_string())
        .await;
    assert!(set.unwrap().is_none(), "a queued run occupies no node");

    let after = release(bed, &spec).await;
    assert_eq!(
        runs::state(&after),
        State::Pending,
        "pod-affinity holds the run now"
    );
    assert!(after.annotations().contains_key(keys::HOLD));
    bound_placeholder(bed, &held).await;
    let_end_once_bound(bed, [&spec], &["fetch"]).await;
    bed.until_succeeded(&spec, SOON).await.unwrap();
    assert_eq!(nodes_of(bed, &spec).await.len(), 1);
}

/// Two short consecutive tasks, which begin when the user releases the run.
async fn held_by_its_user(bed: &Testbed, name: &str) -> RunSpec {
    let spec = RunSpec::new("default", name)
        .task("first", &[])
        .task("second", &["first"])
        .opted_in("true")
        .spec("status", json!("PipelineRunPending"));
    create(bed, &spec).await;
    until_enrolled(bed, &spec).await;
    spec
}

#[e2e_test]
async fn a_run_that_its_user_releases_while_no_controller_runs_waits_for_its_node_unless_released_twice() {
    let bed = fresh(8).await;
    let [once, twice] = [
        held_by_its_user(&bed, "once").await,
        held_by_its_user(&bed, "twice").await,
    ];
    stop_controllers(&bed);
    for spec in [&once, &twice] {
        assert_eq!(runs::state(&release(&bed, spec).await), State::Pending);
    }
    assert!(released(&release(&bed, &twice).await), "its user insists");
    bed.until_succeeded(&twice, SOON).await.unwrap();
    // The tasks of the other run would have ended by now if the run were not held.
    start_controllers(&bed).await;
    bed.until_succeeded(&once, SOON).await.unwrap();
    assert_eq!(nodes_of(&bed, &once).await.len(), 1);
}

#[e2e_test(webhook)]
async fn a_run_can_be_released_by_its_user_while_no_webhook_answers() {
    let bed = fresh(1).await;
    let spec = held_by_its_user(&bed, "run").await;
    kill_webhooks(&bed);
    assert!(released(&release(&bed, &spec).await));
    // The next test uses the testbed again.
    for replica in 0..2 {
        bed.start_again(Part::Webhook(replica)).await.unwrap();
    }
}

#[e2e_test]
async fn a_run_in_a_queue_of_kueue_is_never_released_by_pod_affinity() {
    let bed = &installed().await;
    let namespace = bed.namespace("queued").await.unwrap();
    let spec = RunSpec::diamond(&namespace, "run")
        .opted_in("true")
        .label(keys::KUEUE_QUEUE_NAME, "main")
        .spec("status", json!("PipelineRunPending"));
    create(bed, &spec).await;
    until_enrolled(bed, &spec).await;
    is_held_by_another(bed, &spec).await;
}

#[e2e_test]
async fn a_copied_manifest_with_labels_of_pod_affinity_joins_no_group() {
    let bed = &installed().await;
    let namespace = bed.namespace("copied").await.unwrap();
    let original = RunSpec::diamond(&namespace, "original")
        .opted_in("true")
        .ending("hang");
    let first = create(bed, &original).await;
    let node = node_of(&bound_task(bed, &original, "fetch").await);
    // With the strategy, the copy could be on the node; with the group label, the copy would have to be there.
    let there = json!({"key": keys::HOSTNAME, "operator": "In", "values": [node]});
    let preferred = json!([{"weight": 100, "preference": {"matchExpressions": [there]}}]);
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
    let copy = RunSpec::diamond(&namespace, "copy")
        .opted_in("true")
        .label(keys::GROUP, &first.uid().unwrap())
        .label(keys::STRATEGY, "colocateAlways")
        .annotation(keys::HOLD, "true")
        .annotation(keys::NODE, "east-0")
        .spec("taskRunTemplate", json!({"podTemplate": {"affinity": affinity}}));
    let made = create(bed, &copy).await;
    assert!(!made.labels().contains_key(keys::GROUP));
    assert!(!made.annotations().contains_key(keys::NODE));
    let run = bed.until_succeeded(&copy, SOON).await.unwrap();
    assert_eq!(run.labels()[keys::GROUP], made.uid().unwrap());
    assert_eq!(run.labels()[keys::STRATEGY], "colocateCompleted");
    assert!(!nodes_of(bed, &copy).await.contains(&node));
    let_succeed(bed, &original).await;
}

#[e2e_test]
async fn a_copy_of_a_held_run_without_the_opt_in_label_joins_no_group_and_starts() {
    let bed = &installed().await;
    let namespace = bed.namespace("stray").await.unwrap();
    let copy = RunSpec::new(&namespace, "copy")
        .task("only", &[])
        .label(keys::GROUP, "another-runs-uid")
        .annotation(keys::HOLD, "true")
        .spec("status", json!(keys::PENDING));
    let made = create(bed, &copy).await;
    assert!(!made.labels().contains_key(keys::GROUP));
    bed.until_succeeded(&copy, SOON).await.unwrap();
}

#[e2e_test]
async fn a_declined_run_is_not_touched() {
    let bed = &installed().await;
    let namespace = bed.namespace("declined").await.unwrap();
    let spec = RunSpec::diamond(&namespace, "run").opted_in("false");
    let made = create(bed, &spec).await;
    assert_eq!(runs::state(&made), State::Running);
    let done = bed.until_succeeded(&spec, SOON).await.unwrap();
    assert!(!done.labels().contains_key(keys::GROUP));
}

#[e2e_test]
async fn a_run_of_another_manager_is_ignored() {
    let bed = &installed().await;
    let namespace = bed.namespace("managed").await.unwrap();
    let spec = RunSpec::diamond(&namespace, "run")
        .opted_in("true")
        .spec("managedBy", json!("example.com/other"));
    let made = create(bed, &spec).await;
    assert!(made.data["spec"].get("status").is_none());
    // A later run that pod-affinity holds proves that the controller had the time to act.
    let later = RunSpec::new(&namespace, "later")
        .task("only", &[])
        .opted_in("true");
    create(bed, &later).await;
    bed.until_succeeded(&later, SOON).await.unwrap();
    let run = runs::runs(&bed.client().await.unwrap(), &namespace)
        .get("run")
        .await
        .unwrap();
    assert!(!run.labels().contains_key(keys::GROUP));
}

#[e2e_test]
async fn a_label_that_is_added_after_the_first_task_only_causes_an_event() {
    let bed = &installed().await;
    let namespace = bed.namespace("too-late").await.unwrap();
    let spec = RunSpec::diamond(&namespace, "run").lasting("6s");
    create(bed, &spec).await;
    bed.until_run(&spec, "to have a task", SOON, |run| {
        run.data.pointer("/status/childReferences/0").is_some()
    })
    .await
    .unwrap();
    patch(
        bed,
        &spec,
        json!({"metadata": {"labels": {keys::OPT_IN: "true"}}}),
    )
    .await;
    until_event(bed, &spec, "LabelledTooLate").await;
    let done = bed.until_succeeded(&spec, SOON).await.unwrap();
    assert!(!done.labels().contains_key(keys::GROUP));
}

/// The first tasks may have started before the controller has read the run.
#[e2e_test]
async fn a_run_that_a_user_releases_before_it_is_enrolled_runs_as_without_the_label() {
    let bed = fresh(1).await;
    let spec = RunSpec::diamond("default", "run").ending("hang").opted_in("true");
    stop_controllers(&bed);
    create(&bed, &spec).await;
    patch(&bed, &spec, json!({"spec": {"status": null}})).await;
    start_controllers(&bed).await;
    until_event(&bed, &spec, "LabelledTooLate").await;
    let_end_once_bound(&bed, [&spec], &["fetch"]).await;
    let done = bed.until_succeeded(&spec, SOON).await.unwrap();
    assert!(!done.labels().contains_key(keys::GROUP));
    until_no_placeholder(&bed, "default").await;
}

#[e2e_test]
async fn a_run_whose_label_is_removed_while_it_is_held_starts_without_pod_affinity() {
    let bed = fresh(0).await;
    let changes = [
        ("removed", Value::Null),
        ("declined", json!("false")),
        ("misspelt", json!("perhaps")),
    ];
    leave(&bed, changes, async |_, _| {}).await;
}

#[e2e_test]
async fn a_run_whose_label_is_removed_while_it_waits_for_a_node_leaves_its_group() {
    let bed = fresh(0).await;
    let changes = [("removed", Value::Null), ("declined", json!("false"))];
    leave(&bed, changes, async |bed, run| {
        drop(until_enrolled(bed, run).await);
    })
    .await;
}

#[e2e_test]
async fn a_run_whose_label_is_removed_while_no_controller_runs_starts_after_a_controller_starts() {
    let bed = fresh(0).await;
    stop_controllers(&bed);
    let spec = RunSpec::new("default", "run").task("only", &[]).opted_in("true");
    create(&bed, &spec).await;
    let robbed = change_label(&bed, &spec, &Value::Null).await;
    assert_eq!(runs::state(&robbed), State::Pending);
    start_controllers(&bed).await;
    bed.until_run(&spec, "to be released", SOON, released)
        .await
        .unwrap();
    until_event(&bed, &spec, "Released").await;
}

#[e2e_test]
async fn a_run_whose_label_is_removed_while_its_user_holds_it_is_in_no_group_when_it_starts() {
    let bed = &installed().await;
    let namespace = bed.namespace("withdrawn").await.unwrap();
    for (name, value) in [("removed", json!(null)), ("declined", json!("false"))] {
        let spec = RunSpec::diamond(&namespace, name)
            .opted_in("true")
            .spec("status", json!("PipelineRunPending"));
        create(bed, &spec).await;
        until_enrolled(bed, &spec).await;
        // Tekton may write the label again that Tekton read before.
        let withdrawn = bed.until("the run to leave its group", SOON, async || {
            let run = change_label(bed, &spec, &value).await;
            if has_group(&run) {
                Err(runs::state(&run))
            } else {
                Ok(run)
            }
        });
        assert_eq!(runs::state(&withdrawn.await.unwrap()), State::Pending, "{name}");
        release(bed, &spec).await;
        bed.until_succeeded(&spec, SOON).await.unwrap();
        let pods = crate::support::placeholders::pods(&bed.client().await.unwrap(), &namespace);
        let run = format!("{}={name}", keys::TEKTON_PIPELINE_RUN);
        let pods = pods
            .list(&kube::api::ListParams::default().labels(&run))
            .await
            .unwrap();
        assert!(!pods.items.is_empty());
        for pod in pods.items {
            assert!(
                !pod.labels().contains_key(keys::GROUP) && pod.spec.unwrap().affinity.is_none(),
                "{name}"
            );
        }
    }
}

#[e2e_test]
async fn a_hold_ends_at_its_deadline_even_without_a_node() {
    let bed = fresh(0).await;
    let spec = RunSpec::new("default", "run").task("only", &[]).opted_in("true");
    create(&bed, &spec).await;
    let reported = until_event(&bed, &spec, "WaitingForNode").await;
    assert!(
        reported.contains("no nodes available"),
        "the scheduler's message: {reported}"
    );
    bed.configure(&[("hold-deadline", Some("6s"))]).await.unwrap();
    bed.until_run(&spec, "to be released", SOON, released)
        .await
        .unwrap();
    until_event(&bed, &spec, "HoldDeadlineExceeded").await;
    bed.add_nodes(&testbed::Nodes::new("late", 1)).await.unwrap();
    bed.until_succeeded(&spec, SOON).await.unwrap();
}

#[e2e_test]
async fn a_run_that_is_released_before_it_has_a_node_gets_a_placeholder_that_two_limit_ranges_allow() {
    let bed = fresh(0).await;
    bed.configure(&[("release-when", Some("created"))]).await.unwrap();
    for (resource, min, request, limit) in [("cpu", "100m", "200m", "1"), ("memory", "200Mi", "300Mi", "1Gi")]
    {
        let limit = json!({
            "type": "Container", "min": {resource: min}, "defaultRequest": {resource: request}, "default": {resource: limit},
        });
        let range = json!({
            "apiVersion": "v1", "kind": "LimitRange", "metadata": {"namespace": "default", "name": resource},
            "spec": {"limits": [limit]},
        });
        apply::apply(&bed.client().await.unwrap(), &range).await.unwrap();
    }
    let spec = RunSpec::new("default", "run")
        .task("only", &[])
        .opted_in("true")
        .ending("hang");
    create(&bed, &spec).await;
    let run = bed
        .until_run(&spec, "to be released", SOON, released)
        .await
        .unwrap();
    bed.add_nodes(&testbed::Nodes::new("late", 3)).await.unwrap();
    bound_placeholder(&bed, &run).await;
    let_succeed(&bed, &spec).await;
}

#[e2e_test]
async fn a_release_that_tekton_rejects_is_reported_and_tried_again() {
    let bed = fresh(0).await;
    let spec = RunSpec::new("default", "run").task("only", &[]).opted_in("true");
    create(&bed, &spec).await;
    until_event(&bed, &spec, "WaitingForNode").await;
    bed.kill(Part::TektonWebhook).unwrap();
    bed.add_nodes(&testbed::Nodes::new("node", 1)).await.unwrap();
    let reported = until_event(&bed, &spec, "ReleaseRefused").await;
    assert!(reported.contains("webhook"), "the cause is reported: {reported}");
    bed.start_again(Part::TektonWebhook).await.unwrap();
    bed.until_succeeded(&spec, SOON).await.unwrap();
}

/// Creates the run of the custom task of the root.
async fn create_run_of_custom_task(bed: &Testbed, spec: &RunSpec, root: &DynamicObject) -> RunSpec {
    let custom_run = custom_run(bed, spec, "loop").await.unwrap();
    assert_eq!(custom_run.labels()[keys::GROUP], root.uid().unwrap());
    let inner = run_of_custom_task(&custom_run, "inner");
    create(bed, &inner).await;
    inner
}

#[e2e_test]
async fn a_run_that_a_custom_task_creates_follows_its_root() {
    let bed = &*fresh(3).await;
    let spec = RunSpec::new("default", "root")
        .task("outer", &[])
        .task("loop", &["outer"])
        .task_field(
            "taskSpec",
            json!({"apiVersion": "example.com/v1", "kind": "Loop", "spec": {}}),
        )
        .opted_in("true")
        .lasting("1s");
    let root = create(bed, &spec).await;
    let inner = create_run_of_custom_task(bed, &spec, &root).await;
    bed.until_succeeded(&inner, SOON).await.unwrap();
    let members = ListParams::default().labels(&format!("{}={}", keys::GROUP, root.uid().unwrap()));
    let pods = crate::support::placeholders::pods(&bed.client().await.unwrap(), "default");
    let pods = pods.list(&members).await.unwrap().items;
    assert_eq!(
        pods.len(),
        4,
        "the placeholder, the outer task and two tasks of the inner run"
    );
    assert_eq!(runs::nodes(&pods).len(), 1);
}

#[e2e_test]
async fn a_nested_run_follows_its_root() {
    let bed = fresh(5).await;
    bed.feature_flags(&[("enable-api-fields", "alpha")])
        .await
        .unwrap();
    let step = json!({"name": "step", "image": "testbed.invalid/step", "script": "true"});
    let inner = json!([
        {"name": "left", "taskSpec": {"steps": [step]}},
        {"name": "right", "taskSpec": {"steps": [step]}},
    ]);
    let spec = RunSpec::new("default", "root")
        .task("outer", &[])
        .task("nested", &["outer"])
        .task_field("taskSpec", json!(null))
        .task_field("pipelineSpec", json!({"tasks": inner}))
        .opted_in("true")
        .lasting("2s");
    let root = create(&bed, &spec).await;
    bed.until_succeeded(&spec, SOON).await.unwrap();
    let pods = crate::support::placeholders::pods(&bed.client().await.unwrap(), "default");
    let group = format!("{}={},tekton.dev/pipelineTask", keys::GROUP, root.uid().unwrap());
    let pods = pods
        .list(&ListParams::default().labels(&group))
        .await
        .unwrap()
        .items;
    assert_eq!(pods.len(), 3, "the outer task and the nested run's two");
    assert_eq!(runs::nodes(&pods).len(), 1);
}

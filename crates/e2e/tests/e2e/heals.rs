//! Lost objects are created again, rejections are reported and tried again, and no run fails because of pod-affinity.

use crate::support::SOON;
use crate::support::assistants::assistant_nodes;
use crate::support::cli::only;
use crate::support::controller::configure;
use crate::support::events::until_event;
use crate::support::objects::quota;
use crate::support::placeholders::{bound_placeholder, placeholder_name, pods, sets};
use crate::support::pvcs::{create_pvc, with_pvc};
use crate::support::runs::{create, let_succeed, nodes_of, until_released};
use crate::support::testbeds::{fresh, installed, start_controllers, stop_controllers};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testbed::product::NAMESPACE;
use testbed::runs::{self, RunSpec};
use testbed::{Nodes, Testbed};

#[e2e_test]
async fn a_placeholder_deleted_while_tasks_run_returns_to_the_same_node() {
    let bed = &installed().await;
    let namespace = bed.namespace("returns").await.unwrap();
    let client = bed.client().await.unwrap();
    let spec = RunSpec::diamond(&namespace, "run")
        .opted_in("true")
        .ending("hang");
    let run = create(bed, &spec).await;
    let first = bound_placeholder(bed, &run).await;
    bed.until("a task to run beside it", SOON, async || {
        let pods = runs::pods(&client, &namespace, "run")
            .await
            .map_err(|error| error.to_string())?;
        if runs::nodes(&pods).is_empty() {
            Err("none yet".to_owned())
        } else {
            Ok(())
        }
    })
    .await
    .unwrap();

    sets(&client, &namespace)
        .delete(&placeholder_name(&run).to_string(), &DeleteParams::default())
        .await
        .unwrap();
    let api = pods(&client, &namespace);
    let second = bed
        .until("another placeholder to be bound", SOON, async || {
            let pod = api
                .get_opt(&placeholder_name(&run).pod())
                .await
                .map_err(|error| error.to_string())?;
            let pod = pod.filter(|pod| pod.uid() != first.uid());
            pod.filter(|pod| runs::node(pod).is_some())
                .ok_or_else(|| "not yet".to_owned())
        })
        .await
        .unwrap();
    assert_eq!(runs::node(&first), runs::node(&second));
    let_succeed(bed, &spec).await;
    assert_eq!(nodes_of(bed, &spec).await.len(), 1);
}

#[e2e_test]
async fn a_placeholder_whose_run_was_deleted_as_an_orphan_is_deleted_within_a_minute() {
    let bed = fresh(2).await;
    let client = bed.client().await.unwrap();
    let spec = RunSpec::diamond("default", "run").opted_in("true").ending("hang");
    let run = create(&bed, &spec).await;
    bound_placeholder(&bed, &run).await;
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    // A running controller deletes the placeholder as soon as the run is being deleted.
    stop_controllers(&bed);
    runs::runs(&client, "default")
        .delete("run", &orphan)
        .await
        .unwrap();
    let sets = sets(&client, "default");
    let name = placeholder_name(&run).to_string();
    let ownerless = bed.until("the placeholder to lose its owner", SOON, async || {
        let set = sets.get(&name).await.map_err(|error| error.to_string())?;
        let owners = set.owner_references().len();
        if owners == 0 {
            Ok(())
        } else {
            Err(format!("{owners} owners"))
        }
    });
    ownerless.await.unwrap();
    start_controllers(&bed).await;
    bed.until("the orphan to be deleted", Duration::from_mins(1), async || {
        let set = sets.get_opt(&name).await.map_err(|error| error.to_string())?;
        set.map_or(Ok(()), |_| Err("it is there".to_owned()))
    })
    .await
    .unwrap();
}

#[e2e_test]
async fn a_placeholder_that_a_quota_rejects_is_reported_and_created_when_there_is_room() {
    let bed = &installed().await;
    let namespace = bed.namespace("quota").await.unwrap();
    let quotas = quota(bed, &namespace, "pods", "0").await;
    let spec = RunSpec::diamond(&namespace, "run").opted_in("true");
    create(bed, &spec).await;
    let reported = until_event(bed, &spec, "PlaceholderRefused").await;
    assert!(reported.contains("exceeded quota: tight"), "{reported}");
    let roomy = Patch::Merge(json!({"spec": {"hard": {"pods": "20"}}}));
    quotas
        .patch("tight", &PatchParams::default(), &roomy)
        .await
        .unwrap();
    bed.until_succeeded(&spec, SOON).await.unwrap();
}

#[e2e_test]
async fn a_placeholder_without_a_required_label_is_reported_and_created_when_it_copies_the_label_of_its_run()
{
    let bed = fresh(2).await;
    require_team(&bed).await;
    let spec = only("run").opted_in("true").label("team", "build");
    create(&bed, &spec).await;
    let reported = until_event(&bed, &spec, "PlaceholderRefused").await;
    assert!(
        reported.contains(NO_TEAM) && reported.contains("placeholder-copied-labels"),
        "{reported}"
    );
    bed.configure(&[("placeholder-copied-labels", Some("team"))])
        .await
        .unwrap();
    bed.until_succeeded(&spec, SOON).await.unwrap();
}

/// The name and the message of the policy.
const NO_TEAM: &str = "no-team";

/// Denies StatefulSets and pods of runs without the label `team`.
async fn require_team(bed: &Testbed) {
    let rule = |group: &str, resource: &str| json!({"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE"]});
    let constraints = json!({
        "resourceRules": [rule("apps", "statefulsets"), rule("", "pods")],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
    });
    let has_team = "has(object.metadata.labels) && 'team' in object.metadata.labels";
    let client = bed.client().await.unwrap();
    testbed::apply::apply_all(&client, &policy(NO_TEAM, &constraints, has_team))
        .await
        .unwrap();
    let pod = json!({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "x", "image": "x"}]}});
    let pod = serde_json::from_value(pod).unwrap();
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    bed.until("the policy to deny a pod", SOON, async || {
        match pods(&client, "default").create(&dry_run, &pod).await {
            Err(error) if error.to_string().contains(NO_TEAM) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

/// A policy and its binding.
fn policy(name: &str, constraints: &Value, expression: &str) -> [Value; 2] {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": constraints,
            "validations": [{"expression": expression, "message": name}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    [policy, binding]
}

#[e2e_test]
async fn a_changed_configuration_applies_to_new_runs_and_splits_no_running_run() {
    let bed = fresh(6).await;
    let before = RunSpec::diamond("default", "before")
        .opted_in("true")
        .lasting("4s");
    create(&bed, &before).await;
    until_released(&bed, &before).await;
    configure(&bed, &[("default-strategy", Some("colocateAlways"))]).await;
    assert_eq!(strategy(&bed, "after").await, "colocateAlways");
    let old = bed.until_succeeded(&before, SOON).await.unwrap();
    assert_eq!(old.labels()[placement::keys::STRATEGY], "colocateCompleted");
    assert_eq!(nodes_of(&bed, &before).await.len(), 1);
}

/// The strategy of a run that names none.
async fn strategy(bed: &Testbed, name: &str) -> String {
    let spec = RunSpec::new("default", name).task("only", &[]).opted_in("true");
    create(bed, &spec).await;
    let run = bed.until_succeeded(&spec, SOON).await.unwrap();
    run.labels()[placement::keys::STRATEGY].clone()
}

#[e2e_test]
async fn an_invalid_configuration_is_reported_and_the_last_valid_one_stays_active() {
    let bed = fresh(3).await;
    configure(&bed, &[("default-strategy", Some("colocateAlways"))]).await;
    bed.configure(&[("default-strategy", Some("colocateSometimes"))])
        .await
        .unwrap();
    until_configuration_refused(&bed, "colocateSometimes").await;
    assert_eq!(strategy(&bed, "run").await, "colocateAlways");
    bed.configure(&[("default-strategy", Some("colocateNever"))])
        .await
        .unwrap();
    until_configuration_refused(&bed, "colocateNever").await;
}

/// The newest message matters: a user who replaces one mistake by another must see the second message.
async fn until_configuration_refused(bed: &Testbed, value: &str) {
    let events: Api<Event> = Api::namespaced(bed.client().await.unwrap(), NAMESPACE);
    bed.until(format!("an event about {value}"), SOON, async || {
        let listed = events.list(&ListParams::default()).await;
        let notes: Vec<_> = listed.map_err(|error| error.to_string())?.items;
        let notes: Vec<_> = notes.into_iter().filter_map(|event| event.note).collect();
        if notes.iter().any(|note| note.contains(value)) {
            Ok(())
        } else {
            Err(notes.join("; "))
        }
    })
    .await
    .unwrap();
}

#[e2e_test]
async fn in_tektons_default_mode_its_assistant_is_on_the_node_of_the_run() {
    let bed = fresh(12).await;
    create_pvc(&bed, "cache", None).await;
    let spec = with_pvc(RunSpec::diamond("default", "run"), "cache")
        .opted_in("true")
        .lasting("2s");
    create(&bed, &spec).await;
    let assistant = bed
        .until("Tekton's assistant to be bound", SOON, async || {
            let node = assistant_nodes(&bed).await?.pop_first();
            node.ok_or_else(|| "not yet".to_owned())
        })
        .await
        .unwrap();
    bed.until_succeeded(&spec, SOON).await.unwrap();
    assert_eq!(nodes_of(&bed, &spec).await, [assistant].into());
}

#[e2e_test]
async fn a_pvc_that_is_bound_to_a_zone_determines_the_zone() {
    let bed = fresh(8).await;
    bed.add_nodes(&Nodes::new("west", 1).zone("west")).await.unwrap();
    create_pvc(&bed, "zonal", Some("west")).await;
    let workspace = json!([{"name": "source", "persistentVolumeClaim": {"claimName": "zonal"}}]);
    let mut spec = RunSpec::new("default", "run")
        .task("plain", &[])
        .task("mounts", &["plain"])
        .opted_in("true");
    spec = spec
        .task_field("workspaces", json!([{"name": "source"}]))
        .spec("workspaces", workspace);
    spec.manifest["spec"]["pipelineSpec"]["workspaces"] = json!([{"name": "source"}]);
    let mounts = spec
        .manifest
        .pointer_mut("/spec/pipelineSpec/tasks/1/taskSpec")
        .unwrap();
    mounts["workspaces"] = json!([{"name": "source"}]);
    create(&bed, &spec).await;
    bed.until_succeeded(&spec, SOON).await.unwrap();
    assert_eq!(nodes_of(&bed, &spec).await, ["west-0".to_owned()].into());
}

/// More runs than the controller reconciles at a time, which is 32.
const DENIED: usize = 34;
/// The longest delay that they may cause for another run.
const DELAY: Duration = Duration::from_secs(10);
/// The label of the runs, and the name and message of the policy.
const NOT_TODAY: &str = "not-today";

/// Denies all changes that would release these runs.
async fn deny_releases(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let rule = json!({
        "apiGroups": ["tekton.dev"], "apiVersions": ["v1"], "resources": ["pipelineruns"], "operations": ["UPDATE"],
    });
    let constraints =
        json!({"resourceRules": [rule], "objectSelector": {"matchLabels": {NOT_TODAY: "true"}}});
    let policy = policy(NOT_TODAY, &constraints, "has(object.spec.status)");
    testbed::apply::apply_all(&client, &policy).await.unwrap();
    let users = only("users").label(NOT_TODAY, "true");
    let users = users.spec("status", json!("PipelineRunPending"));
    create(bed, &users).await;
    let dry_run = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let release = Patch::Merge(json!({"spec": {"status": null}}));
    let runs = runs::runs(&client, users.namespace());
    bed.until("the policy to deny a release", SOON, async || {
        match runs.patch(users.name(), &dry_run, &release).await {
            Err(error) if error.to_string().contains(NOT_TODAY) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

/// Time from the creation of a run to its end.
async fn time_of(bed: &Testbed, name: &str) -> Duration {
    let begun = Instant::now();
    let run = only(name).opted_in("colocateAlways");
    create(bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    begun.elapsed()
}

#[e2e_test]
async fn runs_whose_release_is_denied_delay_no_other_run_and_are_released_when_it_is_allowed() {
    let bed = fresh(2).await;
    let alone = time_of(&bed, "alone").await;
    deny_releases(&bed).await;
    let denied = (0..DENIED).map(|number| only(&format!("denied-{number}")).label(NOT_TODAY, "true"));
    let denied: Vec<_> = denied.map(|run| run.opted_in("colocateAlways")).collect();
    for run in &denied {
        create(&bed, run).await;
    }
    // All runs are rejected for the first time meanwhile; later attempts follow after pauses.
    let took = time_of(&bed, "beside").await;
    println!("a run alone took {alone:.1?}, and beside {DENIED} whose release is denied {took:.1?}");
    for run in &denied {
        let reported = until_event(&bed, run, "ReleaseRefused").await;
        assert!(reported.contains(NOT_TODAY), "{reported}");
    }
    assert!(took < alone + DELAY, "{took:?} instead of {alone:?}");

    let client = bed.client().await.unwrap();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
    bindings
        .delete(NOT_TODAY, &DeleteParams::default())
        .await
        .unwrap();
    for run in &denied {
        bed.until_succeeded(run, SOON).await.unwrap();
    }
}

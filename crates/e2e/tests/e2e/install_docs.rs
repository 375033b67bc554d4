//! Executes the commands of docs/operation.md: they switch off what the page says, and all objects are removed.

use crate::support::SOON;
use crate::support::events::until_event;
use crate::support::install::{POLICIES, Release, WEBHOOK, apply, follow, install, shell};
use crate::support::kubectl::{kubectl, printed};
use crate::support::pages::blocks;
use crate::support::placeholders::{bound_placeholder, sets, until_no_placeholder};
use crate::support::pool;
use crate::support::runs::{
    bound_task, create, held_for_good, let_end, let_succeed, nodes_after, set_status, until_released,
};
use crate::support::testbeds::{start_controllers, stop_controllers};
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, PostParams};
use placement::keys;
use serde_json::{Value, json};
use std::time::Duration;
use testbed::product::NAMESPACE;
use testbed::runs::{self, RunSpec, State};
use testbed::{Nodes, Testbed};

fn commands(heading: &str) -> Vec<String> {
    blocks("docs/operation.md", heading)
}

/// Number of runs that are created while another run is running, for whose end the page waits.
const AT_LEAST: usize = 3;
/// The interval at which runs are created during the uninstallation.
const EVERY: Duration = Duration::from_secs(1);

/// Waits until new runs of this namespace have this state.
async fn until_new_runs_are(bed: &Testbed, namespace: &str, wanted: State) {
    let api = runs::runs(&bed.client().await.unwrap(), namespace);
    let run = RunSpec::new(namespace, "asked")
        .task("only", &[])
        .opted_in("true");
    let run: DynamicObject = serde_json::from_value(run.manifest).unwrap();
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    bed.until(format!("new runs to be {wanted:?}"), SOON, async || {
        let made = api
            .create(&dry_run, &run)
            .await
            .map_err(|error| error.to_string())?;
        let found = runs::state(&made);
        if found == wanted {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await
    .unwrap();
}

#[e2e_test(webhook)]
async fn each_way_to_switch_it_off_does_what_the_page_says() {
    switch_off(WEBHOOK).await;
}

#[e2e_test(policies, second)]
async fn each_way_to_switch_off_policies_does_what_the_page_says() {
    switch_off(POLICIES).await;
}

async fn switch_off(release: Release) {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 6)).await.unwrap();
    install(&bed, release).await;
    one_run(&bed).await;
    one_namespace(&bed, release).await;
    everything(&bed, release).await;
    on_again(&bed, release).await;
}

impl Release {
    /// Selects the block of commands for this release.
    fn pick<T>(self, policies: T, webhook: T) -> T {
        if self.file == POLICIES.file {
            policies
        } else {
            webhook
        }
    }
}

async fn one_run(bed: &Testbed) {
    let [release, label, by_hand] = commands("### One run").try_into().unwrap();
    let run = held_for_good(bed, "default", "one").await;
    follow(bed, &release, &run).await;
    until_released(bed, &run).await;
    until_no_placeholder(bed, "default").await;

    let run = held_for_good(bed, "default", "labelled").await;
    follow(bed, &label, &run).await;
    until_released(bed, &run).await;
    until_no_placeholder(bed, "default").await;

    let run = held_for_good(bed, "default", "by-hand").await;
    let other = held_for_good(bed, "default", "by-plugin").await;
    stop_controllers(bed);
    follow(bed, &label, &run).await;
    follow(bed, &by_hand, &run).await;
    follow(bed, &release, &other).await;
    until_released(bed, &run).await;
    until_released(bed, &other).await;
    start_controllers(bed).await;
    until_no_placeholder(bed, "default").await;
}

async fn one_namespace(bed: &Testbed, release: Release) {
    let [disable, enable, existing, policies, webhook] = commands("### One namespace").try_into().unwrap();
    let by_hand = existing + &release.pick(policies, webhook);
    let other = held_for_good(bed, "default", "other").await;
    let mut excluded = Vec::new();
    for (name, command) in [("one-namespace", &disable), ("by-hand", &by_hand)] {
        let namespace = bed.namespace(name).await.unwrap();
        let (one, two) = (
            held_for_good(bed, &namespace, "one").await,
            held_for_good(bed, &namespace, "two").await,
        );
        follow(bed, command, &one).await;
        excluded.push(excluding(bed, &namespace));
        until_released(bed, &one).await;
        until_released(bed, &two).await;
        until_new_runs_are(bed, &namespace, State::Running).await;
        let new = RunSpec::diamond(&namespace, "new").opted_in("true");
        create(bed, &new).await;
        bed.until_succeeded(&new, SOON).await.unwrap();
        until_new_runs_are(bed, "default", State::Pending).await;
        follow(bed, &enable, &one).await;
        until_new_runs_are(bed, &namespace, State::Pending).await;
        assert!(excluding(bed, &namespace).is_empty());
    }
    assert_eq!(excluded[0], excluded[1], "the plugin and the commands");
    assert_eq!(excluded[0].len(), release.pick(7, 9), "{excluded:?}");
    let other = runs::runs(&bed.client().await.unwrap(), "default")
        .get(other.name())
        .await
        .unwrap();
    assert_eq!(
        runs::state(&other),
        State::Pending,
        "other namespaces are as before"
    );
}

/// The webhooks and policies of pod-affinity that exclude a namespace.
fn excluding(bed: &Testbed, namespace: &str) -> Vec<String> {
    let kinds = "mutatingwebhookconfigurations,mutatingadmissionpolicies,validatingadmissionpolicies";
    let label = "--selector=app.kubernetes.io/part-of=pod-affinity";
    let objects: Value =
        serde_json::from_str(&kubectl(bed, &["get", kinds, label, "--output=json"])).unwrap();
    let objects = objects["items"].as_array().unwrap().iter();
    let selectors = objects.flat_map(|object| {
        let name = object["metadata"]["name"].as_str().unwrap();
        let of_webhooks = object["webhooks"].as_array().into_iter().flatten();
        let of_webhooks = of_webhooks.map(|it| (it["name"].as_str().unwrap(), &it["namespaceSelector"]));
        let of_policy = object.pointer("/spec/matchConstraints/namespaceSelector");
        of_webhooks.chain(of_policy.map(|selector| (name, selector)))
    });
    let excluding =
        selectors.filter(|(_, selector)| selector.to_string().contains(&format!("\"{namespace}\"")));
    excluding.map(|(name, _)| name.to_owned()).collect()
}

async fn everything(bed: &Testbed, release: Release) {
    let [disable, enable, policies, webhook, stop] = commands("### Everything").try_into().unwrap();
    let by_hand = release.pick(policies, webhook);
    let run = held_for_good(bed, "default", "everything").await;
    follow(bed, &disable, &run).await;
    until_new_runs_are(bed, "default", State::Running).await;
    follow(bed, &enable, &run).await;
    until_new_runs_are(bed, "default", State::Pending).await;
    follow(bed, &by_hand, &run).await;
    until_new_runs_are(bed, "default", State::Running).await;
    // On real nodes, the deletion of the Deployment ends its pods.
    stop_controllers(bed);
    follow(bed, &stop, &run).await;
    until_released(bed, &run).await;
    until_no_placeholder(bed, "default").await;
    let new = RunSpec::diamond("default", "off").opted_in("true");
    create(bed, &new).await;
    let done = bed.until_succeeded(&new, SOON).await.unwrap();
    assert!(!done.labels().contains_key(keys::GROUP));
}

async fn on_again(bed: &Testbed, release: Release) {
    apply(bed, release);
    start_controllers(bed).await;
    until_new_runs_are(bed, "default", State::Pending).await;
    let again = RunSpec::diamond("default", "on").opted_in("true");
    assert_eq!(nodes_after(bed, &again).await.len(), 1);
    let of_controller = [
        "get",
        "deployment/pod-affinity-controller",
        "--namespace",
        NAMESPACE,
    ];
    let replicas = kubectl(
        bed,
        &[&of_controller[..], &["--output=jsonpath={.spec.replicas}"]].concat(),
    );
    assert_eq!(replicas, "2");
}

/// All objects of the cluster with pod-affinity's name, except runs, their events, and objects that Kubernetes keeps by
/// itself.
fn left(bed: &Testbed) -> Vec<String> {
    let kinds = kubectl(bed, &["api-resources", "--verbs=list", "--output=name"]);
    let kinds: Vec<_> = kinds
        .lines()
        .filter(|kind| !kind.starts_with("events") && !kind.ends_with("tekton.dev"))
        .collect();
    let all = kubectl(
        bed,
        &["get", &kinds.join(","), "--all-namespaces", "--output=name"],
    );
    all.lines()
        .filter(|name| name.contains("pod-affinity"))
        .map(String::from)
        .collect()
}

pub(crate) async fn until_nothing_is_left(bed: &Testbed) {
    bed.until("no object of pod-affinity to be left", SOON, async || {
        let left = left(bed);
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await
    .unwrap();
}

#[e2e_test(first, webhook)]
async fn uninstalling_as_the_page_says_leaves_no_object_and_stops_no_run_while_runs_are_created() {
    uninstall(WEBHOOK, "### With the webhook").await;
}

#[e2e_test(first, policies, second)]
async fn uninstalling_policies_leaves_no_object_and_stops_no_run_while_runs_are_created() {
    uninstall(POLICIES, "### With admission policies").await;
}

async fn uninstall(release: Release, heading: &str) {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 6)).await.unwrap();
    install(&bed, release).await;
    assert!(!left(&bed).is_empty());
    let running = RunSpec::diamond("default", "running")
        .opted_in("true")
        .ending("hang");
    let reserves = RunSpec::diamond("default", "reserves").opted_in("isolateAlways");
    bound_placeholder(&bed, &create(&bed, &running).await).await;
    bound_task(&bed, &running, "fetch").await;
    assert_eq!(nodes_after(&bed, &reserves).await.len(), 1);
    bed.configure(&[("max-runs", Some("1"))]).await.unwrap();
    let over_cap = RunSpec::new("default", "over-cap")
        .task("only", &[])
        .opted_in("true");
    create(&bed, &over_cap).await;
    until_event(&bed, &over_cap, "OverCap").await;
    // The run keeps the annotation of its hold.
    let cancelled = RunSpec::new("default", "cancelled")
        .task("only", &[])
        .opted_in("true");
    create(&bed, &cancelled).await;
    set_status(&bed, &cancelled, "Cancelled").await;
    let [uninstall] = commands(heading).try_into().unwrap();
    let mut uninstall = shell(&bed, &uninstall, &running);
    let uninstalling = tokio::task::spawn_blocking(move || printed(&uninstall.output().unwrap()));
    let mut others = Vec::new();
    while !uninstalling.is_finished() {
        bed.check().unwrap();
        let other = RunSpec::new("default", &format!("other-{}", others.len()))
            .task("a", &[])
            .task("b", &["a"])
            .opted_in("true");
        create(&bed, &other).await;
        others.push(other);
        if others.len() == AT_LEAST {
            let_end(&bed, &running).await;
        }
        tokio::time::sleep(EVERY).await;
    }
    uninstalling.await.unwrap();
    assert!(others.len() >= AT_LEAST, "it did not wait for the run's end");
    bed.stop_pod_affinity();
    for other in &others {
        bed.until_succeeded(other, SOON).await.unwrap();
    }
    let cancelled = runs::runs(&bed.client().await.unwrap(), "default")
        .get(cancelled.name())
        .await
        .unwrap();
    assert!(cancelled.annotations().contains_key(keys::HOLD));
    for run in [&running, &over_cap] {
        let done = bed.until_succeeded(run, SOON).await.unwrap();
        assert!(
            done.labels().contains_key(keys::GROUP),
            "the run was in its group until its end"
        );
    }
    until_nothing_is_left(&bed).await;
}

#[e2e_test(webhook)]
async fn leftovers_of_a_wrong_uninstallation_are_released_and_removed_as_the_page_says() {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 3)).await.unwrap();
    install(&bed, WEBHOOK).await;
    let running = RunSpec::diamond("default", "running")
        .opted_in("true")
        .ending("hang");
    bound_placeholder(&bed, &create(&bed, &running).await).await;
    bound_task(&bed, &running, "fetch").await;
    let held = held_for_good(&bed, "default", "held").await;
    let users = RunSpec::new("default", "users")
        .task("only", &[])
        .opted_in("true")
        .spec("status", json!("PipelineRunPending"));
    create(&bed, &users).await;
    let client = bed.client().await.unwrap();
    let sets = sets(&client, "default");
    // A placeholder that is deleted now is recreated now, while the controller runs, or never.
    bed.until("both runs to have placeholders", SOON, async || {
        let listed = sets.list(&ListParams::default()).await;
        let sets = listed.map_err(|error| error.to_string())?.items;
        if sets.len() == 2 && sets.iter().all(|set| set.metadata.deletion_timestamp.is_none()) {
            Ok(())
        } else {
            let run = runs::runs(&client, "default").get(running.name()).await;
            Err(format!(
                "{sets:?}; {:?}",
                run.map(|run| run.data["status"].clone())
            ))
        }
    })
    .await
    .unwrap();
    let release = bed.folder().join(WEBHOOK.file);
    kubectl(&bed, &["delete", "-f", release.to_str().unwrap()]);
    bed.stop_pod_affinity();

    // Tekton is the only controller of runs that is left, and has handled a later run.
    let later = RunSpec::new("default", "later").task("only", &[]);
    create(&bed, &later).await;
    bed.until_succeeded(&later, SOON).await.unwrap();
    let runs = runs::runs(&client, "default");
    let still_held = runs.get(held.name()).await.unwrap();
    assert_eq!(
        runs::state(&still_held),
        State::Pending,
        "no component releases the run"
    );
    let left = sets.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(left.len(), 2, "no component removes a placeholder");

    let stop = commands("### Everything").pop().unwrap();
    follow(&bed, &stop, &held).await;
    until_released(&bed, &held).await;
    let users_run = runs.get(users.name()).await.unwrap();
    assert_eq!(runs::state(&users_run), State::Pending, "that hold is its user's");
    let_succeed(&bed, &running).await;
    until_nothing_is_left(&bed).await;
}

//! The writes of `release`, `disable` and `enable`.

use super::*;
use crate::admission::Policy;
use crate::args::{Caller, Verb, parse};
use crate::doctor::manifests;
use crate::doctor::read::admission_kind;
use crate::fake_api::{AsCluster, FakeApi, run_path};
use crate::fixture::{self, UID, merged, placeholder, released, run};
use crate::switch::is_off;
use runtime::install;
use serde_json::{Value, json};

const SET: &str = "/apis/apps/v1/namespaces/ci/statefulsets/s";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/tekton-pod-affinity/deployments/pod-affinity-controller";

fn webhook_path(name: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}")
}

fn policy_path(release: &Policy) -> String {
    let plural = admission_kind(&release.kind).plural;
    format!(
        "/apis/admissionregistration.k8s.io/v1/{plural}/{}",
        release.metadata.name
    )
}

/// A held run, a running run, a run that its user holds, and an installation with the webhook.
fn cluster() -> FakeApi {
    let api = without_admission();
    for configuration in manifests::webhooks() {
        let path = webhook_path(&configuration.name_any());
        api.put(&path, serde_json::to_value(configuration).unwrap());
    }
    api
}

/// The same cluster with policies instead of the webhook.
fn cluster_with_policies() -> FakeApi {
    let api = without_admission();
    install_policies(&api);
    api
}

fn install_policies(api: &FakeApi) {
    for release in manifests::policies(keys::NAMESPACE) {
        let object = json!({"metadata": {"name": release.metadata.name}, "spec": release.spec});
        api.put(&policy_path(&release), object);
    }
}

fn policies(api: &FakeApi) -> Vec<Value> {
    let releases = manifests::policies(keys::NAMESPACE).into_iter();
    let policies = releases.filter(|release| !release.is_binding());
    policies
        .map(|release| json!({"spec": api.get(&policy_path(&release)).unwrap()["spec"]}))
        .collect()
}

fn without_admission() -> FakeApi {
    let api = FakeApi::default();
    api.put("/api/v1/namespaces/ci", json!({"metadata": {"name": "ci"}}));
    let named = |name: &str| json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")}});
    let users = json!({"metadata": {"annotations": null}});
    for (name, changes) in [("held", json!({})), ("running", released()), ("users", users)] {
        let object = run(&merged(changes, &named(name)));
        api.put(&run_path(name), serde_json::to_value(object).unwrap());
    }
    let ours = json!({keys::APP: keys::APP_NAME, keys::COMPONENT: keys::PLACEHOLDER});
    let meta = json!({"namespace": "ci", "name": "s", "uid": "s1", "labels": ours});
    api.put(SET, json!({"metadata": meta}));
    let pod = serde_json::to_value(placeholder("held", UID, None, &json!({}))).unwrap();
    api.put("/api/v1/namespaces/ci/pods/p", pod);
    api.put(
        DEPLOYMENT,
        json!({"metadata": {"name": CONTROLLER}, "spec": {"replicas": 3, "selector": {}, "template": {}}}),
    );
    api
}

async fn done(api: &FakeApi, line: &str) -> RequestResult<ExitCode> {
    let words = std::iter::once("x").chain(line.split(' ')).map(Into::into);
    let cluster = api.cluster();
    match parse(Caller::of("x"), words).unwrap().command {
        Verb::Release(args) => release(&cluster, &args).await,
        Verb::Disable(args) => disable(&cluster, &args).await,
        Verb::Enable(args) => enable(&cluster, &args).await,
        _ => panic!("{line} does not write"),
    }
}

fn label(api: &FakeApi, run: &str) -> Value {
    api.get(&run_path(run)).unwrap()["metadata"]["labels"][keys::OPT_IN].clone()
}

fn status(api: &FakeApi, run: &str) -> Value {
    api.get(&run_path(run)).unwrap()["spec"]["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_held_run_is_released_and_opted_out() {
    let api = cluster();
    assert_eq!(done(&api, "release pr/held").await, Ok(ExitCode::SUCCESS));
    assert_eq!(
        (status(&api, "held"), label(&api, "held")),
        (Value::Null, json!("false"))
    );
    assert_eq!(api.writes(), ["PATCH held"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_pod_affinity_does_not_hold_is_not_released() {
    let api = cluster();
    for name in ["running", "users", "absent"] {
        let code = done(&api, &format!("release {name}")).await;
        assert_eq!(code, Ok(ExitCode::from(BAD)), "{name}");
    }
    assert!(api.writes().is_empty());
    api.stop_serving("pipelineruns");
    let without_tekton = done(&api, "release held").await;
    assert!(
        matches!(without_tekton, Err(RequestError::NotServed(_))),
        "{without_tekton:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_nothing() {
    let api = cluster();
    for line in [
        "release held --dry-run=client",
        "release held --dry-run=server",
        "disable -n ci --dry-run=server",
        "disable -A --stop-controller --dry-run=client",
        "enable -A --dry-run=server",
    ] {
        assert_eq!(done(&api, line).await, Ok(ExitCode::SUCCESS), "{line}");
    }
    assert!(api.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_switched_off_with_its_runs_and_on_again_without_them() {
    let api = cluster();
    let before = manifests::webhooks()
        .iter()
        .map(|it| api.get(&webhook_path(&it.name_any())).unwrap()["webhooks"].clone())
        .collect::<Vec<_>>();
    done(&api, "disable -n ci").await.unwrap();
    for name in ["held", "running", "users"] {
        assert_eq!(label(&api, name), "false", "{name}");
    }
    assert_eq!(status(&api, "held"), Value::Null);
    assert_eq!(status(&api, "users"), keys::PENDING, "that hold is its user's");
    let webhook = api.get(&webhook_path(install::POD_WEBHOOK)).unwrap();
    let left_out = &webhook["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"];
    assert_eq!(left_out, &json!(["kube-system", "tekton-pod-affinity", "ci"]));
    let written = api.writes().len();
    done(&api, "disable -n ci").await.unwrap();
    assert_eq!(api.writes().len(), written, "it is off already");
    done(&api, "enable -n ci").await.unwrap();
    let after = manifests::webhooks()
        .iter()
        .map(|it| api.get(&webhook_path(&it.name_any())).unwrap()["webhooks"].clone())
        .collect::<Vec<_>>();
    assert_eq!(after, before);
    assert_eq!(label(&api, "held"), "false");
}

#[tokio::test(start_paused = true)]
async fn everything_is_switched_off_and_leaves_runs_to_the_controller() {
    let api = cluster();
    done(&api, "disable -A").await.unwrap();
    assert!(is_off(&api.get(&webhook_path(install::POD_WEBHOOK)).unwrap()));
    assert_eq!(api.writes().len(), 2);
    let still_off = done(&api, "enable -n ci").await;
    assert_eq!(still_off, Ok(ExitCode::from(BAD)));
}

#[tokio::test(start_paused = true)]
async fn with_policies_a_namespace_is_switched_off_and_on_again() {
    let api = cluster_with_policies();
    let before = policies(&api);
    assert_eq!(done(&api, "disable -n ci").await, Ok(ExitCode::SUCCESS));
    assert_eq!(status(&api, "held"), Value::Null);
    for policy in policies(&api) {
        let left_out =
            &policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"][0]["values"];
        assert_eq!(left_out, &json!(["kube-system", "tekton-pod-affinity", "ci"]));
    }
    assert_eq!(done(&api, "enable -n ci").await, Ok(ExitCode::SUCCESS));
    assert_eq!(policies(&api), before);
}

#[tokio::test(start_paused = true)]
async fn with_policies_everything_is_switched_off_and_on_again() {
    let api = cluster_with_policies();
    let before = policies(&api);
    for line in ["disable -A --dry-run=server", "disable -A --dry-run=client"] {
        assert_eq!(done(&api, line).await, Ok(ExitCode::SUCCESS));
    }
    assert!(api.writes().is_empty());
    assert_eq!(done(&api, "disable -A").await, Ok(ExitCode::SUCCESS));
    assert!(policies(&api).iter().all(is_off));
    assert_eq!(api.writes().len(), 7, "each policy, and no binding");
    assert_eq!(done(&api, "enable -A").await, Ok(ExitCode::SUCCESS));
    assert_eq!(policies(&api), before);
}

#[tokio::test(start_paused = true)]
async fn webhook_and_policies_are_switched_off_where_both_are_there() {
    let api = cluster();
    install_policies(&api);
    done(&api, "disable -A").await.unwrap();
    assert_eq!(api.writes().len(), 2 + 7);
}

#[tokio::test(start_paused = true)]
async fn a_policy_or_a_binding_that_is_not_there_keeps_no_other_from_being_switched() {
    for is_binding in [false, true] {
        let api = cluster_with_policies();
        let mut releases = manifests::policies(keys::NAMESPACE).into_iter();
        let missing = releases.rfind(|it| it.is_binding() == is_binding).unwrap();
        api.delete(&policy_path(&missing));
        assert_eq!(done(&api, "disable -A").await, Ok(ExitCode::SUCCESS));
        assert_eq!(api.writes().len(), if is_binding { 7 } else { 6 });
        assert_eq!(
            done(&api, "enable -A").await,
            Ok(ExitCode::from(BAD)),
            "{is_binding}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_who_may_not_see_policies_can_switch_off_a_webhook_and_is_refused_where_there_is_none() {
    for (api, sees_webhook) in [(cluster(), true), (without_admission(), false)] {
        api.forbid("mutatingadmissionpolicies");
        let code = done(&api, "disable -A").await;
        assert_eq!(code.is_ok(), sees_webhook, "{code:?}");
        assert_eq!(api.writes().len(), if sees_webhook { 2 } else { 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_controller_held_runs_start_and_placeholders_go() {
    let api = cluster();
    let unlabelled = json!({"metadata": {"name": "unlabelled", "uid": "uid-of-unlabelled", "labels": null}});
    let unlabelled = serde_json::to_value(run(&unlabelled)).unwrap();
    api.put(&run_path("unlabelled"), unlabelled);
    done(&api, "disable -A --stop-controller").await.unwrap();
    assert_eq!(status(&api, "unlabelled"), Value::Null);
    assert_eq!(api.get(DEPLOYMENT).unwrap()["spec"]["replicas"], 0);
    assert_eq!(status(&api, "held"), Value::Null);
    assert_eq!(label(&api, "running"), "true", "it runs on with what it has");
    assert_eq!(status(&api, "users"), keys::PENDING);
    assert_eq!(api.get(SET), None);
    done(&api, "enable -A").await.unwrap();
    assert_eq!(api.get(DEPLOYMENT).unwrap()["spec"]["replicas"], REPLICAS);
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_does_not_stop_the_others_from_being_switched_off() {
    let api = FakeApi::default();
    let held = serde_json::to_value(run(&json!({"metadata": {"name": "held"}}))).unwrap();
    api.put(&run_path("held"), held);
    assert_eq!(
        done(&api, "disable -A --stop-controller").await,
        Ok(ExitCode::SUCCESS)
    );
    assert_eq!(api.writes(), ["PATCH held"]);
    assert_eq!(done(&api, "enable -A").await, Ok(ExitCode::from(BAD)));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_deleted_does_not_stop_the_others() {
    let api = cluster();
    api.forbid("statefulsets");
    assert_eq!(
        done(&api, "disable -A --stop-controller").await,
        Ok(ExitCode::from(UNASKED))
    );
    assert_eq!(api.get("/api/v1/namespaces/ci/pods/p"), None);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_does_not_exist_is_not_switched() {
    let api = cluster();
    api.delete("/api/v1/namespaces/ci");
    for line in ["disable -n ci", "enable -n ci"] {
        assert_eq!(done(&api, line).await, Ok(ExitCode::from(BAD)), "{line}");
    }
    assert!(api.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_held_before_the_switch_takes_effect_is_released() {
    let api = cluster();
    let later = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let metadata = json!({"metadata": {"name": "later", "uid": "uid-of-later"}});
        api.put(&run_path("later"), serde_json::to_value(run(&metadata)).unwrap());
    };
    let (code, ()) = tokio::join!(done(&api, "disable -n ci"), later);
    assert_eq!(code, Ok(ExitCode::SUCCESS));
    assert_eq!(status(&api, "later"), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn without_the_definitions_of_tekton_placeholders_still_go() {
    let api = cluster();
    api.stop_serving("pipelineruns");
    assert_eq!(
        done(&api, "disable -A --stop-controller").await,
        Ok(ExitCode::SUCCESS)
    );
    assert_eq!(api.get(SET), None);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_does_not_end_keeps_no_run_waiting() {
    for (phase, waits) in [("Running", true), ("Failed", false)] {
        let api = cluster();
        let labels = json!({keys::APP: keys::APP_NAME, keys::COMPONENT: "controller"});
        let metadata = json!({"namespace": keys::NAMESPACE, "name": "c", "labels": labels});
        let pod = json!({"metadata": metadata, "status": {"phase": phase}});
        api.put("/api/v1/namespaces/tekton-pod-affinity/pods/c", pod);
        let start = tokio::time::Instant::now();
        assert_eq!(
            done(&api, "disable -A --stop-controller").await,
            Ok(ExitCode::SUCCESS)
        );
        assert_eq!(start.elapsed() >= ENDING, waits, "{phase}");
        assert_eq!(status(&api, "held"), Value::Null);
    }
}

#[tokio::test(start_paused = true)]
async fn held_runs_come_first_and_a_run_that_is_done_changes_only_if_it_keeps_its_node() {
    let api = cluster();
    for (name, strategy) in [
        ("done", "colocateCompleted"),
        ("reserved", "isolateAlways"),
        ("a-running", ""),
    ] {
        let of = if strategy.is_empty() {
            released()
        } else {
            fixture::done()
        };
        let metadata =
            json!({"name": name, "uid": format!("uid-of-{name}"), "labels": {keys::STRATEGY: strategy}});
        let object = run(&merged(of, &json!({"metadata": metadata})));
        api.put(&run_path(name), serde_json::to_value(object).unwrap());
    }
    done(&api, "disable -n ci").await.unwrap();
    let writes = api.writes();
    let position = |name: &str| writes.iter().position(|write| *write == format!("PATCH {name}"));
    assert!(
        position("held").unwrap() < position("a-running").unwrap(),
        "{writes:?}"
    );
    assert_eq!(label(&api, "reserved"), "false");
    assert_eq!(position("done"), None);
}

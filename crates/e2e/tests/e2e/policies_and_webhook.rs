//! Webhook and policies on one API server: the policies of `overlays/policies` apply in one namespace, and the webhook in
//! another.

use crate::policies_corpus::with_reserve;
use crate::support::SOON;
use crate::support::kubectl::{rendered, workspace};
use futures::{StreamExt, stream};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Client, Error};
use placement::keys;
use runtime::install;
use serde_json::{Value, json};
use testbed::Testbed;
use testbed::apply::{api_of, apply_all};

/// The namespace of the policies, and the namespace of the webhook.
pub(crate) const POLICIES: &str = "by-policies";
pub(crate) const WEBHOOK: &str = "by-webhook";
/// Namespaces that a test labels, in the same order: for the policies, and for the webhook.
pub(crate) const LABELLED: [&str; 2] = ["labelled-by-policies", "labelled-by-webhook"];
const AT_ONCE: usize = 4;

/// The response to a document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// Accepted, without the fields that differ between two requests.
    Accepted(Value),
    /// Rejected by pod-affinity.
    Rejected(String),
    /// Rejected by another component, whose message differs between two requests.
    Invalid(u16),
}

/// A document, and the responses of policies and webhook.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) document: Value,
    pub(crate) policies: Answer,
    pub(crate) webhook: Answer,
}

/// Installs both, each for its own namespace only.
pub(crate) async fn install_both(bed: &Testbed) -> Client {
    let client = bed.client().await.unwrap();
    for namespace in [POLICIES, WEBHOOK].into_iter().chain(LABELLED) {
        bed.namespace(namespace).await.unwrap();
    }
    exclude_from_webhook(&client).await;
    for document in [with_reserve("cpu=1"), pod()] {
        bed.until("the webhook to leave a namespace out", SOON, async || match send(
            &client, POLICIES, &document,
        )
        .await
        {
            Answer::Accepted(object) if is_untouched(&object) => Ok(()),
            other => Err(other),
        })
        .await
        .unwrap();
    }
    apply_all(&client, &policies()).await.unwrap();
    for document in probes() {
        bed.until("the policies to decide", SOON, async || {
            let outcome = created(&client, document.clone()).await;
            if outcome.policies == outcome.webhook {
                Ok(())
            } else {
                Err(outcome)
            }
        })
        .await
        .unwrap();
    }
    client
}

/// Whether the object is neither a held run nor a pod with terms.
fn is_untouched(object: &Value) -> bool {
    let spec = &object["spec"];
    spec.get("status").is_none() && spec.get("affinity").is_none()
}

/// One document for each policy, except the policy of changes, which was created before the others.
fn probes() -> [Value; 4] {
    let mut stray = with_reserve("");
    stray["metadata"]["labels"] = json!({keys::GROUP: "stray"});
    [with_reserve("cpu=1"), with_reserve("nonsense"), stray, pod()]
}

/// A pod with the label of a group.
pub(crate) fn pod() -> Value {
    let metadata = json!({"name": "pod", "labels": {keys::GROUP: "u1", keys::ISOLATION: "cluster-all"}});
    let spec = json!({"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

async fn exclude_from_webhook(client: &Client) {
    for name in [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK] {
        let reference = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
        });
        let (api, _) = api_of(client, &reference).unwrap();
        let mut configuration = api.get(name).await.unwrap();
        for webhook in configuration.data["webhooks"].as_array_mut().unwrap() {
            exclude(&mut webhook["namespaceSelector"], [POLICIES, LABELLED[0]]);
        }
        api.replace(name, &PostParams::default(), &configuration)
            .await
            .unwrap();
    }
}

/// The policies of the overlay, for all namespaces except the webhook's.
pub(crate) fn policies() -> Vec<Value> {
    let mut objects = rendered(&workspace().join("overlays/policies"));
    objects.retain(|object| {
        object["kind"]
            .as_str()
            .is_some_and(|kind| kind.contains("AdmissionPolicy"))
    });
    for object in &mut objects {
        if let Some(constraints) = object.pointer_mut("/spec/matchConstraints") {
            exclude(&mut constraints["namespaceSelector"], [WEBHOOK, LABELLED[1]]);
        }
    }
    objects
}

fn exclude(selector: &mut Value, namespaces: [&str; 2]) {
    let left_out = selector.pointer_mut("/matchExpressions/0/values").unwrap();
    left_out
        .as_array_mut()
        .unwrap()
        .extend(namespaces.map(Value::from));
}

pub(crate) async fn each<T, F: Future<Output = Outcome>>(items: Vec<T>, of: impl Fn(T) -> F) -> Vec<Outcome> {
    stream::iter(items.into_iter().map(of))
        .buffered(AT_ONCE)
        .collect()
        .await
}

pub(crate) async fn created(client: &Client, document: Value) -> Outcome {
    created_in(client, [POLICIES, WEBHOOK], document).await
}

pub(crate) async fn created_in(client: &Client, [policies, webhook]: [&str; 2], document: Value) -> Outcome {
    Outcome {
        policies: send(client, policies, &document).await,
        webhook: send(client, webhook, &document).await,
        document,
    }
}

pub(crate) async fn send(client: &Client, namespace: &str, document: &Value) -> Answer {
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let mut document = document.clone();
    if let Some(metadata) = document["metadata"].as_object_mut() {
        metadata.insert("namespace".into(), json!(namespace));
    }
    let request = resource(namespace, &document).create(&dry_run, document.to_string().into_bytes());
    answer(client, namespace, request.unwrap()).await
}

/// A request without a typed API, because typed APIs accept only valid objects.
fn resource(namespace: &str, document: &Value) -> Request {
    match document["kind"].as_str() {
        Some("Pod") => Request::new(format!("/api/v1/namespaces/{namespace}/pods")),
        _ => Request::new(format!(
            "/apis/{}/namespaces/{namespace}/pipelineruns",
            document["apiVersion"].as_str().unwrap()
        )),
    }
}

async fn answer(client: &Client, namespace: &str, request: axum::http::Request<Vec<u8>>) -> Answer {
    match client.request::<Value>(request).await {
        Ok(object) => Answer::Accepted(comparable(object)),
        Err(Error::Api(status)) => refusal(status.code, &status.message.replace(namespace, "NAMESPACE")),
        Err(error) => panic!("{error}"),
    }
}

fn refusal(code: u16, message: &str) -> Answer {
    let ours = ["admission webhook \"", "ValidatingAdmissionPolicy '"]
        .iter()
        .find_map(|words| {
            let (_, rest) = message.split_once(words)?;
            let (who, text) = rest.split_once("denied ")?;
            let (_, text) = text.split_once("request: ")?;
            who.contains("pod-affinity.tekton.dev").then(|| text.to_owned())
        });
    ours.map_or(Answer::Invalid(code), Answer::Rejected)
}

fn comparable(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for key in [
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
    ] {
        metadata.remove(key);
    }
    if metadata.contains_key("generateName") {
        metadata.remove("name");
    }
    let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
    if let Some(mark) = annotations.and_then(|annotations| annotations.get_mut(keys::HOLD)) {
        without_date(mark);
    }
    object
}

/// Removes the start time of a hold: the webhook records the time, and a policy cannot read it.
fn without_date(mark: &mut Value) {
    if mark
        .as_str()
        .is_some_and(|mark| mark.parse::<jiff::Timestamp>().is_ok())
    {
        *mark = json!("released");
    }
}

pub(crate) async fn create_held(client: &Client, namespace: &str, number: usize, more: &Value) {
    let mut run = with_reserve("");
    run["metadata"]["name"] = json!(name(number));
    run["metadata"]["namespace"] = json!(namespace);
    run["spec"]["status"] = json!(keys::PENDING);
    let (api, _) = api_of(client, &run).unwrap();
    let run = serde_json::from_value(run).unwrap();
    api.create(&PostParams::default(), &run).await.unwrap();
    api.patch(&name(number), &PatchParams::default(), &Patch::Merge(more))
        .await
        .unwrap();
}

fn name(number: usize) -> String {
    format!("run-{number}")
}

pub(crate) async fn patched(client: &Client, run: usize, document: Value) -> Outcome {
    let dry_run = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let send = async |namespace| {
        let request = resource(namespace, &with_reserve(""));
        let request = request
            .patch(&name(run), &dry_run, &Patch::Merge(&document))
            .unwrap();
        match answer(client, namespace, request).await {
            Answer::Accepted(run) => Answer::Accepted(without_tektons_changes(run)),
            refusal => refusal,
        }
    };
    let (policies, webhook) = (send(POLICIES).await, send(WEBHOOK).await);
    Outcome {
        document: json!({"run": run, "change": document}),
        policies,
        webhook,
    }
}

/// Removes the fields that Tekton writes meanwhile.
fn without_tektons_changes(mut run: Value) -> Value {
    let metadata = run["metadata"].take();
    json!({"spec": run["spec"], "annotations": metadata["annotations"], "owners": metadata["ownerReferences"]})
}

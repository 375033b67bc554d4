//! The webhook and admission policies on one testbed: the policies decide in the namespaces with a label, and the webhook in all
//! others. By the label's value, pods get their terms from the overlay's policy or from one of another patch type.

use crate::machine::workspace;
use crate::webhook::reviews;
use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use placement::keys;
use serde_json::{Value, json};
use std::time::Duration;
use testbed::Testbed;
use testbed::apply::{apply_all, documents};
use testbed::pace::AS_SHIPPED;

/// Label of the namespaces in which policies decide.
const BY_POLICIES: &str = "bench/by-policies";
/// The policy that gives pods their terms.
const TERMS: &str = "terms.pod.pod-affinity.tekton.dev";
const APPLIED: &str = include_str!("applied.cel");
/// The longest that the API server takes to use what was changed.
const IN_USE: Duration = Duration::from_secs(30);

/// What decides about the objects of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Webhook,
    /// The policies of the overlay.
    Policies,
    /// The same, but the API server merges the terms of pods as it does for server-side apply.
    AppliedTerms,
}

impl Way {
    /// Value of the namespace's label.
    fn label(self) -> Option<&'static str> {
        match self {
            Self::Webhook => None,
            Self::Policies => Some("patched-terms"),
            Self::AppliedTerms => Some("applied-terms"),
        }
    }
}

/// Installs both, and returns when each decides where it should.
pub(crate) async fn install(bed: &Testbed) -> Result<()> {
    bed.install_pod_affinity_with(&[AS_SHIPPED]).await?;
    let client = bed.client().await?;
    let mut namespaces = Vec::new();
    for (name, way) in [
        ("policies-only", Way::Policies),
        ("applied-only", Way::AppliedTerms),
    ] {
        namespaces.push(namespace(bed, name, way).await?);
    }
    leave_to_policies(&client).await?;
    for namespace in &namespaces {
        until_terms_are(bed, namespace, false).await?;
    }
    apply_all(&client, &policies()?).await?;
    for namespace in &namespaces {
        until_terms_are(bed, namespace, true).await?;
    }
    Ok(())
}

/// Creates a namespace in which this way decides.
pub(crate) async fn namespace(bed: &Testbed, name: &str, way: Way) -> Result<String> {
    let name = bed.namespace(name).await?;
    if let Some(value) = way.label() {
        let labelled = Patch::Merge(json!({"metadata": {"labels": {BY_POLICIES: value}}}));
        let namespaces: Api<Namespace> = Api::all(bed.client().await?);
        let patched = namespaces.patch(&name, &PatchParams::default(), &labelled).await;
        patched.context("labelling a namespace")?;
    }
    Ok(name)
}

async fn leave_to_policies(client: &Client) -> Result<()> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    for name in [keys::PIPELINE_RUN_WEBHOOK, keys::POD_WEBHOOK] {
        let found = configurations.get(name).await?;
        let webhooks = 0..found.webhooks.iter().flatten().count();
        let leave_out = webhooks.map(|index| {
            let path = format!("/webhooks/{index}/namespaceSelector/matchExpressions/-");
            json!({"op": "add", "path": path, "value": {"key": BY_POLICIES, "operator": "DoesNotExist"}})
        });
        let patch = Patch::Json::<()>(serde_json::from_value(leave_out.collect())?);
        let patched = configurations.patch(name, &PatchParams::default(), &patch).await;
        patched.context("changing a webhook configuration")?;
    }
    Ok(())
}

/// Those of the overlay and the one of another patch type, each for the namespaces with its value of the label.
fn policies() -> Result<Vec<Value>> {
    let mut objects = documents(&workspace().join("overlays/policies/admission"))?;
    let of_terms = objects
        .iter()
        .filter(|object| object["metadata"]["name"] == TERMS);
    let applied: Vec<_> = of_terms.cloned().map(with_applied_terms).collect();
    for object in &mut objects {
        let values = if object["metadata"]["name"] == TERMS {
            vec![Way::Policies.label()]
        } else {
            vec![Way::Policies.label(), Way::AppliedTerms.label()]
        };
        limit(object, &json!(values));
    }
    let limited = applied.into_iter().map(|mut object| {
        limit(&mut object, &json!([Way::AppliedTerms.label()]));
        object
    });
    objects.extend(limited);
    Ok(objects)
}

/// The policy or its binding under another name, with the other patch type.
fn with_applied_terms(mut object: Value) -> Value {
    let name = format!("applied-{TERMS}");
    object["metadata"]["name"] = json!(name);
    let spec = &mut object["spec"];
    if spec["policyName"].is_string() {
        spec["policyName"] = json!(name);
    } else {
        spec["mutations"] =
            json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": APPLIED}}]);
    }
    object
}

/// A binding has no constraints of its own.
fn limit(object: &mut Value, values: &Value) {
    let expressions = object.pointer_mut("/spec/matchConstraints/namespaceSelector/matchExpressions");
    if let Some(expressions) = expressions.and_then(Value::as_array_mut) {
        expressions.push(json!({"key": BY_POLICIES, "operator": "In", "values": values}));
    }
}

async fn until_terms_are(bed: &Testbed, namespace: &str, wanted: bool) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(bed.client().await?, namespace);
    let pod = serde_json::from_value(pod(0, true))?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let what = if wanted {
        "policies to add terms"
    } else {
        "the webhook to be left out"
    };
    let waited = bed.until(what, IN_USE, async || {
        let created = pods
            .create(&dry_run, &pod)
            .await
            .map_err(|error| error.to_string())?;
        if has_terms(&created) == wanted {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    });
    Ok(waited.await?)
}

pub(crate) fn has_terms(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.affinity.is_some())
}

/// A pod of an enrolled run, or one whose group label has another name of the same length.
pub(crate) fn pod(index: u32, is_ours: bool) -> Value {
    let mut pod = reviews::pod(10_000);
    pod["metadata"]["name"] = json!(format!("pod-{index}"));
    pod["metadata"]["namespace"] = Value::Null;
    if !is_ours && let Some(labels) = pod["metadata"]["labels"].as_object_mut() {
        let value = labels.remove(keys::GROUP);
        labels.insert(keys::GROUP.replace("group", "grape"), value.unwrap_or_default());
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_is_for_namespaces_with_its_value_of_the_label() {
        let objects = policies().unwrap();
        let policies = objects
            .iter()
            .filter(|object| object["spec"]["matchConstraints"].is_object());
        let limited = policies.filter_map(|policy| {
            let expressions = &policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"];
            let ours = |expression: &&Value| expression["key"] == BY_POLICIES;
            expressions.as_array()?.iter().find(ours)
        });
        let values = limited.map(|expression| expression["values"].as_array().map_or(0, Vec::len));
        let mut values: Vec<_> = values.collect();
        values.sort_unstable();
        assert_eq!((values.len(), &values[..3]), (objects.len() / 2, &[1, 1, 2][..]));
    }

    #[test]
    fn the_other_policy_of_terms_differs_in_its_patch_alone() {
        let objects = policies().unwrap();
        let find = |name: &str| {
            let is_it = |object: &&Value| {
                object["metadata"]["name"] == name && object["spec"]["mutations"].is_array()
            };
            objects.iter().find(is_it).unwrap()
        };
        let (patched, applied) = (find(TERMS), find(&format!("applied-{TERMS}")));
        assert_eq!(
            patched["spec"]["matchConditions"],
            applied["spec"]["matchConditions"]
        );
        assert_eq!(
            applied["spec"]["mutations"][0]["patchType"],
            json!("ApplyConfiguration")
        );
    }
}

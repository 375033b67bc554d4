//! The webhook and admission policies on one testbed: the policies decide in the namespaces with a label, and the webhook in all
//! others.

use crate::machine::workspace;
use crate::webhook::reviews;
use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use placement::keys;
use process::install;
use serde_json::{Value, json};
use std::time::Duration;
use testbed::apply::{apply_all, documents};
use testbed::pace::AS_SHIPPED;
use testbed::{Admission, Testbed};

const BY_POLICIES: &str = "bench/by-policies";
/// The longest that the API server takes to use what was changed.
const IN_USE: Duration = Duration::from_secs(30);

/// Installs both, and returns when each decides where it should.
pub(crate) async fn install(bed: &Testbed) -> Result<()> {
    bed.install_pod_affinity_with(&[AS_SHIPPED]).await?;
    let client = bed.client().await?;
    let namespace = namespace(bed, "policies-only", Admission::Policies).await?;
    leave_to_policies(&client).await?;
    until_terms_are(bed, &namespace, false).await?;
    apply_all(&client, &policies()?).await?;
    until_terms_are(bed, &namespace, true).await
}

/// Creates a namespace in which this way decides.
pub(crate) async fn namespace(bed: &Testbed, name: &str, way: Admission) -> Result<String> {
    let name = bed.namespace(name).await?;
    if way == Admission::Policies {
        let labelled = Patch::Merge(json!({"metadata": {"labels": {BY_POLICIES: ""}}}));
        let namespaces: Api<Namespace> = Api::all(bed.client().await?);
        let patched = namespaces.patch(&name, &PatchParams::default(), &labelled).await;
        patched.context("labelling a namespace")?;
    }
    Ok(name)
}

async fn leave_to_policies(client: &Client) -> Result<()> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    for name in [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK] {
        let found = configurations.get(name).await?;
        let webhooks = 0..found.webhooks.iter().flatten().count();
        let leave_out = webhooks.map(|index| {
            let path = format!("/webhooks/{index}/namespaceSelector/matchExpressions/-");
            json!({"op": "add", "path": path, "value": selector("DoesNotExist")})
        });
        let patch = Patch::Json::<()>(serde_json::from_value(leave_out.collect())?);
        let patched = configurations.patch(name, &PatchParams::default(), &patch).await;
        patched.context("changing a webhook configuration")?;
    }
    Ok(())
}

/// Those of the overlay, for namespaces with the label.
fn policies() -> Result<Vec<Value>> {
    let mut objects = documents(&workspace().join("config/components/policies/admission"))?;
    for object in &mut objects {
        let expressions = object.pointer_mut("/spec/matchConstraints/namespaceSelector/matchExpressions");
        if let Some(expressions) = expressions.and_then(Value::as_array_mut) {
            expressions.push(selector("Exists"));
        }
    }
    Ok(objects)
}

fn selector(operator: &str) -> Value {
    json!({"key": BY_POLICIES, "operator": operator})
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
    fn each_policy_of_the_overlay_is_for_namespaces_with_the_label() {
        let objects = policies().unwrap();
        let policies = objects
            .iter()
            .filter(|object| object["spec"]["matchConstraints"].is_object());
        let is_limited = |policy: &&Value| policy.to_string().contains(BY_POLICIES);
        assert_eq!(policies.filter(is_limited).count(), objects.len() / 2);
    }
}

//! The webhook and admission policies on one testbed. The policies act in namespaces with a label, and the webhook in all others.

use anyhow::{Context, Result};
use e2e::workspace;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use placement::keys;
use runtime::install;
use serde_json::{Value, json};
use std::time::Duration;
use testbed::apply::{apply_all, documents};
use testbed::pace::AS_SHIPPED;
use testbed::product::Installed;
use testbed::{Admission, Testbed};

// A bench is not a library: no crate can depend on it.
#[path = "../../admission/benches/reviews.rs"]
#[expect(dead_code, reason = "only the benches send reviews")]
mod reviews;

const BY_POLICIES: &str = "bench/by-policies";
/// The longest time until API servers use new configurations.
const ACTIVE: Duration = Duration::from_secs(30);

/// Installs both, and returns when each of them acts in its namespaces.
pub(crate) async fn install(bed: &Testbed) -> Result<Installed> {
    let installed = bed.install_pod_affinity_with(&[AS_SHIPPED]).await?;
    let client = bed.client().await?;
    let namespace = namespace(bed, "policies-only", Admission::Policies).await?;
    exclude_from_webhook(&client).await?;
    until_terms(bed, &namespace, false, "the webhook to ignore the namespace").await?;
    apply_all(&client, &policies()?).await?;
    until_terms(bed, &namespace, true, "policies to add terms").await?;
    Ok(installed)
}

/// Creates a namespace for this kind of admission.
pub(crate) async fn namespace(bed: &Testbed, name: &str, admission: Admission) -> Result<String> {
    let name = bed.namespace(name).await?;
    if admission == Admission::Policies {
        let label = Patch::Merge(json!({"metadata": {"labels": {BY_POLICIES: ""}}}));
        let namespaces: Api<Namespace> = Api::all(bed.client().await?);
        let patched = namespaces.patch(&name, &PatchParams::default(), &label).await;
        patched.context("labelling a namespace")?;
    }
    Ok(name)
}

async fn exclude_from_webhook(client: &Client) -> Result<()> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    for name in [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK] {
        let found = configurations.get(name).await?;
        let webhooks = 0..found.webhooks.iter().flatten().count();
        let exclude = webhooks.map(|index| {
            let path = format!("/webhooks/{index}/namespaceSelector/matchExpressions/-");
            json!({"op": "add", "path": path, "value": selector("DoesNotExist")})
        });
        let patch = Patch::Json::<()>(serde_json::from_value(exclude.collect())?);
        let patched = configurations.patch(name, &PatchParams::default(), &patch).await;
        patched.context("patching a webhook configuration")?;
    }
    Ok(())
}

/// The policies of the overlay, for namespaces with the label.
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

async fn until_terms(bed: &Testbed, namespace: &str, wanted: bool, what: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(bed.client().await?, namespace);
    let pod = pod(0, true)?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let active = bed.until(what, ACTIVE, async || match pods.create(&dry_run, &pod).await {
        Ok(created) if has_terms(&created) == wanted => Ok(()),
        Ok(_) => Err("not yet".to_owned()),
        Err(error) => Err(error.to_string()),
    });
    Ok(active.await?)
}

pub(crate) fn has_terms(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.affinity.is_some())
}

/// A pod of 10 KB. The group label makes it a pod of an enrolled run. The other pods have a label of the same length instead.
pub(crate) fn pod(index: u32, is_enrolled: bool) -> Result<Pod> {
    let mut pod = reviews::pod(10_000);
    pod["metadata"]["name"] = json!(format!("pod-{index}"));
    pod["metadata"]["namespace"] = Value::Null;
    if !is_enrolled && let Some(labels) = pod["metadata"]["labels"].as_object_mut() {
        let value = labels.remove(keys::GROUP);
        labels.insert(keys::GROUP.replace("group", "grape"), value.unwrap_or_default());
    }
    Ok(serde_json::from_value(pod)?)
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

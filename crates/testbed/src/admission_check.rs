//! The manifests of each variant of admission, and the wait until the variant takes effect.

use crate::admission::Admission;
use crate::apply;
use crate::error::{Error, Result};
use crate::program::workspace;
use crate::runs::RunSpec;
use crate::testbed::{READY, Testbed};
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

/// Label of the pods of an enrolled run.
const GROUP: &str = "pod-affinity.tekton.dev/group";

impl Admission {
    pub(crate) fn manifests(self) -> Result<Vec<Value>> {
        match self {
            Self::Webhook => apply::documents(&workspace().join("config")),
            Self::Policies => apply::rendered(&workspace().join("overlays/policies")),
        }
    }
}

impl Testbed {
    /// Waits until pod-affinity takes effect. The API server needs some time to read changed webhook configurations and policies.
    pub(crate) async fn admits(&self) -> Result<()> {
        let run = RunSpec::new("default", "testbed-held").task("only", &[]);
        let run = run.opted_in("true").manifest;
        self.until_created(&run, "pod-affinity to hold a labelled run", |run| {
            run.data.pointer("/spec/status") == Some(&json!("PipelineRunPending"))
        })
        .await?;
        self.until_created(&pod(), "pod-affinity to give a pod its terms", |pod| {
            pod.data.pointer("/spec/affinity").is_some()
        })
        .await
    }

    async fn until_created(
        &self,
        manifest: &Value,
        what: &str,
        wanted: impl Fn(&DynamicObject) -> bool,
    ) -> Result<()> {
        let bad = |problem: String| Error::Manifest {
            file: "(dry run)".into(),
            problem,
        };
        let (api, _) =
            apply::api_of(&self.client().await?, manifest).ok_or_else(|| bad(manifest.to_string()))?;
        let object = serde_json::from_value(manifest.clone()).map_err(|error| bad(error.to_string()))?;
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        self.until(format!("{what} (dry run)"), READY, async || {
            let created = api.create(&dry_run, &object).await;
            let created = created.map_err(|error| error.to_string())?;
            wanted(&created)
                .then_some(())
                .ok_or_else(|| created.data["spec"].to_string())
        })
        .await
    }
}

/// A pod as Tekton creates it for a task of an enrolled run.
fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "testbed-pod", "namespace": "default", "labels": {GROUP: "testbed"}},
        "spec": {"containers": [{"name": "step", "image": "testbed.invalid/step"}]},
    })
}

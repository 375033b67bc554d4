//! pod-affinity on the testbed: its own manifests, its own binary as host processes, each with the token of
//! its own ServiceAccount, so that the roles in config/ are really tried.

use crate::apply;
use crate::error::{Error, Result};
use crate::front::{Front, Replica};
use crate::part::{Launch, Part};
use crate::probe;
use crate::runs::{RunSpec, runs};
use crate::tekton::redirect;
use crate::testbed::{READY, Testbed, built};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Namespace of the installation.
pub const NAMESPACE: &str = "tekton-pod-affinity";
const CONFIG_MAP: &str = "config-pod-affinity";
/// No node pulls it; the name only has to be a valid one.
const IMAGE: &str = "testbed.invalid/pod-affinity";
/// Not applied: the testbed runs the processes itself.
const WORKLOADS: [&str; 2] = ["Deployment", "PodDisruptionBudget"];

/// Replicas of each process, as in config/.
const REPLICAS: u8 = 2;

/// An installation, by the ports of its processes.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Where the webhook's Service leads: before both replicas.
    pub webhook: u16,
    /// Ports of each webhook replica's probes and metrics.
    pub webhook_admin: Vec<u16>,
    /// Ports of each controller replica's probes and metrics.
    pub controller_admin: Vec<u16>,
}

impl Testbed {
    /// Builds and installs pod-affinity from this checkout, two replicas of each process, and returns once a
    /// labelled run is held.
    pub async fn install_pod_affinity(&self) -> Result<Installed> {
        let binary = built(binary).await?;
        let service = self.port()?;
        apply::apply_all(&self.client().await?, &manifests(service)?).await?;
        let (mut replicas, mut controllers) = (Vec::new(), Vec::new());
        for number in 0..REPLICAS {
            controllers.push(self.start_controller(&binary, number).await?);
            replicas.push(self.start_webhook(&binary, number).await?);
        }
        self.fronts().push(Front::start(service, replicas.clone())?);
        for (number, (replica, admin)) in (0..).zip(replicas.iter().zip(&controllers)) {
            self.ready(Part::Controller(number), *admin).await?;
            self.ready(Part::Webhook(number), replica.admin).await?;
        }
        self.holds_runs().await?;
        let webhook_admin = replicas.iter().map(|replica| replica.admin).collect();
        Ok(Installed {
            webhook: service,
            webhook_admin,
            controller_admin: controllers,
        })
    }

    async fn start_controller(&self, binary: &Path, number: u8) -> Result<u16> {
        let admin = self.port()?;
        let launch = self
            .process(binary, "controller")
            .await?
            .arg(format!("--admin-listen=127.0.0.1:{admin}"))
            .arg(format!("--placeholder-image={IMAGE}"));
        self.launch(Part::Controller(number), launch)?;
        Ok(admin)
    }

    async fn start_webhook(&self, binary: &Path, number: u8) -> Result<Replica> {
        let replica = Replica {
            port: self.port()?,
            admin: self.port()?,
        };
        let launch = self
            .process(binary, "webhook")
            .await?
            .arg(format!("--listen=127.0.0.1:{}", replica.port))
            .arg(format!("--admin-listen=127.0.0.1:{}", replica.admin));
        self.launch(Part::Webhook(number), launch)?;
        Ok(replica)
    }

    async fn process(&self, binary: &Path, process: &str) -> Result<Launch> {
        let kubeconfig = self
            .kubeconfig_of(NAMESPACE, &format!("pod-affinity-{process}"))
            .await?;
        Ok(Launch::of(binary)
            .arg(process)
            .env("KUBECONFIG", kubeconfig.display().to_string()))
    }

    async fn ready(&self, part: Part, admin: u16) -> Result<()> {
        self.until(format!("{part} to be ready"), READY, async || {
            probe::get(admin, "/readyz").await
        })
        .await
        .map(drop)
    }

    // The API server takes a changed webhook configuration into use some moments after it was written.
    async fn holds_runs(&self) -> Result<()> {
        let client = self.client().await?;
        let spec = RunSpec::new("default", "testbed-held")
            .task("only", &[])
            .opted_in("true");
        let run: DynamicObject = serde_json::from_value(spec.manifest).map_err(|error| Error::Manifest {
            file: "(held run)".into(),
            problem: error.to_string(),
        })?;
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let api = runs(&client, "default");
        self.until(
            "pod-affinity to hold a labelled run (dry run)",
            READY,
            async || {
                let created = api
                    .create(&dry_run, &run)
                    .await
                    .map_err(|error| error.to_string())?;
                let status = created.data.pointer("/spec/status").cloned();
                if status == Some(json!("PipelineRunPending")) {
                    Ok(())
                } else {
                    Err(format!("spec.status {status:?}"))
                }
            },
        )
        .await
    }

    /// Sets keys of pod-affinity's ConfigMap; `None` removes one.
    pub async fn configure(&self, data: &[(&str, Option<&str>)]) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client().await?, NAMESPACE);
        let data: serde_json::Map<_, _> = data
            .iter()
            .map(|(key, value)| ((*key).into(), json!(value)))
            .collect();
        let patch = Patch::Merge(json!({"data": data}));
        maps.patch(CONFIG_MAP, &PatchParams::default(), &patch)
            .await
            .map(drop)
            .map_err(Error::api("changing pod-affinity's configuration"))
    }
}

fn manifests(webhook_port: u16) -> Result<Vec<Value>> {
    let mut objects = apply::documents(&workspace().join("config"))?;
    objects.retain(|object| !WORKLOADS.iter().any(|kind| object["kind"] == *kind));
    for object in &mut objects {
        redirect(object, webhook_port);
    }
    Ok(objects)
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The binary under test: `POD_AFFINITY_BINARY`, or built here and now.
fn binary() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("POD_AFFINITY_BINARY") {
        return Ok(given.into());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--package=pod-affinity",
            "--message-format=json-render-diagnostics",
        ])
        .current_dir(workspace())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| Error::Spawn {
            part: "cargo".into(),
            program: "cargo".into(),
            source,
        })?;
    executable(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| Error::Build {
        part: "pod-affinity",
        remedy: "see what cargo says above",
        log: String::new(),
    })
}

/// The path that cargo names for the binary in its messages, one JSON object a line.
fn executable(messages: &str) -> Option<PathBuf> {
    let mut messages = messages
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_the_one_that_cargo_names() {
        let messages =
            "{\"reason\":\"compiler-artifact\",\"executable\":null}\n{\"executable\":\"/x/pod-affinity\"}\n";
        assert_eq!(executable(messages), Some(PathBuf::from("/x/pod-affinity")));
        assert_eq!(executable("error: no such package"), None);
    }
}

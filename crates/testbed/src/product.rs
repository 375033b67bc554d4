//! Installs pod-affinity on the testbed: its own manifests, and its binary as host processes. Each process has the token of its
//! own ServiceAccount, so that tests exercise the roles in config/.

use crate::apply;
use crate::deployment::{Deployments, to_apply};
use crate::error::{Error, Result};
use crate::front::{Front, Replica};
use crate::namespace::{ProductProcesses, Watch};
use crate::pace;
use crate::part::{Launch, Part};
use crate::probe;
use crate::program::PRODUCT;
use crate::tekton::redirect;
use crate::testbed::{READY, Testbed, built};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::PoisonError;

/// Namespace of the installation.
pub const NAMESPACE: &str = "tekton-pod-affinity";
const CONFIG_MAP: &str = "config-pod-affinity";
/// Replicas of each process, as in config/.
const REPLICAS: u8 = 2;

/// The ports of an installation's processes.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The port of the webhook's Service, in front of both replicas. If policies replace the webhook, no process listens there.
    pub webhook: u16,
    /// Ports for probes and metrics of the webhook replicas.
    pub webhook_admin: Vec<u16>,
    /// Ports for probes and metrics of the controller replicas.
    pub controller_admin: Vec<u16>,
    /// Serving ports of the webhook replicas, behind the Service.
    pub webhook_serving: Vec<u16>,
}

impl Installed {
    fn replica(&self, number: u8) -> Replica {
        let number = usize::from(number);
        Replica {
            port: self.webhook_serving[number],
            admin: self.webhook_admin[number],
        }
    }

    fn replicas(&self) -> Vec<Replica> {
        (0..REPLICAS).map(|number| self.replica(number)).collect()
    }

    fn controller(&self, number: u8) -> u16 {
        self.controller_admin[usize::from(number)]
    }

    fn redirected(&self, mut objects: Vec<Value>) -> Vec<Value> {
        for object in &mut objects {
            redirect(object, self.webhook);
        }
        objects
    }
}

/// The processes to start.
struct Processes {
    binary: PathBuf,
    said: Deployments,
    environment: Vec<(String, String)>,
}

impl Processes {
    async fn from_objects(bed: &Testbed, objects: &[Value], environment: &[(&str, &str)]) -> Result<Self> {
        Ok(Self {
            binary: match &bed.options.binary {
                Some(given) => given.clone(),
                None => built(|| PRODUCT.path()).await?,
            },
            said: Deployments::from_objects(objects),
            environment: pace::environment(environment),
        })
    }
}

impl Testbed {
    /// Builds and installs pod-affinity from this checkout, with two replicas of each process, and returns when a labelled run is
    /// held. `Options::admission` selects the webhook or policies.
    pub async fn install_pod_affinity(&self) -> Result<Installed> {
        self.install_pod_affinity_with(&[]).await
    }

    /// Like [`Testbed::install_pod_affinity`], with additional environment variables.
    pub async fn install_pod_affinity_with(&self, environment: &[(&str, &str)]) -> Result<Installed> {
        let client = self.client().await?;
        let objects = self.options.admission()?.manifests()?;
        let deployments = self.options.deployments;
        let apply = async |objects| {
            let objects = to_apply(objects, deployments, &self.kubelet_version);
            apply::apply_all(&client, &objects).await
        };
        let installed = self.install(objects, environment, apply).await?;
        if deployments {
            self.deployments_are_available(NAMESPACE).await?;
        }
        Ok(installed)
    }

    /// Installs other manifests, such as those of an overlay. `apply` gets manifests that lead to the processes of the testbed;
    /// their arguments and variables come from the Deployments.
    pub async fn install(
        &self,
        objects: Vec<Value>,
        environment: &[(&str, &str)],
        apply: impl AsyncFnOnce(Vec<Value>) -> Result<()>,
    ) -> Result<Installed> {
        let processes = Processes::from_objects(self, &objects, environment).await?;
        self.stop_pod_affinity();
        let installed = self.reserve()?;
        apply(installed.redirected(objects)).await?;
        let watch = Watch::start(self.client_config().await?, NAMESPACE, self.processes())?;
        self.watch_namespace(Some(watch));
        for number in 0..REPLICAS {
            self.start_controller(&processes, number, &installed).await?;
        }
        self.start_webhooks(&processes, &installed).await?;
        for number in 0..REPLICAS {
            self.ready(Part::Controller(number), installed.controller(number))
                .await?;
        }
        self.admits().await?;
        Ok(installed)
    }

    /// Applies other manifests over an installation and replaces its processes one after the other; the next process is replaced
    /// when the previous process is ready. A Deployment starts the new pod before it stops the old pod; here the port is not free
    /// before. A new webhook is started. A webhook that is missing in the manifests continues to run, because applying deletes
    /// nothing.
    pub async fn roll_out(
        &self,
        installed: &Installed,
        objects: Vec<Value>,
        apply: impl AsyncFnOnce(Vec<Value>) -> Result<()>,
    ) -> Result<()> {
        let processes = Processes::from_objects(self, &objects, &[]).await?;
        apply(installed.redirected(objects)).await?;
        let has_webhook = self.pid(Part::Webhook(0)).is_some();
        for number in 0..REPLICAS {
            if has_webhook && processes.said.webhook.is_some() {
                self.stop(Part::Webhook(number))?;
                self.start_webhook(&processes, number, installed).await?;
                self.webhook_serves(installed, number).await?;
            }
            self.stop(Part::Controller(number))?;
            self.start_controller(&processes, number, installed).await?;
            self.ready(Part::Controller(number), installed.controller(number))
                .await?;
        }
        if !has_webhook {
            self.start_webhooks(&processes, installed).await?;
        }
        Ok(())
    }

    /// Ends the running processes of an installation. The deletion of their namespace does the same.
    pub fn stop_pod_affinity(&self) {
        self.watch_namespace(None);
        self.processes().end();
    }

    /// Replaces the watch of the namespace. Returns when the previous watch has ended its work.
    pub(crate) fn watch_namespace(&self, watch: Option<Watch>) {
        *self.namespace.lock().unwrap_or_else(PoisonError::into_inner) = watch;
    }

    fn processes(&self) -> ProductProcesses {
        let replicas = |part: fn(u8) -> Part| (0..REPLICAS).map(part);
        ProductProcesses {
            parts: self.parts.clone(),
            which: replicas(Part::Webhook)
                .chain(replicas(Part::Controller))
                .collect(),
        }
    }

    fn reserve(&self) -> Result<Installed> {
        let ports = || (0..REPLICAS).map(|_| self.port()).collect::<Result<Vec<_>>>();
        Ok(Installed {
            webhook: self.port()?,
            webhook_admin: ports()?,
            controller_admin: ports()?,
            webhook_serving: ports()?,
        })
    }

    async fn start_controller(&self, processes: &Processes, number: u8, installed: &Installed) -> Result<()> {
        let said = &processes.said;
        let launch = self
            .process(
                processes,
                self.controllers_port(),
                "pod-affinity-controller",
                &said.controller,
            )
            .await?
            .arg(format!(
                "--admin-listen=127.0.0.1:{}",
                installed.controller(number)
            ))
            .arg(format!("--placeholder-image={}", said.placeholder_image));
        let launch = said
            .variables
            .iter()
            .fold(launch, |launch, (name, value)| launch.env(name, value));
        self.launch(Part::Controller(number), launch)
    }

    /// Starts all replicas and waits until they are ready. If policies replace the webhook, there is none.
    async fn start_webhooks(&self, processes: &Processes, installed: &Installed) -> Result<()> {
        if processes.said.webhook.is_none() {
            return Ok(());
        }
        for number in 0..REPLICAS {
            self.start_webhook(processes, number, installed).await?;
        }
        self.open_front(installed)?;
        for number in 0..REPLICAS {
            self.webhook_serves(installed, number).await?;
        }
        Ok(())
    }

    /// Starts the front if it does not run yet: a Service outlives its replicas.
    fn open_front(&self, installed: &Installed) -> Result<()> {
        let mut fronts = self.fronts();
        if fronts.iter().all(|front| front.port() != installed.webhook) {
            fronts.push(Front::start(installed.webhook, installed.replicas())?);
        }
        Ok(())
    }

    async fn start_webhook(&self, processes: &Processes, number: u8, installed: &Installed) -> Result<()> {
        let replica = installed.replica(number);
        let launch = self
            .process(
                processes,
                self.plane.api_port,
                "pod-affinity-webhook",
                processes.said.webhook.as_deref().unwrap_or_default(),
            )
            .await?
            .arg(format!("--listen=127.0.0.1:{}", replica.port))
            .arg(format!("--admin-listen=127.0.0.1:{}", replica.admin));
        self.launch(Part::Webhook(number), launch)
    }

    async fn process(
        &self,
        processes: &Processes,
        api_port: u16,
        account: &str,
        args: &[String],
    ) -> Result<Launch> {
        let kubeconfig = self.kubeconfig_at(api_port, NAMESPACE, account).await?;
        let launch = Launch::new(&processes.binary).env("KUBECONFIG", kubeconfig.display().to_string());
        let launch = args.iter().fold(launch, Launch::arg);
        Ok(processes
            .environment
            .iter()
            .fold(launch, |launch, (name, value)| launch.env(name, value)))
    }

    /// Waits until a replica of the webhook is ready and the Service routes calls to the replica, as a Deployment does before the
    /// next replica ends.
    pub async fn webhook_serves(&self, installed: &Installed, number: u8) -> Result<()> {
        let (part, replica) = (Part::Webhook(number), installed.replica(number));
        self.ready(part, replica.admin).await?;
        self.until(
            format!("the Service to route calls to {part}"),
            READY,
            async || {
                let is_routed = self.fronts().iter().any(|front| front.routes_to(replica));
                is_routed.then_some(()).ok_or("the replica is not an endpoint")
            },
        )
        .await
    }

    async fn ready(&self, part: Part, admin: u16) -> Result<()> {
        self.until(format!("{part} to be ready"), READY, async || {
            probe::get(admin, "/readyz").await
        })
        .await
        .map(drop)
    }

    /// Sets keys of pod-affinity's ConfigMap; `None` removes a key.
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

//! A running control plane: access, faults and stop. The module `start` starts it.

use crate::error::{Error, Result};
use crate::faults::Faults;
use crate::front::Front;
use crate::guard::Guard;
use crate::kubeconfig::{CachedClient, client, config};
use crate::namespace;
use crate::options::Options;
use crate::part::{Launch, Part, Parts};
use crate::plane::ControlPlane;
use crate::ports::Ports;
use crate::versions::Versions;
use crate::{kubeconfig, wait};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Timeout for one part to become ready. A start of all built parts takes a few seconds.
pub(crate) const READY: Duration = Duration::from_secs(90);

/// CPU time of each part of a testbed.
pub type CpuTimes = BTreeMap<Part, Duration>;

/// A running control plane. All parts end when the value is dropped or its process ends.
#[derive(Debug)]
pub struct Testbed {
    pub(crate) folder: PathBuf,
    pub(crate) parts: Arc<Parts>,
    pub(crate) plane: ControlPlane,
    pub(crate) client: CachedClient,
    pub(crate) autoscaler_port: OnceLock<u16>,
    pub(crate) fronts: Mutex<Vec<Front>>,
    pub(crate) namespace: Mutex<Option<namespace::Watch>>,
    pub(crate) faults: OnceLock<Faults>,
    pub(crate) ports: Mutex<Ports>,
    pub(crate) guard: Guard,
    pub(crate) options: Options,
    pub(crate) versions: Versions,
    /// The version of the control plane, which its nodes report as kubelet version.
    pub(crate) kubelet_version: String,
    pub(crate) startup: Duration,
}

impl Testbed {
    /// How long the start took, without builds.
    pub fn startup(&self) -> Duration {
        self.startup
    }

    /// Versions of the control plane and Tekton.
    pub fn versions(&self) -> Versions {
        self.versions
    }

    /// The folder of state and logs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The log of a part.
    pub fn log_file(&self, part: Part) -> PathBuf {
        self.parts.log_file(part)
    }

    /// The administrator's kubeconfig, for kubectl.
    pub fn kubeconfig(&self) -> &Path {
        &self.plane.admin
    }

    /// The administrator's client for the current runtime.
    pub async fn client(&self) -> Result<Client> {
        self.client.here(&self.plane.admin).await
    }

    pub(crate) async fn client_config(&self) -> Result<Config> {
        config(&self.plane.admin).await
    }

    /// A client with the permissions and a real token of a ServiceAccount.
    pub async fn client_of(&self, namespace: &str, account: &str) -> Result<Client> {
        client(&self.kubeconfig_of(namespace, account).await?).await
    }

    /// A kubeconfig with a real token of a ServiceAccount.
    pub async fn kubeconfig_of(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        self.kubeconfig_at(self.plane.api_port, namespace, account).await
    }

    pub(crate) async fn kubeconfig_at(&self, port: u16, namespace: &str, account: &str) -> Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let spec = TokenRequestSpec {
            expiration_seconds: Some(24 * 3600),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest {
            spec,
            ..TokenRequest::default()
        };
        let what = format!("asking for a token of {namespace}/{account}");
        let answer = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await
            .map_err(Error::api(what))?;
        let token = answer.status.map(|status| status.token).unwrap_or_default();
        let path = self.folder.join(format!("{namespace}-{account}.kubeconfig"));
        kubeconfig::write(
            &path,
            port,
            &self.plane.ca,
            &kubeconfig::Credentials::Token(&token),
        )
    }

    /// Waits like [`wait::until`], and fails with the log of a part if the part ends.
    pub async fn until<T, S: std::fmt::Debug>(
        &self,
        what: impl Into<String>,
        deadline: Duration,
        look: impl AsyncFnMut() -> std::result::Result<T, S>,
    ) -> Result<T> {
        tokio::select! {
            found = wait::until(what, deadline, look) => found,
            death = self.first_unexpected_end() => Err(death),
        }
    }

    async fn first_unexpected_end(&self) -> Error {
        loop {
            if let Err(death) = self.parts.check() {
                return death;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Returns an error with the log of the first part that ends by itself.
    pub async fn until_a_part_dies(&self) -> Result<()> {
        Err(self.first_unexpected_end().await)
    }

    /// An error if a part has ended by itself.
    pub fn check(&self) -> Result<()> {
        self.parts.check()
    }

    /// Process id of a running part.
    pub fn pid(&self, part: Part) -> Option<u32> {
        self.parts.pid(part)
    }

    /// CPU time of each part since the start.
    pub fn cpu_times(&self) -> CpuTimes {
        self.parts.cpu_times()
    }

    /// Restarts the part whenever it ends by itself. Unlike the kubelet, the testbed restarts at once, and only during a call of
    /// [`Testbed::until`].
    pub fn keep_alive(&self, part: Part) {
        self.parts.kept_alive().insert(part, 0);
    }

    /// Number of restarts of a part that is kept alive.
    pub fn restarts(&self, part: Part) -> u32 {
        self.parts.kept_alive().get(&part).copied().unwrap_or_default()
    }

    /// The proxy between the API server and all controllers that are started from now on.
    pub fn faults(&self) -> Result<&Faults> {
        if self.faults.get().is_none() {
            let plane = &self.plane;
            let faults = Faults::start(self.port()?, plane.api_port, &plane.ca, &plane.server)?;
            // If another thread was faster, its proxy is used.
            let _ = self.faults.set(faults);
        }
        self.faults
            .get()
            .ok_or_else(|| Error::NotRunning("the fault proxy".into()))
    }

    /// Whether the testbed has changed since its start, apart from its processes.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.faults.get().is_some() || !self.parts.kept_alive().is_empty()
    }

    /// The port at which pod-affinity's controllers reach the API server.
    pub(crate) fn controllers_port(&self) -> u16 {
        self.faults.get().map_or(self.plane.api_port, Faults::port)
    }

    /// Drops the state of pod-affinity and its tests in this process.
    pub(crate) fn forget_pod_affinity(&mut self) {
        self.watch_namespace(None);
        self.fronts().clear();
        self.parts.kept_alive().clear();
        self.faults = OnceLock::new();
        self.autoscaler_port = OnceLock::new();
    }

    /// Kills a part, like a crash.
    pub fn kill(&self, part: Part) -> Result<()> {
        self.parts.stop(part, Signal::KILL)
    }

    /// Stops a part with SIGTERM and waits until the part has ended.
    pub fn stop(&self, part: Part) -> Result<()> {
        self.parts.stop(part, Signal::TERM)
    }

    /// Pauses a part: the part keeps its connections and does nothing.
    pub fn pause(&self, part: Part) -> Result<()> {
        self.parts.signal(part, Signal::STOP)
    }

    /// Resumes a paused part.
    pub fn resume(&self, part: Part) -> Result<()> {
        self.parts.signal(part, Signal::CONT)
    }

    /// Pauses all parts until [`Testbed::wake`]. pod-affinity's controllers are stopped instead, because they would wake up with an
    /// expired Lease.
    pub fn sleep(&self) -> Result<()> {
        for controller in self.controllers() {
            self.stop(controller)?;
        }
        let parts = self.parts.launches();
        parts.keys().rev().try_for_each(|part| self.pause(*part))
    }

    /// Resumes all parts and starts the controllers again.
    pub async fn wake(&self) -> Result<()> {
        let parts = self.parts.launches();
        parts.keys().try_for_each(|part| self.resume(*part))?;
        for controller in self.controllers() {
            self.start_again(controller).await?;
        }
        Ok(())
    }

    /// pod-affinity's controllers, running or stopped.
    fn controllers(&self) -> Vec<Part> {
        self.parts.known(|part| matches!(part, Part::Controller(_)))
    }

    /// Starts a killed or stopped part with the same settings, and waits until it responds.
    pub async fn start_again(&self, part: Part) -> Result<()> {
        self.start_again_with(part, &[]).await
    }

    /// Like [`Testbed::start_again`], with additional arguments for this start.
    pub async fn start_again_with(&self, part: Part, args: &[&str]) -> Result<()> {
        self.parts.again(part, args)?;
        self.answers(part).await
    }

    pub(crate) fn launch(&self, part: Part, launch: Launch) -> Result<()> {
        self.parts.start(part, launch)
    }

    /// The fronts of this testbed, which run in this process.
    pub(crate) fn fronts(&self) -> MutexGuard<'_, Vec<Front>> {
        self.fronts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A port of 127.0.0.1 that no other part of any testbed uses.
    pub fn port(&self) -> Result<u16> {
        self.ports().take()
    }

    pub(crate) fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.parts.last_log_lines());
        }
        self.parts.end(|_| true);
        self.guard.dismiss();
    }
}

/// Returns on Ctrl-C or SIGTERM, so that the caller can drop the testbed.
pub async fn interrupted() {
    let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// Runs a build on a thread that may block.
pub(crate) async fn built<T: Send + 'static>(
    build: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(build)
        .await
        .map_err(|_| Error::Build {
            part: "the control plane",
            remedy: "see the panic above",
            log: String::new(),
        })?
}

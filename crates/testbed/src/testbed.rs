//! One running control plane: use, disturb, stop. `start` starts it.

use crate::clients::{Kept, client, config};
use crate::error::{Error, Result};
use crate::faults::Faults;
use crate::front::Front;
use crate::guard::Guard;
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

/// Longest wait for one part to become ready; a warm start of everything takes a few seconds.
pub(crate) const READY: Duration = Duration::from_secs(90);

/// CPU time of each part of a testbed.
pub type CpuTimes = BTreeMap<Part, Duration>;

/// A running control plane. Everything ends when the value is dropped, or when its process ends.
#[derive(Debug)]
pub struct Testbed {
    pub(crate) folder: PathBuf,
    pub(crate) parts: Arc<Parts>,
    pub(crate) plane: ControlPlane,
    pub(crate) client: Kept,
    pub(crate) autoscaler_port: OnceLock<u16>,
    pub(crate) fronts: Mutex<Vec<Front>>,
    pub(crate) namespace: Mutex<Option<namespace::Watch>>,
    pub(crate) faults: OnceLock<Faults>,
    pub(crate) ports: Mutex<Ports>,
    pub(crate) guard: Guard,
    pub(crate) options: Options,
    pub(crate) versions: Versions,
    /// The control plane's own: what its nodes say of themselves.
    pub(crate) kubelet_version: String,
    pub(crate) startup: Duration,
}

impl Testbed {
    /// How long the start took, builds not counted.
    pub fn startup(&self) -> Duration {
        self.startup
    }

    /// What its control plane and its Tekton are.
    pub fn versions(&self) -> Versions {
        self.versions
    }

    /// Where state and logs are.
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

    /// The client with the administrator's rights, for the runtime that asks.
    pub async fn client(&self) -> Result<Client> {
        self.client.here(&self.plane.admin).await
    }

    pub(crate) async fn client_config(&self) -> Result<Config> {
        config(&self.plane.admin).await
    }

    /// A client with the rights of a ServiceAccount, by a real token.
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
            &self.plane.authority,
            &kubeconfig::Proof::Token(&token),
        )
    }

    /// Waits as [`wait::until`] does, and ends early with its log if a part died meanwhile.
    pub async fn until<T, S: std::fmt::Debug>(
        &self,
        what: impl Into<String>,
        deadline: Duration,
        look: impl AsyncFnMut() -> std::result::Result<T, S>,
    ) -> Result<T> {
        tokio::select! {
            found = wait::until(what, deadline, look) => found,
            death = self.first_death() => Err(death),
        }
    }

    async fn first_death(&self) -> Error {
        loop {
            if let Err(death) = self.parts.check() {
                return death;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Returns, with its log, once a part ends by itself.
    pub async fn until_a_part_dies(&self) -> Result<()> {
        Err(self.first_death().await)
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

    /// From now on the part is started again when it ends by itself, as a kubelet does it, but at once, and only
    /// while somebody waits by [`Testbed::until`].
    pub fn keep_alive(&self, part: Part) {
        self.parts.kept_alive().insert(part, 0);
    }

    /// How often a part was started again because it is kept alive.
    pub fn revivals(&self, part: Part) -> u32 {
        self.parts.kept_alive().get(&part).copied().unwrap_or_default()
    }

    /// The proxy that controllers which are started from now on go through on their way to the API server.
    pub fn faults(&self) -> Result<&Faults> {
        if self.faults.get().is_none() {
            let plane = &self.plane;
            let faults = Faults::start(self.port()?, plane.api_port, &plane.authority, &plane.server)?;
            // Whoever was faster has started one that is as good.
            let _ = self.faults.set(faults);
        }
        self.faults
            .get()
            .ok_or_else(|| Error::NotRunning("the fault proxy".into()))
    }

    /// Whether something besides its processes makes it another than it was started.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.faults.get().is_some() || !self.parts.kept_alive().is_empty()
    }

    /// Where our controllers find the API server.
    pub(crate) fn controllers_port(&self) -> u16 {
        self.faults.get().map_or(self.plane.api_port, Faults::port)
    }

    /// Ends what pod-affinity, or a test with it, has in this process.
    pub(crate) fn forget_pod_affinity(&mut self) {
        self.watch_namespace(None);
        self.fronts().clear();
        self.parts.kept_alive().clear();
        self.faults = OnceLock::new();
        self.autoscaler_port = OnceLock::new();
    }

    /// Ends a part as a crash would.
    pub fn kill(&self, part: Part) -> Result<()> {
        self.parts.stop(part, Signal::KILL)
    }

    /// Ends a part as an orderly stop would, and waits for its end.
    pub fn stop(&self, part: Part) -> Result<()> {
        self.parts.stop(part, Signal::TERM)
    }

    /// Stops a part's clock: it keeps its connections and does nothing.
    pub fn pause(&self, part: Part) -> Result<()> {
        self.parts.signal(part, Signal::STOP)
    }

    /// Lets a paused part go on.
    pub fn resume(&self, part: Part) -> Result<()> {
        self.parts.signal(part, Signal::CONT)
    }

    /// Stops the clock of all parts until [`Testbed::wake`]. Our controllers end: they would wake up to a lease that they
    /// have not renewed.
    pub fn sleep(&self) -> Result<()> {
        for controller in self.controllers() {
            self.stop(controller)?;
        }
        let parts = self.parts.launches();
        parts.keys().rev().try_for_each(|part| self.pause(*part))
    }

    /// Lets all go on that sleep.
    pub async fn wake(&self) -> Result<()> {
        let parts = self.parts.launches();
        parts.keys().try_for_each(|part| self.resume(*part))?;
        for controller in self.controllers() {
            self.start_again(controller).await?;
        }
        Ok(())
    }

    /// Our controllers, whether or not they run now.
    fn controllers(&self) -> Vec<Part> {
        self.parts.known(|part| matches!(part, Part::Controller(_)))
    }

    /// Starts a part that was killed or stopped, with the same settings, and waits until it answers.
    pub async fn start_again(&self, part: Part) -> Result<()> {
        self.start_again_with(part, &[]).await
    }

    /// The same, with more arguments for this time.
    pub async fn start_again_with(&self, part: Part, args: &[&str]) -> Result<()> {
        self.parts.again(part, args)?;
        self.answers(part).await
    }

    pub(crate) fn launch(&self, part: Part, launch: Launch) -> Result<()> {
        self.parts.start(part, launch)
    }

    /// What lives in this process on the testbed's behalf.
    pub(crate) fn fronts(&self) -> MutexGuard<'_, Vec<Front>> {
        self.fronts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A port of 127.0.0.1 that nothing else of any testbed takes.
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
            eprintln!("{}", self.parts.last_words());
        }
        self.parts.end(|_| true);
        self.guard.dismiss();
    }
}

/// Returns on Ctrl-C and on a request to end, so that what is running can be dropped in order.
pub async fn interrupted() {
    let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// Runs a build where it may block.
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

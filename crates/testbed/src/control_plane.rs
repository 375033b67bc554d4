//! etcd, API server, controller manager and scheduler, as their own binaries on loopback.

use crate::audit;
use crate::binaries::Built;
use crate::error::{Error, Result};
use crate::kubeconfig::{self, Proof};
use crate::part::{Launch, Part};
use crate::pki::{self, Authority, Identity, TokenKeys};
use crate::ports::Ports;
use crate::probe;
use crate::real_node;
use crate::testbed::{Limits, READY, Testbed};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::Api;
use std::path::{Path, PathBuf};

/// What the control plane needs before it starts.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    pub(crate) admin: PathBuf,
    pub(crate) authority: PathBuf,
    pub(crate) api_port: u16,
    pub(crate) etcd_port: u16,
    etcd_peer_port: u16,
    manager_port: u16,
    scheduler_port: u16,
    pub(crate) server: Identity,
    tokens: TokenKeys,
    manager: PathBuf,
    scheduler: PathBuf,
    /// For the real node's kubelet.
    pub(crate) node: PathBuf,
}

impl ControlPlane {
    pub(crate) fn prepare(folder: &Path, ports: &mut Ports) -> Result<Self> {
        let pki = folder.join("pki");
        let authority = Authority::create(&pki)?;
        let api_port = ports.take()?;
        let config = |file: &str, user: &str, group: Option<&str>| {
            let identity = authority.client(file, user, group)?;
            let path = folder.join(format!("{file}.kubeconfig"));
            kubeconfig::write(
                &path,
                api_port,
                &authority.certificate(),
                &Proof::Certificate(&identity),
            )
        };
        Ok(Self {
            admin: config("admin", "testbed-admin", Some("system:masters"))?,
            manager: config("controller-manager", "system:kube-controller-manager", None)?,
            scheduler: config("scheduler", "system:kube-scheduler", None)?,
            node: config(
                "node",
                &format!("system:node:{}", real_node::NAME),
                Some("system:nodes"),
            )?,
            authority: authority.certificate(),
            api_port,
            etcd_port: ports.take()?,
            etcd_peer_port: ports.take()?,
            manager_port: ports.take()?,
            scheduler_port: ports.take()?,
            server: authority.server("server")?,
            tokens: pki::token_keys(&pki)?,
        })
    }

    fn etcd(&self, built: &Built, folder: &Path) -> Launch {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = (url(self.etcd_port), url(self.etcd_peer_port));
        Launch::of(built.program("etcd"))
            .path("--data-dir", &folder.join("etcd"))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=default={peer}"))
            // The data outlives a crash of etcd, not one of the machine: enough for tests, and much faster.
            .arg("--unsafe-no-fsync")
            .arg(format!("--max-txn-ops={}", crate::store::MAX_CHANGES))
            .arg("--log-level=warn")
    }

    fn api_server(&self, built: &Built, folder: &Path) -> Launch {
        Launch::of(built.program("kube-apiserver"))
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={}", self.api_port))
            // An endpoint on loopback is not allowed, and nobody asks for it here.
            .arg("--endpoint-reconciler-type=none")
            .arg("--service-cluster-ip-range=10.96.0.0/16")
            .path("--cert-dir", &folder.join("apiserver"))
            .path("--tls-cert-file", &self.server.certificate)
            .path("--tls-private-key-file", &self.server.key)
            .path("--client-ca-file", &self.authority)
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .path("--service-account-signing-key-file", &self.tokens.private)
            .path("--service-account-key-file", &self.tokens.public)
            .arg("--authorization-mode=Node,RBAC")
            .arg("--allow-privileged=true")
    }

    fn manager(&self, built: &Built, folder: &Path) -> Launch {
        component(
            &built.program("kube-controller-manager"),
            &self.manager,
            self.manager_port,
            folder,
        )
        .path("--service-account-private-key-file", &self.tokens.private)
        .path("--root-ca-file", &self.authority)
        .arg("--use-service-account-credentials=true")
        // No cloud and no pod network here: the controllers for these would only complain.
        .arg("--controllers=*,-nodeipam,-cloud-node-lifecycle-controller")
        .arg(format!(
            "--node-monitor-grace-period={}",
            crate::kwok::GRACE_PERIOD
        ))
        .arg("--kube-api-qps=300")
        .arg("--kube-api-burst=600")
    }

    fn scheduler(&self, built: &Built, folder: &Path) -> Launch {
        component(
            &built.program("kube-scheduler"),
            &self.scheduler,
            self.scheduler_port,
            folder,
        )
        // It takes a moment to learn whom to believe; its figures are no secret here.
        .arg("--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics")
    }
}

fn component(program: &Path, config: &Path, port: u16, folder: &Path) -> Launch {
    Launch::of(program)
        .path("--kubeconfig", config)
        .path("--authentication-kubeconfig", config)
        .path("--authorization-kubeconfig", config)
        .path("--cert-dir", &folder.join("serving"))
        .arg("--bind-address=127.0.0.1")
        .arg(format!("--secure-port={port}"))
        // One of each: an election would only delay every restart by a lease.
        .arg("--leader-elect=false")
}

impl Testbed {
    pub(crate) async fn start_control_plane(&self, built: &Built) -> Result<()> {
        let (plane, folder) = (&self.plane, &self.folder);
        self.launch(Part::Etcd, plane.etcd(built, folder))?;
        let mut api_server = plane.api_server(built, folder);
        if !self.options.taint_new_nodes {
            api_server = api_server.arg("--disable-admission-plugins=TaintNodesByCondition");
        }
        if self.options.audit {
            api_server = audit::switched_on(api_server, folder)?;
        }
        self.launch(Part::ApiServer, api_server)?;
        self.answers(Part::ApiServer).await?;
        self.launch(Part::ControllerManager, plane.manager(built, folder))?;
        let mut scheduler = plane.scheduler(built, folder);
        if self.options.limits == Limits::Raised {
            scheduler = scheduler.arg("--kube-api-qps=5000").arg("--kube-api-burst=10000");
        }
        self.launch(Part::Scheduler, scheduler)?;
        self.answers(Part::Scheduler).await?;
        self.answers(Part::ControllerManager).await
    }

    /// Waits until a part does its work.
    pub(crate) async fn answers(&self, part: Part) -> Result<()> {
        match part {
            Part::Etcd => self.listens(part, self.plane.etcd_port).await,
            Part::ApiServer => self.api_server_answers().await,
            Part::ControllerManager => self.controllers_work().await,
            Part::Scheduler => self.listens(part, self.plane.scheduler_port).await,
            Part::TektonController | Part::TektonWebhook => crate::tekton::answers(self).await,
            Part::Kwok
            | Part::ClusterAutoscaler
            | Part::Karpenter
            | Part::Registry
            | Part::RealNode
            | Part::Webhook(_)
            | Part::Controller(_) => self.check(),
        }
    }

    pub(crate) async fn listens(&self, part: Part, port: u16) -> Result<()> {
        self.until(format!("{part} to listen on port {port}"), READY, async || {
            probe::connect(port).await
        })
        .await
    }

    async fn api_server_answers(&self) -> Result<()> {
        self.listens(Part::ApiServer, self.plane.api_port).await?;
        let client = self.client().await?;
        self.until("kube-apiserver to be ready", READY, async || {
            let request = http::Request::get("/readyz")
                .body(Vec::new())
                .map_err(|error| error.to_string())?;
            client
                .request_text(request)
                .await
                .map_err(|error| error.to_string())
        })
        .await
        .map(drop)
    }

    /// What the scheduler tells of itself, as Prometheus reads it.
    pub async fn scheduler_metrics(&self) -> Result<String> {
        let mut config = self.client_config().await?;
        let address = format!("https://127.0.0.1:{}", self.plane.scheduler_port);
        config.cluster_url = address.parse().map_err(|_| Error::NotRunning(address))?;
        // It serves with a certificate that it made for itself.
        config.accept_invalid_certs = true;
        let client = Client::try_from(config).map_err(Error::api("making a client"))?;
        let request = http::Request::get("/metrics").body(Vec::new());
        let request = request.map_err(|_| Error::NotRunning("/metrics".into()))?;
        client
            .request_text(request)
            .await
            .map_err(Error::api("reading the scheduler's metrics"))
    }

    // The default ServiceAccount is made by the controller manager, and no pod is admitted without it.
    async fn controllers_work(&self) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, "default");
        self.until(
            "kube-controller-manager to make the default ServiceAccount",
            READY,
            async || accounts.get("default").await.map_err(|error| error.to_string()),
        )
        .await
        .map(drop)
    }
}

/// For errors of file operations in sibling modules.
pub(crate) fn write(path: &Path, content: &str) -> Result<()> {
    std::fs::write(path, content).map_err(Error::io("writing", path))
}

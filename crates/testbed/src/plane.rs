//! The keys, ports and flags of the control plane's parts.

use crate::binaries::Built;
use crate::error::Result;
use crate::kubeconfig::{self, Credentials};
use crate::options::{Limits, Options, Settings};
use crate::part::Launch;
use crate::pki::{self, Ca, Identity, TokenKeys};
use crate::ports::Ports;
use crate::versions::Kubernetes;
use std::path::{Path, PathBuf};

/// Name of the real node, which is part of its kubeconfig.
pub(crate) const REAL_NODE: &str = "real";
/// How long the control plane waits for the heartbeat of a node: longer than any testbed runs or sleeps. Nodes fail only when a
/// test makes them fail, also if KWOK gets no CPU time.
const GRACE_PERIOD: &str = "24h";

/// Files and ports that exist before the control plane starts.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    pub(crate) admin: PathBuf,
    pub(crate) ca: PathBuf,
    pub(crate) api_port: u16,
    pub(crate) etcd_port: u16,
    etcd_http_port: u16,
    etcd_peer_port: u16,
    /// The CA of etcd and its clients only.
    etcd_ca: PathBuf,
    etcd_identity: Identity,
    /// Kubeconfig for direct access to etcd.
    pub(crate) store: PathBuf,
    manager_port: u16,
    pub(crate) scheduler_port: u16,
    pub(crate) server: Identity,
    tokens: TokenKeys,
    manager: PathBuf,
    pub(crate) scheduler: PathBuf,
    /// Kubeconfig of the real node's kubelet.
    pub(crate) node: PathBuf,
}

impl ControlPlane {
    pub(crate) fn prepare(folder: &Path, ports: &mut Ports) -> Result<Self> {
        let pki = folder.join("pki");
        let ca = Ca::create(&pki)?;
        let etcd_ca = Ca::create(&pki.join("etcd"))?;
        let etcd_identity = etcd_ca.etcd()?;
        let api_port = ports.take()?;
        let etcd_port = ports.take()?;
        let etcd_http_port = ports.take()?;
        let config = |file: &str, user: &str, group: Option<&str>| {
            let identity = ca.client(file, user, group)?;
            let path = folder.join(format!("{file}.kubeconfig"));
            kubeconfig::write(
                &path,
                api_port,
                &ca.certificate(),
                &Credentials::Certificate(&identity),
            )
        };
        Ok(Self {
            admin: config("admin", "testbed-admin", Some("system:masters"))?,
            manager: config("controller-manager", "system:kube-controller-manager", None)?,
            scheduler: config("scheduler", "system:kube-scheduler", None)?,
            node: config("node", &format!("system:node:{REAL_NODE}"), Some("system:nodes"))?,
            ca: ca.certificate(),
            api_port,
            store: kubeconfig::write(
                &folder.join("etcd.kubeconfig"),
                etcd_http_port,
                &etcd_ca.certificate(),
                &Credentials::Certificate(&etcd_identity),
            )?,
            etcd_ca: etcd_ca.certificate(),
            etcd_identity,
            etcd_port,
            etcd_http_port,
            etcd_peer_port: ports.take()?,
            manager_port: ports.take()?,
            scheduler_port: ports.take()?,
            server: ca.server("server")?,
            tokens: pki::token_keys(&pki)?,
        })
    }

    pub(crate) fn etcd(&self, built: &Built, folder: &Path) -> Launch {
        let ports = [self.etcd_port, self.etcd_http_port, self.etcd_peer_port];
        let [client, http, peer] = ports.map(|port| format!("https://127.0.0.1:{port}"));
        let etcd = Launch::new(built.program("etcd")).path("--data-dir", &folder.join("etcd"));
        // A client that writes to etcd has all permissions in the cluster, and with a real node also those of root.
        let with_tls = |etcd: Launch, prefix: &str| {
            etcd.arg(format!("--{prefix}client-cert-auth"))
                .path(&format!("--{prefix}trusted-ca-file"), &self.etcd_ca)
                .path(&format!("--{prefix}cert-file"), &self.etcd_identity.certificate)
                .path(&format!("--{prefix}key-file"), &self.etcd_identity.key)
        };
        ["", "peer-"]
            .into_iter()
            .fold(etcd, with_tls)
            .arg(format!("--listen-client-urls={client}"))
            // The JSON gateway has its own port. On one port, Go's HTTP server would carry both, and etcd would need a third more
            // CPU time.
            .arg(format!("--listen-client-http-urls={http}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=default={peer}"))
            // The data survives a crash of etcd, but not of the machine, which is enough for tests and much faster.
            .arg("--unsafe-no-fsync")
            .arg("--log-level=warn")
    }

    pub(crate) fn api_server(&self, built: &Built, folder: &Path, settings: Settings) -> Launch {
        let launch = Launch::new(built.program("kube-apiserver"))
            .arg(format!("--etcd-servers=https://127.0.0.1:{}", self.etcd_port))
            .path("--etcd-cafile", &self.etcd_ca)
            .path("--etcd-certfile", &self.etcd_identity.certificate)
            .path("--etcd-keyfile", &self.etcd_identity.key)
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={}", self.api_port))
            // An endpoint on loopback is invalid, and no client needs the Service `kubernetes`.
            .arg("--endpoint-reconciler-type=none")
            .arg("--service-cluster-ip-range=10.96.0.0/16")
            .path("--cert-dir", &folder.join("apiserver"))
            .path("--tls-cert-file", &self.server.certificate)
            .path("--tls-private-key-file", &self.server.key)
            .path("--client-ca-file", &self.ca)
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .path("--service-account-signing-key-file", &self.tokens.private)
            .path("--service-account-key-file", &self.tokens.public)
            .arg("--authorization-mode=Node,RBAC")
            .arg("--allow-privileged=true")
            .arg(format!("--enable-admission-plugins={}", plugins(settings)))
            // More than a dozen API servers with five times the memory that they need would use up the memory of a test machine.
            .env("GOGC", "250");
        match settings {
            Settings::Shipped => launch,
            Settings::Reduced => launch.arg("--enable-priority-and-fairness=false"),
        }
    }

    pub(crate) fn manager(
        &self,
        built: &Built,
        folder: &Path,
        kubernetes: Kubernetes,
        options: &Options,
    ) -> Launch {
        let launch = component(
            &built.program("kube-controller-manager"),
            &self.manager,
            self.manager_port,
            folder,
        )
        .path("--service-account-private-key-file", &self.tokens.private)
        .path("--root-ca-file", &self.ca)
        .arg("--use-service-account-credentials=true")
        .arg(format!(
            "--controllers={}",
            controllers(kubernetes, options.settings)
        ))
        .arg(format!("--node-monitor-grace-period={GRACE_PERIOD}"));
        match options.limits {
            Limits::AsShipped => launch,
            Limits::TektonRaised | Limits::Raised => {
                launch.arg("--kube-api-qps=300").arg("--kube-api-burst=600")
            }
        }
    }

    pub(crate) fn scheduler(&self, built: &Built, folder: &Path) -> Launch {
        component(
            &built.program("kube-scheduler"),
            &self.scheduler,
            self.scheduler_port,
            folder,
        )
        // The scheduler needs some time until it can authorize requests. Its metrics are no secret in a testbed.
        .arg("--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics")
    }
}

/// The admission plugins that are off by default. As on clusters with GPU nodes, a pod that requests a device gets a toleration of the
/// device's taint. In addition, as on OpenShift, only a user who may delete an object may change its owners.
fn plugins(settings: Settings) -> &'static str {
    match settings {
        Settings::Shipped => "ExtendedResourceToleration",
        Settings::Reduced => "ExtendedResourceToleration,OwnerReferencesPermissionEnforcement",
    }
}

/// The controllers that act on objects of runs, of their namespaces and of installations. All versions have these names.
const REDUCED: [&str; 20] = [
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "disruption-controller",
    "endpointslice-controller",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
];

/// Without a cloud and a pod network, the controllers for them would only log errors. An unknown name is an error.
fn controllers(kubernetes: Kubernetes, settings: Settings) -> String {
    match (settings, kubernetes) {
        (Settings::Reduced, _) => REDUCED.join(","),
        (
            Settings::Shipped,
            Kubernetes::V1_33 | Kubernetes::V1_34 | Kubernetes::V1_35 | Kubernetes::V1_36,
        ) => "*,-nodeipam,-cloud-node-lifecycle-controller".to_owned(),
        (Settings::Shipped, Kubernetes::V1_37) => "*,-nodeipam".to_owned(),
    }
}

fn component(program: &Path, config: &Path, port: u16, folder: &Path) -> Launch {
    Launch::new(program)
        .path("--kubeconfig", config)
        .path("--authentication-kubeconfig", config)
        .path("--authorization-kubeconfig", config)
        .path("--cert-dir", &folder.join("serving"))
        .arg("--bind-address=127.0.0.1")
        .arg(format!("--secure-port={port}"))
        // The testbed has one instance of each. Leader election would delay every restart by the lease duration.
        .arg("--leader-elect=false")
}

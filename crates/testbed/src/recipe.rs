//! What is built from which Go module, and which of a module's own files are kept beside the binaries.

/// A Go module under hack/ and what the testbed takes from it.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// Folder under hack/.
    pub(crate) name: &'static str,
    /// The module whose version names the build.
    pub(crate) module: &'static str,
    /// Main packages, and the names of their binaries.
    pub(crate) programs: &'static [(&'static str, &'static str)],
    /// Build tags.
    pub(crate) tags: &'static str,
    /// The version is linked in as Kubernetes does it; without it Tekton refuses the server.
    pub(crate) link_kubernetes_version: bool,
    /// Folders of the module that are kept beside the binaries.
    pub(crate) assets: &'static [&'static str],
}

/// etcd.
pub(crate) static ETCD: Recipe = Recipe {
    name: "etcd",
    module: "go.etcd.io/etcd/server/v3",
    programs: &[("go.etcd.io/etcd/server/v3", "etcd")],
    tags: "",
    link_kubernetes_version: false,
    assets: &[],
};

/// API server, controller manager and scheduler.
pub(crate) static KUBERNETES: Recipe = Recipe {
    name: "kubernetes",
    module: "k8s.io/kubernetes",
    programs: &[
        ("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"),
        (
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kube-controller-manager",
        ),
        ("k8s.io/kubernetes/cmd/kube-scheduler", "kube-scheduler"),
    ],
    tags: "",
    link_kubernetes_version: true,
    assets: &[],
};

/// The controller that plays kubelet for nodes that do not exist.
pub(crate) static KWOK: Recipe = Recipe {
    name: "kwok",
    module: "sigs.k8s.io/kwok",
    programs: &[("sigs.k8s.io/kwok/cmd/kwok", "kwok")],
    tags: "",
    link_kubernetes_version: false,
    assets: &["kustomize/stage"],
};

/// Tekton Pipelines.
pub(crate) static TEKTON: Recipe = Recipe {
    name: "tekton",
    module: "github.com/tektoncd/pipeline",
    programs: &[
        ("github.com/tektoncd/pipeline/cmd/controller", "controller"),
        ("github.com/tektoncd/pipeline/cmd/webhook", "webhook"),
    ],
    tags: "",
    link_kubernetes_version: false,
    assets: &["config"],
};

/// The cluster autoscaler with its kwok provider only.
pub(crate) static CLUSTER_AUTOSCALER: Recipe = Recipe {
    name: "cluster-autoscaler",
    module: "k8s.io/autoscaler/cluster-autoscaler",
    programs: &[("k8s.io/autoscaler/cluster-autoscaler", "cluster-autoscaler")],
    tags: "kwok",
    link_kubernetes_version: false,
    assets: &[],
};

/// Karpenter with its kwok provider.
pub(crate) static KARPENTER: Recipe = Recipe {
    name: "karpenter",
    module: "sigs.k8s.io/karpenter",
    programs: &[("sigs.k8s.io/karpenter/kwok", "karpenter")],
    tags: "",
    link_kubernetes_version: false,
    assets: &["pkg/apis/crds", "kwok/apis/crds"],
};

/// An OCI registry.
pub(crate) static REGISTRY: Recipe = Recipe {
    name: "registry",
    module: "github.com/distribution/distribution/v3",
    programs: &[("github.com/distribution/distribution/v3/cmd/registry", "registry")],
    tags: "",
    link_kubernetes_version: false,
    assets: &[],
};

/// A client of OCI registries that owes nothing to ours.
pub(crate) static CRANE: Recipe = Recipe {
    name: "crane",
    module: "github.com/google/go-containerregistry",
    programs: &[("github.com/google/go-containerregistry/cmd/crane", "crane")],
    tags: "",
    link_kubernetes_version: false,
    assets: &[],
};

/// The definitions of cert-manager, without cert-manager.
pub(crate) static CERT_MANAGER: Recipe = Recipe {
    name: "cert-manager",
    module: "github.com/cert-manager/cert-manager",
    programs: &[],
    tags: "",
    link_kubernetes_version: false,
    assets: &["deploy/crds"],
};

/// The definitions of the Prometheus operator, without the operator.
pub(crate) static PROMETHEUS_OPERATOR: Recipe = Recipe {
    name: "prometheus-operator",
    module: "github.com/prometheus-operator/prometheus-operator",
    programs: &[],
    tags: "",
    link_kubernetes_version: false,
    assets: &["example/prometheus-operator-crd"],
};

/// What runs pods on the real node.
pub(crate) static KUBELET: Recipe = Recipe {
    programs: &[("k8s.io/kubernetes/cmd/kubelet", "kubelet")],
    ..KUBERNETES
};

/// What Tekton puts into each pod, for pods that really run.
pub(crate) static TEKTON_ENTRYPOINT: Recipe = Recipe {
    programs: &[("github.com/tektoncd/pipeline/cmd/entrypoint", "entrypoint")],
    assets: &[],
    ..TEKTON
};

/// All recipes but the last two, which only a real node needs.
pub(crate) static ALL: [&Recipe; 10] = [
    &ETCD,
    &KUBERNETES,
    &KWOK,
    &TEKTON,
    &CLUSTER_AUTOSCALER,
    &KARPENTER,
    &REGISTRY,
    &CRANE,
    &CERT_MANAGER,
    &PROMETHEUS_OPERATOR,
];

impl Recipe {
    /// Linker flags for a version such as `v1.36.3`.
    pub(crate) fn link_flags(&self, version: &str) -> String {
        if !self.link_kubernetes_version {
            return "-s -w".into();
        }
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or("1"), numbers.next().unwrap_or("0"));
        let key = "-X k8s.io/component-base/version.git";
        format!("-s -w {key}Version={version} {key}Major={major} {key}Minor={minor}")
    }
}

/// The version that a go.mod requires of a module.
pub(crate) fn required_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next() == Some(module))
            .then(|| words.next())
            .flatten()
            .filter(|word| word.starts_with('v'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_a_single_line_and_in_a_block() {
        assert_eq!(
            required_version("require a.b/c v1.2.3\n", "a.b/c"),
            Some("v1.2.3")
        );
        assert_eq!(
            required_version("require (\n\ta.b/c v1.2.3\n\td v2.0.0 // indirect\n)", "d"),
            Some("v2.0.0")
        );
    }

    #[test]
    fn a_replacement_is_no_requirement() {
        assert_eq!(
            required_version("replace (\n\ta.b/c => a.b/c v1.2.3\n)", "a.b/c"),
            None
        );
    }

    #[test]
    fn the_kubernetes_version_is_linked_in() {
        let flags = KUBERNETES.link_flags("v1.36.3");
        assert!(
            flags.contains("gitVersion=v1.36.3")
                && flags.contains("gitMajor=1")
                && flags.contains("gitMinor=36")
        );
        assert_eq!(ETCD.link_flags("v3.6.8"), "-s -w");
    }
}

//! The builds of each Go module, and the files of a module that are kept beside the binaries.

use std::collections::BTreeSet;

/// A Go module under hack/, with the programs and files that the testbed uses.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// Folder under hack/.
    pub(crate) name: &'static str,
    /// The module whose version names the build.
    pub(crate) module: &'static str,
    /// Main packages with the names of their binaries. A package with several names is linked once and reads the name with which it
    /// is called.
    pub(crate) programs: &'static [(&'static str, &'static str)],
    /// Build tags.
    pub(crate) tags: &'static str,
    /// Whether the version is linked in, as Kubernetes does; without the version Tekton refuses the API server.
    pub(crate) link_kubernetes_version: bool,
    /// Folders that are kept beside the binaries, each with its module.
    pub(crate) assets: &'static [(&'static str, &'static str)],
}

const ETCD: &str = "go.etcd.io/etcd/server/v3";
const KUBERNETES: &str = "k8s.io/kubernetes";
const KWOK: &str = "sigs.k8s.io/kwok";
const PIPELINE: &str = "github.com/tektoncd/pipeline";
/// Folder of Tekton's example PipelineRuns.
pub(crate) const TEKTONS_EXAMPLES: &str = "examples/v1/pipelineruns";
const AUTOSCALER: &str = "k8s.io/autoscaler/cluster-autoscaler";
const KARPENTER_MODULE: &str = "sigs.k8s.io/karpenter";
/// Folder of Kueue's manifests.
pub(crate) const KUEUE_MANIFESTS: &str = "config";
const KUEUE_MODULE: &str = "sigs.k8s.io/kueue";
const CERT_MANAGER_MODULE: &str = "github.com/cert-manager/cert-manager";
const PROMETHEUS_OPERATOR_MODULE: &str = "github.com/prometheus-operator/prometheus-operator";
/// A command of this project that contains all components of Kubernetes.
const COMPONENTS: &str = "pod-affinity.tekton.dev/hack/control-plane";

/// etcd, API server, controller manager, scheduler, and KWOK, which simulates kubelets. These share most packages: in one module,
/// each package has one version and is compiled once.
pub(crate) static CONTROL_PLANE: Recipe = Recipe {
    name: "control-plane",
    module: KUBERNETES,
    programs: &[
        (ETCD, "etcd"),
        (COMPONENTS, "kube-apiserver"),
        (COMPONENTS, "kube-controller-manager"),
        (COMPONENTS, "kube-scheduler"),
        ("sigs.k8s.io/kwok/cmd/kwok", "kwok"),
    ],
    tags: "",
    link_kubernetes_version: true,
    assets: &[(KWOK, "kustomize/stage")],
};

/// Other versions of Kubernetes, which use etcd and KWOK of [`CONTROL_PLANE`].
pub(crate) static KUBERNETES_1_33: Recipe = kubernetes("kubernetes-1.33");
pub(crate) static KUBERNETES_1_34: Recipe = kubernetes("kubernetes-1.34");
pub(crate) static KUBERNETES_1_35: Recipe = kubernetes("kubernetes-1.35");
pub(crate) static KUBERNETES_1_36: Recipe = kubernetes("kubernetes-1.36");

const fn kubernetes(name: &'static str) -> Recipe {
    Recipe {
        name,
        module: KUBERNETES,
        programs: &[
            (COMPONENTS, "kube-apiserver"),
            (COMPONENTS, "kube-controller-manager"),
            (COMPONENTS, "kube-scheduler"),
        ],
        tags: "",
        link_kubernetes_version: true,
        assets: &[],
    }
}

/// Tekton Pipelines.
pub(crate) static TEKTON: Recipe = tekton("tekton");
pub(crate) static TEKTON_1_12: Recipe = tekton("tekton-1.12");
pub(crate) static TEKTON_1_9: Recipe = tekton("tekton-1.9");

const fn tekton(name: &'static str) -> Recipe {
    Recipe {
        name,
        module: PIPELINE,
        programs: &[
            ("github.com/tektoncd/pipeline/cmd/controller", "controller"),
            ("github.com/tektoncd/pipeline/cmd/webhook", "webhook"),
        ],
        tags: "",
        link_kubernetes_version: false,
        assets: &[(PIPELINE, "config"), (PIPELINE, TEKTONS_EXAMPLES)],
    }
}

/// What most modules have in common: no build tags, no linked version and no kept files.
const PLAIN: Recipe = Recipe {
    name: "",
    module: "",
    programs: &[],
    tags: "",
    link_kubernetes_version: false,
    assets: &[],
};

/// The cluster autoscaler with only its kwok provider.
pub(crate) static CLUSTER_AUTOSCALER: Recipe = Recipe {
    name: "cluster-autoscaler",
    module: AUTOSCALER,
    programs: &[(AUTOSCALER, "cluster-autoscaler")],
    tags: "kwok",
    ..PLAIN
};

/// Karpenter with its kwok provider.
pub(crate) static KARPENTER: Recipe = Recipe {
    name: "karpenter",
    module: KARPENTER_MODULE,
    programs: &[("sigs.k8s.io/karpenter/kwok", "karpenter")],
    assets: &[
        (KARPENTER_MODULE, "pkg/apis/crds"),
        (KARPENTER_MODULE, "kwok/apis/crds"),
    ],
    ..PLAIN
};

/// Kueue.
pub(crate) static KUEUE: Recipe = Recipe {
    name: "kueue",
    module: KUEUE_MODULE,
    programs: &[("sigs.k8s.io/kueue/cmd/kueue", "kueue")],
    assets: &[(KUEUE_MODULE, KUEUE_MANIFESTS)],
    ..PLAIN
};

/// An OCI registry: a command of this project with one of the distribution project's storage drivers.
pub(crate) static REGISTRY: Recipe = Recipe {
    name: "registry",
    module: "github.com/distribution/distribution/v3",
    programs: &[("pod-affinity.tekton.dev/hack/registry", "registry")],
    ..PLAIN
};

/// A client of OCI registries, independent of the code of this project.
pub(crate) static CRANE: Recipe = Recipe {
    name: "crane",
    module: "github.com/google/go-containerregistry",
    programs: &[("github.com/google/go-containerregistry/cmd/crane", "crane")],
    ..PLAIN
};

/// Helm, which `cargo ship` also uses.
pub(crate) static HELM_3: Recipe = Recipe {
    name: "helm",
    module: "helm.sh/helm/v3",
    programs: &[("helm.sh/helm/v3/cmd/helm", "helm")],
    ..PLAIN
};
pub(crate) static HELM_4: Recipe = Recipe {
    name: "helm-4",
    module: "helm.sh/helm/v4",
    programs: &[("helm.sh/helm/v4/cmd/helm", "helm")],
    ..PLAIN
};

/// A command of this project that applies objects with the library of Flux's controllers.
pub(crate) static FLUX: Recipe = Recipe {
    name: "flux",
    module: "github.com/fluxcd/pkg/ssa",
    programs: &[("pod-affinity.tekton.dev/hack/flux", "flux")],
    ..PLAIN
};

/// Prometheus' tool that tests alert rules, without service discovery, which would add the clients of twenty clouds.
pub(crate) static PROMTOOL: Recipe = Recipe {
    name: "prometheus",
    module: "github.com/prometheus/prometheus",
    programs: &[("github.com/prometheus/prometheus/cmd/promtool", "promtool")],
    tags: "remove_all_sd",
    ..PLAIN
};

/// The Prometheus server, without the files of its web pages.
pub(crate) static PROMETHEUS: Recipe = Recipe {
    programs: &[("github.com/prometheus/prometheus/cmd/prometheus", "prometheus")],
    ..PROMTOOL
};

/// The custom resource definitions of cert-manager, without cert-manager.
pub(crate) static CERT_MANAGER: Recipe = Recipe {
    name: "cert-manager",
    module: CERT_MANAGER_MODULE,
    assets: &[(CERT_MANAGER_MODULE, "deploy/crds")],
    ..PLAIN
};

/// The custom resource definitions of the Prometheus operator, without the operator.
pub(crate) static PROMETHEUS_OPERATOR: Recipe = Recipe {
    name: "prometheus-operator",
    module: PROMETHEUS_OPERATOR_MODULE,
    assets: &[(PROMETHEUS_OPERATOR_MODULE, "example/prometheus-operator-crd")],
    ..PLAIN
};

/// The kubelet of the real node.
pub(crate) static KUBELET: Recipe = Recipe {
    programs: &[("k8s.io/kubernetes/cmd/kubelet", "kubelet")],
    assets: &[],
    ..CONTROL_PLANE
};

/// Tekton's entrypoint, which runs the steps of pods on the real node.
pub(crate) static TEKTON_ENTRYPOINT: Recipe = Recipe {
    programs: &[("github.com/tektoncd/pipeline/cmd/entrypoint", "entrypoint")],
    assets: &[],
    ..TEKTON
};

/// All recipes of the default versions, except those of Prometheus, Kueue, Helm and Flux, which only optional tests need, and the last two,
/// which only a real node needs.
pub(crate) static ALL: [&Recipe; 8] = [
    &CONTROL_PLANE,
    &TEKTON,
    &CLUSTER_AUTOSCALER,
    &KARPENTER,
    &REGISTRY,
    &CRANE,
    &CERT_MANAGER,
    &PROMETHEUS_OPERATOR,
];

/// The reported parts of a testbed: each part with its recipe and the module that has the version of the part.
pub(crate) fn parts(
    kubernetes: &'static Recipe,
    tekton: &'static Recipe,
) -> [(&'static str, &'static Recipe, &'static str); 5] {
    [
        ("etcd", &CONTROL_PLANE, ETCD),
        ("kubernetes", kubernetes, KUBERNETES),
        ("kwok", &CONTROL_PLANE, KWOK),
        ("tekton", tekton, PIPELINE),
        ("cluster-autoscaler", &CLUSTER_AUTOSCALER, AUTOSCALER),
    ]
}

impl Recipe {
    /// The main packages, without duplicates.
    pub(crate) fn packages(&self) -> BTreeSet<&'static str> {
        self.programs.iter().map(|(package, _)| *package).collect()
    }

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
    fn a_package_with_several_names_is_built_once() {
        assert!(CONTROL_PLANE.programs.len() > CONTROL_PLANE.packages().len());
        assert_eq!(TEKTON.programs.len(), TEKTON.packages().len());
    }

    #[test]
    fn the_kubernetes_version_is_linked_in() {
        let flags = CONTROL_PLANE.link_flags("v1.36.3");
        assert!(
            flags.contains("gitVersion=v1.36.3")
                && flags.contains("gitMajor=1")
                && flags.contains("gitMinor=36")
        );
        assert_eq!(TEKTON.link_flags("v1.15.0"), "-s -w");
    }
}

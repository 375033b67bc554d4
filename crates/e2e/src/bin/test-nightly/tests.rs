//! The nightly tests.

/// A test, and the command that runs it.
pub(crate) struct Nightly {
    pub(crate) title: &'static str,
    pub(crate) command: &'static str,
}

const fn nightly(title: &'static str, command: &'static str) -> Nightly {
    Nightly { title, command }
}

pub(crate) const NIGHTLY: [Nightly; 24] = [
    nightly(
        "policies under load: a switch from the webhook and back, killed API servers",
        "cargo test --test e2e -- policies_switch policies_lose",
    ),
    nightly(
        "the second level of tests, with policies instead of the webhook",
        "POD_AFFINITY_ADMISSION=policies POD_AFFINITY_TESTS=second cargo test --test e2e",
    ),
    nightly(
        "upgrades of Kubernetes and Tekton under load",
        "cargo test --test e2e -- cluster_upgrades",
    ),
    nightly(
        "more runs while the leader is killed",
        "cargo test --test e2e -- two_hundred_runs",
    ),
    nightly(
        "when each alert fires",
        "cargo test --test e2e -- each_alert_fires",
    ),
    nightly(
        "the dashboard and the alerts on a real Prometheus",
        "cargo test --test e2e -- prometheus_answers",
    ),
    nightly(
        "the page of the timeline in a browser",
        "cargo test -p cli --test timeline_browser -- --ignored",
    ),
    nightly(
        "the size and the reproducible build of the release image",
        "cargo test --test e2e -- image_as_it_is_shipped",
    ),
    nightly(
        "a signed release for both platforms",
        "cargo test --test e2e -- a_signed_release",
    ),
    nightly(
        "the program for arm64 in an emulator, and nodes of both architectures",
        "cargo test --test e2e -- program_for_arm64",
    ),
    nightly(
        "the chart with Helm 3 and 4: adoption, upgrade, rollback, uninstallation",
        "cargo test --test e2e -- helm_lifecycle",
    ),
    nightly(
        "no difference for Argo CD and Flux after the controller wrote its fields",
        "cargo test --test e2e -- gitops",
    ),
    nightly(
        "the workflows for a forge",
        "cd hack/actionlint && CGO_ENABLED=0 go tool actionlint ../../.github/workflows/*.yml",
    ),
    nightly(
        "hundreds of large runs beside an ordinary run",
        "cargo test --test e2e -- hundreds_of_runs_of_the_worst",
    ),
    nightly(
        "images that a real node pulls ahead from a slow registry",
        "POD_AFFINITY_REQUIRE_REAL_NODE=1 cargo test --test e2e -- real_node::pulls",
    ),
    nightly(
        "nodes that Karpenter wants while runs use or get them",
        "cargo test --test e2e -- autoscalers_want_nodes",
    ),
    nightly(
        "a CapacityBuffer with Karpenter",
        "cargo test --test e2e -- capacity_buffer",
    ),
    nightly(
        "Kueue with a quota of nodes",
        "cargo test --test e2e -- kueue_holds",
    ),
    nightly(
        "the cost of a testbed's reduced settings",
        "cargo test --test e2e -- testbed_settings",
    ),
    nightly(
        "500 pairs of runs with and without the label, by a random seed",
        "POD_AFFINITY_PAIRS=500 cargo test --test e2e -- pairs::random",
    ),
    nightly(
        "a soak of 2,000 runs, by a random seed",
        "POD_AFFINITY_SOAK_RUNS=2000 cargo test --test e2e -- soak::random",
    ),
    nightly(
        "100,000 cases of each property, and the steps of a million scenes",
        "PROPTEST_CASES=100000 cargo test --release -p placement -- --include-ignored",
    ),
    nightly(
        "150 mutants by a random seed, of which 90 % must be caught",
        "cargo mutants-sample --least 90",
    ),
    nightly("all versions of Kubernetes and Tekton", "cargo compat"),
];

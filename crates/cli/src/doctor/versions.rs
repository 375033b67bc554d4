//! Are Kubernetes and Tekton of versions that pod-affinity was made for?

use super::{Finding, Platform};
use crate::ask::{Gap, Seen};
use k8s_openapi::api::core::v1::ConfigMap;
use placement::supported::{self, NEWEST_KUBERNETES, OLDEST_KUBERNETES, OLDEST_TEKTON, Support, numbers};

pub(super) fn findings(platform: &Platform) -> Vec<Finding> {
    vec![kubernetes(&platform.kubernetes), tekton(platform)]
}

fn kubernetes(version: &Seen<String>) -> Finding {
    const CHECK: &str = "kubernetes";
    let version = match version {
        Err(gap) => return Finding::unseen(CHECK, gap),
        Ok(version) => version,
    };
    match supported::kubernetes(version) {
        Support::Tested => Finding::ok(CHECK, format!("Kubernetes {version} is supported.")),
        Support::TooOld => Finding::bad(
            CHECK,
            format!(
                "Kubernetes {version} is older than 1.{OLDEST_KUBERNETES}, the oldest that is supported."
            ),
            format!("Upgrade the cluster to 1.{OLDEST_KUBERNETES} or newer."),
        ),
        Support::Untested => Finding::warning(
            CHECK,
            format!(
                "Kubernetes {version} is newer than 1.{NEWEST_KUBERNETES}, the newest that this release was tested with."
            ),
            "Use a newer release of pod-affinity, if there is one.",
        ),
        Support::Unknown => Finding::warning(
            CHECK,
            format!("The version {version:?} cannot be read."),
            format!("Make sure that it is 1.{OLDEST_KUBERNETES} or newer."),
        ),
    }
}

fn tekton(platform: &Platform) -> Finding {
    const CHECK: &str = "tekton";
    if let Err(Gap::NotServed(_)) = platform.serves_runs {
        return Finding::bad(
            CHECK,
            "This cluster does not know PipelineRuns of tekton.dev/v1: Tekton Pipelines is not installed.",
            format!("Install Tekton Pipelines v1.{OLDEST_TEKTON} or newer."),
        );
    }
    match platform
        .tekton
        .as_ref()
        .map(|info| info.as_ref().and_then(version))
    {
        Err(gap) => Finding::unseen(CHECK, gap),
        Ok(None) => Finding::warning(
            CHECK,
            format!(
                "No Tekton version found in namespace {}.",
                platform.tekton_namespace
            ),
            "Name the namespace of Tekton with --tekton-namespace.",
        ),
        Ok(Some(version)) => judged(version),
    }
}

fn version(info: &ConfigMap) -> Option<&str> {
    info.data.as_ref()?.get("version").map(String::as_str)
}

fn judged(version: &str) -> Finding {
    const CHECK: &str = "tekton";
    match numbers(version) {
        Some((0, _)) => Finding::bad(
            CHECK,
            format!("Tekton {version} is older than v1.{OLDEST_TEKTON}."),
            format!("Upgrade Tekton Pipelines to v1.{OLDEST_TEKTON} or newer."),
        ),
        Some((1, minor)) if minor < OLDEST_TEKTON => Finding::warning(
            CHECK,
            format!(
                "Tekton {version} is older than v1.{OLDEST_TEKTON}, the oldest that pod-affinity is made for."
            ),
            format!("Upgrade Tekton Pipelines to v1.{OLDEST_TEKTON} or newer."),
        ),
        Some((1, _)) => Finding::ok(CHECK, format!("Tekton {version} is supported.")),
        Some(_) => Finding::warning(
            CHECK,
            format!("Tekton {version} is newer than what this release was tried with (v1.x)."),
            "Use a newer release of pod-affinity.",
        ),
        None => Finding::ok(CHECK, format!("Tekton is a build of its developers ({version}).")),
    }
}

/// Whether it is certain that this is an older Kubernetes than 1.`minor`.
pub(super) fn is_older(version: &Seen<String>, minor: u32) -> bool {
    let version = version.as_deref().ok().and_then(numbers);
    version.is_some_and(|version| version < (1, minor))
}

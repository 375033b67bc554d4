//! Are Kubernetes and Tekton of versions that pod-affinity was made for?

use super::{Finding, Platform};
use crate::ask::{Gap, Seen};
use k8s_openapi::api::core::v1::ConfigMap;
use placement::supported::{KUBERNETES, Support, Supported, TEKTON, numbers};

pub(super) fn findings(platform: &Platform) -> Vec<Finding> {
    vec![kubernetes(&platform.kubernetes), tekton(platform)]
}

fn kubernetes(version: &Seen<String>) -> Finding {
    const CHECK: &str = "kubernetes";
    match version {
        Err(gap) => Finding::unseen(CHECK, gap),
        Ok(version) => judged(CHECK, &KUBERNETES, version),
    }
}

fn tekton(platform: &Platform) -> Finding {
    const CHECK: &str = "tekton";
    if let Err(Gap::NotServed(_)) = platform.serves_runs {
        return Finding::bad(
            CHECK,
            "This cluster does not know PipelineRuns of tekton.dev/v1: Tekton Pipelines is not installed.",
            format!("Install Tekton Pipelines v1.{} or newer.", TEKTON.oldest),
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
        Ok(Some(version)) if numbers(version).is_none() => {
            Finding::ok(CHECK, format!("Tekton is a build of its developers ({version})."))
        }
        Ok(Some(version)) => judged(CHECK, &TEKTON, version),
    }
}

fn version(info: &ConfigMap) -> Option<&str> {
    info.data.as_ref()?.get("version").map(String::as_str)
}

fn judged(check: &'static str, supported: &Supported, version: &str) -> Finding {
    let Some(complaint) = supported.complaint(version) else {
        return Finding::ok(check, format!("{} {version} is supported.", supported.name));
    };
    match complaint.support {
        Support::TooOld => Finding::bad(check, complaint.sentence, complaint.remedy),
        Support::Tested | Support::Untested | Support::Unknown => {
            Finding::warning(check, complaint.sentence, complaint.remedy)
        }
    }
}

/// Whether it is certain that this is an older Kubernetes than 1.`minor`.
pub(super) fn is_older(version: &Seen<String>, minor: u32) -> bool {
    let version = version.as_deref().ok().and_then(numbers);
    version.is_some_and(|version| version < (1, minor))
}

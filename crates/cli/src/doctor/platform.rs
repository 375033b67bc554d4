//! Whether Kubernetes and Tekton have supported versions and settings, and which admission mechanism suits them.

use super::Platform;
use super::finding::{Check, CheckResult, Finding};
use super::installation::INSTALLATION;
use crate::admission::Mechanism;
use crate::requests::RequestError;
use placement::coschedule::{Coschedule, FEATURE_FLAGS};
use placement::supported::{KUBERNETES, OLDEST_WITH_POLICIES, Supported, TEKTON, numbers};

const FLAGS: Check = Check("tekton flags");
const NAME_THE_NAMESPACE: &str = "Name the namespace of Tekton with --tekton-namespace.";

pub(super) fn versions(platform: &Platform) -> Vec<Finding> {
    let findings = [kubernetes(platform), tekton(platform)];
    findings.map(|found| found.unwrap_or_else(|unread| unread)).into()
}

fn kubernetes(platform: &Platform) -> Result<Finding, Finding> {
    let check = Check("kubernetes");
    let version = check.read(&platform.kubernetes)?;
    Ok(version_finding(check, &KUBERNETES, version))
}

fn tekton(platform: &Platform) -> Result<Finding, Finding> {
    let check = Check("tekton");
    if let Err(RequestError::NotServed(_)) = platform.serves_runs {
        return Ok(check.bad(
            "This cluster does not know PipelineRuns of tekton.dev/v1: Tekton Pipelines is not installed.",
            format!("Install Tekton Pipelines v1.{} or newer.", TEKTON.oldest),
        ));
    }
    let info = check.read(&platform.tekton)?;
    let data = info.as_ref().and_then(|map| map.data.as_ref());
    Ok(match data.and_then(|data| data.get("version")) {
        None => check.warning(
            format!(
                "No Tekton version found in namespace {}.",
                platform.tekton_namespace
            ),
            NAME_THE_NAMESPACE,
        ),
        Some(version) if numbers(version).is_none() => {
            check.ok(format!("Tekton is a build of its developers ({version})."))
        }
        Some(version) => version_finding(check, &TEKTON, version),
    })
}

fn version_finding(check: Check, supported: &Supported, version: &str) -> Finding {
    let Some(complaint) = supported.complaint(version) else {
        return check.ok(format!("{} {version} is supported.", supported.name));
    };
    if complaint.is_too_old {
        check.bad(complaint.sentence, complaint.remedy)
    } else {
        check.warning(complaint.sentence, complaint.remedy)
    }
}

/// The feature flags of Tekton that conflict with pod-affinity, or would help.
pub(super) fn flags(platform: &Platform) -> CheckResult {
    let Some(map) = FLAGS.read(&platform.flags)? else {
        return Ok(vec![FLAGS.warning(
            format!(
                "No ConfigMap {FEATURE_FLAGS} found in namespace {}.",
                platform.tekton_namespace
            ),
            NAME_THE_NAMESPACE,
        )]);
    };
    let data = map.data.clone().unwrap_or_default();
    let value = |name: &str| data.get(name).map(String::as_str);
    let set = |key: &str, value: &str| {
        let namespace = &platform.tekton_namespace;
        let patch = format!("{{\"data\":{{\"{key}\":\"{value}\"}}}}");
        format!("`kubectl patch configmap -n {namespace} {FEATURE_FLAGS} --type=merge -p '{patch}'`")
    };
    let mode = Coschedule::from_flags(&data);
    let coschedule = if mode.places_pods() {
        FLAGS.bad(
            format!(
                "coschedule is {mode}: Tekton pins every run of the cluster to a node by itself, labelled or not, and \
                 its assistant and our placeholder may end up on different nodes."
            ),
            set("coschedule", "workspaces"),
        )
    } else {
        FLAGS.ok(format!(
            "coschedule is {}, which is compatible with pod-affinity.",
            value("coschedule").unwrap_or("workspaces")
        ))
    };
    let backoff = match value("enable-wait-exponential-backoff") {
        Some("true") => FLAGS
            .ok(
                "enable-wait-exponential-backoff is on: a pod for which some webhook does not answer occupies a thread of \
                 Tekton's controller for about a minute.",
            )
            .hint("start Tekton's controller with `-threads-per-controller=32`: with its default of 2, two such pods delay all TaskRuns"),
        Some(_) | None => FLAGS.ok(
            "enable-wait-exponential-backoff is off: a task whose pod cannot be created at once, because some webhook does \
             not answer in time, fails.",
        ),
    };
    Ok(vec![coschedule, backoff])
}

/// Whether the API server is certainly too old to evaluate a `MutatingAdmissionPolicy`.
pub(super) fn is_too_old_for_policies(platform: &Platform) -> bool {
    let version = platform.kubernetes.as_deref().ok().and_then(numbers);
    version.is_some_and(|version| version < (1, OLDEST_WITH_POLICIES))
}

/// Why the cluster needs the webhook; `None` if the API server evaluates policies.
pub(super) fn obstacle_to_policies(platform: &Platform) -> Option<String> {
    match (&platform.kubernetes, &platform.serves_policies) {
        (Ok(version), _) if is_too_old_for_policies(platform) => Some(format!(
            "Kubernetes {version} is older than 1.{OLDEST_WITH_POLICIES} and evaluates no MutatingAdmissionPolicy"
        )),
        (Err(error), _) | (Ok(_), Err(error)) => Some(error.to_string()),
        (Ok(_), Ok(())) => None,
    }
}

/// The mechanism to install where none is installed.
pub(super) fn recommended(platform: &Platform) -> Mechanism {
    match obstacle_to_policies(platform) {
        Some(_) => Mechanism::Webhook,
        None => Mechanism::Policies,
    }
}

/// The recommendation with its reason and its commands.
pub(super) fn recommendation(platform: &Platform) -> Finding {
    match obstacle_to_policies(platform) {
        Some(obstacle) => INSTALLATION
            .ok(format!("Install the webhook: {obstacle}."))
            .hint("`cargo ship apply -f config/`, or release.yaml of a release."),
        None => INSTALLATION
            .ok("Install admission policies instead of the webhook: this API server evaluates them.")
            .hint(format!(
                "`cargo ship apply -k overlays/policies`, or release-policies.yaml of a release. All API servers of the \
                 cluster must be of 1.{OLDEST_WITH_POLICIES} or newer."
            )),
    }
}

//! Is everything installed, and does it run?

use super::{Exam, Finding};
use crate::way::Way;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use process::install;

/// The two Deployments and what stands still without them.
const DEPLOYMENTS: [(&str, &str); 2] = [
    (
        "pod-affinity-controller",
        "held runs are not released and get no placeholder",
    ),
    (
        install::WEBHOOK_SERVICE,
        "labelled runs cannot be created, and tasks of enrolled runs fail",
    ),
];

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    const CHECK: &str = "installation";
    let namespace = &exam.scope.namespace;
    match (&exam.namespace, &exam.deployments) {
        (Ok(None), _) => vec![Finding::bad(
            CHECK,
            format!("There is no namespace {namespace}: pod-affinity is not installed, or elsewhere."),
            "Apply the release's manifests, or name its namespace with --install-namespace.",
        )],
        (_, Err(gap)) => vec![Finding::unseen(CHECK, gap)],
        (Ok(Some(_)) | Err(_), Ok(deployments)) => DEPLOYMENTS
            .iter()
            .filter(|(name, _)| *name != install::WEBHOOK_SERVICE || exam.way() != Way::Policies)
            .map(|(name, consequence)| deployment(name, consequence, deployments, namespace))
            .collect(),
    }
}

fn deployment(name: &str, consequence: &str, all: &[Deployment], namespace: &str) -> Finding {
    const CHECK: &str = "installation";
    let Some(found) = all.iter().find(|it| it.name_any() == name) else {
        return Finding::bad(
            CHECK,
            format!("There is no Deployment {name} in namespace {namespace}: {consequence}."),
            "Apply the release's manifests again.",
        );
    };
    let wanted = found.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let available = found
        .status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .unwrap_or(0);
    let look = format!("See `kubectl describe pods -n {namespace}` and the log of the pods of {name}.");
    match available {
        _ if wanted == 0 => Finding::bad(
            CHECK,
            format!("Deployment {name} is scaled to 0: {consequence}."),
            format!("`kubectl scale deployment -n {namespace} {name} --replicas=2`"),
        ),
        0 => Finding::bad(
            CHECK,
            format!("No pod of Deployment {name} is ready: {consequence}."),
            look,
        ),
        few if few < wanted => Finding::warning(
            CHECK,
            format!("Of {wanted} pods of Deployment {name} only {few} are ready."),
            look,
        ),
        _ => Finding::ok(
            CHECK,
            format!("Deployment {name} has {available} of {wanted} pods ready."),
        ),
    }
}

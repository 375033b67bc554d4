//! Whether the Deployments are available, a controller leads, and the ConfigMap is valid.

use super::finding::{Check, CheckResult, Finding};
use super::{Installation, Snapshot};
use crate::admission::Mechanism;
use crate::words::{after, age, span};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::ResourceExt;
use placement::config::Config;
use runtime::install;
use std::time::Duration;

pub(super) const INSTALLATION: Check = Check("installation");
const LEADER: Check = Check("leader");
const CONFIGURATION: Check = Check("configuration");

/// The two Deployments, and the consequence if a Deployment has no available pod.
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
/// The duration of a Lease that names none.
const USUAL_LEASE_SECONDS: u64 = 15;

pub(super) fn deployments(snapshot: &Snapshot) -> CheckResult {
    let Installation {
        namespace,
        found,
        deployments,
        ..
    } = &snapshot.installation;
    if let Ok(None) = found {
        return Err(INSTALLATION.bad(
            format!("There is no namespace {namespace}: pod-affinity is not installed, or elsewhere."),
            "Apply the release's manifests, or name its namespace with --install-namespace.",
        ));
    }
    let deployments = INSTALLATION.read(deployments)?;
    let has_webhook = snapshot.mechanism() != Mechanism::Policies;
    let expected = DEPLOYMENTS
        .iter()
        .filter(|(name, _)| has_webhook || *name != install::WEBHOOK_SERVICE);
    let findings = expected.map(|(name, consequence)| {
        let found = deployments.iter().find(|it| it.name_any() == *name);
        deployment(name, consequence, found, namespace)
    });
    Ok(findings.collect())
}

fn deployment(name: &str, consequence: &str, found: Option<&Deployment>, namespace: &str) -> Finding {
    let Some(found) = found else {
        return INSTALLATION.bad(
            format!("There is no Deployment {name} in namespace {namespace}: {consequence}."),
            "Apply the release's manifests again.",
        );
    };
    let wanted = found.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = found.status.as_ref();
    let available = status.and_then(|status| status.available_replicas).unwrap_or(0);
    let look = format!("See `kubectl describe pods -n {namespace}` and the log of the pods of {name}.");
    match available {
        _ if wanted == 0 => INSTALLATION.bad(
            format!("Deployment {name} is scaled to 0: {consequence}."),
            format!("`kubectl scale deployment -n {namespace} {name} --replicas=2`"),
        ),
        0 => INSTALLATION.bad(
            format!("No pod of Deployment {name} is ready: {consequence}."),
            look,
        ),
        few if few < wanted => INSTALLATION.warning(
            format!("Of {wanted} pods of Deployment {name} only {few} are ready."),
            look,
        ),
        _ => INSTALLATION.ok(format!(
            "Deployment {name} has {available} of {wanted} pods ready."
        )),
    }
}

/// Whether a controller holds the Lease, and since when.
pub(super) fn leader(snapshot: &Snapshot) -> CheckResult {
    let lease = LEADER.read(&snapshot.lease)?;
    let spec = lease.clone().map(|lease: Lease| lease.spec.unwrap_or_default());
    let no_leader = |why: &str| {
        let lease = install::CONTROLLER_LEASE;
        let sentence = format!("The Lease {lease} {why}: no controller works, and held runs stay held.");
        LEADER.bad(sentence, controller_log(snapshot))
    };
    let holder = spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    Ok(vec![match (&spec, holder.filter(|name| !name.is_empty())) {
        (None, _) => no_leader("has never been taken"),
        (Some(_), None) => no_leader("is free"),
        (Some(spec), Some(holder)) if is_stale(spec, snapshot) && !snapshot.renewed => {
            expired(snapshot, spec, holder)
        }
        (Some(spec), Some(holder)) => leads(snapshot, spec, holder),
    }])
}

/// Whether the holder appears to have stopped, by the time of the API server.
pub(super) fn is_stale(spec: &LeaseSpec, snapshot: &Snapshot) -> bool {
    let valid_until = spec.renew_time.as_ref().map(|time| after(time.0, duration(spec)));
    valid_until.is_none_or(|until| until < snapshot.now)
}

fn duration(spec: &LeaseSpec) -> Duration {
    let seconds = spec.lease_duration_seconds.and_then(|it| u64::try_from(it).ok());
    Duration::from_secs(seconds.filter(|it| *it > 0).unwrap_or(USUAL_LEASE_SECONDS))
}

fn leads(snapshot: &Snapshot, spec: &LeaseSpec, holder: &str) -> Finding {
    let since = spec.acquire_time.as_ref().map(|time| age(time.0, snapshot.now));
    let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
    let sentence = format!("{holder} leads{since}.");
    if is_stale(spec, snapshot) {
        let sentence = format!("{sentence} Its clock is behind that of the API server.");
        return LEADER.warning(sentence, "Set the clock of its node.");
    }
    LEADER.ok(sentence)
}

fn expired(snapshot: &Snapshot, spec: &LeaseSpec, holder: &str) -> Finding {
    let renewed = spec.renew_time.as_ref().map(|time| age(time.0, snapshot.now));
    let renewed = renewed.map(|age| format!(" {age} ago")).unwrap_or_default();
    LEADER.bad(
        format!(
            "{holder} was the last to lead and renewed its Lease{renewed}, which is longer than {}: no controller works, \
             and held runs stay held.",
            span(duration(spec))
        ),
        controller_log(snapshot),
    )
}

fn controller_log(snapshot: &Snapshot) -> String {
    let namespace = &snapshot.installation.namespace;
    format!("See `kubectl logs -n {namespace} deployment/pod-affinity-controller --all-pods`.")
}

/// Whether the controller accepts the ConfigMap.
pub(super) fn configuration(snapshot: &Snapshot) -> CheckResult {
    let (map, namespace) = (install::CONFIG_MAP, &snapshot.installation.namespace);
    let Some(found) = CONFIGURATION.read(&snapshot.config)? else {
        return Err(CONFIGURATION.ok("There is no ConfigMap: all settings have their defaults."));
    };
    let data = found.data.clone().unwrap_or_default();
    let edit = || format!("`kubectl edit configmap -n {namespace} {map}`");
    let unknown = Config::unknown_keys(&data).0.into_iter();
    let unknown = unknown.map(|error| {
        CONFIGURATION.warning(
            format!("ConfigMap {map}: {error}. The key has no effect."),
            edit(),
        )
    });
    let others: Vec<_> = match Config::parse(&data) {
        Ok(config) => {
            let strategy = config.default_strategy;
            let sentence = format!("ConfigMap {map} is valid; the default strategy is {strategy}.");
            vec![CONFIGURATION.ok(sentence)]
        }
        Err(errors) => {
            let bad = |error| {
                let sentence = format!(
                    "ConfigMap {map}: {error}. The last valid configuration stays active, and a controller that starts \
                     now does not become ready."
                );
                CONFIGURATION.bad(sentence, edit())
            };
            errors.0.iter().map(bad).collect()
        }
    };
    Ok(unknown.chain(others).collect())
}

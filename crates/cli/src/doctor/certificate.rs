//! Whether the webhook's certificate is valid, has the Service's name, and is trusted by the API server.

use super::Snapshot;
use super::finding::{Check, CheckResult, Finding};
use crate::admission::Mechanism;
use crate::words::{age, between, span};
use jiff::SignedDuration;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use runtime::certs::x509::Certificate;
use runtime::certs::{StoredCertificates, service_names};
use runtime::install;

const CERTIFICATE: Check = Check("certificate");
/// The remedy if another tool, or an administrator, issues the certificate.
const EXTERNAL: &str = "The controller issues no certificates here (`POD_AFFINITY_CERTIFICATES`): write the Secret and caBundle with the \
                        tool that issues them, as certs/README.md describes.";
/// The leader renews a certificate within minutes, and cert-manager within an hour: after a day, a renewal is overdue.
const GRACE: SignedDuration = SignedDuration::from_hours(24);

pub(super) fn certificate(snapshot: &Snapshot) -> CheckResult {
    if snapshot.mechanism() == Mechanism::Policies {
        return Ok(Vec::new());
    }
    if snapshot.installation.mounts_certificate() {
        let sentence =
            "The webhook's certificate is in mounted files (`--tls-cert-file`), which are not checked.";
        return Ok(with_bundles(CERTIFICATE.ok(sentence), snapshot, &[]));
    }
    let (secret, namespace) = (install::CERTIFICATE_SECRET, &snapshot.installation.namespace);
    let stored = match &snapshot.secret {
        Err(error) => return Ok(with_bundles(CERTIFICATE.unread(error), snapshot, &[])),
        Ok(found) => found
            .as_ref()
            .map(StoredCertificates::from_secret)
            .filter(|stored| !stored.leaf.is_empty()),
    };
    let Some(stored) = stored else {
        let remedy = format!(
            "The controller's leader makes it within seconds; if it does not, see `kubectl logs -n {namespace} \
             deployment/pod-affinity-controller --all-pods`."
        );
        let sentence = format!("Secret {secret} holds no certificate: the webhook cannot serve.");
        return Err(CERTIFICATE.bad(sentence, unless_external(snapshot, remedy)));
    };
    let renew = format!(
        "A working controller renews it. To recreate all certificates: `kubectl patch secret -n {namespace} {secret} \
         --type=json -p '[{{\"op\":\"remove\",\"path\":\"/data\"}}]'`."
    );
    let renew = unless_external(snapshot, renew);
    let Some(leaf) = Certificate::first(&stored.leaf) else {
        let sentence = format!("The certificate in Secret {secret} cannot be read.");
        return Err(CERTIFICATE.bad(sentence, renew));
    };
    let finding = match fault(snapshot, &stored, &leaf) {
        Some(fault) => CERTIFICATE.bad(format!("The webhook's certificate {fault}."), renew),
        None => valid(snapshot, &leaf, renew),
    };
    Ok(with_bundles(finding, snapshot, &Certificate::all(&stored.leaf)))
}

/// This remedy, unless another tool than the controller issues the certificate.
fn unless_external(snapshot: &Snapshot, remedy: impl Into<String>) -> String {
    if snapshot.installation.has_external_certificates() {
        EXTERNAL.to_owned()
    } else {
        remedy.into()
    }
}

fn fault(snapshot: &Snapshot, stored: &StoredCertificates, leaf: &Certificate) -> Option<String> {
    let now = snapshot.now;
    let service = service_names(&snapshot.installation.namespace).swap_remove(0);
    match () {
        () if leaf.has_expired_at(now) => Some(format!("expired {} ago", age(leaf.not_after, now))),
        () if now < leaf.not_before => {
            let wait = span(between(now, leaf.not_before));
            Some(format!("is valid only in {wait}"))
        }
        () if !leaf.has_key(&stored.leaf_key) => {
            Some("does not belong to the private key in the same Secret".to_owned())
        }
        () if !leaf.names.contains(&service) => Some(format!("is not for the Service's name {service}")),
        () => None,
    }
}

fn valid(snapshot: &Snapshot, leaf: &Certificate, renew: String) -> Finding {
    let left = span(between(snapshot.now, leaf.not_after));
    let sentence = format!("The webhook's certificate is valid for another {left}");
    if leaf
        .renewal()
        .checked_add(GRACE)
        .is_ok_and(|due| due < snapshot.now)
    {
        let overdue = age(leaf.renewal(), snapshot.now);
        let sentence = format!("{sentence}, but should have been renewed {overdue} ago.");
        return CERTIFICATE.warning(sentence, renew);
    }
    CERTIFICATE.ok(format!("{sentence} and for the Service's name."))
}

/// The finding on the certificate, and the findings on what each webhook configuration makes the API server trust. The chain begins with
/// the certificate, and is empty if it is unknown.
fn with_bundles(finding: Finding, snapshot: &Snapshot, chain: &[Certificate]) -> Vec<Finding> {
    let configurations = snapshot.installation.admission.configurations();
    let faults = configurations.filter_map(|(name, found)| {
        let fault = bundle_fault(snapshot, &trusted(found), chain)?;
        let remedy =
            "The controller's leader writes it within seconds; see the findings on the leader and on rights.";
        Some(CERTIFICATE.bad(format!("{name} {fault}."), unless_external(snapshot, remedy)))
    });
    [finding].into_iter().chain(faults).collect()
}

fn bundle_fault(snapshot: &Snapshot, trusted: &[Certificate], chain: &[Certificate]) -> Option<&'static str> {
    match chain.first() {
        _ if trusted.is_empty() => {
            Some("has no caBundle, so the API server trusts no certificate of the webhook")
        }
        _ if trusted.iter().all(|ca| ca.has_expired_at(snapshot.now)) => {
            Some("has a caBundle that has expired")
        }
        Some(leaf) if !leaf.is_trusted_by(trusted, chain) => {
            Some("has a caBundle that did not sign the webhook's certificate")
        }
        Some(_) | None => None,
    }
}

fn trusted(found: &MutatingWebhookConfiguration) -> Vec<Certificate> {
    let webhooks = found.webhooks.iter().flatten();
    let bundles = webhooks.filter_map(|it| it.client_config.ca_bundle.as_ref());
    bundles
        .flat_map(|bundle| Certificate::all(&String::from_utf8_lossy(&bundle.0)))
        .collect()
}

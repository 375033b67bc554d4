//! Is the webhook's certificate valid, for the right names, and trusted by the API server?

use super::{Exam, Finding};
use crate::way::Way;
use crate::words::{age, between, span};
use jiff::SignedDuration;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use process::certs::x509::Certificate;
use process::certs::{StoredCertificates, service_names};
use process::install;

const CHECK: &str = "certificate";
/// The leader renews within minutes, and a cert-manager within an hour; a day is long overdue.
const GRACE: SignedDuration = SignedDuration::from_hours(24);

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    match exam.way() {
        Way::Policies => Vec::new(),
        Way::Webhook | Way::Both => of_webhook(exam),
    }
}

fn of_webhook(exam: &Exam) -> Vec<Finding> {
    let leaf = match &exam.secret {
        Err(gap) => {
            return vec![Finding::unseen(CHECK, gap)]
                .into_iter()
                .chain(bundles(exam, None))
                .collect();
        }
        Ok(secret) => secret.as_ref().map(StoredCertificates::from_secret),
    };
    let Some(stored) = leaf.filter(|stored| !stored.leaf.is_empty()) else {
        return vec![missing(exam)];
    };
    let Some(leaf) = Certificate::first(&stored.leaf) else {
        return vec![Finding::bad(
            CHECK,
            format!(
                "The certificate in Secret {} cannot be read.",
                install::CERTIFICATE_SECRET
            ),
            renew(exam),
        )];
    };
    let own = own(exam, &stored, &leaf);
    std::iter::once(own).chain(bundles(exam, Some(&leaf))).collect()
}

fn missing(exam: &Exam) -> Finding {
    Finding::bad(
        CHECK,
        format!(
            "Secret {} holds no certificate: the webhook cannot serve.",
            install::CERTIFICATE_SECRET
        ),
        format!(
            "The controller's leader makes it within seconds; if it does not, see `kubectl logs -n {} \
             deployment/pod-affinity-controller --all-pods`.",
            exam.scope.namespace
        ),
    )
}

fn renew(exam: &Exam) -> String {
    format!(
        "A working controller renews it. To recreate all certificates: `kubectl patch secret -n {} {} --type=json \
         -p '[{{\"op\":\"remove\",\"path\":\"/data\"}}]'`.",
        exam.scope.namespace,
        install::CERTIFICATE_SECRET
    )
}

/// The certificate for itself.
fn own(exam: &Exam, stored: &StoredCertificates, leaf: &Certificate) -> Finding {
    let bad = |sentence: String| Finding::bad(CHECK, sentence, renew(exam));
    let names = service_names(&exam.scope.namespace);
    match () {
        () if leaf.has_expired_at(exam.now) => bad(format!(
            "The webhook's certificate expired {} ago.",
            age(leaf.not_after, exam.now)
        )),
        () if exam.now < leaf.not_before => bad(format!(
            "The webhook's certificate is valid only in {}.",
            span(between(exam.now, leaf.not_before))
        )),
        () if !leaf.has_key(&stored.leaf_key) => {
            bad("The webhook's certificate does not belong to the private key in the same Secret.".to_owned())
        }
        () if !names.iter().take(1).all(|name| leaf.names.contains(name)) => bad(format!(
            "The webhook's certificate is not for the Service's name {}.",
            names[0]
        )),
        () => valid(exam, leaf),
    }
}

fn valid(exam: &Exam, leaf: &Certificate) -> Finding {
    let left = span(between(exam.now, leaf.not_after));
    let sentence = format!("The webhook's certificate is valid for another {left}");
    let overdue = leaf.renewal().checked_add(GRACE).is_ok_and(|due| due < exam.now);
    if overdue {
        let sentence = format!(
            "{sentence}, but should have been renewed {} ago.",
            age(leaf.renewal(), exam.now)
        );
        return Finding::warning(CHECK, sentence, renew(exam));
    }
    Finding::ok(CHECK, format!("{sentence} and for the Service's name."))
}

/// What each configuration makes the API server trust.
fn bundles(exam: &Exam, leaf: Option<&Certificate>) -> Vec<Finding> {
    let seen = exam
        .admission
        .webhooks
        .iter()
        .filter_map(|(name, seen)| Some((*name, seen.as_ref().ok()?.as_ref()?)));
    seen.filter_map(|(name, found)| distrust(exam, name, found, leaf))
        .collect()
}

fn distrust(
    exam: &Exam,
    name: &str,
    found: &MutatingWebhookConfiguration,
    leaf: Option<&Certificate>,
) -> Option<Finding> {
    let trusted = trusted(found);
    let signs = |leaf: &&Certificate| trusted.iter().any(|authority| leaf.is_signed_by(authority));
    let is_dead = !trusted.is_empty() && trusted.iter().all(|it| it.has_expired_at(exam.now));
    let what = match leaf {
        _ if trusted.is_empty() => "has no caBundle, so the API server trusts no certificate of the webhook",
        _ if is_dead => "has a caBundle that has expired",
        Some(leaf) if !signs(&leaf) => "has a caBundle that did not sign the webhook's certificate",
        Some(_) | None => return None,
    };
    Some(Finding::bad(
        CHECK,
        format!("{name} {what}."),
        "The controller's leader writes it within seconds; see the findings on the leader and on rights.",
    ))
}

fn trusted(found: &MutatingWebhookConfiguration) -> Vec<Certificate> {
    let bundles = found
        .webhooks
        .iter()
        .flatten()
        .filter_map(|it| it.client_config.ca_bundle.as_ref());
    bundles
        .flat_map(|bundle| Certificate::all(&String::from_utf8_lossy(&bundle.0)))
        .collect()
}

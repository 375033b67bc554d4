//! Does a controller lead, and since when?

use super::{Exam, Finding};
use crate::words::{after, age, span};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use process::install;
use std::time::Duration;

const CHECK: &str = "leader";
/// Of a Lease that does not say.
const USUAL: u64 = 15;

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    vec![match &exam.lease {
        Err(gap) => Finding::unseen(CHECK, gap),
        Ok(None) => nobody(exam, "has never been taken"),
        Ok(Some(lease)) => judged(exam, lease),
    }]
}

fn judged(exam: &Exam, lease: &Lease) -> Finding {
    let spec = lease.spec.clone().unwrap_or_default();
    let Some(holder) = spec.holder_identity.as_deref().filter(|name| !name.is_empty()) else {
        return nobody(exam, "is free");
    };
    if is_stale(exam, &spec) && !exam.renewed {
        return silent(exam, &spec, holder);
    }
    let since = spec.acquire_time.as_ref().map(|time| age(time.0, exam.now));
    let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
    let sentence = format!("{holder} leads{since}.");
    if is_stale(exam, &spec) {
        return Finding::warning(
            CHECK,
            format!("{sentence} Its clock is behind that of the API server."),
            "Set the clock of its node.",
        );
    }
    Finding::ok(CHECK, sentence)
}

/// Whether it looks as if its holder had given up.
pub(super) fn is_stale(exam: &Exam, spec: &LeaseSpec) -> bool {
    let renewed = spec.renew_time.as_ref().map(|time| after(time.0, promised(spec)));
    renewed.is_none_or(|until| until < exam.now)
}

fn promised(spec: &LeaseSpec) -> Duration {
    let seconds = spec.lease_duration_seconds.and_then(|it| u64::try_from(it).ok());
    Duration::from_secs(seconds.filter(|it| *it > 0).unwrap_or(USUAL))
}

fn silent(exam: &Exam, spec: &LeaseSpec, holder: &str) -> Finding {
    let ago = spec.renew_time.as_ref().map(|time| age(time.0, exam.now));
    let ago = ago.map(|ago| format!(" {ago} ago")).unwrap_or_default();
    Finding::bad(
        CHECK,
        format!(
            "{holder} was the last to lead and renewed its Lease{ago}, which is longer than {}: no controller works, \
             and held runs stay held.",
            span(promised(spec))
        ),
        remedy(exam),
    )
}

fn nobody(exam: &Exam, why: &str) -> Finding {
    Finding::bad(
        CHECK,
        format!(
            "The Lease {} {why}: no controller works, and held runs stay held.",
            install::CONTROLLER_LEASE
        ),
        remedy(exam),
    )
}

fn remedy(exam: &Exam) -> String {
    format!(
        "See `kubectl logs -n {} deployment/pod-affinity-controller --all-pods`.",
        exam.scope.namespace
    )
}

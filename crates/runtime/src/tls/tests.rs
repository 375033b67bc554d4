//! The check of a pair, and the pairs that are served.

use super::*;
use crate::certs::LEAF_LIFE;
use crate::certs::x509::{issue_ca, issue_leaf};
use crate::readiness::Readiness;
use jiff::SignedDuration;
use rustls::crypto::aws_lc_rs::default_provider;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn pair() -> PemPair {
    let leaf = issue_leaf(&issue_ca(now()).unwrap(), &["a.b.svc".into()], now()).unwrap();
    PemPair {
        chain: leaf.certificate,
        key: leaf.key,
    }
}

fn check(pair: &PemPair, now: Timestamp) -> Result<Timestamp, String> {
    let checked = pair.check(&default_provider(), now);
    checked
        .map(|(_, not_after)| not_after)
        .map_err(|error| error.to_string())
}

fn rejection(pair: &PemPair, now: Timestamp) -> String {
    check(pair, now).unwrap_err()
}

#[test]
fn a_fresh_pair_is_usable_until_its_certificate_expires() {
    assert_eq!(check(&pair(), now()), Ok(now() + LEAF_LIFE));
}

#[test]
fn the_key_of_another_certificate_is_refused() {
    let mixed = PemPair {
        key: pair().key,
        ..pair()
    };
    assert!(rejection(&mixed, now()).starts_with("certificate and private key do not go together"));
}

#[test]
fn the_error_about_an_unreadable_part_names_the_part() {
    let unreadable = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for chain in [unreadable, ""] {
        let chain = chain.to_owned();
        assert_eq!(
            rejection(&PemPair { chain, ..pair() }, now()),
            "it holds no readable certificate"
        );
    }
    let key = unreadable.to_owned();
    assert_eq!(
        rejection(&PemPair { key, ..pair() }, now()),
        "it holds no readable private key"
    );
}

#[test]
fn an_expired_pair_is_refused_and_a_pair_from_the_future_is_usable() {
    let later = now() + SignedDuration::from_hours(31 * 24);
    assert!(rejection(&pair(), later).starts_with("the certificate expired at 20"));
    assert!(check(&pair(), now() - SignedDuration::from_hours(48)).is_ok());
}

fn served(readiness: &Readiness, metrics: &Serving) -> ServedCertificate {
    ServedCertificate::new(readiness.condition(CONDITION, "none yet"), metrics.clone()).unwrap()
}

/// At the start the clock was a month ahead; then the clock is corrected, and the Secret is not written again.
#[test]
fn a_pair_that_was_refused_because_of_the_clock_is_served_when_the_clock_is_right() {
    let (readiness, metrics) = (Readiness::default(), Serving::default());
    let mut served = served(&readiness, &metrics);
    let pair = pair();
    for _ in 0..3 {
        served.offer(pair.clone(), now() + LEAF_LIFE);
    }
    let text = readiness.to_string();
    assert!(text.contains("the certificate expired at 2027-02-14"), "{text}");
    assert_eq!(metrics.certificate_loads(LoadOutcome::Refused), 1);
    served.offer(pair, now());
    assert!(readiness.is_ready());
}

#[test]
fn the_served_pair_stays_when_the_source_is_lost() {
    let readiness = Readiness::default();
    let mut served = served(&readiness, &Serving::default());
    served.offer(pair(), now());
    served.report_problem("the Secret does not exist");
    assert!(readiness.is_ready() && served.is_served);
}

//! One row a way in which stored certificates can be wrong.

use super::*;
use crate::certs::{AUTHORITY_LIFE, LEAF_LIFE, issue, issue::Issued, service_names};
use jiff::SignedDuration;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn names() -> Vec<String> {
    service_names("ns")
}

fn issued_at(now: Timestamp) -> Stored {
    let authority = issue::authority(now).unwrap();
    let leaf = issue::leaf(&authority, &names(), now).unwrap();
    let bundle = bundle(&authority.certificate, &[], now);
    Stored {
        ca: authority.certificate,
        ca_key: authority.key,
        bundle,
        leaf: leaf.certificate,
        leaf_key: leaf.key,
    }
}

fn with_leaf(stored: Stored, leaf: Issued) -> Stored {
    Stored {
        leaf: leaf.certificate,
        leaf_key: leaf.key,
        ..stored
    }
}

/// A new authority as the keeper stores it: both in the bundle, the leaf still the old one.
fn rotated(old: &Stored, now: Timestamp) -> Stored {
    let Issued { certificate, key } = issue::authority(now).unwrap();
    let bundle = bundle(&certificate, &[&old.ca, &old.bundle], now);
    Stored {
        ca: certificate,
        ca_key: key,
        bundle,
        ..old.clone()
    }
}

fn decided(stored: &Stored, now: Timestamp) -> Decision {
    decide(stored, &names(), now)
}

#[test]
fn fresh_certificates_are_kept_until_two_thirds_of_the_leafs_life_are_over() {
    let stored = issued_at(start());
    let due = start() + LEAF_LIFE * 2 / 3;
    assert_eq!(decided(&stored, start()), Decision::Keep);
    assert_eq!(decided(&stored, due - HOUR), Decision::Keep);
    assert_eq!(decided(&stored, due + HOUR), Decision::RenewLeaf(Why::Due));
    assert_eq!(
        decided(&stored, start() + LEAF_LIFE),
        Decision::RenewLeaf(Why::Expired)
    );
}

#[test]
fn the_authority_is_renewed_at_two_thirds_of_its_own_life() {
    let stored = issued_at(start());
    let due = start() + AUTHORITY_LIFE * 2 / 3;
    assert_eq!(decided(&stored, due - HOUR), Decision::RenewLeaf(Why::Expired));
    assert_eq!(decided(&stored, due + HOUR), Decision::RenewCa(Why::Due));
    assert_eq!(
        decided(&stored, start() + AUTHORITY_LIFE),
        Decision::RenewCa(Why::Expired)
    );
}

#[test]
fn an_empty_secret_needs_an_authority_first_and_a_leaf_then() {
    let stored = issued_at(start());
    let without_leaf = Stored {
        leaf: String::new(),
        leaf_key: String::new(),
        ..stored
    };
    assert_eq!(
        decided(&Stored::default(), start()),
        Decision::RenewCa(Why::Missing)
    );
    assert_eq!(decided(&without_leaf, start()), Decision::RenewLeaf(Why::Missing));
}

#[test]
fn what_cannot_be_read_is_made_anew() {
    let rubbish = || "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    let stored = issued_at(start());
    let ca = Stored {
        ca: rubbish(),
        ..stored.clone()
    };
    let leaf = Stored {
        leaf: rubbish(),
        ..stored.clone()
    };
    let bundle = Stored {
        bundle: rubbish(),
        ..stored
    };
    assert_eq!(decided(&ca, start()), Decision::RenewCa(Why::Corrupt));
    assert_eq!(decided(&leaf, start()), Decision::RenewLeaf(Why::Corrupt));
    assert_eq!(decided(&bundle, start()), Decision::MendBundle);
}

#[test]
fn a_key_of_another_certificate_is_noticed() {
    let (stored, other) = (issued_at(start()), issued_at(start()));
    let ca = Stored {
        ca_key: other.ca_key.clone(),
        ..stored.clone()
    };
    let lost = Stored {
        ca_key: String::new(),
        ..stored.clone()
    };
    let leaf = Stored {
        leaf_key: other.leaf_key,
        ..stored
    };
    assert_eq!(decided(&ca, start()), Decision::RenewCa(Why::KeyMismatch));
    assert_eq!(decided(&lost, start()), Decision::RenewCa(Why::KeyMismatch));
    assert_eq!(decided(&leaf, start()), Decision::RenewLeaf(Why::KeyMismatch));
}

#[test]
fn a_foreign_leaf_is_replaced() {
    let (stored, other) = (issued_at(start()), issued_at(start()));
    let foreign = Stored {
        leaf: other.leaf,
        leaf_key: other.leaf_key,
        ..stored
    };
    assert_eq!(decided(&foreign, start()), Decision::RenewLeaf(Why::Foreign));
    assert_eq!(serves(&foreign, &names(), start()), Err(Why::Foreign));
}

#[test]
fn a_leaf_is_no_authority() {
    let stored = issued_at(start());
    let swapped = Stored {
        ca: stored.leaf.clone(),
        ca_key: stored.leaf_key.clone(),
        ..stored
    };
    assert_eq!(decided(&swapped, start()), Decision::RenewCa(Why::Corrupt));
}

#[test]
fn a_leaf_for_another_namespace_is_replaced() {
    let stored = issued_at(start());
    let authority = Issued {
        certificate: stored.ca.clone(),
        key: stored.ca_key.clone(),
    };
    let leaf = issue::leaf(&authority, &service_names("elsewhere"), start()).unwrap();
    let elsewhere = with_leaf(stored, leaf);
    assert_eq!(decided(&elsewhere, start()), Decision::RenewLeaf(Why::WrongNames));
    assert_eq!(serves(&elsewhere, &names(), start()), Err(Why::WrongNames));
}

/// The clock was a year ahead when the certificates were made, and is right again.
#[test]
fn a_clock_that_jumps_back_makes_everything_anew() {
    let stored = issued_at(start() + AUTHORITY_LIFE);
    assert_eq!(decided(&stored, start()), Decision::RenewCa(Why::NotYetValid));
}

#[test]
fn an_api_server_an_hour_behind_accepts_new_certificates() {
    let stored = issued_at(start());
    assert_eq!(decided(&stored, start() - HOUR), Decision::Keep);
    assert_eq!(
        decided(&stored, start() - HOUR * 2),
        Decision::RenewCa(Why::NotYetValid)
    );
}

#[test]
fn during_a_rotation_the_old_leaf_serves_on_and_both_authorities_are_trusted() {
    let old = issued_at(start());
    let later = start() + LEAF_LIFE / 2;
    let stored = rotated(&old, later);
    assert_eq!(decided(&stored, later), Decision::RenewLeaf(Why::EarlierCa));
    assert_eq!(serves(&stored, &names(), later), Ok(()));
    assert_eq!(Facts::all(&stored.bundle).len(), 2);
}

#[test]
fn an_earlier_authority_leaves_the_bundle_when_it_expires() {
    let now = start() + AUTHORITY_LIFE - HOUR;
    let stored = rotated(&issued_at(start()), now);
    let authority = Issued {
        certificate: stored.ca.clone(),
        key: stored.ca_key.clone(),
    };
    let stored = with_leaf(stored, issue::leaf(&authority, &names(), now).unwrap());
    assert_eq!(decided(&stored, now), Decision::Keep);
    assert_eq!(decided(&stored, now + HOUR * 2), Decision::MendBundle);
    assert_eq!(Facts::all(&wanted_bundle(&stored, now + HOUR * 2)).len(), 1);
}

#[test]
fn repeated_repairs_do_not_grow_the_bundle_without_end() {
    let mut stored = issued_at(start());
    for _ in 0..6 {
        stored = rotated(&stored, start());
    }
    assert_eq!(Facts::all(&stored.bundle).len(), 4);
    assert_eq!(Facts::first(&stored.bundle), Facts::first(&stored.ca));
    assert_eq!(wanted_bundle(&stored, start()), stored.bundle);
}

#[test]
fn a_leaf_never_outlives_its_authority() {
    let stored = issued_at(start());
    let late = start() + AUTHORITY_LIFE - HOUR;
    let authority = Issued {
        certificate: stored.ca.clone(),
        key: stored.ca_key,
    };
    let leaf = issue::leaf(&authority, &names(), late).unwrap();
    let ends = |pem: &str| Facts::first(pem).unwrap().not_after;
    assert_eq!(ends(&leaf.certificate), ends(&stored.ca));
}

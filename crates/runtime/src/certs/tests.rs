//! Stored certificates, and the renewal that each defect needs.

use super::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256};
use x509::{Issued, issue_ca, issue_leaf};

const HOUR: SignedDuration = SignedDuration::from_hours(1);

fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn names() -> Vec<String> {
    service_names("ns")
}

pub(crate) fn issued_at(now: Timestamp) -> StoredCertificates {
    let ca = issue_ca(now).unwrap();
    let leaf = issue_leaf(&ca, &names(), now).unwrap();
    let bundle = bundle(&ca.certificate, &[], now);
    StoredCertificates {
        ca: ca.certificate,
        ca_key: ca.key,
        bundle,
        leaf: leaf.certificate,
        leaf_key: leaf.key,
    }
}

fn with_leaf(stored: StoredCertificates, leaf: Issued) -> StoredCertificates {
    StoredCertificates {
        leaf: leaf.certificate,
        leaf_key: leaf.key,
        ..stored
    }
}

/// After the keeper stored a new CA: both CAs are in the bundle, and the leaf is the old leaf.
fn rotated(old: &StoredCertificates, now: Timestamp) -> StoredCertificates {
    let Issued { certificate, key } = issue_ca(now).unwrap();
    let bundle = bundle(&certificate, &[&old.ca, &old.bundle], now);
    StoredCertificates {
        ca: certificate,
        ca_key: key,
        bundle,
        ..old.clone()
    }
}

fn decided(stored: &StoredCertificates, now: Timestamp) -> Renewal {
    decide(stored, &names(), now)
}

#[test]
fn certificates_are_kept_for_two_thirds_of_the_lifetime_of_the_leaf() {
    let stored = issued_at(start());
    let due = start() + LEAF_LIFE * 2 / 3;
    assert_eq!(decided(&stored, start()), Renewal::NotNeeded);
    assert_eq!(decided(&stored, due - HOUR), Renewal::NotNeeded);
    assert_eq!(decided(&stored, due + HOUR), Renewal::Leaf(RenewalReason::Due));
    assert_eq!(
        decided(&stored, start() + LEAF_LIFE),
        Renewal::Leaf(RenewalReason::Expired)
    );
}

#[test]
fn the_ca_is_renewed_after_two_thirds_of_its_lifetime() {
    let stored = issued_at(start());
    let due = start() + CA_LIFE * 2 / 3;
    assert_eq!(
        decided(&stored, due - HOUR),
        Renewal::Leaf(RenewalReason::Expired)
    );
    assert_eq!(decided(&stored, due + HOUR), Renewal::Ca(RenewalReason::Due));
    assert_eq!(
        decided(&stored, start() + CA_LIFE),
        Renewal::Ca(RenewalReason::Expired)
    );
}

#[test]
fn an_empty_secret_needs_a_ca_first_and_then_a_leaf() {
    let stored = issued_at(start());
    let without_leaf = StoredCertificates {
        leaf: String::new(),
        leaf_key: String::new(),
        ..stored
    };
    assert_eq!(
        decided(&StoredCertificates::default(), start()),
        Renewal::Ca(RenewalReason::Missing)
    );
    assert_eq!(
        decided(&without_leaf, start()),
        Renewal::Leaf(RenewalReason::Missing)
    );
}

#[test]
fn an_unreadable_part_is_renewed() {
    let unreadable = || "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    let stored = issued_at(start());
    let ca = StoredCertificates {
        ca: unreadable(),
        ..stored.clone()
    };
    let leaf = StoredCertificates {
        leaf: unreadable(),
        ..stored.clone()
    };
    let bundle = StoredCertificates {
        bundle: unreadable(),
        ..stored
    };
    assert_eq!(decided(&ca, start()), Renewal::Ca(RenewalReason::Corrupt));
    assert_eq!(decided(&leaf, start()), Renewal::Leaf(RenewalReason::Corrupt));
    assert_eq!(decided(&bundle, start()), Renewal::Bundle);
}

#[test]
fn certificates_of_the_user_may_have_parameters_before_the_key_and_a_second_ca() {
    let (stored, other) = (issued_at(start()), issued_at(start()));
    let parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    let own = StoredCertificates {
        leaf_key: format!("{parameters}{}", stored.leaf_key),
        ca: format!("{}{}", other.ca, stored.ca),
        ca_key: String::new(),
        bundle: String::new(),
        leaf: stored.leaf,
    };
    assert_eq!(can_serve(&own, &names(), start()), Ok(()));
    let foreign = StoredCertificates { ca: other.ca, ..own };
    assert_eq!(
        can_serve(&foreign, &names(), start()),
        Err(RenewalReason::Foreign)
    );
}

#[test]
fn a_key_of_another_certificate_is_a_mismatch() {
    let (stored, other) = (issued_at(start()), issued_at(start()));
    let ca = StoredCertificates {
        ca_key: other.ca_key.clone(),
        ..stored.clone()
    };
    let lost = StoredCertificates {
        ca_key: String::new(),
        ..stored.clone()
    };
    let leaf = StoredCertificates {
        leaf_key: other.leaf_key,
        ..stored
    };
    assert_eq!(decided(&ca, start()), Renewal::Ca(RenewalReason::KeyMismatch));
    assert_eq!(decided(&lost, start()), Renewal::Ca(RenewalReason::KeyMismatch));
    assert_eq!(decided(&leaf, start()), Renewal::Leaf(RenewalReason::KeyMismatch));
}

#[test]
fn a_leaf_of_an_unknown_ca_is_renewed() {
    let (stored, other) = (issued_at(start()), issued_at(start()));
    let foreign = StoredCertificates {
        leaf: other.leaf,
        leaf_key: other.leaf_key,
        ..stored
    };
    assert_eq!(decided(&foreign, start()), Renewal::Leaf(RenewalReason::Foreign));
    assert_eq!(
        can_serve(&foreign, &names(), start()),
        Err(RenewalReason::Foreign)
    );
}

fn intermediate_of(root: &Issued) -> Issued {
    let signer = KeyPair::from_pem(&root.key).unwrap();
    let signer = Issuer::from_ca_cert_pem(&root.certificate, signer).unwrap();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Issued {
        certificate: params.signed_by(&key, &signer).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

/// A cert-manager issuer with an intermediate CA stores the root CA as `ca.crt`.
#[test]
fn a_leaf_of_an_intermediate_ca_is_served_with_the_certificate_of_this_ca() {
    let root = issue_ca(start()).unwrap();
    let intermediate = intermediate_of(&root);
    let leaf = issue_leaf(&intermediate, &names(), start()).unwrap();
    let served = |chain: &[&Issued]| {
        let chain = chain.iter().map(|one| one.certificate.as_str());
        let stored = StoredCertificates {
            ca: root.certificate.clone(),
            ca_key: String::new(),
            bundle: String::new(),
            leaf: chain.collect(),
            leaf_key: leaf.key.clone(),
        };
        can_serve(&stored, &names(), start())
    };
    assert_eq!(served(&[&leaf, &intermediate]), Ok(()));
    assert_eq!(served(&[&leaf]), Err(RenewalReason::Foreign));
    let other = intermediate_of(&issue_ca(start()).unwrap());
    assert_eq!(served(&[&leaf, &other]), Err(RenewalReason::Foreign));
}

#[test]
fn a_leaf_in_place_of_the_ca_is_corrupt() {
    let stored = issued_at(start());
    let swapped = StoredCertificates {
        ca: stored.leaf.clone(),
        ca_key: stored.leaf_key.clone(),
        ..stored
    };
    assert_eq!(decided(&swapped, start()), Renewal::Ca(RenewalReason::Corrupt));
}

#[test]
fn a_leaf_for_another_namespace_is_renewed() {
    let stored = issued_at(start());
    let ca = Issued {
        certificate: stored.ca.clone(),
        key: stored.ca_key.clone(),
    };
    let leaf = issue_leaf(&ca, &service_names("elsewhere"), start()).unwrap();
    let elsewhere = with_leaf(stored, leaf);
    assert_eq!(
        decided(&elsewhere, start()),
        Renewal::Leaf(RenewalReason::WrongNames)
    );
    assert_eq!(
        can_serve(&elsewhere, &names(), start()),
        Err(RenewalReason::WrongNames)
    );
}

/// The clock was a year ahead when the certificates were issued, and was corrected.
#[test]
fn certificates_from_the_future_are_renewed() {
    let stored = issued_at(start() + CA_LIFE);
    assert_eq!(decided(&stored, start()), Renewal::Ca(RenewalReason::NotYetValid));
}

#[test]
fn an_api_server_an_hour_behind_accepts_new_certificates() {
    let stored = issued_at(start());
    assert_eq!(decided(&stored, start() - HOUR), Renewal::NotNeeded);
    assert_eq!(
        decided(&stored, start() - HOUR * 2),
        Renewal::Ca(RenewalReason::NotYetValid)
    );
}

#[test]
fn during_a_rotation_the_old_leaf_is_served_and_both_cas_are_trusted() {
    let old = issued_at(start());
    let later = start() + LEAF_LIFE / 2;
    let stored = rotated(&old, later);
    assert_eq!(decided(&stored, later), Renewal::Leaf(RenewalReason::EarlierCa));
    assert_eq!(can_serve(&stored, &names(), later), Ok(()));
    assert_eq!(Certificate::all(&stored.bundle).len(), 2);
}

#[test]
fn an_earlier_ca_leaves_the_bundle_when_it_expires() {
    let now = start() + CA_LIFE - HOUR;
    let stored = rotated(&issued_at(start()), now);
    let ca = Issued {
        certificate: stored.ca.clone(),
        key: stored.ca_key.clone(),
    };
    let stored = with_leaf(stored, issue_leaf(&ca, &names(), now).unwrap());
    assert_eq!(decided(&stored, now), Renewal::NotNeeded);
    assert_eq!(decided(&stored, now + HOUR * 2), Renewal::Bundle);
    assert_eq!(Certificate::all(&wanted_bundle(&stored, now + HOUR * 2)).len(), 1);
}

#[test]
fn repeated_repairs_keep_the_bundle_small() {
    let mut stored = issued_at(start());
    for _ in 0..6 {
        stored = rotated(&stored, start());
    }
    assert_eq!(Certificate::all(&stored.bundle).len(), 4);
    assert_eq!(Certificate::first(&stored.bundle), Certificate::first(&stored.ca));
    assert_eq!(wanted_bundle(&stored, start()), stored.bundle);
}

#[test]
fn a_leaf_expires_with_its_ca_at_the_latest() {
    let stored = issued_at(start());
    let late = start() + CA_LIFE - HOUR;
    let ca = Issued {
        certificate: stored.ca.clone(),
        key: stored.ca_key,
    };
    let leaf = issue_leaf(&ca, &names(), late).unwrap();
    let ends = |pem: &str| Certificate::first(pem).unwrap().not_after;
    assert_eq!(ends(&leaf.certificate), ends(&stored.ca));
}

fn full() -> StoredCertificates {
    let part = |name: &str| format!("pem of {name}");
    StoredCertificates {
        ca: part("ca"),
        ca_key: part("key"),
        bundle: part("bundle"),
        leaf: part("leaf"),
        leaf_key: part("leaf key"),
    }
}

#[test]
fn a_written_secret_is_parsed_to_the_same_value() {
    let secret = Secret {
        data: Some(full().into_data()),
        ..Secret::default()
    };
    assert_eq!(StoredCertificates::from_secret(&secret), full());
}

#[test]
fn empty_and_binary_parts_count_as_missing() {
    let binary = BTreeMap::from([(CERTIFICATE.to_owned(), ByteString(vec![0xff, 0xfe]))]);
    assert_eq!(
        StoredCertificates::from_secret(&Secret::default()),
        StoredCertificates::default()
    );
    assert_eq!(
        StoredCertificates::from_secret(&Secret {
            data: Some(binary),
            ..Secret::default()
        }),
        StoredCertificates::default()
    );
}

#[test]
fn debug_output_shows_no_key() {
    assert!(!format!("{:?}", full()).contains("pem of"));
}

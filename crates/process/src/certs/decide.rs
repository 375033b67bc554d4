//! Decides the next step for the stored certificates at a given time. Pure: no clock, no IO, no new keys.

use super::{bundle::bundle, stored::Stored, x509::Facts};
use jiff::Timestamp;
use strum::Display;

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No change is needed.
    Keep,
    /// The stored bundle differs from the bundle of the stored CAs.
    MendBundle,
    /// The current CA issues a new serving certificate.
    RenewLeaf(Why),
    /// A new CA is needed. The serving certificate stays until API servers trust the new CA.
    RenewCa(Why),
}

/// The reason why a certificate is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Why {
    /// The Secret has no certificate.
    #[strum(to_string = "is missing")]
    Missing,
    /// The certificate cannot be parsed, or is of the wrong kind.
    #[strum(to_string = "cannot be read")]
    Corrupt,
    /// The private key is missing or belongs to another certificate.
    #[strum(to_string = "does not belong to the stored private key")]
    KeyMismatch,
    /// The validity starts in the future: the clock was ahead when the certificate was issued.
    #[strum(to_string = "is not valid yet")]
    NotYetValid,
    /// The certificate has expired.
    #[strum(to_string = "has expired")]
    Expired,
    /// Two thirds of the lifetime are over.
    #[strum(to_string = "has lived two thirds of its life")]
    Due,
    /// An earlier CA, which API servers still trust, signed the certificate.
    #[strum(to_string = "was signed by an earlier CA")]
    EarlierCa,
    /// No stored CA signed the certificate.
    #[strum(to_string = "was not signed by any stored CA")]
    Foreign,
    /// The certificate lacks DNS names of the Service.
    #[strum(to_string = "does not name the Service's DNS names")]
    WrongNames,
}

/// Checks the CA first, because a serving certificate is only valid with a valid CA.
pub fn decide(stored: &Stored, names: &[String], now: Timestamp) -> Decision {
    match ca(stored, now) {
        Err(why) => Decision::RenewCa(why),
        Ok(_) if stored.bundle != wanted_bundle(stored, now) => Decision::MendBundle,
        Ok(ca) => match leaf(stored, &ca, names, now) {
            Err(why) => Decision::RenewLeaf(why),
            Ok(()) => Decision::Keep,
        },
    }
}

/// The bundle of the stored CAs at `now`.
pub fn wanted_bundle(stored: &Stored, now: Timestamp) -> String {
    bundle(&stored.ca, &[&stored.bundle], now)
}

/// Whether a replica may serve the stored leaf: a trusted CA signed the leaf, and the leaf has the right names.
///
/// Accepts more than [`decide`]: a leaf that is due for renewal or that an earlier CA signed can still be served, and the API
/// server's clock decides whether a leaf is valid yet.
/// decides whether a leaf is valid yet.
pub fn serves(stored: &Stored, names: &[String], now: Timestamp) -> Result<(), Why> {
    let leaf = unexpired(&stored.leaf, &stored.leaf_key, now)?;
    let trusted = Facts::all(&wanted_bundle(stored, now));
    signed_by_any(&leaf, &trusted)?;
    named(&leaf, names)
}

fn ca(stored: &Stored, now: Timestamp) -> Result<Facts, Why> {
    let ca = sound(&stored.ca, &stored.ca_key, now)?;
    ensure(ca.is_ca, Why::Corrupt)?;
    fresh(&ca, now).map(|()| ca)
}

fn leaf(stored: &Stored, ca: &Facts, names: &[String], now: Timestamp) -> Result<(), Why> {
    let leaf = sound(&stored.leaf, &stored.leaf_key, now)?;
    if !leaf.is_signed_by(ca) {
        signed_by_any(&leaf, &Facts::all(&stored.bundle))?;
        return Err(Why::EarlierCa);
    }
    named(&leaf, names)?;
    fresh(&leaf, now)
}

fn sound(certificate: &str, key: &str, now: Timestamp) -> Result<Facts, Why> {
    let facts = unexpired(certificate, key, now)?;
    ensure(now >= facts.not_before, Why::NotYetValid).map(|()| facts)
}

fn unexpired(certificate: &str, key: &str, now: Timestamp) -> Result<Facts, Why> {
    ensure(!certificate.is_empty(), Why::Missing)?;
    let facts = Facts::first(certificate).ok_or(Why::Corrupt)?;
    ensure(facts.has_key(key), Why::KeyMismatch)?;
    ensure(!facts.has_expired_at(now), Why::Expired).map(|()| facts)
}

fn fresh(facts: &Facts, now: Timestamp) -> Result<(), Why> {
    ensure(now < facts.renewal(), Why::Due)
}

fn named(leaf: &Facts, names: &[String]) -> Result<(), Why> {
    ensure(leaf.covers(names), Why::WrongNames)
}

fn signed_by_any(leaf: &Facts, cas: &[Facts]) -> Result<(), Why> {
    ensure(cas.iter().any(|ca| leaf.is_signed_by(ca)), Why::Foreign)
}

fn ensure(holds: bool, otherwise: Why) -> Result<(), Why> {
    holds.then_some(()).ok_or(otherwise)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

//! What is to be done about the stored certificates at a given time. Pure: no clock, no IO, no new keys.

use super::{bundle::bundle, stored::Stored, x509::Facts};
use jiff::Timestamp;
use strum::Display;

/// The one next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Everything is in order.
    Keep,
    /// The stored bundle is not the bundle of the stored CAs.
    MendBundle,
    /// The current CA is to issue a new serving certificate.
    RenewLeaf(Why),
    /// A new CA is needed; the serving certificate stays until the new CA is trusted.
    RenewCa(Why),
}

/// What is wrong with a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Why {
    /// There is none.
    #[strum(to_string = "is missing")]
    Missing,
    /// It cannot be read, or is of the wrong kind.
    #[strum(to_string = "cannot be read")]
    Corrupt,
    /// Its private key is missing or belongs to another one.
    #[strum(to_string = "does not belong to the stored private key")]
    KeyMismatch,
    /// Its validity has not begun: the clock was ahead when it was issued.
    #[strum(to_string = "is not valid yet")]
    NotYetValid,
    /// Its validity is over.
    #[strum(to_string = "has expired")]
    Expired,
    /// Two thirds of its life are over.
    #[strum(to_string = "has lived two thirds of its life")]
    Due,
    /// It was signed by an earlier CA, which is still trusted.
    #[strum(to_string = "was signed by an earlier CA")]
    EarlierCa,
    /// No CA of ours signed it.
    #[strum(to_string = "was not signed by any stored CA")]
    Foreign,
    /// It does not name the Service's DNS names.
    #[strum(to_string = "does not name the Service's DNS names")]
    WrongNames,
}

/// Checks the CA first, because a serving certificate is only as good as the CA that signed it.
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

/// Whether a replica may serve the stored leaf: a trusted CA signed it, and it is for the right names.
///
/// Laxer than [`decide`]: a leaf that is due, or signed by an earlier CA, can still be served, and the API server's clock
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

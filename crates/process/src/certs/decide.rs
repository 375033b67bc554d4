//! What is to be done about the stored certificates at a given time. Pure: no clock, no IO, no keys made.

use super::{bundle::bundle, stored::Stored, x509::Facts};
use jiff::Timestamp;
use strum::Display;

/// The one next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Everything is in order.
    Keep,
    /// The stored bundle is not what the stored authorities make it.
    MendBundle,
    /// The serving certificate is to be issued anew by the current authority.
    RenewLeaf(Why),
    /// A new authority is needed; the serving certificate stays until the new authority is trusted.
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
    /// Its validity has not begun: the clock was ahead when it was made.
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
    EarlierAuthority,
    /// No authority of ours signed it.
    #[strum(to_string = "was not signed by any stored CA")]
    Foreign,
    /// It does not name the Service's DNS names.
    #[strum(to_string = "does not name the Service's DNS names")]
    WrongNames,
}

/// Looks at the authority first, since a serving certificate is only as good as what signed it.
pub fn decide(stored: &Stored, names: &[String], now: Timestamp) -> Decision {
    match authority(stored, now) {
        Err(why) => Decision::RenewCa(why),
        Ok(_) if stored.bundle != wanted_bundle(stored, now) => Decision::MendBundle,
        Ok(authority) => match leaf(stored, &authority, names, now) {
            Err(why) => Decision::RenewLeaf(why),
            Ok(()) => Decision::Keep,
        },
    }
}

/// The bundle that the stored authorities make at `now`.
pub fn wanted_bundle(stored: &Stored, now: Timestamp) -> String {
    bundle(&stored.ca, &[&stored.bundle], now)
}

/// Whether a replica may serve the stored leaf: some trusted authority signed it, and it is for the right names.
///
/// Laxer than [`decide`]: a leaf that is due, or signed by an earlier authority, still serves well, and whether one is
/// valid yet is for the API server's clock to say.
pub fn serves(stored: &Stored, names: &[String], now: Timestamp) -> Result<(), Why> {
    let leaf = unexpired(&stored.leaf, &stored.leaf_key, now)?;
    let trusted = Facts::all(&wanted_bundle(stored, now));
    signed_by_any(&leaf, &trusted)?;
    named(&leaf, names)
}

fn authority(stored: &Stored, now: Timestamp) -> Result<Facts, Why> {
    let authority = sound(&stored.ca, &stored.ca_key, now)?;
    if !authority.is_authority {
        return Err(Why::Corrupt);
    }
    fresh(&authority, now).map(|()| authority)
}

fn leaf(stored: &Stored, authority: &Facts, names: &[String], now: Timestamp) -> Result<(), Why> {
    let leaf = sound(&stored.leaf, &stored.leaf_key, now)?;
    if !leaf.is_signed_by(authority) {
        signed_by_any(&leaf, &Facts::all(&stored.bundle))?;
        return Err(Why::EarlierAuthority);
    }
    named(&leaf, names)?;
    fresh(&leaf, now)
}

fn sound(certificate: &str, key: &str, now: Timestamp) -> Result<Facts, Why> {
    let facts = unexpired(certificate, key, now)?;
    if now < facts.not_before {
        Err(Why::NotYetValid)
    } else {
        Ok(facts)
    }
}

fn unexpired(certificate: &str, key: &str, now: Timestamp) -> Result<Facts, Why> {
    if certificate.is_empty() {
        return Err(Why::Missing);
    }
    let facts = Facts::first(certificate).ok_or(Why::Corrupt)?;
    match () {
        () if !facts.has_key(key) => Err(Why::KeyMismatch),
        () if facts.has_expired_at(now) => Err(Why::Expired),
        () => Ok(facts),
    }
}

fn fresh(facts: &Facts, now: Timestamp) -> Result<(), Why> {
    if now < facts.renewal() {
        Ok(())
    } else {
        Err(Why::Due)
    }
}

fn named(leaf: &Facts, names: &[String]) -> Result<(), Why> {
    if leaf.covers(names) {
        Ok(())
    } else {
        Err(Why::WrongNames)
    }
}

fn signed_by_any(leaf: &Facts, authorities: &[Facts]) -> Result<(), Why> {
    let signed = authorities.iter().any(|authority| leaf.is_signed_by(authority));
    if signed { Ok(()) } else { Err(Why::Foreign) }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

//! The serving certificate of the webhook and the CA that signs it: when each is renewed, and how the API server trusts a new CA
//! before a certificate signed by it is served.
//!
//! [`decide`] is pure; [`keeper`] is the one place that reads and writes, and only the leader runs it. [`crate::tls`] serves
//! the certificate.
//!
//! Not by a library: cert-manager is a controller of its own, which users may install instead (`--certificates=external`), and
//! no crate renews the certificate of a webhook and its `caBundle`.

pub mod bundle;
pub mod decide;
pub mod issue;
pub mod keeper;
pub mod publish;
pub mod stored;
pub mod x509;

use jiff::SignedDuration;
use placement::keys;

/// Life of a CA.
pub const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
/// Life of a serving certificate.
pub const LEAF_LIFE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How far `NotBefore` lies in the past, so that an API server whose clock is behind accepts a new certificate.
pub const BACK_DATED: SignedDuration = SignedDuration::from_hours(1);

/// The DNS names that the API server may dial; it asks for the first one.
pub fn service_names(namespace: &str) -> Vec<String> {
    let service = format!("{}.{namespace}.svc", keys::WEBHOOK_SERVICE);
    let qualified = format!("{service}.cluster.local");
    vec![service, qualified]
}

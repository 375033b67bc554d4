//! The serving certificate of the webhook and the CA that signs it: when each is renewed, and how API servers trust a new CA
//! before the webhook serves a certificate of this CA.
//!
//! [`decide`] is pure. Only [`keeper`] reads and writes, and only the leader runs it. [`crate::tls`] serves the certificate.
//!
//! This module is hand-written, because cert-manager is a separate controller, which users may install instead
//! (`--certificates=external`), and no crate renews the certificate of a webhook together with its `caBundle`.

pub mod bundle;
pub mod decide;
pub mod issue;
pub mod keeper;
pub mod publish;
pub mod stored;
pub mod x509;

use jiff::SignedDuration;
use placement::keys;

/// Lifetime of a CA.
pub const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
/// Lifetime of a serving certificate.
pub const LEAF_LIFE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How far `NotBefore` lies in the past, so that an API server whose clock is behind accepts a new certificate.
pub const BACK_DATED: SignedDuration = SignedDuration::from_hours(1);

/// The DNS names of the webhook's Service. The API server verifies the first name.
pub fn service_names(namespace: &str) -> Vec<String> {
    let service = format!("{}.{namespace}.svc", keys::WEBHOOK_SERVICE);
    let qualified = format!("{service}.cluster.local");
    vec![service, qualified]
}

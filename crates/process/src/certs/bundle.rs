//! The CAs that API servers trust: the current CA and every earlier CA that has not expired, because a replica may still serve a
//! certificate of an earlier CA. A CA that is not valid yet also stays: such a CA is harmless, and after a jump of this machine's
//! clock the CA may be valid for all other machines. Pure.

use super::x509::Facts;
use jiff::Timestamp;

/// Maximum number of earlier CAs. The oldest CAs are dropped first, so that the bundle stays small after many repairs.
const EARLIER_AT_MOST: usize = 3;

/// The bundle as PEM: `current` first, then the CAs in `earlier` that have not expired, without duplicates.
pub fn bundle(current: &str, earlier: &[&str], now: Timestamp) -> String {
    let mut trusted: Vec<Facts> = Facts::first(current).into_iter().collect();
    let kept = earlier.iter().flat_map(|pem| Facts::all(pem));
    for ca in kept.filter(|one| one.is_ca && !one.has_expired_at(now)) {
        if !trusted.contains(&ca) {
            trusted.push(ca);
        }
    }
    trusted.truncate(1 + EARLIER_AT_MOST);
    trusted.iter().map(Facts::pem).collect()
}

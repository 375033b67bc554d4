//! Which CAs the API server is to trust: the current CA and every earlier one that has not expired, because a replica may still
//! serve what an earlier CA signed. A CA that is not valid yet also stays: it does no harm, and after a jump of this machine's
//! clock it may be valid for all other machines. Pure.

use super::x509::Facts;
use jiff::Timestamp;

/// Earlier CAs kept at most: the oldest are dropped first, so that repeated repairs cannot grow the bundle without end.
const EARLIER_AT_MOST: usize = 3;

/// The bundle as PEM: `current` first, then those of `earlier` that have not expired, without repeats.
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

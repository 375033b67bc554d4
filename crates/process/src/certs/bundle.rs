//! Which authorities the API server is to trust: the current one and every earlier one that has not expired, since a
//! replica may still serve what an earlier one signed. One that is not valid yet stays too: it does no harm, and after a
//! jump of this machine's clock it may be the one that all others go by. Pure.

use super::x509::Facts;
use jiff::Timestamp;

/// Earlier authorities kept at most: the oldest go first, so that repeated repairs cannot grow the bundle without end.
const EARLIER_AT_MOST: usize = 3;

/// The bundle as PEM: `current` first, then those of `earlier` that have not expired, without repeats.
pub fn bundle(current: &str, earlier: &[&str], now: Timestamp) -> String {
    let mut trusted: Vec<Facts> = Facts::first(current).into_iter().collect();
    let kept = earlier.iter().flat_map(|pem| Facts::all(pem));
    for authority in kept.filter(|one| one.is_authority && !one.has_expired_at(now)) {
        if !trusted.contains(&authority) {
            trusted.push(authority);
        }
    }
    trusted.truncate(1 + EARLIER_AT_MOST);
    trusted.iter().map(Facts::pem).collect()
}

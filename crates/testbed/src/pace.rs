//! How long our processes wait for others. What is shipped is for clusters: several API servers, endpoints that lag behind,
//! networks that fail. None of that is here, so a testbed starts them with shorter times, and a test that is about the
//! shipped ones asks for those.

/// Among the environment of an installation: everything as it is shipped.
pub const AS_SHIPPED: (&str, &str) = ("POD_AFFINITY_TESTBED_PACE", "as shipped");

/// In the environment of an installation whose controllers are killed and kept alive: a dead leader is followed after 6 s.
/// Not for others: on two cores with many testbeds a renewal was seen to take 4 s, and then a healthy leader would end.
pub const SHORT_LEASE: [(&str, &str); 3] = [
    ("POD_AFFINITY_LEADER_ELECT_LEASE_DURATION", "6s"),
    ("POD_AFFINITY_LEADER_ELECT_RENEW_DEADLINE", "4s"),
    ("POD_AFFINITY_LEADER_ELECT_RETRY_PERIOD", "1s"),
];

/// In every environment that does not ask for what is shipped.
const BRISK: [(&str, &str); 2] = [
    // The only API server takes a changed caBundle over within a second.
    ("POD_AFFINITY_CERTIFICATE_SETTLE_TIME", "3s"),
    // The front looks at readiness every 200 ms.
    ("POD_AFFINITY_DRAIN_DELAY", "1s"),
];

/// The whole environment of an installation that asks for this one. What it asks for comes last, and so wins.
pub(crate) fn environment(asked: &[(&str, &str)]) -> Vec<(String, String)> {
    let as_shipped = asked.contains(&AS_SHIPPED);
    let brisk = BRISK.iter().filter(|_| !as_shipped);
    brisk
        .chain(asked)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(environment: &[(String, String)], name: &str) -> Option<String> {
        let last = environment.iter().rev().find(|(found, _)| found == name);
        last.map(|(_, value)| value.clone())
    }

    #[test]
    fn times_are_short_unless_the_shipped_ones_are_asked_for() {
        let (delay, log) = ("POD_AFFINITY_DRAIN_DELAY", ("RUST_LOG", "trace"));
        assert_eq!(value(&environment(&[log]), delay), Some("1s".into()));
        let shipped = environment(&[AS_SHIPPED, log]);
        assert_eq!(value(&shipped, delay), None);
        assert_eq!(value(&shipped, "RUST_LOG"), Some("trace".into()));
    }

    #[test]
    fn a_test_may_set_one_of_them_itself() {
        let delay = "POD_AFFINITY_DRAIN_DELAY";
        assert_eq!(value(&environment(&[(delay, "9s")]), delay), Some("9s".into()));
    }
}

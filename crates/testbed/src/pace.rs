//! Shorter waiting times for pod-affinity's processes. The defaults are for clusters with several API servers, slow endpoints and
//! networks that fail. A testbed has none of these, so the processes get shorter times; tests of the defaults request
//! [`AS_SHIPPED`].

/// In the environment of an installation: all settings have their defaults.
pub const AS_SHIPPED: (&str, &str) = ("POD_AFFINITY_TESTBED_PACE", "as shipped");

/// For installations whose controllers are killed and kept alive: a new leader follows a dead leader after 6 s. Other installations
/// keep the default, because on two cores with many testbeds a renewal took 4 s, and a healthy leader would end.
pub const SHORT_LEASE: [(&str, &str); 3] = [
    ("POD_AFFINITY_LEADER_ELECT_LEASE_DURATION", "6s"),
    ("POD_AFFINITY_LEADER_ELECT_RENEW_DEADLINE", "4s"),
    ("POD_AFFINITY_LEADER_ELECT_RETRY_PERIOD", "1s"),
];

/// In the environment of installations without [`AS_SHIPPED`].
const SHORT_TIMES: [(&str, &str); 2] = [
    // The only API server reads a changed caBundle within a second.
    ("POD_AFFINITY_CERTIFICATE_SETTLE_TIME", "3s"),
    // The front checks readiness every 200 ms.
    ("POD_AFFINITY_DRAIN_DELAY", "1s"),
];

/// The environment of an installation. The requested variables come last and take precedence.
pub(crate) fn environment(asked: &[(&str, &str)]) -> Vec<(String, String)> {
    let as_shipped = asked.contains(&AS_SHIPPED);
    let short_times = SHORT_TIMES.iter().filter(|_| !as_shipped);
    short_times
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
    fn times_are_short_unless_the_shipped_ones_are_requested() {
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

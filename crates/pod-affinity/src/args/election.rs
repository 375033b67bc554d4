//! The flags of leader election.

use super::{Args, duration};
use clap::{CommandFactory, Error, error::ErrorKind};
use runtime::lease::Terms;
use std::time::Duration;

/// The durations of the election. Names and defaults are those of kube-controller-manager.
#[derive(Debug, clap::Args)]
pub(crate) struct ElectionArgs {
    /// How long the other controllers wait, after the last renewal of the Lease that they saw, before one of them leads.
    /// Whole seconds.
    #[arg(long = "leader-elect-lease-duration", env = "POD_AFFINITY_LEADER_ELECT_LEASE_DURATION", default_value = "15s", value_parser = duration, value_name = "DURATION")]
    lease_duration: Duration,
    /// How long the leader tries to renew the Lease before it ends. Shorter than the lease duration.
    #[arg(long = "leader-elect-renew-deadline", env = "POD_AFFINITY_LEADER_ELECT_RENEW_DEADLINE", default_value = "10s", value_parser = duration, value_name = "DURATION")]
    renew_deadline: Duration,
    /// Pause between two attempts to take or renew the Lease. At most half of the renew deadline.
    #[arg(long = "leader-elect-retry-period", env = "POD_AFFINITY_LEADER_ELECT_RETRY_PERIOD", default_value = "2s", value_parser = duration, value_name = "DURATION")]
    retry_period: Duration,
}

impl ElectionArgs {
    /// The durations, or a command line error if they do not fit together.
    pub(crate) fn terms(&self) -> Result<Terms, Error> {
        let terms = Terms::new(self.lease_duration, self.renew_deadline, self.retry_period);
        terms.map_err(|error| Args::command().error(ErrorKind::ValueValidation, format!("{error}\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        election: ElectionArgs,
    }

    fn parsed(line: &str) -> Result<Terms, String> {
        let parsed = Line::try_parse_from(line.split(' '));
        parsed
            .and_then(|line| line.election.terms())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(parsed("controller"), Ok(Terms::default()));
    }

    #[test]
    fn each_flag_sets_its_duration() {
        let line = "controller --leader-elect-lease-duration 6s --leader-elect-renew-deadline 4s \
                    --leader-elect-retry-period 500ms";
        let [duration, deadline, retry] = [6000, 4000, 500].map(Duration::from_millis);
        assert_eq!(parsed(line), Ok(Terms::new(duration, deadline, retry).unwrap()));
    }

    #[test]
    fn the_error_about_invalid_durations_names_the_remedy() {
        let refusal = parsed("controller --leader-elect-lease-duration 8s").unwrap_err();
        assert!(
            refusal.starts_with("error: --leader-elect-lease-duration (8s) is not longer than"),
            "{refusal}"
        );
        assert!(
            refusal.contains("raise the first or lower the second"),
            "{refusal}"
        );
        let refusal = parsed("controller --leader-elect-lease-duration 15").unwrap_err();
        assert!(refusal.contains("'15' is not a duration"), "{refusal}");
    }
}

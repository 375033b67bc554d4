//! The command line. Flags have the same meaning as in kubectl.

mod verbs;

pub(crate) use verbs::*;

use clap::builder::NonEmptyStringValueParser;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory, FromArgMatches, Parser};
use clap_complete::Shell;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Shows where PipelineRuns with the label tekton.dev/custom-pod-affinity run, and why.
#[derive(Debug, Parser)]
#[command(version, disable_help_subcommand = true, after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(subcommand)]
    pub(crate) command: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 success; 1 doctor found something bad, the run does not exist, or the run is not in the \
expected state; 2 wrong usage; 3 the API server did not answer, or you lack a permission.";

const CLUSTER: &str = "Cluster";

/// The cluster, and the credentials.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Path to the kubeconfig file. Default: the files in KUBECONFIG, or ~/.kube/config.
    #[arg(long, global = true, help_heading = CLUSTER, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use.
    #[arg(long, global = true, help_heading = CLUSTER, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Cluster of the kubeconfig to use. Default: the cluster of the context.
    #[arg(long, global = true, help_heading = CLUSTER, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// User of the kubeconfig to use. Default: the user of the context.
    #[arg(long, global = true, help_heading = CLUSTER, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// User to impersonate.
    #[arg(long = "as", global = true, help_heading = CLUSTER, value_name = "USER")]
    pub(crate) impersonate: Option<String>,
    /// Group to impersonate, together with --as. May be given several times.
    #[arg(long = "as-group", global = true, help_heading = CLUSTER, value_name = "GROUP")]
    pub(crate) impersonate_groups: Vec<String>,
    /// Namespace. Default: the namespace of the context.
    #[arg(short, long, global = true, help_heading = CLUSTER, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) namespace: Option<String>,
    /// How long to wait for one answer of the API server: 5s, 1m. 0 means no limit.
    #[arg(long, global = true, help_heading = CLUSTER, default_value = "15s", value_parser = timeout, value_name = "DURATION")]
    pub(crate) request_timeout: Limit,
}

/// A time limit; `None` means no limit. clap would take an `Option` as an optional argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<Duration>);

impl Default for Limit {
    fn default() -> Self {
        Self(Some(Duration::from_secs(15)))
    }
}

/// The file name of the program, and the command that the user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) file: &'static str,
    pub(crate) words: &'static str,
}

impl Caller {
    /// Derives both from the path of the program.
    pub(crate) fn of(program: &str) -> Self {
        let file = Path::new(program).file_stem().and_then(|name| name.to_str());
        if file.is_some_and(|name| name.starts_with("tkn-")) {
            Self {
                file: "tkn-pod-affinity",
                words: "tkn pod-affinity",
            }
        } else {
            Self {
                file: "kubectl-pod_affinity",
                words: "kubectl pod-affinity",
            }
        }
    }
}

/// The definition of the command line, with the command that the user types.
pub(crate) fn command(caller: Caller) -> Command {
    Args::command().name(caller.words).bin_name(caller.words)
}

/// Parses the command line of this process.
pub(crate) fn parse(
    caller: Caller,
    words: impl IntoIterator<Item = std::ffi::OsString>,
) -> Result<Args, clap::Error> {
    let mut command = command(caller);
    let matches = command.try_get_matches_from_mut(words)?;
    let args = Args::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    match args.check() {
        Ok(()) => Ok(args),
        Err(wrong) => Err(command.error(ErrorKind::ValueValidation, wrong)),
    }
}

impl Args {
    /// Checks combinations of arguments, which clap does not check.
    fn check(&self) -> Result<(), String> {
        if !self.cluster.impersonate_groups.is_empty() && self.cluster.impersonate.is_none() {
            return Err("--as-group needs --as: a group is impersonated together with a user".to_owned());
        }
        self.command.check(self.cluster.namespace.as_deref())
    }
}

fn timeout(text: &str) -> Result<Limit, String> {
    let wrong = || format!("'{text}' is not a duration; write 5s, 1m or 0");
    if text == "0" {
        return Ok(Limit(None));
    }
    // A number without a unit means seconds, as in kubectl.
    let text = if text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("{text}s")
    } else {
        text.to_owned()
    };
    let signed: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    let duration = Duration::try_from(signed).map_err(|_| wrong())?;
    Ok(Limit((!duration.is_zero()).then_some(duration)))
}

/// The completion script of a shell, for the file name by which the program is installed.
pub(crate) fn completion(caller: Caller, shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(caller), caller.file, &mut script);
    script
}

#[cfg(test)]
mod tests;

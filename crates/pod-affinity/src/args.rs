//! The command line, and the environment variables except those of logs (`runtime::log`).

mod election;

use clap::{Parser, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};
use election::ElectionArgs;
use jiff::SignedDuration;
use placement::keys;
use runtime::{log::Format, tls::sources::CertificateFiles};
use std::{net::SocketAddr, path::PathBuf, time::Duration};

const AFTER: &str = "The variable RUST_LOG filters the logs, for example RUST_LOG=info,controller=debug. KUBECONFIG, or else the pod's \
service account, selects the API server.";

/// Runs all pods of a labelled Tekton PipelineRun on one node that no other run uses.
#[derive(Debug, Parser)]
#[command(name = "pod-affinity", version, arg_required_else_help = true, after_help = AFTER)]
pub(crate) struct Args {
    /// Format of the log on standard error: auto (text on a terminal, JSON otherwise), json or text.
    #[arg(
        long,
        global = true,
        env = "POD_AFFINITY_LOG_FORMAT",
        default_value = "auto",
        value_name = "FORMAT"
    )]
    pub(crate) log_format: Format,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer the API server's admission requests for PipelineRuns and pods. Run two or more.
    Webhook(WebhookArgs),
    /// Create placeholders, release held runs and renew the certificates. Run two; one leads.
    Controller(ControllerArgs),
    /// Switch pod-affinity off before it is deleted: hold no new run, stop the controller, release all held runs and delete all
    /// placeholders.
    ReleaseAll(NamespaceArgs),
    /// Hold a run's place on its node: do nothing until SIGTERM or SIGINT. Must be the first argument.
    Placeholder,
}

/// Arguments of `webhook`.
#[derive(Debug, clap::Args)]
pub(crate) struct WebhookArgs {
    /// Where to answer admission requests, over TLS. With port 0 the chosen address is printed on standard output.
    #[arg(
        long,
        env = "POD_AFFINITY_LISTEN",
        default_value = "[::]:8443",
        value_name = "ADDRESS"
    )]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// How long to serve on after SIGTERM, not ready, while the Service's endpoints change.
    #[arg(long, env = "POD_AFFINITY_DRAIN_DELAY", default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub(crate) drain_delay: Duration,
    /// How long requests in progress may take after that. With the delay, less than terminationGracePeriodSeconds.
    #[arg(long, env = "POD_AFFINITY_DRAIN_DEADLINE", default_value = "15s", value_parser = duration, value_name = "DURATION")]
    pub(crate) drain_deadline: Duration,
    /// How long a client may be silent. Hidden and for tests, because a value below the 90 s of the API server would lose calls.
    #[arg(long, env = "POD_AFFINITY_CLIENT_SILENCE", default_value = "2m", value_parser = positive_duration, value_name = "DURATION", hide = true)]
    pub(crate) client_silence: Duration,
    #[command(flatten)]
    pub(crate) files: Option<FileArgs>,
    #[command(flatten)]
    pub(crate) namespace: NamespaceArgs,
}

/// A mounted certificate: both files, or none.
#[derive(Debug, clap::Args)]
pub(crate) struct FileArgs {
    /// PEM file with the serving certificate and its chain, read again when it changes. Without it, the certificate is
    /// read from the Secret that the controller's leader keeps.
    #[arg(
        long,
        env = "POD_AFFINITY_TLS_CERT_FILE",
        requires = "tls_key_file",
        value_name = "FILE",
        required = false
    )]
    tls_cert_file: PathBuf,
    /// PEM file with the private key of --tls-cert-file.
    #[arg(
        long,
        env = "POD_AFFINITY_TLS_KEY_FILE",
        requires = "tls_cert_file",
        value_name = "FILE",
        required = false
    )]
    tls_key_file: PathBuf,
}

/// Arguments of `controller`.
#[derive(Debug, clap::Args)]
pub(crate) struct ControllerArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Image of the placeholder pods: the image of this process.
    #[arg(long, env = "POD_AFFINITY_IMAGE", value_parser = image, value_name = "IMAGE")]
    pub(crate) placeholder_image: String,
    #[command(flatten)]
    pub(crate) namespace: NamespaceArgs,
    /// Name of this process in the Lease and in events; must be unique. Default: the host's (pod's) name and a
    /// random number.
    #[arg(long, env = "POD_AFFINITY_IDENTITY", value_parser = NonEmptyStringValueParser::new(), value_name = "NAME")]
    pub(crate) identity: Option<String>,
    /// What creates the webhook's certificate and writes its CA to caBundle.
    #[arg(long, env = "POD_AFFINITY_CERTIFICATES", value_enum, default_value_t = Certificates::Managed)]
    pub(crate) certificates: Certificates,
    /// How long API servers may take to act on a changed caBundle, before a certificate of a new CA is served.
    /// Longer than the slowest API server needs, or that API server rejects the certificate.
    #[arg(long, env = "POD_AFFINITY_CERTIFICATE_SETTLE_TIME", default_value = "10s", value_parser = positive_duration, value_name = "DURATION")]
    pub(crate) certificate_settle_time: Duration,
    #[command(flatten)]
    pub(crate) election: ElectionArgs,
}

/// The second port.
#[derive(Debug, clap::Args)]
pub(crate) struct AdminArgs {
    /// Where to answer probes and serve metrics, over plain HTTP. With port 0 the chosen address is printed on standard
    /// output.
    #[arg(
        long,
        env = "POD_AFFINITY_ADMIN_LISTEN",
        default_value = "[::]:8080",
        value_name = "ADDRESS"
    )]
    pub(crate) admin_listen: SocketAddr,
}

/// The installation.
#[derive(Debug, clap::Args)]
pub(crate) struct NamespaceArgs {
    /// Namespace of the installation: its Secret, ConfigMap, Lease and Service.
    #[arg(long, env = "POD_NAMESPACE", default_value = keys::NAMESPACE, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) namespace: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Certificates {
    /// The leader creates and renews them.
    Managed,
    /// Another controller, such as cert-manager, creates and renews them.
    External,
    /// No certificates: the API server evaluates admission policies, and no webhook runs.
    None,
}

impl From<FileArgs> for CertificateFiles {
    fn from(args: FileArgs) -> Self {
        let FileArgs {
            tls_cert_file,
            tls_key_file,
        } = args;
        Self {
            certificate: tls_cert_file,
            key: tls_key_file,
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a duration; write 5s, 500ms or 1m");
    let signed: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(signed).map_err(|_| wrong())
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time.is_zero() {
        return Err(format!("'{text}' is not positive; write 500ms or longer"));
    }
    Ok(time)
}

/// Rejects an empty image and an unresolved `ko://` reference, because placeholder pods with such an image could never start.
fn image(text: &str) -> Result<String, String> {
    match text {
        "" => Err("the image is empty".to_owned()),
        unresolved if unresolved.starts_with("ko://") => Err(
            "the manifests were applied without an image; use a release, or `cargo ship apply` from a clone"
                .to_owned(),
        ),
        image => Ok(image.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, error::ErrorKind};
    use runtime::certs::keeper::SETTLE_TIME;

    fn parsed(line: &str) -> Result<Command, clap::Error> {
        Args::try_parse_from(line.split(' ')).map(|args| args.command)
    }

    fn rejection(line: &str) -> String {
        parsed(line).unwrap_err().to_string()
    }

    #[test]
    fn the_definition_of_the_command_line_is_valid() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_webhook_needs_no_flag() {
        let Ok(Command::Webhook(args)) = parsed("pod-affinity webhook") else {
            panic!()
        };
        assert_eq!(args.listen.to_string(), "[::]:8443");
        assert_eq!(args.admin.admin_listen.to_string(), "[::]:8080");
        assert_eq!(
            (args.drain_delay.as_secs(), args.namespace.namespace.as_str()),
            (5, keys::NAMESPACE)
        );
        assert!(args.files.is_none());
        assert_eq!(args.client_silence, runtime::server::SILENCE);
    }

    #[test]
    fn certificate_and_key_file_require_each_other() {
        let Ok(Command::Webhook(args)) = parsed("pod-affinity webhook --tls-cert-file c --tls-key-file k")
        else {
            panic!()
        };
        assert_eq!(
            args.files.map(CertificateFiles::from),
            Some(CertificateFiles {
                certificate: "c".into(),
                key: "k".into()
            })
        );
        assert!(rejection("pod-affinity webhook --tls-cert-file c").contains("--tls-key-file"));
        assert!(rejection("pod-affinity webhook --tls-key-file k").contains("--tls-cert-file"));
    }

    #[test]
    fn the_controller_needs_an_image_that_can_be_pulled() {
        assert!(rejection("pod-affinity controller").contains("--placeholder-image <IMAGE>"));
        assert!(rejection("pod-affinity controller --placeholder-image=").contains("the image is empty"));
        assert!(rejection("pod-affinity controller --placeholder-image ko://x").contains("cargo ship apply"));
        let Ok(Command::Controller(args)) =
            parsed("pod-affinity controller --placeholder-image a/b@sha256:c")
        else {
            panic!()
        };
        assert_eq!(args.certificates, Certificates::Managed);
        assert_eq!(args.placeholder_image, "a/b@sha256:c");
        assert_eq!(args.certificate_settle_time, SETTLE_TIME);
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert!(duration("5").is_err() && duration("-5s").is_err());
    }

    #[test]
    fn a_certificate_settle_time_of_zero_is_refused() {
        let text = rejection("pod-affinity controller --placeholder-image a --certificate-settle-time 0s");
        assert!(text.contains("'0s' is not positive"), "{text}");
        assert_eq!(positive_duration("1ms"), Ok(Duration::from_millis(1)));
    }

    #[test]
    fn without_a_subcommand_the_help_is_shown() {
        let error = parsed("pod-affinity").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
    }
}

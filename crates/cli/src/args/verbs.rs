//! The commands and their flags.

use super::{Limit, timeout};
use crate::target::{NameError, Target, is_kind};
use clap::builder::NonEmptyStringValueParser;
use clap::{Subcommand, ValueEnum};
use clap_complete::Shell;
use placement::keys;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List labelled runs: strategy, state, node.
    #[command(visible_aliases = ["get", "ls"])]
    List(ListArgs),
    /// Explain one run: why it is on its node, or why it waits.
    #[command(visible_alias = "describe")]
    Explain(ExplainArgs),
    /// Wait until a run is released, has a node, or is done. Ends with exit code 1 at the timeout.
    Wait(WaitArgs),
    /// List nodes with the runs that are on them.
    Nodes(NodesArgs),
    /// Draw which run was on which node, and when, from what the API server still has.
    Timeline(TimelineArgs),
    /// Report how long runs had nodes, which share of the nodes their tasks requested, and the price.
    Cost(CostArgs),
    /// Check the installation, or with --pre a cluster before the installation. Ends with exit code 1 if a finding is bad.
    Doctor(DoctorArgs),
    /// Start a held run at once, on any node, and opt it out.
    Release(ReleaseArgs),
    /// Switch pod-affinity off, for a namespace or for the cluster.
    Disable(DisableArgs),
    /// Switch pod-affinity on again, for a namespace or for the cluster.
    Enable(EnableArgs),
    /// Print a completion script for a shell.
    Completion(CompletionArgs),
    /// Print the versions of this program, of the controller, and of the webhook or the policies.
    Version(VersionArgs),
}

impl Verb {
    pub(super) fn check(&self, namespace: Option<&str>) -> Result<(), String> {
        let target = match self {
            Self::List(args) => args.target(),
            Self::Explain(args) => args.run.target().map(Some),
            Self::Wait(args) => args.run.target().map(Some),
            Self::Release(args) => args.run.target().map(Some),
            Self::Timeline(args) => args.target(),
            Self::Disable(args) if args.stop_controller && !args.all_namespaces => {
                return Err("--stop-controller needs -A: there is one controller for the cluster".to_owned());
            }
            Self::Disable(args) => return scope(args.all_namespaces, namespace),
            Self::Enable(args) => return scope(args.all_namespaces, namespace),
            Self::Nodes(_) | Self::Cost(_) | Self::Doctor(_) | Self::Completion(_) | Self::Version(_) => {
                Ok(None)
            }
        };
        let checked = target.and_then(|target| target.map_or(Ok(()), |target| target.check(namespace)));
        checked.map_err(|wrong| wrong.to_string())
    }
}

/// The user has to name the namespace, because the command affects all its runs: the namespace of the context is not used.
fn scope(all_namespaces: bool, namespace: Option<&str>) -> Result<(), String> {
    match namespace {
        Some(left_out) if keys::EXCLUDED_NAMESPACES.contains(&left_out) => {
            Err(format!("pod-affinity is always off in namespace {left_out}"))
        }
        None if !all_namespaces => Err("name a namespace with -n, or the whole cluster with -A".to_owned()),
        Some(_) | None => Ok(()),
    }
}

/// One run.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The PipelineRun: NAME, pr/NAME, pipelinerun NAME or NAMESPACE/NAME.
    #[arg(value_name = "RUN", required = true, num_args = 1..=2)]
    run: Vec<String>,
}

impl RunArgs {
    pub(crate) fn target(&self) -> Result<Target, NameError> {
        Target::parse(&self.run)
    }
}

/// The arguments of `list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only this PipelineRun, labelled or not: NAME, pr/NAME, pipelinerun NAME or NAMESPACE/NAME. A kind alone stands for
    /// all labelled runs.
    #[arg(value_name = "RUN", num_args = 0..=2)]
    run: Vec<String>,
    /// List the runs of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// Only runs whose labels match: KEY=VALUE, KEY, !KEY, separated by commas.
    #[arg(short = 'l', long, value_name = "QUERY")]
    pub(crate) selector: Option<String>,
    /// Only runs whose fields match: metadata.name=NAME, metadata.namespace=NAME.
    #[arg(long, value_name = "QUERY")]
    pub(crate) field_selector: Option<String>,
    /// Watch the runs, and print a row again whenever it changes.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Column by which rows are sorted. Default: namespace and name.
    #[arg(long, value_enum, value_name = "COLUMN", conflicts_with = "watch")]
    pub(crate) sort_by: Option<Column>,
    /// Print no line of column names.
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table, value_name = "FORMAT")]
    pub(crate) output: Output,
}

impl ListArgs {
    /// The run, if one is named.
    pub(crate) fn target(&self) -> Result<Option<Target>, NameError> {
        match self.run.as_slice() {
            [] => Ok(None),
            [kind] if is_kind(kind) => Ok(None),
            words => Target::parse(words).map(Some),
        }
    }
}

/// A column of `list` to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Column {
    Namespace,
    Name,
    Strategy,
    State,
    Node,
    Since,
}

/// The arguments of `explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Watch the run until it is done, and print the explanation again whenever it changes.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Prose::Text, value_name = "FORMAT")]
    pub(crate) output: Prose,
}

/// The arguments of `wait`.
#[derive(Debug, clap::Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// What to wait for.
    #[arg(long = "for", value_enum, value_name = "WHAT")]
    pub(crate) condition: WaitCondition,
    /// How long to wait at most: 30s, 5m. 0 means no limit.
    #[arg(long, default_value = "10m", value_parser = timeout, value_name = "DURATION")]
    pub(crate) timeout: Limit,
}

/// The condition that ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitCondition {
    /// No holder keeps the run Pending.
    Released,
    /// The run has its node.
    Node,
    /// The run is done, whether it succeeded or not.
    Done,
}

impl WaitCondition {
    /// The end of a sentence about the run: it is ...
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Node => "on a node",
            Self::Done => "done",
        }
    }
}

/// The arguments of `nodes`.
#[derive(Debug, clap::Args)]
pub(crate) struct NodesArgs {
    /// Only nodes whose labels match: KEY=VALUE, KEY, !KEY, separated by commas.
    #[arg(short = 'l', long, value_name = "QUERY")]
    pub(crate) selector: Option<String>,
    /// Print no line of column names.
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Table, value_name = "FORMAT")]
    pub(crate) output: Output,
}

/// The arguments of `timeline`.
#[derive(Debug, clap::Args)]
pub(crate) struct TimelineArgs {
    /// Show the runs of all namespaces.
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "run"])]
    pub(crate) all_namespaces: bool,
    /// Only this PipelineRun, with its tasks: NAME, pr/NAME or NAMESPACE/NAME.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// How far back: 30m, 24h. 0 shows all that the API server still has. Default: 1h; with --run, the time of the run.
    #[arg(long, value_parser = timeout, value_name = "DURATION")]
    pub(crate) since: Option<Limit>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Picture::Text, value_name = "FORMAT")]
    pub(crate) output: Picture,
}

impl TimelineArgs {
    /// The run, if one is named.
    pub(crate) fn target(&self) -> Result<Option<Target>, NameError> {
        let run = self.run.as_slice();
        run.first().map(|_| Target::parse(run)).transpose()
    }
}

/// How a picture is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Picture {
    Text,
    Svg,
    Html,
}

/// The arguments of `cost`.
#[derive(Debug, clap::Args)]
pub(crate) struct CostArgs {
    /// Report on the runs of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// Only runs whose labels match: KEY=VALUE, KEY, !KEY, separated by commas.
    #[arg(short = 'l', long, value_name = "QUERY")]
    pub(crate) selector: Option<String>,
    /// How far back: 30m, 24h. 0 counts all that the API server still has.
    #[arg(long, value_parser = timeout, default_value = "24h", value_name = "DURATION")]
    pub(crate) since: Limit,
    /// What a row stands for.
    #[arg(long, value_enum, default_value_t = CostGroup::Run, value_name = "GROUP")]
    pub(crate) by: CostGroup,
    /// CSV file with a line INSTANCE-TYPE,PRICE-PER-HOUR for each instance type. Without it, no costs are computed.
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = CostFormat::Table, value_name = "FORMAT")]
    pub(crate) output: CostFormat,
}

/// The runs of a row of `cost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostGroup {
    Run,
    Pipeline,
    Namespace,
}

/// How costs are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostFormat {
    Table,
    Json,
    Csv,
}

/// The arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Prose::Text, value_name = "FORMAT")]
    pub(crate) output: Prose,
    /// Check a cluster before the installation: versions, settings of Tekton, and your permissions.
    #[arg(long)]
    pub(crate) pre: bool,
    /// The lowest level of a finding that makes the exit code 1.
    #[arg(long, value_enum, default_value_t = FailOn::Bad, value_name = "LEVEL")]
    pub(crate) fail_on: FailOn,
    /// Namespace of the installation.
    #[arg(long, default_value = keys::NAMESPACE, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) install_namespace: String,
    /// Namespace of Tekton Pipelines. Default: the one that the definition of PipelineRuns names.
    #[arg(long, value_name = "NAME")]
    pub(crate) tekton_namespace: Option<String>,
}

/// A finding that makes `doctor` fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    Warning,
    Bad,
}

/// The arguments of `release`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Write nothing: client prints what would be done, and server lets the API server check it as well.
    #[arg(long, value_enum, default_value_t = DryRun::None, value_name = "WHERE")]
    pub(crate) dry_run: DryRun,
}

/// The arguments of `disable`.
#[derive(Debug, clap::Args)]
pub(crate) struct DisableArgs {
    /// The whole cluster.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// Also scale the controller to 0, release all held runs and delete all placeholders. Use it if the controller is the
    /// problem.
    #[arg(long)]
    pub(crate) stop_controller: bool,
    /// Namespace of the installation.
    #[arg(long, default_value = keys::NAMESPACE, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) install_namespace: String,
    /// Write nothing: client prints what would be done, and server lets the API server check it as well.
    #[arg(long, value_enum, default_value_t = DryRun::None, value_name = "WHERE")]
    pub(crate) dry_run: DryRun,
}

/// The arguments of `enable`.
#[derive(Debug, clap::Args)]
pub(crate) struct EnableArgs {
    /// The whole cluster. Namespaces that were switched off one by one stay so.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// Namespace of the installation.
    #[arg(long, default_value = keys::NAMESPACE, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) install_namespace: String,
    /// Write nothing: client prints what would be done, and server lets the API server check it as well.
    #[arg(long, value_enum, default_value_t = DryRun::None, value_name = "WHERE")]
    pub(crate) dry_run: DryRun,
}

/// Whether the command writes, or where a dry run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    None,
    Client,
    Server,
}

/// The arguments of `completion`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    /// The shell.
    #[arg(required_unless_present = "install")]
    pub(crate) shell: Option<Shell>,
    /// Instead of printing a script: create the link by which kubectl completes `kubectl pod-affinity`, in the folder of the
    /// plugin.
    #[arg(long, conflicts_with = "shell")]
    pub(crate) install: bool,
}

/// The arguments of `version`.
#[derive(Debug, clap::Args)]
pub(crate) struct VersionArgs {
    /// Print only the version of this program, without a request to the API server.
    #[arg(long)]
    pub(crate) client: bool,
    /// Namespace of the installation.
    #[arg(long, default_value = keys::NAMESPACE, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) install_namespace: String,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Prose::Text, value_name = "FORMAT")]
    pub(crate) output: Prose,
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

impl Output {
    /// Whether the output has the ends of holds, which depend on the configuration.
    pub(crate) fn has_deadlines(self) -> bool {
        matches!(self, Self::Wide | Self::Json | Self::Yaml)
    }
}

/// How a text is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Prose {
    Text,
    Json,
    Yaml,
}

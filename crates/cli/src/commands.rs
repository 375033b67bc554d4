//! The verbs: ask, judge, print, and the exit code.

use crate::args::{
    Args, Caller, ClusterArgs, DoctorArgs, ExplainArgs, ListArgs, NodesArgs, Output, Verb, completion,
};
use crate::ask::{Gap, Seen};
use crate::client::{Cluster, cluster};
use crate::doctor::{self, Scope};
use crate::list::{Layout, Row, Seats};
use crate::view::PipelineRun;
use crate::{complete, gather, list, nodes, output, story, watch};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use placement::keys;
use serde::Serialize;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::ExitCode;
use tokio::join;

/// Doctor found something bad, or there is no such run.
const BAD: u8 = 1;
/// The API server could not be asked.
const UNASKED: u8 = 3;
/// Namespaces that the webhooks leave out; a dry run there would prove nothing.
const LEFT_OUT: [&str; 2] = ["kube-system", keys::NAMESPACE];

/// Rows as data.
#[derive(Serialize)]
struct Items<'a, T> {
    items: &'a [T],
}

/// Runs a verb.
pub(crate) fn run(caller: Caller, args: Args) -> ExitCode {
    block_on(answer(caller, args))
}

/// Completes the last of these words.
pub(crate) fn complete(caller: Caller, words: &[OsString]) -> ExitCode {
    let words: Vec<_> = words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    block_on(async { printed(&complete::answer(caller, &words).await) })
}

fn block_on(answer: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(answer);
            // A name lookup that hangs must not hold up the end.
            runtime.shutdown_background();
            code
        }
        Err(error) => failed(&format!("no runtime can be started: {error}")),
    }
}

async fn answer(caller: Caller, args: Args) -> ExitCode {
    let cluster_args = &args.cluster;
    match args.command {
        Verb::Completion { shell } => printed(&String::from_utf8_lossy(&completion(caller, shell))),
        Verb::List(args) => {
            with_cluster(cluster_args, async |cluster| {
                Box::pin(list(&cluster, &args)).await
            })
            .await
        }
        Verb::Explain(args) => {
            with_cluster(cluster_args, async |cluster| {
                Box::pin(explain(&cluster, &args)).await
            })
            .await
        }
        Verb::Nodes(args) => with_cluster(cluster_args, async |cluster| nodes(&cluster, &args).await).await,
        Verb::Doctor(args) => {
            with_cluster(cluster_args, async |cluster| {
                Box::pin(doctor(&cluster, args)).await
            })
            .await
        }
    }
}

async fn with_cluster(args: &ClusterArgs, verb: impl AsyncFnOnce(Cluster) -> Seen<ExitCode>) -> ExitCode {
    let found = match cluster(args).await {
        Ok(found) => found,
        Err(error) => return failed(&error.to_string()),
    };
    let url = found.url.clone();
    verb(found).await.unwrap_or_else(|gap| match gap {
        Gap::Forbidden(_) | Gap::NotServed(_) | Gap::Unreadable(_) => failed(&gap.to_string()),
        Gap::Late(..) | Gap::Failed(..) => failed(&format!("{gap} ({url})")),
    })
}

fn failed(sentence: &str) -> ExitCode {
    output::note(&format!("error: {sentence}"));
    ExitCode::from(UNASKED)
}

fn printed(text: &str) -> ExitCode {
    match output::print(text) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => failed(&format!("cannot print: {error}")),
    }
}

fn notes<'a>(gaps: impl IntoIterator<Item = &'a Gap>) {
    gaps.into_iter()
        .for_each(|gap| output::note(&format!("note: {gap}")));
}

async fn list(cluster: &Cluster, args: &ListArgs) -> Seen<ExitCode> {
    let namespace = (!args.all_namespaces).then_some(cluster.namespace.as_str());
    let layout = Layout {
        namespaces: args.all_namespaces,
        wide: args.output == Output::Wide,
    };
    if args.watch {
        return watch::watch(&cluster.server, namespace, layout, args.output).await;
    }
    let server = &cluster.server;
    let labelled = ListParams::default().labels(keys::OPT_IN);
    let runs = server.reach::<PipelineRun>(namespace);
    let (now, runs, (sets, pods), config) = join!(
        server.clock(),
        runs.list(labelled),
        gather::placeholders(server, namespace),
        gather::config(server)
    );
    let (now, runs) = (now?, runs?);
    let seats = Seats::of(
        sets.as_deref().unwrap_or_default(),
        pods.as_deref().unwrap_or_default(),
    );
    let default = config.ok().map(|config| config.default_strategy);
    let rows = list::rows(&runs, &seats, default);
    notes(sets.as_ref().err().into_iter().chain(pods.as_ref().err()));
    if rows.is_empty() && !matches!(args.output, Output::Json | Output::Yaml) {
        output::note(&nothing(namespace));
        return Ok(ExitCode::SUCCESS);
    }
    Ok(printed(&rendered(args.output, &rows, name, || {
        layout.table(&rows, now)
    })))
}

fn nothing(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("No labelled PipelineRuns in namespace {namespace}."),
        None => "No labelled PipelineRuns in any namespace.".to_owned(),
    }
}

fn name(row: &Row) -> String {
    format!("pipelinerun.tekton.dev/{}\n", row.name)
}

fn rendered<T: Serialize>(
    format: Output,
    rows: &[T],
    name: impl Fn(&T) -> String,
    table: impl FnOnce() -> String,
) -> String {
    match format {
        Output::Table | Output::Wide => table(),
        Output::Json => output::data(&Items { items: rows }, false),
        Output::Yaml => output::data(&Items { items: rows }, true),
        Output::Name => rows.iter().map(name).collect(),
    }
}

async fn explain(cluster: &Cluster, args: &ExplainArgs) -> Seen<ExitCode> {
    let (namespace, name) = named(&args.run, &cluster.namespace);
    match Box::pin(gather::facts(&cluster.server, namespace, name)).await? {
        Some(facts) => {
            let story = story::story(&facts);
            let text = || story.text(output::bold);
            Ok(printed(&output::prose(args.output, &story, text)))
        }
        None => Ok(unknown(cluster, namespace, name).await),
    }
}

/// A run by its name, as `list -o name` has it, or with its namespace, as `doctor` and `nodes` have it.
fn named<'a>(run: &'a str, namespace: &'a str) -> (&'a str, &'a str) {
    match run.split_once('/') {
        Some((kind, name)) if kind.starts_with("pipelinerun") => (namespace, name),
        Some((namespace, name)) => (namespace, name),
        None => (namespace, run),
    }
}

async fn unknown(cluster: &Cluster, namespace: &str, name: &str) -> ExitCode {
    let alike = gather::alike(&cluster.server, namespace, name).await;
    let hint = match alike.as_slice() {
        [] => String::new(),
        names => format!(" Did you mean {}?", names.join(", or ")),
    };
    output::note(&format!(
        "error: there is no PipelineRun {name} in namespace {namespace}.{hint}"
    ));
    ExitCode::from(BAD)
}

async fn nodes(cluster: &Cluster, args: &NodesArgs) -> Seen<ExitCode> {
    let server = &cluster.server;
    let all = server.cluster::<Node>();
    let (found, seen) = join!(
        all.list(ListParams::default()),
        gather::live_pods(server, &cluster.namespace)
    );
    let rows = nodes::rows(&found?, &seen.pods);
    notes(&seen.gaps);
    if !seen.gaps.is_empty() {
        output::note("note: runs of other namespaces are missing, and what is free is less than is shown");
    }
    let name = |row: &nodes::Row| format!("node/{}\n", row.node);
    let table = || nodes::text(&rows, args.output == Output::Wide);
    Ok(printed(&rendered(args.output, &rows, name, table)))
}

async fn doctor(cluster: &Cluster, args: DoctorArgs) -> Seen<ExitCode> {
    let own = cluster.namespace.as_str();
    let left_out = LEFT_OUT.contains(&own) || own == args.install_namespace;
    let scope = Scope {
        namespace: args.install_namespace,
        tekton: args.tekton_namespace,
        trial: if left_out { "default" } else { own }.to_owned(),
    };
    let exam = Box::pin(doctor::gather::exam(&cluster.server, scope)).await?;
    let findings = doctor::findings(&exam);
    let text = || doctor::text(&findings, output::mark);
    let code = printed(&output::prose(args.output, &Items { items: &findings }, text));
    Ok(if doctor::is_bad(&findings) {
        ExitCode::from(BAD)
    } else {
        code
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_may_be_named_in_three_ways() {
        assert_eq!(named("build", "ci"), ("ci", "build"));
        assert_eq!(named("pipelinerun.tekton.dev/build", "ci"), ("ci", "build"));
        assert_eq!(named("web/build", "ci"), ("web", "build"));
    }
}

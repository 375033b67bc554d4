//! The commands: read, compute, print, and return the exit code.

mod cost;
mod explain;
mod read;
mod timeline;
mod version;
mod wait;
mod write;

use crate::args::{Args, Caller, ClusterArgs, CompletionArgs, DisableArgs, DryRun, Verb};
use crate::client::{Cluster, cluster};
use crate::requests::{RequestError, RequestResult};
use crate::{args, complete, output};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code: doctor found something bad, there is no such run, or the run is not in the expected state.
const BAD: u8 = 1;
/// Exit code: wrong usage.
const USAGE: u8 = 2;
/// Exit code: the API server did not answer, or the user lacks a right that the command needs.
const UNASKED: u8 = 3;

/// Runs a command.
pub(crate) fn run(caller: Caller, args: Args) -> ExitCode {
    block_on(answer(caller, args))
}

/// `disable --all-namespaces --stop-controller`.
pub(crate) fn release_all(namespace: &str) -> ExitCode {
    let args = DisableArgs {
        all_namespaces: true,
        stop_controller: true,
        install_namespace: namespace.to_owned(),
        dry_run: DryRun::None,
    };
    let cluster = ClusterArgs::default();
    block_on(with_cluster(&cluster, async |cluster| {
        Box::pin(write::disable(&cluster, &args)).await
    }))
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
            // A name lookup that hangs must not delay the exit.
            runtime.shutdown_background();
            code
        }
        Err(error) => failed(&format!("no runtime can be started: {error}")),
    }
}

async fn answer(caller: Caller, args: Args) -> ExitCode {
    let Args { cluster, command } = args;
    match command {
        Verb::Completion(args) => completion(caller, &args),
        Verb::Version(args) if args.client => version::of_client(&args),
        verb => {
            with_cluster(&cluster, async |cluster| {
                Box::pin(run_in(caller, &cluster, verb)).await
            })
            .await
        }
    }
}

async fn run_in(caller: Caller, cluster: &Cluster, verb: Verb) -> RequestResult<ExitCode> {
    match verb {
        Verb::List(args) => Box::pin(read::list(cluster, &args)).await,
        Verb::Explain(args) => Box::pin(explain::explain(cluster, &args)).await,
        Verb::Wait(args) => Box::pin(wait::wait(cluster, &args)).await,
        Verb::Timeline(args) => Box::pin(timeline::timeline_of(cluster, &args)).await,
        Verb::Cost(args) => Box::pin(cost::cost(cluster, &args)).await,
        Verb::Nodes(args) => read::nodes(cluster, &args).await,
        Verb::Doctor(args) => Box::pin(read::doctor(cluster, args)).await,
        Verb::Release(args) => write::release(cluster, &args).await,
        Verb::Disable(args) => Box::pin(write::disable(cluster, &args)).await,
        Verb::Enable(args) => Box::pin(write::enable(cluster, &args)).await,
        Verb::Version(args) => version::version(cluster, &args).await,
        // Sends no request, so it also works without a cluster.
        Verb::Completion(args) => Ok(completion(caller, &args)),
    }
}

fn completion(caller: Caller, args: &CompletionArgs) -> ExitCode {
    match args.shell {
        Some(shell) => printed(&String::from_utf8_lossy(&args::completion(caller, shell))),
        None => installed(complete::install(std::env::var_os("PATH").as_deref())),
    }
}

async fn with_cluster(
    args: &ClusterArgs,
    verb: impl AsyncFnOnce(Cluster) -> RequestResult<ExitCode>,
) -> ExitCode {
    let found = match cluster(args).await {
        Ok(found) => found,
        Err(error) => return failed(&error.to_string()),
    };
    let url = found.url.clone();
    verb(found).await.unwrap_or_else(|error| match error {
        RequestError::Changed(_) => refused(&error.to_string()),
        RequestError::Forbidden(_) | RequestError::NotServed(_) | RequestError::Unreadable(_) => {
            failed(&error.to_string())
        }
        RequestError::Late(..) | RequestError::Failed(..) => failed(&format!("{error} ({url})")),
    })
}

fn installed(link: std::io::Result<PathBuf>) -> ExitCode {
    match link {
        Ok(link) => printed(&format!(
            "{} is there: kubectl completes the plugin.\n",
            link.display()
        )),
        Err(error) => refused(&format!("the link for kubectl cannot be created: {error}")),
    }
}

/// Prints an error that the API server answered, or that follows from its answer.
fn refused(sentence: &str) -> ExitCode {
    output::note(&format!("error: {sentence}"));
    ExitCode::from(BAD)
}

fn failed(sentence: &str) -> ExitCode {
    output::note(&format!("error: {sentence}"));
    ExitCode::from(UNASKED)
}

fn printed(text: &str) -> ExitCode {
    match output::print(text) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the pipe has ended.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => failed(&format!("cannot print: {error}")),
    }
}

fn notes<'a>(errors: impl IntoIterator<Item = &'a RequestError>) {
    errors
        .into_iter()
        .for_each(|error| output::note(&format!("note: {error}")));
}

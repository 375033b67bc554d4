//! `list`, `nodes` and `doctor`.

use super::{BAD, notes, printed, refused};
use crate::args::{DoctorArgs, FailOn, ListArgs, NodesArgs, Output};
use crate::client::Cluster;
use crate::doctor::{self, Level};
use crate::filter::Filter;
use crate::list::{Layout, PlaceholdersByName, Row};
use crate::requests::RequestResult;
use crate::target::Target;
use crate::view::{PipelineRun, RunView};
use crate::{gather, list, nodes, output, watch};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use placement::keys;
use serde::Serialize;
use std::process::ExitCode;
use tokio::join;

/// Rows as data.
#[derive(Serialize)]
struct Items<'a, T> {
    items: &'a [T],
}

/// `list`.
pub(super) async fn list(cluster: &Cluster, args: &ListArgs) -> RequestResult<ExitCode> {
    let target = args.target()?;
    let own = target.as_ref().and_then(|target| target.namespace.as_deref());
    let namespace = own.or((!args.all_namespaces).then_some(&cluster.namespace));
    let filter = Filter::of(args, target.as_ref());
    let layout = Layout {
        namespaces: args.all_namespaces,
        wide: args.output == Output::Wide,
        headed: !args.no_headers,
    };
    let server = &cluster.server;
    let runs = server.reach::<PipelineRun>(namespace);
    if args.watch {
        if let (Some(target), Some(namespace)) = (&target, namespace)
            && runs.get(&target.name).await?.is_none()
        {
            return Ok(unknown(cluster, namespace, &target.name).await);
        }
        return watch::watch(server, namespace, &filter, layout, args.output).await;
    }
    let (now, runs, (sets, pods), config) = join!(
        server.clock(),
        runs.collect(filter.list(), |run| RunView::of(&run)),
        gather::placeholders(server, namespace),
        gather::config(server)
    );
    let (now, runs) = (now?, runs?);
    let placeholders = PlaceholdersByName::of(
        sets.as_deref().unwrap_or_default(),
        pods.as_deref().unwrap_or_default(),
    );
    let mut rows = list::rows(runs.iter(), &placeholders, config.as_ref().ok());
    if let Some(column) = args.sort_by {
        list::sort(&mut rows, column);
    }
    let config = config.as_ref().err().filter(|_| args.output.has_deadlines());
    let errors = [sets.as_ref().err(), pods.as_ref().err(), config];
    notes(errors.into_iter().flatten());
    if rows.is_empty()
        && let Some(code) = without_rows(cluster, args, target.as_ref(), namespace).await
    {
        return Ok(code);
    }
    Ok(printed(&rendered(args.output, &rows, name, || {
        layout.table(&rows, now)
    })))
}

/// The answer to a list without rows; `None` for the empty list as data.
async fn without_rows(
    cluster: &Cluster,
    args: &ListArgs,
    target: Option<&Target>,
    namespace: Option<&str>,
) -> Option<ExitCode> {
    let is_filtered = args.selector.is_some() || args.field_selector.is_some();
    let matching = if is_filtered {
        " that matches the selector"
    } else {
        ""
    };
    match (target, namespace) {
        (Some(target), Some(namespace)) if !is_filtered => {
            Some(unknown(cluster, namespace, &target.name).await)
        }
        (Some(Target { name, .. }), _) => {
            let place = place(namespace);
            Some(refused(&format!(
                "there is no PipelineRun {name} {place}{matching}."
            )))
        }
        (None, _) if matches!(args.output, Output::Json | Output::Yaml) => None,
        (None, _) => {
            let place = place(namespace);
            output::note(&format!("There is no labelled PipelineRun {place}{matching}."));
            Some(ExitCode::SUCCESS)
        }
    }
}

fn place(namespace: Option<&str>) -> String {
    namespace.map_or("in any namespace".to_owned(), |namespace| {
        format!("in namespace {namespace}")
    })
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

/// Reports that the run does not exist, and suggests similar names.
pub(super) async fn unknown(cluster: &Cluster, namespace: &str, name: &str) -> ExitCode {
    let alike = gather::alike(&cluster.server, namespace, name).await;
    let hint = match alike.as_slice() {
        [] => String::new(),
        names => format!(" Did you mean {}?", names.join(", or ")),
    };
    refused(&format!(
        "there is no PipelineRun {name} in namespace {namespace}.{hint}"
    ))
}

/// `nodes`.
pub(super) async fn nodes(cluster: &Cluster, args: &NodesArgs) -> RequestResult<ExitCode> {
    let server = &cluster.server;
    let all = server.cluster::<Node>();
    let (found, seen) = join!(
        all.list(ListParams {
            label_selector: args.selector.clone(),
            ..ListParams::default()
        }),
        gather::live_pods(server, &cluster.namespace)
    );
    if let [_, error] = seen.errors.as_slice() {
        // Without any pods, each node would be shown as free.
        return Err(error.clone());
    }
    let rows = nodes::rows(&found?, &seen.pods);
    notes(&seen.errors);
    if !seen.errors.is_empty() {
        output::note("note: runs of other namespaces are missing, and what is free is less than is shown");
    }
    let name = |row: &nodes::Row| format!("node/{}\n", row.node);
    let table = || nodes::text(&rows, args.output == Output::Wide, !args.no_headers);
    Ok(printed(&rendered(args.output, &rows, name, table)))
}

/// `doctor`.
pub(super) async fn doctor(cluster: &Cluster, args: DoctorArgs) -> RequestResult<ExitCode> {
    let (namespace, tekton) = (args.install_namespace, args.tekton_namespace);
    let trial = trial_namespace(cluster, &namespace);
    let findings = if args.pre {
        let pre = Box::pin(doctor::read::pre(&cluster.server, namespace, tekton, trial)).await?;
        doctor::pre_findings(&pre)
    } else {
        let snapshot = doctor::read::snapshot(&cluster.server, namespace, tekton, trial);
        doctor::findings(&Box::pin(snapshot).await?)
    };
    let text = || doctor::text(&findings, output::mark);
    let code = printed(&output::prose(args.output, &Items { items: &findings }, text));
    let limit = match args.fail_on {
        FailOn::Warning => Level::Warning,
        FailOn::Bad => Level::Bad,
    };
    Ok(if doctor::is_at_least(&findings, limit) {
        ExitCode::from(BAD)
    } else {
        code
    })
}

/// The namespace of doctor's dry runs. Webhooks and policies exclude some namespaces, where a dry run would prove nothing.
fn trial_namespace(cluster: &Cluster, installation: &str) -> String {
    let own = cluster.namespace.as_str();
    let is_excluded = keys::EXCLUDED_NAMESPACES.contains(&own) || own == installation;
    if is_excluded { "default" } else { own }.to_owned()
}

#[cfg(test)]
mod tests;

//! `explain`: explains a run once, or again whenever it changes.

use super::printed;
use super::read::unknown;
use crate::args::{ExplainArgs, Prose};
use crate::client::Cluster;
use crate::explanation::{self, Explanation};
use crate::filter::Filter;
use crate::follow::of_run;
use crate::requests::RequestResult;
use crate::{gather, output};
use futures::{FutureExt, StreamExt};
use placement::keys;
use placement::names::RunKey;
use std::process::ExitCode;
use std::time::Duration;

/// Several objects change at once, and each explanation takes a dozen requests.
const PAUSE: Duration = Duration::from_secs(1);

/// `explain`.
pub(super) async fn explain(cluster: &Cluster, args: &ExplainArgs) -> RequestResult<ExitCode> {
    let target = args.run.target()?;
    let namespace = target.namespace(&cluster.namespace);
    let Some(facts) = Box::pin(gather::facts(&cluster.server, namespace, &target.name)).await? else {
        return Ok(unknown(cluster, namespace, &target.name).await);
    };
    let explanation = explanation::explain(&facts);
    let code = printed(&text(args.output, &explanation));
    if args.watch && !facts.view.run.done {
        return followed(cluster, &facts.view.run.key, explanation, args.output).await;
    }
    Ok(code)
}

fn text(format: Prose, explanation: &Explanation) -> String {
    output::prose(format, explanation, || explanation.text(output::bold))
}

/// Explains the run again after changes, until the run is done or deleted.
async fn followed(
    cluster: &Cluster,
    key: &RunKey,
    mut told: Explanation,
    format: Prose,
) -> RequestResult<ExitCode> {
    let pods = Filter::labels(&format!("{}={}", keys::TEKTON_PIPELINE_RUN, key.name));
    let mut changes = of_run(&cluster.server, key, &pods);
    while let Some(change) = changes.next().await {
        change?;
        tokio::time::sleep(PAUSE).await;
        while let Some(Some(change)) = changes.next().now_or_never() {
            change?;
        }
        let facts = Box::pin(gather::facts(&cluster.server, &key.namespace, &key.name)).await?;
        let Some(facts) = facts.filter(|facts| facts.view.run.key == *key) else {
            output::note(&format!("PipelineRun {key} was deleted."));
            break;
        };
        let explanation = explanation::explain(&facts);
        if !explanation.is_as(&told) && output::print(&again(format, &explanation)).is_err() {
            break;
        }
        if facts.view.run.done {
            break;
        }
        told = explanation;
    }
    Ok(ExitCode::SUCCESS)
}

/// Separated from the explanation before it.
fn again(format: Prose, explanation: &Explanation) -> String {
    let before = match format {
        Prose::Text => "\n",
        Prose::Json => "",
        Prose::Yaml => "---\n",
    };
    format!("{before}{}", text(format, explanation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Caller, Verb, parse};
    use crate::fake_api::{AsCluster, FakeApi, run_path};
    use crate::fixture::{done, run};
    use serde_json::json;
    use tokio::time::{sleep, timeout};

    async fn explained(api: &FakeApi, line: &str) -> RequestResult<ExitCode> {
        let words = ["x", "describe"]
            .into_iter()
            .chain(line.split(' '))
            .map(Into::into);
        let Verb::Explain(args) = parse(Caller::of("x"), words).unwrap().command else {
            panic!()
        };
        explain(&api.cluster(), &args).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_watched_explanation_ends_when_the_run_is_done_and_not_before() {
        let api = FakeApi::default();
        let put = |run| api.put(&run_path("build"), serde_json::to_value(run).unwrap());
        put(run(&json!({})));
        let watched = timeout(Duration::from_mins(1), explained(&api, "pr/build -w")).await;
        watched.expect_err("it goes on");
        let end = async {
            sleep(PAUSE / 2).await;
            put(run(&done()));
        };
        let (code, ()) = tokio::join!(explained(&api, "pr build --watch -o json"), end);
        assert_eq!(code, Ok(ExitCode::SUCCESS));
        assert_eq!(explained(&api, "build -w").await, Ok(ExitCode::SUCCESS));
    }
}

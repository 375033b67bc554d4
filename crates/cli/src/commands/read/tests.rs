//! What `list` says about a run that is not there.

use super::*;
use crate::args::{Caller, Verb, parse};
use crate::fake_api::{AsCluster, FakeApi, run_path};
use crate::fixture::run;
use serde_json::json;

async fn listed(api: &FakeApi, line: &str) -> ExitCode {
    let words = std::iter::once("x").chain(line.split(' ')).map(Into::into);
    let Verb::List(args) = parse(Caller::of("x"), words).unwrap().command else {
        panic!("{line} lists nothing");
    };
    Box::pin(list(&api.cluster(), &args)).await.unwrap()
}

#[tokio::test]
async fn a_named_run_that_is_not_there_is_an_error_and_a_namespace_without_runs_is_none() {
    let api = FakeApi::default();
    for (line, code) in [
        ("list build", BAD),
        ("list -A build", BAD),
        ("list build -l team=b", BAD),
        ("list -A", 0),
    ] {
        assert_eq!(listed(&api, line).await, ExitCode::from(code), "{line}");
    }
    let there = serde_json::to_value(run(&json!({}))).unwrap();
    api.put(&run_path("build"), there);
    for line in ["list build", "list -A build"] {
        assert_eq!(listed(&api, line).await, ExitCode::SUCCESS, "{line}");
    }
}

//! `list` without the run, and `nodes` without pods.

use super::*;
use crate::args::{Caller, Verb, parse};
use crate::fake_api::{AsCluster, FakeApi, run_path};
use crate::fixture::run;
use crate::requests::RequestError;
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
        ("list build --watch", BAD),
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

#[tokio::test]
async fn nodes_are_not_shown_as_free_if_no_pod_can_be_read() {
    let api = FakeApi::default();
    api.put("/api/v1/nodes/node-1", json!({"metadata": {"name": "node-1"}}));
    api.forbid("pods");
    let words = ["x", "nodes"].map(Into::into);
    let Verb::Nodes(args) = parse(Caller::of("x"), words).unwrap().command else {
        panic!("nodes has another verb");
    };
    let error = nodes(&api.cluster(), &args).await.unwrap_err();
    assert!(matches!(error, RequestError::Forbidden(_)), "{error}");
}

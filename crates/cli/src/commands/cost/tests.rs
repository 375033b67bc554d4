//! The reads of `cost`, and its price file.

use super::*;
use crate::args::{Caller, Verb, parse};
use crate::fake_api::{AsCluster, FakeApi, run_path};
use crate::fixture::{done, run};

fn args(line: &str) -> CostArgs {
    let words = ["x", "cost"]
        .into_iter()
        .chain(line.split_whitespace())
        .map(Into::into);
    let Verb::Cost(args) = parse(Caller::of("x"), words).unwrap().command else {
        panic!()
    };
    args
}

async fn code(api: &FakeApi, line: &str) -> RequestResult<ExitCode> {
    Box::pin(cost(&api.cluster(), &args(line))).await
}

fn api() -> FakeApi {
    let api = FakeApi::default();
    api.put(&run_path("build"), serde_json::to_value(run(&done())).unwrap());
    api
}

#[tokio::test]
async fn labelled_runs_that_match_the_selector_are_read_and_nothing_is_written() {
    let api = api();
    for line in [
        "",
        "--since 0 -o json",
        "-o csv --by namespace",
        "-l team=blue --by pipeline",
    ] {
        assert_eq!(code(&api, line).await, Ok(ExitCode::SUCCESS), "{line}");
    }
    let calls = api.calls();
    let last = calls.iter().rfind(|call| call.line.contains("/pipelineruns?"));
    let line = &last.unwrap().line;
    assert!(
        line.contains("labelSelector=tekton.dev%2Fcustom-pod-affinity%2Cteam%3Dblue"),
        "{line}"
    );
    assert!(api.writes().is_empty());
    api.forbid("pods");
    assert_eq!(code(&api, "").await, Ok(ExitCode::SUCCESS));
    api.forbid("pipelineruns");
    assert!(code(&api, "").await.is_err());
}

#[tokio::test]
async fn a_price_file_that_cannot_be_read_is_wrong_usage() {
    let prices = "--prices /nowhere/prices.csv";
    assert_eq!(code(&FakeApi::default(), prices).await, Ok(ExitCode::from(USAGE)));
}

//! Task pods end as the annotations of their run say.

use crate::support::SOON;
use crate::support::testbeds::plain;
use serde_json::json;
use testbed::kwok::{MESSAGE, result};
use testbed::runs::{self, RunSpec, State};

#[e2e_test]
async fn a_task_lasts_as_long_and_has_the_result_that_annotations_say() {
    let bed = &plain().await;
    let namespace = bed.namespace("lasting").await.unwrap();
    let client = bed.client().await.unwrap();
    let run = RunSpec::new(&namespace, "run").task("only", &[]).lasting("4s");
    let mut run = run.annotation(MESSAGE, &result("word", "a \"b\""));
    let pipeline = &mut run.manifest["spec"]["pipelineSpec"];
    pipeline["tasks"][0]["taskSpec"]["results"] = json!([{"name": "word"}]);
    pipeline["results"] = json!([{"name": "word", "value": "$(tasks.only.results.word)"}]);
    run.create(&client).await.unwrap();
    let done = bed.until_succeeded(&run, SOON).await.unwrap();
    let pods = runs::pods(&client, &namespace, "run").await.unwrap();
    let created = pods[0].metadata.creation_timestamp.as_ref().unwrap().0;
    let completed: jiff::Timestamp = done.data["status"]["completionTime"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let took = completed.duration_since(created).as_secs();
    assert!(took >= 4, "{took} s");
    let results = json!([{"name": "word", "value": "a \"b\""}]);
    assert_eq!(done.data["status"]["results"], results);
}

#[e2e_test]
async fn a_failing_task_fails_its_run_and_a_retry_saves_it() {
    let bed = &plain().await;
    let client = bed.client().await.unwrap();
    let namespace = bed.namespace("failing").await.unwrap();
    let fails = RunSpec::new(&namespace, "fails").task("only", &[]).ending("fail");
    let retried = RunSpec::new(&namespace, "retried")
        .task("only", &[])
        .ending("fail-once");
    let retried = retried.task_field("retries", json!(2));
    fails.create(&client).await.unwrap();
    retried.create(&client).await.unwrap();
    let failed = bed.until_run(&fails, "to fail", SOON, |run| {
        matches!(runs::state(run), State::Failed(_))
    });
    assert_eq!(
        runs::state(&failed.await.unwrap()),
        State::Failed("Failed".into())
    );
    bed.until_succeeded(&retried, SOON).await.unwrap();
    assert_eq!(
        runs::pods(&client, &namespace, "retried").await.unwrap().len(),
        2,
        "the first try and one more"
    );
}

#[e2e_test]
async fn a_hanging_task_ends_by_its_timeout_only() {
    let bed = &plain().await;
    let namespace = bed.namespace("hanging").await.unwrap();
    let run = RunSpec::new(&namespace, "run").task("only", &[]).ending("hang");
    let run = run.spec("timeouts", json!({"pipeline": "5s"}));
    run.create(&bed.client().await.unwrap()).await.unwrap();
    let done = bed.until_run(&run, "to time out", SOON, |run| {
        !matches!(runs::state(run), State::Running | State::Pending)
    });
    assert_eq!(
        runs::state(&done.await.unwrap()),
        State::Failed("PipelineRunTimeout".into())
    );
}

//! A label of the Namespace opts in runs that are created in it without a label of their own.

use crate::support::SOON;
use crate::support::cli::{plain, tool, until_output_contains};
use crate::support::install::follow;
use crate::support::pages::block;
use crate::support::runs::{create, nodes_of};
use crate::support::testbeds::installed;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::Request;
use kube::{Client, ResourceExt};
use placement::keys;
use serde_json::json;
use testbed::Testbed;
use testbed::runs::{self, RunSpec, State};

/// Labels a Namespace. API servers apply the label after a moment.
async fn label(client: &Client, namespace: &str, value: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": {keys::OPT_IN: value}}}));
    namespaces
        .patch(namespace, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// A new Namespace with a label that opts in.
async fn labelled(bed: &Testbed, name: &str, value: &str) -> String {
    let namespace = bed.namespace(name).await.unwrap();
    let client = bed.client().await.unwrap();
    label(&client, &namespace, value).await;
    until_it_applies(bed, &client, &namespace).await;
    namespace
}

async fn until_it_applies(bed: &Testbed, client: &Client, namespace: &str) {
    let trial = serde_json::from_value(RunSpec::diamond(namespace, "trial").manifest).unwrap();
    let api = runs::runs(client, namespace);
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    bed.until("the label of a Namespace to apply", SOON, async || {
        let tried = api.create(&dry_run, &trial).await;
        match tried.map_err(|error| error.to_string())? {
            run if runs::state(&run) == State::Pending => Ok(()),
            run => Err(format!("{:?}", run.labels())),
        }
    })
    .await
    .unwrap();
}

fn opt_in(run: &DynamicObject) -> Option<&str> {
    run.labels().get(keys::OPT_IN).map(String::as_str)
}

/// Whether the run is neither labelled nor held.
fn is_untouched(run: &DynamicObject) -> bool {
    opt_in(run).is_none() && run.annotations().is_empty() && runs::state(run) == State::Running
}

#[e2e_test]
async fn a_run_without_the_label_gets_that_of_its_namespace_and_all_its_pods_have_one_node() {
    let bed = &installed().await;
    let namespace = bed.namespace("team-a").await.unwrap();
    let run = RunSpec::diamond(&namespace, "run");
    follow(bed, &block("docs/concepts.md", "## Opt in by namespace"), &run).await;
    until_it_applies(bed, &bed.client().await.unwrap(), &namespace).await;
    let created = create(bed, &run).await;
    assert_eq!(runs::state(&created), State::Pending);
    assert_eq!(opt_in(&created), Some("true"));
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(nodes_of(bed, &run).await.len(), 1);

    let explain = format!("explain run -n {namespace}");
    let words = format!("The run got this label from Namespace {namespace} when it was created.");
    until_output_contains(bed, &explain, &words).await;
    let list = tool(bed, &format!("list -o wide -n {namespace}")).await;
    let row = plain(&list.out).lines().nth(1).unwrap().to_owned();
    assert!(row.contains(" namespace "), "{list:?}");
}

#[e2e_test]
async fn the_label_of_a_run_takes_precedence_over_the_label_of_its_namespace() {
    let bed = &installed().await;
    let namespace = labelled(bed, "opted-in-or-not", "isolateAlways").await;
    let by_namespace = create(bed, &RunSpec::diamond(&namespace, "by-namespace")).await;
    assert_eq!(opt_in(&by_namespace), Some("isolateAlways"));
    assert_eq!(by_namespace.annotations()[keys::OPTED_IN_BY], keys::BY_NAMESPACE);

    let declined = create(bed, &RunSpec::diamond(&namespace, "declined").opted_in("false")).await;
    assert_eq!(runs::state(&declined), State::Running);
    assert_eq!(opt_in(&declined), Some("false"));
    let copied = RunSpec::diamond(&namespace, "copied")
        .opted_in("colocateAlways")
        .annotation(keys::OPTED_IN_BY, keys::BY_NAMESPACE);
    let copied = create(bed, &copied).await;
    assert_eq!(opt_in(&copied), Some("colocateAlways"));
    for run in [declined, copied] {
        assert!(!run.annotations().contains_key(keys::OPTED_IN_BY));
    }
}

#[e2e_test]
async fn a_run_that_existed_before_its_namespace_was_labelled_stays_unchanged() {
    let bed = &installed().await;
    let namespace = bed.namespace("opted-in-late").await.unwrap();
    let client = bed.client().await.unwrap();
    let run = RunSpec::diamond(&namespace, "early").lasting("2s");
    assert!(opt_in(&create(bed, &run).await).is_none());
    label(&client, &namespace, "true").await;
    until_it_applies(bed, &client, &namespace).await;
    let done = bed.until_succeeded(&run, SOON).await.unwrap();
    assert!(opt_in(&done).is_none() && !done.labels().contains_key(keys::GROUP));
}

/// Creates a run, and returns the warnings of the API server.
async fn warnings(client: &Client, run: &RunSpec) -> Vec<String> {
    let path = format!("/apis/tekton.dev/v1/namespaces/{}/pipelineruns", run.namespace());
    let request = Request::new(path)
        .create(&PostParams::default(), run.manifest.to_string().into_bytes())
        .unwrap();
    let response = client.send(request.map(Body::from)).await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
    let warnings = response.headers().get_all("warning").iter();
    warnings
        .map(|warning| warning.to_str().unwrap().replace('\\', ""))
        .collect()
}

#[e2e_test]
async fn an_unknown_label_of_a_namespace_is_a_warning_and_the_run_runs_as_without_it() {
    let bed = &installed().await;
    let namespace = bed.namespace("opted-in-by-mistake").await.unwrap();
    let client = bed.client().await.unwrap();
    label(&client, &namespace, "yes").await;
    let mut tries = 0;
    let (name, warning) = bed
        .until("a warning", SOON, async || {
            tries += 1;
            let run = RunSpec::diamond(&namespace, &format!("run-{tries}"));
            match warnings(&client, &run).await.as_slice() {
                [warning] => Ok((run.name().to_owned(), warning.clone())),
                other => Err(other.to_vec()),
            }
        })
        .await
        .unwrap();
    for part in [&namespace, keys::OPT_IN, "\"\", true, colocateAlways", "or false"] {
        assert!(warning.contains(part), "{part} is missing: {warning}");
    }
    let run = runs::runs(&client, &namespace).get(&name).await.unwrap();
    assert!(is_untouched(&run), "{:?}", run.metadata);
    let own = RunSpec::diamond(&namespace, "own").opted_in("true");
    assert_eq!(warnings(&client, &own).await, [""; 0]);
}

//! Tekton's own examples end with the label as they do without it, and each run has one node.

use crate::support::SOON;
use crate::support::beds::{add_plenty, shipped};
use crate::support::provisioner::{Provisioner, WITH_THE_FIRST_POD};
use crate::support::runs::create_manifest;
use futures::future::{join_all, try_join_all};
use futures::{StreamExt, stream};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use placement::keys;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use testbed::runs::{self, State};
use testbed::{Testbed, apply};
use tokio::time::timeout;

/// So many end, of which so many succeed: fake nodes play no step, so that an example whose tasks hand results on fails in either
/// way, as one does that loads something from elsewhere.
const AT_LEAST: (usize, usize) = (40, 25);
const AT_ONCE: usize = 12;
/// Nobody here fetches what is elsewhere, and Tekton would wait for a minute.
const FETCHED: (&str, &str) = ("default-maximum-resolution-timeout", "5s");

/// A file, in a namespace of its own.
#[derive(Clone, Debug)]
struct Example {
    file: PathBuf,
    namespace: String,
    runs: Vec<String>,
}

/// With those of its folders for what Tekton does not promise yet.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let (folders, files): (Vec<_>, Vec<_>) = entries
        .map(|entry| entry.unwrap().path())
        .partition(|path| path.is_dir());
    let is_yaml = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "yaml");
    let below = folders.iter().flat_map(|folder| self::files(folder));
    files.into_iter().filter(is_yaml).chain(below).collect()
}

/// Creates all that is in a file; `None` if Kubernetes or Tekton refuse some of it, or it is for a whole cluster.
async fn create(bed: &Testbed, file: &Path, namespace: String, label: Option<&str>) -> Option<Example> {
    bed.namespace(&namespace).await.unwrap();
    let client = bed.client().await.unwrap();
    let mut runs = Vec::new();
    for mut object in apply::documents(file).ok()? {
        let is_run = object["kind"] == "PipelineRun";
        if let Some(label) = label.filter(|_| is_run) {
            object["metadata"]["labels"][keys::OPT_IN] = label.into();
        }
        let created = create_manifest(&client, &namespace, object).await.ok()?;
        runs.extend(is_run.then(|| created.name_any()));
    }
    let file = file.to_owned();
    (!runs.is_empty()).then_some(Example {
        file,
        namespace,
        runs,
    })
}

/// What became of its runs, or where they are when time is up: without the label, these hang, or wait for a time limit of theirs.
async fn states(bed: &Testbed, example: &Example) -> Vec<State> {
    let runs = runs::runs(&bed.client().await.unwrap(), &example.namespace);
    // Who looks every second at so many runs keeps them from their end.
    let ends = example.runs.iter().map(|name| ended(&runs, name));
    // What has not ended by then is as it is.
    let _ = timeout(SOON, join_all(ends)).await;
    let states = example.runs.iter().map(|name| runs.get(name));
    let states = try_join_all(states).await.unwrap();
    states.iter().map(runs::state).collect()
}

async fn ended(runs: &Api<DynamicObject>, name: &str) {
    let mut seen = pin!(watch_object(runs.clone(), name).default_backoff());
    while let Some(seen) = seen.next().await {
        if seen.is_ok_and(|run| run.is_some_and(|run| runs::state(&run).is_over())) {
            return;
        }
    }
}

/// Plays some at a time, each for as long as it may take, whatever the others do.
async fn play(
    bed: &Testbed,
    files: &[PathBuf],
    half: &str,
    label: Option<&str>,
) -> Vec<(Example, Vec<State>)> {
    let played = stream::iter(files.iter().enumerate())
        .map(async |(number, file)| {
            let example = create(bed, file, format!("{half}-{number}"), label).await?;
            let states = states(bed, &example).await;
            Some((example, states))
        })
        .buffer_unordered(AT_ONCE);
    played.filter_map(async |played| played).collect().await
}

async fn with_volumes(bed: &Testbed) -> Provisioner {
    add_plenty(bed).await;
    let provisioner = Provisioner::start(bed).await;
    let classes: Api<StorageClass> = Api::all(bed.client().await.unwrap());
    let by_default =
        json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    classes
        .patch(
            WITH_THE_FIRST_POD,
            &PatchParams::default(),
            &Patch::Merge(&by_default),
        )
        .await
        .unwrap();
    provisioner
}

async fn nodes(bed: &Testbed, example: &Example, run: &str) -> usize {
    let client = bed.client().await.unwrap();
    let pods = runs::pods(&client, &example.namespace, run).await.unwrap();
    runs::nodes(&pods).len()
}

#[e2e_test(first, second)]
async fn tektons_own_examples_end_with_the_label_as_without_it_on_one_node_each() {
    let bed = shipped(0).await;
    bed.tekton_config("config-defaults", &[FETCHED]).await.unwrap();
    let _provisioner = with_volumes(&bed).await;
    let files = files(&testbed::tektons_examples(bed.versions()).await.unwrap());
    let plain = play(&bed, &files, "plain", None).await;
    let over = plain
        .into_iter()
        .filter(|(_, states)| states.iter().all(State::is_over));
    let expected: BTreeMap<_, _> = over.map(|(example, states)| (example.file, states)).collect();
    let well = expected.values().filter(|states| succeed(states)).count();
    println!(
        "of {} examples, {} end on fake nodes and {well} of them succeed",
        files.len(),
        expected.len()
    );
    assert!(expected.len() >= AT_LEAST.0 && well >= AT_LEAST.1);
    let files: Vec<_> = expected.keys().cloned().collect();
    let labelled = play(&bed, &files, "labelled", Some("true")).await;
    assert_eq!(labelled.len(), files.len(), "some were refused");
    for (example, states) in &labelled {
        assert_eq!(*states, expected[&example.file], "{}", example.file.display());
        for run in &example.runs {
            let nodes = nodes(&bed, example, run).await;
            assert!(
                nodes <= 1,
                "{run} of {} had {nodes} nodes",
                example.file.display()
            );
        }
    }
}

fn succeed(states: &[State]) -> bool {
    states.iter().all(|state| *state == State::Succeeded)
}

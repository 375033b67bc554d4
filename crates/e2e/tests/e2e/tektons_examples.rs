//! Tekton's own examples end with the label as without it, and each labelled run has one node.

use crate::support::SOON;
use crate::support::fake_csi::{Provisioner, WITH_THE_FIRST_POD};
use crate::support::runs::create_manifest;
use crate::support::testbeds::{add_many_nodes, shipped};
use futures::future::join_all;
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
use testbed::{Tekton, Testbed, apply};
use tokio::time::timeout;

/// Lowest numbers of examples that are accepted, that end, and that succeed: with Tekton 1.15, 67, 64 and 34. Fake nodes
/// execute no step, so examples whose tasks pass results fail with and without the label, and so do examples that load
/// remote files.
const AT_LEAST: (usize, usize, usize) = (64, 60, 31);
/// Lowest numbers with other versions of Tekton.
const AT_LEAST_ELSEWHERE: (usize, usize, usize) = (45, 40, 25);
const AT_ONCE: usize = 6;
/// Setting that shortens Tekton's timeout for remote files, which nothing here can fetch; the default is one minute.
const FETCHED: (&str, &str) = ("default-maximum-resolution-timeout", "5s");

/// The runs of a file, in a namespace of their own.
struct Example {
    namespace: String,
    runs: Vec<String>,
}

/// Files of a folder, including its subfolders for alpha and beta features.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let (folders, files): (Vec<_>, Vec<_>) = entries
        .map(|entry| entry.unwrap().path())
        .partition(|path| path.is_dir());
    let is_yaml = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "yaml");
    let below = folders.iter().flat_map(|folder| self::files(folder));
    files.into_iter().filter(is_yaml).chain(below).collect()
}

/// Creates all objects in a file. Returns an error if Kubernetes or Tekton rejects an object, or the file has no run.
async fn create(
    bed: &Testbed,
    file: &Path,
    namespace: String,
    label: Option<&str>,
) -> Result<Example, String> {
    bed.namespace(&namespace).await.unwrap();
    let client = bed.client().await.unwrap();
    let mut runs = Vec::new();
    for mut object in apply::documents(file).map_err(|error| error.to_string())? {
        let is_run = object["kind"] == "PipelineRun";
        if let Some(label) = label.filter(|_| is_run) {
            object["metadata"]["labels"][keys::OPT_IN] = label.into();
        }
        let created = create_manifest(&client, &namespace, object).await?;
        runs.extend(is_run.then(|| created.name_any()));
    }
    if runs.is_empty() {
        return Err("it has no run".to_owned());
    }
    Ok(Example { namespace, runs })
}

/// The final state of a run, and the number of nodes of its pods.
type End = (State, usize);

/// The final states of the runs. Without the label, some runs hang or wait for their own timeouts: these are in another state.
async fn ends(bed: &Testbed, example: &Example) -> Vec<End> {
    let runs = runs::runs(&bed.client().await.unwrap(), &example.namespace);
    join_all(example.runs.iter().map(|name| ended_or_hangs(&runs, name))).await;
    let end = async |name: &String| {
        (
            runs::state(&runs.get(name).await.unwrap()),
            nodes(bed, example, name).await,
        )
    };
    join_all(example.runs.iter().map(end)).await
}

/// Waits until the run has ended, or has not changed for a while. A slow machine delays each change, but no run hangs because of it.
/// A watch, because polling so many runs each second would slow them down.
async fn ended_or_hangs(runs: &Api<DynamicObject>, name: &str) {
    let mut seen = pin!(watch_object(runs.clone(), name).default_backoff());
    while let Ok(Some(seen)) = timeout(SOON, seen.next()).await {
        if seen.is_ok_and(|run| run.is_some_and(|run| runs::state(&run).is_over())) {
            return;
        }
    }
}

/// Executes the examples concurrently.
async fn play(bed: &Testbed, files: &[PathBuf], half: &str, label: Option<&str>) -> Vec<(PathBuf, Vec<End>)> {
    let played = stream::iter(files.iter().enumerate())
        .map(async |(number, file)| {
            let example = create(bed, file, format!("{half}-{number}"), label).await;
            let example = example
                .inspect_err(|error| {
                    println!("{half}: {} is left out: {}", file.display(), first_line(error));
                })
                .ok()?;
            let ends = ends(bed, &example).await;
            Some((file.clone(), ends))
        })
        .buffer_unordered(AT_ONCE);
    played.filter_map(async |played| played).collect().await
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

async fn with_volumes(bed: &Testbed) -> Provisioner {
    add_many_nodes(bed).await;
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
    let mut expected: BTreeMap<_, _> = play(&bed, &files, "plain", None).await.into_iter().collect();
    let accepted = expected.len();
    expected.retain(|_, ends| ends.iter().all(|(state, _)| state.is_over()));
    let well = expected.values().filter(|ends| succeed(ends)).count();
    println!(
        "of {} examples, {accepted} are accepted, {} end on fake nodes and {well} of them succeed",
        files.len(),
        expected.len()
    );
    let least = if bed.versions().tekton == Tekton::default() {
        AT_LEAST
    } else {
        AT_LEAST_ELSEWHERE
    };
    let found = (accepted, expected.len(), well);
    assert!(
        found.0 >= least.0 && found.1 >= least.1 && found.2 >= least.2,
        "{found:?} of {least:?}"
    );
    let files: Vec<_> = expected.keys().cloned().collect();
    let labelled = play(&bed, &files, "labelled", Some("true")).await;
    assert_eq!(labelled.len(), files.len(), "some were refused");
    for (file, ends) in labelled {
        for ((state, nodes), (plain, plain_nodes)) in ends.iter().zip(&expected[&file]) {
            let (file, least) = (file.display(), has_pods(plain, *plain_nodes));
            assert_eq!(state, plain, "{file}");
            assert!((least..=1).contains(nodes), "a run of {file} had {nodes} nodes");
        }
    }
}

/// Number of nodes to expect: Tekton deletes the pods of a run that is cancelled or timed out.
fn has_pods(state: &State, nodes: usize) -> usize {
    usize::from(*state == State::Succeeded && nodes > 0)
}

fn succeed(ends: &[End]) -> bool {
    ends.iter().all(|(state, _)| *state == State::Succeeded)
}

//! The memory of runs that are far larger than any useful run.

use super::*;
use allocation_counter::measure;
use placement::bounded::ENTRIES;
use std::cell::RefCell;

/// The size of the text of a run. etcd stores objects of up to 1.5 MiB.
const SIZE: usize = 1 << 19;

fn repeated(piece: &str) -> String {
    let pieces = vec![piece; SIZE / (piece.len() + 1)].join(",");
    format!("[{pieces}]")
}

/// The text of a run in which this field has this value.
fn text(path: &[&str], value: &str) -> String {
    let mut document = document();
    document["metadata"]["labels"] = json!({keys::OPT_IN: "true"});
    *path.iter().fold(&mut document, |at, key| &mut at[*key]) = json!("VALUE");
    document.to_string().replace("\"VALUE\"", value)
}

fn decoded(text: &str) -> PipelineRun {
    let mut run: PipelineRun = serde_json::from_str(text).unwrap();
    run.prune();
    run
}

/// The most bytes that decoding, pruning and converting a run allocates at the same time, and the bytes that the cached run keeps.
fn memory(text: &str) -> (u64, i64) {
    let run = RefCell::new(None);
    let cached = measure(|| drop(run.replace(Some(decoded(text)))));
    let converted = measure(|| drop(run.borrow().as_ref().map(PipelineRun::run)));
    (cached.bytes_max + converted.bytes_max, cached.bytes_current)
}

#[test]
fn each_field_of_a_run_stays_within_the_memory_limits() {
    let fields: [&[&str]; 16] = [
        &["metadata", "labels"],
        &["metadata", "annotations"],
        &["metadata", "ownerReferences"],
        &["metadata", "generateName"],
        &["spec"],
        &["spec", "status"],
        &["spec", "managedBy"],
        &["spec", "pipelineRef"],
        &["spec", "pipelineRef", "params"],
        &["spec", "pipelineSpec"],
        &["spec", "workspaces"],
        &["spec", "taskRunTemplate"],
        &["spec", "taskRunTemplate", "podTemplate", "tolerations"],
        &[
            "spec",
            "taskRunTemplate",
            "podTemplate",
            "affinity",
            "nodeAffinity",
        ],
        &["status"],
        &["status", "conditions"],
    ];
    let hundred = format!("[{}]", [r#"{"":0}"#; ENTRIES].join(","));
    let values = [
        repeated(r#"{"":0}"#),
        repeated("{}"),
        repeated(&hundred),
        repeated(
            r#"{"controller":true,"persistentVolumeClaim":{"claimName":"a"},"name":"a","value":{"":0}}"#,
        ),
        format!("\"{}\"", "x".repeat(SIZE)),
        format!("{{\"{}\":0}}", "x".repeat(SIZE)),
    ];
    for (field, value) in fields
        .iter()
        .flat_map(|field| values.iter().map(move |value| (field, value)))
    {
        let text = text(field, value);
        if serde_json::from_str::<PipelineRun>(&text).is_err() {
            assert_eq!(field[0], "metadata", "the API server checks only metadata");
            continue;
        }
        let (most, cached) = memory(&text);
        assert!(most < 8 << 20, "{field:?}: {most} for {}", &value[..20]);
        assert!(cached < 2 << 10, "{field:?}: {cached} for {}", &value[..20]);
    }
}

/// A run with as much of everything as is kept.
fn full() -> Value {
    let long = |key: &str| format!("{key}{}", "x".repeat(250 - key.len()));
    let mut run = document();
    for key in ["name", "namespace"] {
        run["metadata"][key] = json!(long(key));
    }
    for (key, _) in LABELS {
        run["metadata"]["labels"][key] = json!("x".repeat(63));
    }
    for (key, _) in ANNOTATIONS {
        run["metadata"]["annotations"][key] = json!("x".repeat(50_000));
    }
    let owner = json!({"apiVersion": long("v"), "kind": long("k"), "name": long("n"), "uid": long("u"), "controller": true});
    run["metadata"]["ownerReferences"] = json!([owner]);
    run["spec"] = json!({
        "status": "PipelineRunPending",
        "managedBy": long("m"),
        "workspaces": (0..4).map(|n| json!({"persistentVolumeClaim": {"claimName": format!("{n}{}", ".x".repeat(124))}})).collect::<Vec<_>>(),
        "taskRunTemplate": {"podTemplate": {"tolerations": vec![json!({"key": "ci", "operator": "Exists"}); 40]}}
    });
    run
}

#[test]
fn the_cache_keeps_at_most_ten_kilobytes_of_a_run() {
    let full = full();
    let run = decoded(&full.to_string()).run().unwrap();
    assert_eq!(
        (run.claims.len(), run.template.tolerations.len(), run.over_limit),
        (4, 40, None)
    );
    let (_, cached) = memory(&full.to_string());
    assert!((6000..10_000).contains(&cached), "{cached}");
}

#[test]
fn a_field_over_a_limit_is_ignored_and_named() {
    let tolerations = |count: usize| json!(vec![json!({"key": "ci", "operator": "Exists"}); count]);
    let claims = |count: usize| {
        let claim =
            |n: usize| json!({"persistentVolumeClaim": {"claimName": format!("{n}{}", ".x".repeat(40))}});
        json!((0..count).map(claim).collect::<Vec<_>>())
    };
    let table = [
        (
            &["podTemplate", "tolerations"] as &[&str],
            tolerations(101),
            "tolerations",
        ),
        (
            &["podTemplate", "tolerations"],
            json!([{"key": "x".repeat(70_000)}]),
            "tolerations",
        ),
        (
            &["podTemplate", "tolerations"],
            json!([{"key": "x".repeat(4000)}]),
            "podTemplate",
        ),
    ];
    for (path, value, name) in table {
        let path = [&["spec", "taskRunTemplate"], path].concat();
        let mut run = with(&path, value);
        run.metadata.labels = Some(BTreeMap::from([(keys::OPT_IN.to_owned(), "true".to_owned())]));
        run.prune();
        let run = run.run().unwrap();
        assert_eq!(
            (run.over_limit, run.template),
            (Some(name), PodTemplate::default())
        );
    }
    for (count, kept) in [(28, 28), (90, 0), (101, 0)] {
        let mut run = with(&["spec", "workspaces"], claims(count));
        run.metadata.labels = Some(BTreeMap::from([(keys::OPT_IN.to_owned(), "true".to_owned())]));
        run.prune();
        let run = run.run().unwrap();
        assert_eq!(run.claims.len(), kept);
        assert_eq!(run.over_limit, (kept == 0).then_some("workspaces"));
    }
}

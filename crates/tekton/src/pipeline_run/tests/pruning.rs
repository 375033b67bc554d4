//! The fields that pruning drops, and the fields that pruning keeps.

use super::*;

/// A run with all fields that are read, and with other fields.
fn loaded(done: &str) -> PipelineRun {
    let mut document = document();
    document["metadata"]["managedFields"] = json!([{"manager": "m", "fieldsV1": {}}]);
    document["metadata"]["finalizers"] = json!(["chains.tekton.dev/pipelinerun"]);
    document["metadata"]["labels"] =
        json!({keys::OPT_IN: "true", keys::GROUP: "u1", keys::KUEUE_QUEUE_NAME: "q", "team": "blue"});
    document["metadata"]["annotations"] =
        json!({keys::HOLD: "true", keys::NODE: "n", "results.tekton.dev/log": "l"});
    document["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c1"},
        {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "o", "uid": "o1", "controller": true}
    ]);
    document["spec"] = json!({
        "status": "PipelineRunPending",
        "taskRunTemplate": {"podTemplate": {"nodeSelector": {"disk": "ssd"}}},
        "workspaces": [{"persistentVolumeClaim": {"claimName": "a"}}]
    });
    document["status"] = json!({"conditions": [{"type": "Succeeded", "status": done}]});
    serde_json::from_value(document).unwrap()
}

fn facts(run: &PipelineRun) -> String {
    format!("{:?}", run.run().unwrap())
}

#[test]
fn pruning_changes_no_fact_of_a_live_run() {
    let full = loaded("Unknown");
    let mut pruned = full.clone();
    pruned.prune();
    assert_eq!(facts(&pruned), facts(&full));
}

#[test]
fn pruning_drops_fields_that_are_never_read() {
    let mut run = loaded("Unknown");
    run.prune();
    let meta = &run.metadata;
    assert!(meta.managed_fields.is_none() && meta.finalizers.is_none());
    assert_eq!(meta.owner_references.as_ref().unwrap().len(), 1);
    let keys =
        |map: &Option<BTreeMap<String, String>>| map.as_ref().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        keys(&meta.labels),
        [keys::KUEUE_QUEUE_NAME, keys::GROUP, keys::OPT_IN]
    );
    assert_eq!(keys(&meta.annotations), [keys::HOLD, keys::NODE]);
}

#[test]
fn pruning_keeps_the_fields_that_caches_and_watches_need() {
    let mut run = loaded("True");
    run.prune();
    let meta = &run.metadata;
    assert_eq!(
        (
            meta.name.as_deref(),
            meta.namespace.as_deref(),
            meta.uid.as_deref()
        ),
        (Some("build"), Some("ns"), Some("u1"))
    );
    assert_eq!(meta.resource_version.as_deref(), Some("7"));
}

#[test]
fn pruning_a_done_run_drops_its_spec_and_keeps_it_done() {
    let mut run = loaded("True");
    run.prune();
    assert_eq!(run.spec, PipelineRunSpec::default());
    assert!(run.run().unwrap().done);
}

#[test]
fn a_done_run_keeps_its_usage_record_or_its_automatic_reserve() {
    let pruned = |annotations: &[(&str, &str)]| {
        let mut run = loaded("True");
        let annotations = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        run.metadata.annotations = Some(annotations.collect());
        run.spec.pipeline = Some(7);
        run.prune();
        let run = run.run().unwrap();
        (run.used, run.reserve, run.pipeline)
    };
    let used = [(keys::USED, "cpu=4"), (keys::RESERVE, "auto")];
    assert_eq!(pruned(&used), (Some("cpu=4".to_owned()), None, Some(7)));
    assert_eq!(pruned(&used[1..]), (None, Some("auto".to_owned()), None));
    assert_eq!(pruned(&[(keys::RESERVE, "cpu=4")]), (None, None, None));
}

#[test]
fn a_done_run_keeps_how_long_and_until_when_its_node_is_kept() {
    let mut run = loaded("False");
    let annotations = [
        (keys::KEEP_NODE_FOR, "5m"),
        (keys::KEPT_UNTIL, "2026-11-22T04:17:42Z"),
    ];
    let annotations: BTreeMap<_, _> = annotations
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    run.metadata.annotations = Some(annotations.clone());
    run.prune();
    assert_eq!(run.metadata.annotations, Some(annotations));
}

#[test]
fn a_done_run_keeps_its_node_for_the_next_run_of_its_pipeline_if_it_succeeded() {
    let pruned = |status: &str| {
        let mut run = loaded(status);
        run.metadata.annotations = Some([(keys::NODE.to_owned(), "n1".to_owned())].into());
        run.spec.pipeline = Some(7);
        run.prune();
        let run = run.run().unwrap();
        (run.node, run.pipeline)
    };
    assert_eq!(pruned("True"), (Some("n1".to_owned()), Some(7)));
    assert_eq!(pruned("False"), (None, None));
}

#[test]
fn runs_have_the_same_pipeline_by_name_by_resolver_parameters_or_by_generate_name() {
    let pipeline = |spec: Value, generate_name: Option<&str>| {
        let mut document = document();
        document["metadata"]["generateName"] = json!(generate_name);
        document["metadata"]["labels"] = json!({keys::OPT_IN: "true"});
        document["spec"] = spec;
        let mut run: PipelineRun = serde_json::from_value(document).unwrap();
        run.prune();
        run.spec.pipeline
    };
    let named = |name: &str| pipeline(json!({"pipelineRef": {"name": name}}), Some("x-"));
    assert_eq!(named("build"), named("build"));
    assert_ne!(named("build"), named("test"));
    let from_git = |path: &str, revision: &str| {
        let params = json!([{"name": "revision", "value": revision}, {"name": "pathInRepo", "value": path}]);
        pipeline(
            json!({"pipelineRef": {"resolver": "git", "params": params}}),
            None,
        )
    };
    assert_eq!(from_git("build.yaml", "v1"), from_git("build.yaml", "v2"));
    assert_ne!(from_git("build.yaml", "v1"), from_git("test.yaml", "v1"));
    let embedded = |prefix| pipeline(json!({"pipelineSpec": {"tasks": []}}), prefix);
    assert_eq!(embedded(Some("build-")), embedded(Some("build-")));
    assert_ne!(embedded(Some("build-")), embedded(Some("test-")));
    assert_eq!(embedded(None), None);
}

#[test]
fn a_done_run_keeps_its_labels_only_if_it_may_reserve_its_node() {
    let pruned = |group: &str, strategy: &str| {
        let mut run = loaded("True");
        run.metadata.labels = Some(BTreeMap::from([
            (keys::GROUP.to_owned(), group.to_owned()),
            (keys::STRATEGY.to_owned(), strategy.to_owned()),
        ]));
        run.prune();
        run.metadata.labels.map_or(0, |labels| labels.len())
    };
    assert_eq!(pruned("u1", "isolateAlways"), 2);
    assert_eq!(pruned("u1", "of-another-version"), 2);
    assert_eq!(pruned("u1", "colocateCompleted"), 0);
    assert_eq!(pruned("u1", "colocateAlways"), 0);
    assert_eq!(pruned("somebody-elses", "isolateAlways"), 0);
}

#[test]
fn a_run_still_counts_as_labelled_after_its_labels_are_dropped() {
    let mut run = loaded("True");
    run.metadata.uid = Some("of-no-group".to_owned());
    run.prune();
    assert!(run.labelled && run.metadata.labels.is_none());
}

#[test]
fn pruning_leaves_no_empty_map() {
    let mut run = with(&["metadata", "labels", "team"], "blue");
    run.prune();
    assert_eq!((run.metadata.labels, run.metadata.annotations), (None, None));
}

#[test]
fn pruning_keeps_only_the_identity_of_a_run_without_keys_of_pod_affinity() {
    let mut run = loaded("Unknown");
    run.metadata.labels = Some(BTreeMap::from([(
        keys::KUEUE_QUEUE_NAME.to_owned(),
        "q".to_owned(),
    )]));
    run.metadata.annotations = Some(BTreeMap::from([("team".to_owned(), "blue".to_owned())]));
    run.prune();
    assert_eq!(
        (&run.spec, run.metadata.labels),
        (&PipelineRunSpec::default(), None)
    );
    assert_eq!(run.metadata.uid.as_deref(), Some("u1"));
}

#[test]
fn a_held_run_is_kept_when_its_labels_are_removed() {
    let mut run = loaded("Unknown");
    run.metadata.labels = None;
    run.prune();
    let run = run.run().unwrap();
    assert!(run.is_held_by_us() && run.opt_in.is_none());
}

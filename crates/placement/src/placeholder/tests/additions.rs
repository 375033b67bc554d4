//! Configured labels and annotations of a placeholder, which change no selector.

use super::*;
use crate::tally::tally;
use crate::terms::terms;
use k8s_openapi::api::core::v1::PodAffinityTerm;
use proptest::sample::{select, subsequence};
use proptest::strategy::Strategy as _;
use proptest::{prop_assert, prop_assert_eq, proptest};

fn config(data: &[(&str, &str)]) -> Config {
    let data = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Config::parse(&data.collect()).unwrap()
}

fn made(copied: &[(&str, &str)], config: &Config) -> Value {
    let copied = copied
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let enrolment = enrolment(Strategy::default());
    let set = stateful_set(
        &demanding_run(),
        enrolment,
        &copied.collect(),
        &Images::default(),
        config,
        "i",
    );
    let mut set = serde_json::to_value(set).unwrap();
    set["metadata"]["uid"] = json!(SET);
    set
}

fn metadata_of(set: &Value) -> [&Value; 2] {
    [&set["metadata"], &set["spec"]["template"]["metadata"]]
}

#[test]
fn configured_labels_and_annotations_are_added_to_statefulset_and_pod() {
    let config = config(&[
        ("placeholder-labels", "team=platform"),
        ("placeholder-annotations", "example.com/why=keeps a node"),
    ]);
    let set = made(&[("cost-center", "42")], &config);
    for metadata in metadata_of(&set) {
        assert_eq!(metadata["labels"]["team"], "platform");
        assert_eq!(metadata["labels"]["cost-center"], "42");
        assert_eq!(metadata["annotations"]["example.com/why"], "keeps a node");
    }
}

#[test]
fn a_copied_label_of_the_run_overrides_the_configured_label() {
    let config = config(&[("placeholder-labels", "team=unknown")]);
    let team = |copied: &[(&str, &str)]| made(copied, &config)["metadata"]["labels"]["team"].clone();
    assert_eq!(team(&[]), "unknown");
    assert_eq!(team(&[("team", "build")]), "build");
}

#[test]
fn the_configured_node_selector_and_tolerations_are_merged_with_those_of_the_run() {
    let config = config(&[
        ("placeholder-node-selector", "pool=ci,disk=none"),
        ("placeholder-tolerations", "dedicated=ci:NoSchedule"),
    ]);
    let of = |config: &Config| made(&[], config)["spec"]["template"]["spec"].clone();
    let (usual, added) = (of(&Config::default()), of(&config));
    let mut selector = usual["nodeSelector"].clone();
    assert_eq!(selector["disk"], "ssd", "the run requires the label");
    selector["pool"] = json!("ci");
    assert_eq!(added["nodeSelector"], selector);
    let mut tolerations = usual["tolerations"].as_array().unwrap().clone();
    tolerations.push(json!({"key": "dedicated", "operator": "Equal", "value": "ci", "effect": "NoSchedule"}));
    assert_eq!(added["tolerations"], json!(tolerations));
}

#[test]
fn configured_pull_secrets_are_merged_with_the_pull_secrets_of_the_run() {
    let secrets = |names: &str| {
        let config = config(&[("placeholder-image-pull-secrets", names)]);
        made(&[], &config)["spec"]["template"]["spec"]["imagePullSecrets"].clone()
    };
    assert_eq!(secrets(""), json!([{"name": "registry"}]));
    assert_eq!(
        secrets("mirror,registry"),
        json!([{"name": "mirror"}, {"name": "registry"}])
    );
}

#[test]
fn the_configuration_refuses_each_key_that_a_placeholder_has_by_default() {
    let set = made(&[], &Config::default());
    for metadata in metadata_of(&set) {
        for key in ["labels", "annotations"]
            .iter()
            .filter_map(|map| metadata[map].as_object())
            .flat_map(|map| map.keys())
        {
            for setting in ["placeholder-labels", "placeholder-annotations"] {
                let data = [(setting.to_owned(), format!("{key}=x"))].into();
                assert!(Config::parse(&data).is_err(), "{setting} {key}");
            }
        }
    }
}

#[test]
fn an_existing_placeholder_keeps_its_metadata_when_the_configuration_changes() {
    let set = made(&[("team", "build")], &Config::default());
    let changed = config(&[
        ("placeholder-cpu", "10m"),
        ("placeholder-labels", "team=other,extra=x"),
        ("placeholder-annotations", "example.com/why=other"),
        ("placeholder-image-pull-secrets", "other"),
    ]);
    let small = crate::placeholder::size::usual(&changed).requests();
    for patch in [
        change(&set, |spec| spec.size = small.clone()),
        change(&set, |spec| {
            spec.size = small.clone();
            spec.node = Some("n1".to_owned());
            spec.claims.clear();
        }),
        change(&set, |spec| {
            (spec.replicas, spec.previous_node) = (0, Some("n1".to_owned()));
        }),
    ] {
        assert!(!patch.is_empty());
        let mut after = set.clone();
        json_patch::patch(&mut after, &patch).unwrap();
        let [of_set, of_pod] = metadata_of(&after);
        assert_eq!(of_set, &set["metadata"]);
        assert_eq!(of_pod["labels"], set["spec"]["template"]["metadata"]["labels"]);
        assert_eq!(of_pod["annotations"].get("example.com/why"), None);
        let secrets = |set: &Value| set["spec"]["template"]["spec"]["imagePullSecrets"].clone();
        assert_eq!(secrets(&after), secrets(&set));
    }
}

/// Only the keys of a selector decide which pods it matches.
fn read_by(term: &PodAffinityTerm) -> Vec<String> {
    let selector = term.label_selector.as_ref().unwrap();
    assert_eq!(selector.match_labels, None);
    let expressions = selector.match_expressions.iter().flatten();
    expressions.map(|expression| expression.key.clone()).collect()
}

fn keys_of_terms() -> Vec<String> {
    let all = ["cluster-all", "cluster-enrolled"].map(|isolation| {
        let terms = terms(
            &run().key.group(),
            Strategy::IsolateAlways,
            isolation.parse().unwrap(),
        );
        [terms.clone().for_assistant().affinity, terms.affinity]
            .into_iter()
            .chain(terms.anti_affinity)
            .flat_map(|term| read_by(&term))
            .collect::<Vec<_>>()
    });
    all.concat()
}

const CANDIDATES: [&str; 14] = [
    "team",
    "example.com/team",
    "app.kubernetes.io/part-of",
    "triggers.tekton.dev/trigger",
    keys::COMPONENT,
    keys::APP,
    keys::MANAGED_BY,
    keys::GROUP,
    keys::KEPT_BY,
    keys::STRATEGY,
    keys::ISOLATION,
    keys::OPT_IN,
    keys::TEKTON_PIPELINE_RUN,
    keys::SAFE_TO_EVICT,
];

proptest! {
    #[test]
    fn no_accepted_configuration_changes_which_pods_a_selector_matches(
        set in subsequence(CANDIDATES.to_vec(), 0..3),
        copied in subsequence(CANDIDATES.to_vec(), 0..3),
        value in select(vec!["x", "u1", "false", "true", "placeholder", "affinity-assistant", ""]),
        setting in select(vec!["placeholder-labels", "placeholder-annotations"]).prop_map(str::to_owned),
        met in tally(&[("accepted", 10)]),
    ) {
        let pairs: Vec<_> = set.iter().map(|key| format!("{key}={value}")).collect();
        let data = [(setting, pairs.join("\n")), ("placeholder-copied-labels".to_owned(), copied.join(","))];
        if let Ok(config) = Config::parse(&data.into()) {
            met.count("accepted");
            let labels: Vec<_> = copied.iter().map(|key| (*key, value)).collect();
            let (plain, with) = (made(&[], &Config::default()), made(&labels, &config));
            prop_assert_eq!(&plain["spec"]["selector"], &with["spec"]["selector"]);
            let own = plain["spec"]["selector"]["matchLabels"].as_object().unwrap().keys().cloned();
            let watched = [keys::COMPONENT, keys::APP, keys::TEKTON_PIPELINE_RUN].map(str::to_owned);
            for key in keys_of_terms().into_iter().chain(own).chain(watched) {
                for (before, after) in metadata_of(&plain).into_iter().zip(metadata_of(&with)) {
                    prop_assert!(before["labels"].get(&key) == after["labels"].get(&key), "{}", key);
                }
            }
        }
    }
}

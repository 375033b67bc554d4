//! The values that each key of the ConfigMap accepts, and the messages about mistakes.

use super::*;
use crate::strategy::{IsolateFrom, Scope};

mod properties;

fn parse(data: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    Config::parse(
        &data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
    )
}

fn messages(data: &[(&str, &str)]) -> Vec<String> {
    parse(data)
        .unwrap_err()
        .0
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn an_empty_config_map_means_the_defaults() {
    assert_eq!(parse(&[]), Ok(Config::default()));
}

#[test]
fn every_key_sets_its_field() {
    let config = parse(&[
        ("default-strategy", "isolateAlways"),
        ("isolation-scope", "namespace"),
        ("isolate-from", "enrolled"),
        ("placeholder-cpu", "100m"),
        ("placeholder-memory", "64Mi"),
        ("placeholder-labels", "cost-center=42"),
        ("placeholder-copied-labels", "team"),
        ("placeholder-annotations", "example.com/why=keeps a node"),
        ("placeholder-image-pull-secrets", "mirror"),
        ("placeholder-node-selector", "pool=ci"),
        ("placeholder-tolerations", "dedicated=ci:NoSchedule"),
        ("prefer-warm-nodes", "true"),
        ("keep-node-for", "5m"),
        ("keep-node-for-maximum", "1h"),
        ("keep-nodes-at-most", "7"),
        ("pull-images", "true"),
        ("pull-images-maximum", "3"),
        ("release-when", "created"),
        ("hold-deadline", "1h30m"),
        ("max-runs", "50"),
        ("max-runs-per-namespace", "5"),
        ("max-runs-in-namespaces", "team-a=20,team-b=0"),
        ("move-after", "90s"),
        ("default-reserve", "cpu=4,memory=8Gi"),
        ("auto-reserve-maximum", "cpu=16"),
    ]);
    let expected = Config {
        default_strategy: Strategy::IsolateAlways,
        isolation: Isolation {
            scope: Scope::Namespace,
            from: IsolateFrom::Enrolled,
        },
        placeholder_cpu: "100m".to_owned(),
        placeholder_memory: "64Mi".to_owned(),
        placeholder_labels: additions::labels("cost-center=42").unwrap(),
        placeholder_copied_labels: additions::copied_labels("team").unwrap(),
        placeholder_annotations: additions::annotations("example.com/why=keeps a node").unwrap(),
        placeholder_image_pull_secrets: additions::pull_secrets("mirror").unwrap(),
        placeholder_node_selector: additions::node_selector("pool=ci").unwrap(),
        placeholder_tolerations: additions::tolerations("dedicated=ci:NoSchedule").unwrap(),
        prefer_warm_nodes: true,
        keep_node_for: Duration::from_mins(5),
        keep_node_for_maximum: Duration::from_hours(1),
        keep_nodes_at_most: 7,
        pull_images: true,
        pull_images_maximum: 3,
        release_when: ReleaseWhen::Created,
        hold_deadline: Duration::from_mins(90),
        caps: Caps {
            cluster: Some(50),
            each_namespace: Some(5),
            namespaces: [("team-a".to_owned(), 20), ("team-b".to_owned(), 0)].into(),
        },
        move_after: Some(Duration::from_secs(90)),
        default_reserve: reserve::parse_setting("cpu=4,memory=8Gi").unwrap(),
        auto_reserve_maximum: reserve::parse("cpu=16").unwrap(),
    };
    assert_eq!(config, Ok(expected));
}

#[test]
fn each_listed_key_is_accepted() {
    for key in Config::KEYS {
        assert_ne!(Config::default().set(key, ""), Err(Mistake::UnknownKey), "{key}");
    }
}

#[test]
fn documentation_keys_and_white_space_around_values_are_ignored() {
    let config = parse(&[
        ("_example", "default-strategy: nonsense"),
        ("hold-deadline", "10m\n"),
    ]);
    assert_eq!(config, Ok(Config::default()));
}

#[test]
fn the_message_about_each_invalid_setting_names_the_key_the_value_and_the_remedy() {
    let mistakes = messages(&[
        ("default-reserve", "memory=8"),
        ("default-strategy", "always"),
        ("hold-deadline", "-5m"),
        ("isolate-from", ""),
        ("isolation-scope", "node"),
        ("keep-node-for", "never"),
        ("keep-nodes-at-most", "-1"),
        ("max-runs", "-1"),
        ("max-runs-in-namespaces", "team-a"),
        ("max-runs-per-namespace", "few"),
        ("move-after", "10"),
        ("placeholder-annotations", "why"),
        ("placeholder-copied-labels", "tekton.dev/pipelineRun"),
        ("placeholder-cpu", "0"),
        ("placeholder-image-pull-secrets", "my_secret"),
        ("placeholder-labels", "team=a b"),
        ("placeholder-memory", "100MB"),
        ("placeholder-node-selector", "pool"),
        ("placeholder-tolerations", "dedicated=ci:never"),
        ("prefer-warm-nodes", "yes"),
        ("pull-images", "on"),
        ("pull-images-maximum", "-1"),
        ("release-when", "now"),
    ]);
    insta::assert_snapshot!(mistakes.join("\n"));
}

#[test]
fn an_unknown_key_is_reported_and_has_no_effect() {
    let data = [("hold-dedline", "5m"), ("hold-deadline", "1m"), ("_note", "x")];
    let data = data.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    assert_eq!(
        Config::parse(&data).unwrap().hold_deadline,
        Duration::from_mins(1)
    );
    let unknown = Config::unknown_keys(&data).to_string();
    assert!(
        unknown.starts_with("hold-dedline: unknown key; valid keys are "),
        "{unknown}"
    );
    assert_eq!(unknown.matches("unknown key").count(), 1);
}

#[test]
fn all_invalid_settings_are_reported_in_one_message() {
    let text = parse(&[("isolation-scope", "node"), ("release-when", "now")])
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("isolation-scope: ") && text.contains(". release-when: "),
        "{text}"
    );
}

#[test]
fn moves_can_be_disabled_and_holds_cannot() {
    assert_eq!(parse(&[("move-after", "never")]).unwrap().move_after, None);
    assert!(parse(&[("hold-deadline", "never")]).is_err());
}

#[test]
fn durations_are_written_as_in_go() {
    for (text, seconds) in [
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("1h0m1s", 3601),
    ] {
        let config = parse(&[("hold-deadline", text)]).unwrap();
        assert_eq!(config.hold_deadline, Duration::from_secs(seconds), "{text}");
    }
    for text in ["", "10", "0s", "-1s", "1 fortnight", "s", "10m ago"] {
        assert!(parse(&[("hold-deadline", text)]).is_err(), "{text}");
    }
}

//! Which additions are accepted, how they are written, and the messages about mistakes.

use super::*;

fn strings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

#[test]
fn labels_are_separated_by_commas_or_line_breaks() {
    let expected = strings(&[
        ("team", "build"),
        ("example.com/cost-center", "4.2_A"),
        ("empty", ""),
    ]);
    for text in [
        "team=build,example.com/cost-center=4.2_A,empty=",
        "team=build\nexample.com/cost-center=4.2_A\nempty=\n",
        " team = build ,\n\n example.com/cost-center=4.2_A , empty= ,",
    ] {
        assert_eq!(labels(text).as_ref(), Ok(&expected), "{text:?}");
    }
    assert_eq!(labels(""), Ok(BTreeMap::new()));
}

#[test]
fn an_annotation_is_a_line_and_its_value_any_text() {
    let expected = strings(&[
        ("example.com/why", "keeps a node, does no work: x=y"),
        ("owner", ""),
    ]);
    let text = "example.com/why=keeps a node, does no work: x=y\nowner=";
    assert_eq!(annotations(text), Ok(expected));
}

#[test]
fn keys_to_copy_and_pull_secrets_are_lists_in_which_an_entry_may_be_repeated() {
    let expected = ["example.com/team", "team"].map(str::to_owned).into();
    assert_eq!(
        copied_labels("team, example.com/team\nteam"),
        Ok(BTreeSet::clone(&expected))
    );
    assert_eq!(
        pull_secrets("registry.example\nmirror-2,mirror-2"),
        Ok(["mirror-2", "registry.example"].map(str::to_owned).into())
    );
}

#[test]
fn each_mistake_is_told_with_key_value_and_remedy() {
    let mistakes = [
        labels("team: build").unwrap_err(),
        labels("team=a,team=b").unwrap_err(),
        labels("team=Build & Test").unwrap_err(),
        labels("Example.com/team=a").unwrap_err(),
        labels("app.kubernetes.io/name=a").unwrap_err(),
        annotations("kueue.x-k8s.io/queue-name=a").unwrap_err(),
        copied_labels("tekton.dev/pipeline").unwrap_err(),
        copied_labels("pod-affinity.tekton.dev/group").unwrap_err(),
        pull_secrets("Registry").unwrap_err(),
        annotations(&"a".repeat(20_000)).unwrap_err(),
    ];
    insta::assert_snapshot!(mistakes.map(|mistake| mistake.to_string()).join("\n"));
}

#[test]
fn keys_and_values_are_as_long_as_kubernetes_takes_them() {
    let long = |length: usize| "a".repeat(length);
    let domain = [long(63), long(63), long(63), long(61)].join(".");
    assert!(labels(&format!("{domain}/{}={}", long(63), long(63))).is_ok());
    for text in [
        format!("a{domain}/a=b"),
        format!("{}=b", long(64)),
        format!("a={}", long(64)),
        "=b".to_owned(),
        "/a=b".to_owned(),
        "a/=b".to_owned(),
        "a/b/c=d".to_owned(),
        "-a=b".to_owned(),
        "a=b-".to_owned(),
        "a=b=c".to_owned(),
    ] {
        assert!(labels(&text).is_err(), "{text}");
    }
}

#[test]
fn no_key_by_which_pods_or_placeholders_are_selected_can_be_set_or_copied() {
    for key in [
        keys::OPT_IN,
        keys::GROUP,
        keys::STRATEGY,
        keys::ISOLATION,
        keys::KEPT_BY,
        keys::WOKEN,
        keys::TEKTON_PIPELINE_RUN,
        "tekton.dev/taskRun",
        "tekton.dev/memberOf",
        keys::KUEUE_QUEUE_NAME,
        keys::COMPONENT,
        keys::APP,
        keys::MANAGED_BY,
    ] {
        let reserved = |mistake: BadAddition| matches!(mistake, BadAddition::Reserved { .. });
        assert!(copied_labels(key).is_err_and(reserved), "{key}");
        assert!(labels(&format!("{key}=x")).is_err_and(reserved), "{key}");
    }
    let others =
        "app.kubernetes.io/part-of=ci,triggers.tekton.dev/trigger=a,tekton.dev.example.com/a=b,name=x";
    assert_eq!(labels(others).unwrap().len(), 4);
}

#[test]
fn no_annotation_by_which_a_placeholder_is_steered_can_be_set() {
    for key in [
        keys::HOLD,
        keys::NODE,
        keys::RESERVE,
        keys::PINNED,
        keys::LEFT,
        keys::NUDGED,
        keys::SAFE_TO_EVICT,
        keys::DO_NOT_DISRUPT,
    ] {
        assert!(annotations(&format!("{key}=x")).is_err(), "{key}");
    }
}

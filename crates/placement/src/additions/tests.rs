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
fn each_line_is_one_annotation_with_any_text_as_value() {
    let expected = strings(&[
        ("example.com/why", "keeps a node, does no work: x=y"),
        ("owner", ""),
    ]);
    let text = "example.com/why=keeps a node, does no work: x=y\nowner=";
    assert_eq!(annotations(text), Ok(expected));
}

#[test]
fn lists_of_copied_labels_and_pull_secrets_may_repeat_an_entry() {
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
fn a_toleration_has_a_key_and_perhaps_a_value_and_an_effect() {
    let read = |text| {
        let all = tolerations(text).unwrap().into_iter();
        let parts = all.map(|it| (it.key.unwrap(), it.operator.unwrap(), it.value, it.effect));
        parts.collect::<Vec<_>>()
    };
    let some = |text: &str| Some(text.to_owned());
    let expected = [
        (
            "dedicated".to_owned(),
            "Equal".to_owned(),
            some("ci"),
            some("NoSchedule"),
        ),
        ("spot".to_owned(), "Exists".to_owned(), None, some("NoExecute")),
        ("example.com/gpu".to_owned(), "Exists".to_owned(), None, None),
    ];
    assert_eq!(
        read("dedicated=ci:NoSchedule, spot:NoExecute\nexample.com/gpu"),
        expected
    );
    for text in ["=ci", "a=b:NoShedule", "a:", "a=b c", "a b:NoSchedule"] {
        assert_eq!(tolerations(text), Err(BadAddition::Toleration(text.to_owned())));
    }
}

#[test]
fn a_node_selector_may_have_keys_of_any_domain() {
    let expected = strings(&[("pool", "ci"), ("kubernetes.io/arch", "arm64")]);
    assert_eq!(node_selector("pool=ci,kubernetes.io/arch=arm64"), Ok(expected));
    assert!(node_selector("pool=c i").is_err() && node_selector("po ol=ci").is_err());
}

#[test]
fn the_message_about_each_invalid_addition_names_the_key_the_value_and_the_remedy() {
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
        tolerations("dedicated=ci:never").unwrap_err(),
        annotations(&"a".repeat(20_000)).unwrap_err(),
    ];
    insta::assert_snapshot!(mistakes.map(|mistake| mistake.to_string()).join("\n"));
}

#[test]
fn keys_and_values_have_the_syntax_and_length_limits_of_kubernetes() {
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
fn a_setting_may_be_as_long_as_the_limit() {
    let long = |length: usize| format!("why={}", "x".repeat(length - "why=".len()));
    assert!(annotations(&long(LONGEST)).is_ok());
    assert_eq!(
        annotations(&long(LONGEST + 1)),
        Err(BadAddition::TooLong(LONGEST + 1))
    );
}

#[test]
fn labels_that_select_pods_or_placeholders_cannot_be_set_or_copied() {
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
fn annotations_that_control_a_placeholder_cannot_be_set() {
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

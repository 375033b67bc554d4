//! What is kept, what is skipped, and that the memory has a limit whatever the document is.

use super::*;
use serde_json::json;

const FIELDS: Fields = Fields::Object(&[
    ("name", Fields::Scalar),
    ("owners", Fields::Matching(&OWNER, is_controller)),
    ("terms", Fields::Any),
    ("tasks", Fields::List(&OWNER)),
    ("labels", Fields::Object(&[("a", Fields::Scalar)])),
]);
const OWNER: Fields = Fields::Object(&[("controller", Fields::Scalar)]);

fn is_controller(owner: &Value) -> bool {
    owner["controller"] == true
}

fn decoded(text: &str) -> Decoded {
    FIELDS
        .decode(&mut serde_json::Deserializer::from_str(text))
        .unwrap()
}

fn over_limit(document: &Value) -> (Option<&'static str>, Value) {
    let Decoded { value, over_limit } = decoded(&document.to_string());
    (over_limit, value)
}

#[test]
fn named_fields_are_kept_and_others_are_skipped() {
    let document = json!({
        "name": "build", "spec": {"name": "x"}, "labels": {"a": "b", "c": "d"},
        "terms": [{"x": [1, -1, 1.5, true, null, "t"]}], "tasks": [{"controller": 1, "x": 2}],
    });
    let kept = json!({
        "name": "build", "labels": {"a": "b"}, "terms": [{"x": [1, -1, 1.5, true, null, "t"]}], "tasks": [{"controller": 1}],
    });
    assert_eq!(over_limit(&document), (None, kept));
}

#[test]
fn a_value_of_another_type_keeps_its_type() {
    let document = json!({"name": {"a": 1}, "labels": ["a"], "tasks": "x", "owners": {"a": 1}});
    let kept = json!({"name": {}, "labels": [], "tasks": "x", "owners": {}});
    assert_eq!(over_limit(&document), (None, kept));
}

#[test]
fn the_last_of_two_members_with_one_name_is_kept() {
    assert_eq!(decoded(r#"{"name":1,"name":2}"#).value, json!({"name": 2}));
    let over = format!(r#"{{"terms":1,"terms":[{}0]}}"#, "0,".repeat(ENTRIES));
    assert_eq!(decoded(&over).value, json!({}));
}

#[test]
fn only_a_field_with_a_list_or_map_of_more_than_a_hundred_entries_is_dropped() {
    let list = |entries: usize| json!({"tasks": vec![json!({}); entries], "name": "n"});
    assert_eq!(over_limit(&list(ENTRIES)).0, None);
    assert_eq!(
        over_limit(&list(ENTRIES + 1)),
        (Some("tasks"), json!({"name": "n"}))
    );
    let map = |entries: usize| (0..entries).map(|n| (n.to_string(), json!(0)));
    let within = |entries: Value| json!({"name": "n", "terms": {"x": [entries], "y": 1}});
    for (full, more) in [
        (vec![json!(0); ENTRIES].into(), vec![json!(0); ENTRIES + 1].into()),
        (map(ENTRIES).collect(), map(ENTRIES + 1).collect()),
    ] {
        assert_eq!(over_limit(&within(full)).0, None);
        let absent = (Some("terms"), json!({"name": "n"}));
        assert_eq!(over_limit(&within(more)), absent);
    }
}

#[test]
fn a_field_above_the_size_limit_is_dropped() {
    for large in [
        json!("x".repeat(BYTES + 1)),
        json!({"x".repeat(BYTES): 1}),
        json!([vec!["x".repeat(BYTES / 50); 60]]),
    ] {
        let absent = (Some("terms"), json!({}));
        assert_eq!(over_limit(&json!({"terms": large})), absent);
    }
    let long_key = json!({"terms": {"x".repeat(BYTES / 2): 1}});
    assert_eq!(over_limit(&long_key), (None, long_key));
}

#[test]
fn a_long_string_of_a_named_field_is_cut() {
    let (over_limit, value) = over_limit(&json!({"name": "x".repeat(BYTES)}));
    let name = value["name"].as_str().unwrap();
    assert!(over_limit.is_none() && name.len() <= STRING && name.ends_with('…'));
}

#[test]
fn the_entry_that_matches_is_kept_among_any_number_of_others() {
    let mut owners = vec![json!({"controller": "x".repeat(STRING)}); 10_000];
    owners.push(json!({"controller": true, "uid": "u"}));
    owners.extend(vec![json!({}); 10_000]);
    let kept = json!({"owners": [{"controller": true}]});
    assert_eq!(over_limit(&json!({"owners": owners})), (None, kept));
}

#[test]
fn skipped_values_may_be_nested_to_any_depth_and_kept_values_may_not() {
    let deep = |field: &str| format!("{{\"{field}\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(decoded(&deep("x")).value, json!({}));
    assert_eq!(decoded(&deep("name")).value, json!({"name": []}));
    let kept = FIELDS.decode(&mut serde_json::Deserializer::from_str(&deep("terms")));
    assert!(kept.unwrap_err().to_string().contains("recursion limit"));
}

/// The most bytes that are allocated at the same time.
fn memory(of: impl FnOnce()) -> u64 {
    allocation_counter::measure(of).bytes_max
}

#[test]
fn the_memory_is_limited_for_any_document() {
    const SIZE: usize = 1 << 19;
    const LIMIT: u64 = 8 << 20;
    let repeated = |piece: &str| {
        let pieces = vec![piece; SIZE / (piece.len() + 1)].join(",");
        format!("[{pieces}]")
    };
    let entry = r#"{"":0}"#;
    let tree = || drop(serde_json::from_str::<Value>(&repeated(entry)));
    assert!(memory(tree) > 5 * LIMIT, "a tree of the whole document");
    let hundred = format!("[{}]", [entry; ENTRIES].join(","));
    let values = [
        repeated(entry),
        repeated("{}"),
        repeated("0"),
        repeated(r#""""#),
        repeated(r#"{"controller":true}"#),
        repeated(r#"{"controller":"x"}"#),
        repeated(&hundred),
        format!("[{}]", [&hundred as &str; ENTRIES].join(",")),
        format!("\"{}\"", "x".repeat(SIZE)),
        format!("{}{}", "[".repeat(SIZE / 2), "]".repeat(SIZE / 2)),
        format!(r#"{{"{}":0}}"#, "x".repeat(SIZE)),
    ];
    for field in ["name", "owners", "terms", "tasks", "labels", "x"] {
        for value in &values {
            let text = format!(r#"{{"{field}":{value}}}"#);
            let decode = || drop(FIELDS.decode(&mut serde_json::Deserializer::from_str(&text)));
            let used = memory(decode);
            assert!(used < LIMIT, "{field}: {used} for {}", &value[..20]);
        }
    }
}

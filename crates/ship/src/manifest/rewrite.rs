//! Finds `ko://` references in values, never in comments, and replaces them in the text.

use super::Error;
use super::files::Text;
use super::tree::{self, Edits, Places};
use std::ops::Range;

const SCHEME: &str = "ko://";

/// The names in `ko://` references. Unknown names are an error.
pub(super) fn images(text: &Text, known: &[&str]) -> Result<Vec<String>, Error> {
    let names = names(text)?;
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => Err(Error::UnknownImage {
            file: text.name.clone(),
            name: unknown.clone(),
            known: known
                .iter()
                .map(|name| format!("{SCHEME}{name}"))
                .collect::<Vec<_>>()
                .join(", "),
        }),
        None => Ok(names),
    }
}

/// Replaces each `ko://` reference with this name.
pub(super) fn replaced(text: &Text, name: &str, reference: &str) -> Result<Text, Error> {
    let (documents, places) = (tree::documents(text)?, Places::new(text));
    let mut edits = Edits::default();
    for document in &documents {
        tree::strings(document, &mut |node, _| {
            let range = places.range(node);
            for (place, _) in references(&text.content[range.clone()]).filter(|(_, found)| *found == name) {
                edits.replace(range.start + place.start..range.start + place.end, reference);
            }
        });
    }
    check_replaced(edits.applied(text), name)
}

/// A remaining reference is written with escapes or anchors, so its position is unknown.
fn check_replaced(text: Text, name: &str) -> Result<Text, Error> {
    if names(&text)?.iter().any(|left| left == name) {
        let (file, name) = (text.name, name.to_owned());
        return Err(Error::Unreplaceable { file, name });
    }
    Ok(text)
}

fn names(text: &Text) -> Result<Vec<String>, Error> {
    let documents = tree::documents(text)?;
    let mut names = Vec::new();
    for document in &documents {
        tree::strings(document, &mut |_, value| {
            names.extend(references(value).map(|(_, name)| name.to_owned()));
        });
    }
    Ok(names)
}

/// The references in a text: position and name.
fn references(text: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    text.match_indices(SCHEME).filter_map(|(start, _)| {
        let rest = &text[start + SCHEME.len()..];
        let end = rest.find(|c: char| !is_of_name(c)).unwrap_or(rest.len());
        // The full stop of a sentence is not a part of the name.
        let name = rest[..end].trim_end_matches(['.', '/', '-']);
        let place = start..start + SCHEME.len() + name.len();
        (!name.is_empty()).then_some((place, name))
    })
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._/-".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;
    use serde_yaml::Value;

    const KNOWN: [&str; 1] = ["pod-affinity"];
    const DIGEST: &str = "127.0.0.1:5000/pod-affinity@sha256:abc";

    fn text(content: &str) -> Text {
        Text {
            name: "x.yaml".into(),
            content: content.into(),
        }
    }

    fn resolved(content: &str) -> String {
        replaced(&text(content), KNOWN[0], DIGEST).unwrap().content
    }

    #[test]
    fn a_reference_is_replaced_and_nothing_else_is_touched() {
        let content =
            "# ko://pod-affinity is built\nimage:   ko://pod-affinity # from ko://pod-affinity\nz: 1\na: 2\n";
        let expected =
            format!("# ko://pod-affinity is built\nimage:   {DIGEST} # from ko://pod-affinity\nz: 1\na: 2\n");
        assert_eq!(resolved(content), expected);
    }

    #[test]
    fn every_way_of_writing_a_value_is_understood() {
        for (before, after) in [
            ("a: 'ko://pod-affinity'", format!("a: '{DIGEST}'")),
            ("a: \"ko://pod-affinity\"", format!("a: \"{DIGEST}\"")),
            (
                "{a: ko://pod-affinity, b: [ko://pod-affinity]}",
                format!("{{a: {DIGEST}, b: [{DIGEST}]}}"),
            ),
            ("- ko://pod-affinity\n- x", format!("- {DIGEST}\n- x")),
            ("a:\n  ko://pod-affinity", format!("a:\n  {DIGEST}")),
            (
                "{\"a\": \"ko://pod-affinity\"}",
                format!("{{\"a\": \"{DIGEST}\"}}"),
            ),
            ("a: --image=ko://pod-affinity", format!("a: --image={DIGEST}")),
            (
                "a: |\n  image: ko://pod-affinity # x\n",
                format!("a: |\n  image: {DIGEST} # x\n"),
            ),
            (
                "a: >-\n  see\n  ko://pod-affinity.\n",
                format!("a: >-\n  see\n  {DIGEST}.\n"),
            ),
            (
                "a: &i ko://pod-affinity\nb: *i\n",
                format!("a: &i {DIGEST}\nb: *i\n"),
            ),
            (
                "\u{e9}: \"\u{1f980}\"\na: ko://pod-affinity",
                format!("\u{e9}: \"\u{1f980}\"\na: {DIGEST}"),
            ),
        ] {
            assert_eq!(resolved(before), after);
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        for unknown in [
            "ko://pod-affinity2",
            "ko://github.com/tektoncd/pipeline/cmd/controller",
            "ko://pod",
        ] {
            let error = images(&text(&format!("a: {unknown}")), &KNOWN)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(unknown) && error.ends_with("known image is ko://pod-affinity"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_comment_contains_no_reference() {
        assert!(
            images(&text("# ko://other\na: 1 # ko://another\n"), &KNOWN)
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_scheme_without_a_name_is_not_a_reference() {
        assert!(
            images(&text("a: references begin with ko:// or ko://.\n"), &KNOWN)
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_reference_that_cannot_be_replaced_is_an_error() {
        let error = replaced(&text(r#"a: "ko:/\/pod-affinity""#), KNOWN[0], DIGEST).unwrap_err();
        assert!(matches!(error, Error::Unreplaceable { .. }), "{error}");
    }

    /// The values as a second YAML library parses them.
    fn values(content: &str) -> Vec<Value> {
        let documents = serde_yaml::Deserializer::from_str(content);
        documents
            .map(|document| Value::deserialize(document).unwrap())
            .collect()
    }

    fn expected(value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(text.replace("ko://pod-affinity", DIGEST)),
            Value::Sequence(items) => Value::Sequence(items.into_iter().map(expected).collect()),
            Value::Mapping(mapping) => Value::Mapping(
                mapping
                    .into_iter()
                    .map(|(key, value)| (expected(key), expected(value)))
                    .collect(),
            ),
            other => other,
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::String("ko://pod-affinity".into())),
            Just(Value::String(
                "--image=ko://pod-affinity and\nko://pod-affinity # not a comment".into()
            )),
            "[ -~\u{e9}]{0,12}"
                .prop_filter("no reference by chance", |text| !text.contains("ko:"))
                .prop_map(Value::String),
            any::<i32>().prop_map(|number| Value::Number(number.into())),
            Just(Value::Null),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Sequence),
                prop::collection::btree_map("[a-z]{1,4}", inner, 0..4).prop_map(|map| {
                    Value::Mapping(
                        map.into_iter()
                            .map(|(key, value)| (Value::String(key), value))
                            .collect(),
                    )
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn exactly_the_references_change_in_any_document(value in value()) {
            let content = serde_yaml::to_string(&value).unwrap();
            let after = resolved(&content);
            prop_assert_eq!(values(&after), values(&content).into_iter().map(expected).collect::<Vec<_>>());
        }
    }
}

//! Documents for property tests: mostly well-formed, with a malformed value anywhere.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Any JSON.
pub(crate) fn any_json() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z/~]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("[a-z/~]{0,3}", inner), 0..3)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
    .boxed()
}

/// An object with these members, each of which may be missing, null or malformed, and one unknown member.
pub(crate) fn object(members: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let (keys, values): (Vec<_>, Vec<_>) = members
        .into_iter()
        .map(|(key, usual)| (key, member(usual)))
        .unzip();
    (values, any_json())
        .prop_map(move |(values, stranger)| {
            let known = keys
                .iter()
                .zip(values)
                .filter_map(|(key, value)| Some(((*key).to_owned(), value?)));
            Value::Object(
                known
                    .chain([("stranger".to_owned(), stranger)])
                    .collect::<Map<_, _>>(),
            )
        })
        .boxed()
}

/// An object with these members, and occasionally any other JSON.
pub(crate) fn document(members: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    prop_oneof![30 => object(members), 1 => any_json()].boxed()
}

/// A list of these items, some of them malformed.
pub(crate) fn list(item: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    prop::collection::vec(prop_oneof![12 => item, 1 => any_json()], 0..4)
        .prop_map(Value::from)
        .boxed()
}

/// One of the texts.
pub(crate) fn text(values: &'static [&'static str]) -> BoxedStrategy<Value> {
    prop::sample::select(values)
        .prop_map(|value| json!(value))
        .boxed()
}

/// One of the documents.
pub(crate) fn one_of(values: Vec<Value>) -> BoxedStrategy<Value> {
    prop::sample::select(values).boxed()
}

fn member(usual: BoxedStrategy<Value>) -> BoxedStrategy<Option<Value>> {
    prop_oneof![
        40 => usual.prop_map(Some),
        6 => Just(None),
        1 => Just(Some(Value::Null)),
        1 => any_json().prop_map(Some),
    ]
    .boxed()
}

//! Changes of real documents: of their structure, and of their bytes.

use placement::keys;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

/// One change of a document, somewhere in it.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// The member or item goes.
    Drop(Index),
    /// It is something else.
    Replace(Index, Value),
    /// What is at one place is at another as well.
    Copy { from: Index, to: Index },
    /// A key or an item more.
    Add(Index, String, Value),
    /// A key is called otherwise.
    Rename(Index, String),
}

/// One change of bytes.
#[derive(Clone, Debug)]
pub(crate) enum Noise {
    /// The rest is missing.
    Truncate(Index),
    /// A byte is another.
    Set(Index, u8),
    /// Some bytes come twice: keys and braces among them.
    Repeat { from: Index, length: usize, to: Index },
    /// Some bytes more.
    Insert(Index, Vec<u8>),
}

pub(crate) fn changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(change(), 1..8)
}

pub(crate) fn noise() -> impl Strategy<Value = Vec<Noise>> {
    let at = any::<Index>;
    let one = prop_oneof![
        1 => at().prop_map(Noise::Truncate),
        3 => (at(), any::<u8>()).prop_map(|(at, byte)| Noise::Set(at, byte)),
        3 => (at(), 1..200_usize, at()).prop_map(|(from, length, to)| Noise::Repeat { from, length, to }),
        2 => (at(), prop::collection::vec(any::<u8>(), 1..9)).prop_map(|(at, bytes)| Noise::Insert(at, bytes)),
        2 => (at(), select(TOKENS)).prop_map(|(at, token)| Noise::Insert(at, token.as_bytes().to_vec())),
    ];
    prop::collection::vec(one, 1..5)
}

const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "1e999",
    "-",
    "\\u0000",
    "\\ud800",
    "\"labels\":1,",
    "\"uid\":\"again\",",
];

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        at().prop_map(Change::Drop),
        (at(), odd()).prop_map(|(at, value)| Change::Replace(at, value)),
        (at(), at()).prop_map(|(from, to)| Change::Copy { from, to }),
        (at(), key(), odd()).prop_map(|(at, key, value)| Change::Add(at, key, value)),
        (at(), key()).prop_map(|(at, key)| Change::Rename(at, key)),
    ]
}

/// Keys that a rule looks at, and some that none does.
pub(crate) fn key() -> impl Strategy<Value = String> {
    let known = [
        "metadata",
        "labels",
        "annotations",
        "spec",
        "status",
        "affinity",
        "podAffinity",
        "podAntiAffinity",
        "managedBy",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "ownerReferences",
        "kind",
        "apiVersion",
        "controller",
        "request",
        "object",
        "uid",
        keys::OPT_IN,
        keys::GROUP,
        keys::STRATEGY,
        keys::ISOLATION,
        keys::HOLD,
        keys::NODE,
        keys::RESERVE,
        keys::KUEUE_QUEUE_NAME,
    ];
    prop_oneof![5 => select(known.to_vec()).prop_map(str::to_owned), 1 => ".{0,70}"]
}

/// Values that nobody expects.
fn odd() -> impl Strategy<Value = Value> {
    let fixed = select(vec![
        Value::Null,
        json!({}),
        json!([]),
        json!([null]),
        json!({"": {"/": {"~1": []}}}),
        json!(true),
        json!(-0.0),
        json!(1e308),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("true"),
        json!("isolateAlways"),
        json!(keys::PENDING),
        json!("cpu=99999999999999999999999999999999999999999999"),
        json!("memory=-1Ei,,=,cpu=1e400"),
        json!("\u{0}\u{feff}\u{202e}\u{1f98a}"),
        json!("a".repeat(63)),
        json!("\u{e9}".repeat(5000)),
    ]);
    prop_oneof![5 => fixed, 1 => ".{0,64}".prop_map(Value::from), 1 => any::<f64>().prop_map(Value::from)]
}

pub(crate) fn changed(mut document: Value, changes: &[Change]) -> Value {
    for change in changes {
        apply(&mut document, change);
    }
    document
}

fn apply(document: &mut Value, change: &Change) {
    match change {
        Change::Drop(at) => drop(take(document, *at)),
        Change::Replace(at, value) => *place(document, *at) = value.clone(),
        Change::Copy { from, to } => {
            let copy = place(document, *from).clone();
            *place(document, *to) = copy;
        }
        Change::Add(at, key, value) => match place(document, *at) {
            Value::Object(members) => drop(members.insert(key.clone(), value.clone())),
            Value::Array(items) => items.push(value.clone()),
            scalar => *scalar = json!({ key: value }),
        },
        Change::Rename(at, key) => {
            if let Some((parent, value)) = take(document, *at)
                && let Some(Value::Object(members)) = document.pointer_mut(&parent)
            {
                members.insert(key.clone(), value);
            }
        }
    }
}

/// Takes something out; tells where it was in.
fn take(document: &mut Value, at: Index) -> Option<(String, Value)> {
    let pointer = pointer(document, at);
    let (parent, last) = pointer.rsplit_once('/')?;
    let taken = match document.pointer_mut(parent)? {
        Value::Object(members) => members.remove(&last.replace("~1", "/").replace("~0", "~"))?,
        Value::Array(items) => items.remove(last.parse().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    };
    Some((parent.to_owned(), taken))
}

fn place(document: &mut Value, at: Index) -> &mut Value {
    let pointer = pointer(document, at);
    document.pointer_mut(&pointer).unwrap()
}

fn pointer(document: &Value, at: Index) -> String {
    let mut all = vec![String::new()];
    pointers(document, "", &mut all);
    all.swap_remove(at.index(all.len()))
}

fn pointers(document: &Value, prefix: &str, all: &mut Vec<String>) {
    let mut below = |key: &str, value: &Value| {
        let pointer = format!("{prefix}/{key}");
        all.push(pointer.clone());
        pointers(value, &pointer, all);
    };
    match document {
        Value::Object(members) => {
            for (key, value) in members {
                below(&key.replace('~', "~0").replace('/', "~1"), value);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                below(&index.to_string(), value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

pub(crate) fn noisy(mut bytes: Vec<u8>, noise: &[Noise]) -> Vec<u8> {
    for one in noise {
        disturb(&mut bytes, one);
    }
    bytes
}

fn disturb(bytes: &mut Vec<u8>, noise: &Noise) {
    if bytes.is_empty() {
        return;
    }
    let size = bytes.len();
    match noise {
        Noise::Truncate(at) => bytes.truncate(at.index(size)),
        Noise::Set(at, byte) => bytes[at.index(size)] = *byte,
        Noise::Repeat { from, length, to } => {
            let from = from.index(size);
            let part = bytes[from..size.min(from + length)].to_vec();
            insert(bytes, to.index(size), part);
        }
        Noise::Insert(at, part) => insert(bytes, at.index(size), part.clone()),
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, part: Vec<u8>) {
    drop(bytes.splice(at..at, part));
}

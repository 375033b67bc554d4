//! Raw JSON of objects that are not validated yet: members may be absent, null or of the wrong type. And patch
//! operations with escaped paths.
//!
//! An API server rejects the whole request if a patch does not apply, so every path uses only parents that were read
//! before.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use serde_json::{Map, Value};

/// A member has the wrong type, so the members below it cannot be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A member. Null counts as absent, because the patch operation `add` replaces null.
pub(crate) type Member<T> = Result<Option<T>, Malformed>;

pub(crate) fn object<'a>(of: &'a Map<String, Value>, key: &str) -> Member<&'a Map<String, Value>> {
    member(of, key, Value::as_object)
}

pub(crate) fn list<'a>(of: &'a Map<String, Value>, key: &str) -> Member<&'a [Value]> {
    member(of, key, |value| value.as_array().map(Vec::as_slice))
}

pub(crate) fn text<'a>(of: &'a Map<String, Value>, key: &str) -> Member<&'a str> {
    member(of, key, Value::as_str)
}

fn member<'a, T>(
    of: &'a Map<String, Value>,
    key: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Member<T> {
    match of.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => read(value).map(Some).ok_or(Malformed),
    }
}

pub(crate) fn add(path: &[&str], value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Add(AddOperation {
        path: pointer(path),
        value: value.into(),
    })
}

pub(crate) fn remove(path: &[&str]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: pointer(path) })
}

pub(crate) fn replace(path: &[&str], value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Replace(ReplaceOperation {
        path: pointer(path),
        value: value.into(),
    })
}

pub(crate) fn test(path: &[&str], value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Test(TestOperation {
        path: pointer(path),
        value: value.into(),
    })
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}

//! The model's API server: applies requests to objects.

use super::life::{Life, Pod};
use super::{Request, Resize, Verb};
use crate::requests::Object;
use serde_json::{Value, json};

/// The UID of every StatefulSet. Each run has only one.
pub(super) const SET: &str = "set";

impl Life {
    /// No object changes between an observation and its requests, so all guards hold.
    pub(super) fn send(&mut self, request: &Request, can_resize: bool, hears_labels: bool) {
        let verb = &request.verb;
        match (&request.object, verb) {
            (Object::Run, _) => self.run = after(Some(self.run.take()), verb).unwrap(),
            (Object::StatefulSet, _) => {
                self.set = after(self.set.take(), verb);
                self.generation += i64::from(matches!(verb, Verb::Apply(_) | Verb::Json(_)));
                self.pod.take_if(|pod| self.set.is_none() && pod.is_owned_by(SET));
            }
            (Object::Pod, Verb::Resize(_)) if !can_resize => {
                self.pod.as_mut().unwrap().resize = Resize::Refused;
            }
            (Object::Pod, _) => drop(self.pod.take_if(|pod| pod.is_gone_after(verb))),
            (Object::OtherPod(name), _) => {
                let task = self.tasks.iter_mut().find(|task| task.name == *name).unwrap();
                assert!(!task.is_gone_after(verb));
                task.deaf &= !hears_labels;
            }
            (Object::KeptNode(_), _) => {}
            (Object::OtherStatefulSet(_) | Object::TaskRun(_), _) => panic!("there is no quota: {request:?}"),
        }
    }
}

impl Pod {
    fn is_gone_after(&mut self, verb: &Verb) -> bool {
        let object = after(Some(self.object.take()), verb);
        let is_gone = object.is_none();
        self.object = object.unwrap_or_default();
        self.cpu = self.requests().get("cpu");
        is_gone
    }
}

fn after(object: Option<Value>, verb: &Verb) -> Option<Value> {
    let mut object = object.unwrap_or_else(|| json!({"metadata": {"uid": SET}}));
    let uid = object["metadata"]["uid"].clone();
    match verb {
        Verb::Apply(set) => json_patch::merge(&mut object, &serde_json::to_value(set).unwrap()),
        Verb::Create { .. } => return None,
        Verb::Json(patch) => json_patch::patch(&mut object, patch).unwrap(),
        Verb::Merge(patch) => json_patch::merge(&mut object, patch),
        Verb::Strategic(patch) | Verb::Resize(patch) => merge_strategically(&mut object, patch),
        Verb::Delete { uid: deleted, .. } => {
            assert_eq!(uid, *deleted);
            return None;
        }
    }
    assert_eq!(object["metadata"]["uid"], uid);
    let owners = object["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten();
    assert!(
        owners.filter(|owner| owner["controller"] == true).count() < 2,
        "{object}"
    );
    Some(object)
}

/// A strategic merge: containers are merged by name, owners by UID.
fn merge_strategically(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(members), Value::Object(changes)) => {
            members.retain(|key, _| changes.get(key) != Some(&Value::Null));
            for (key, change) in changes.iter().filter(|(_, change)| !change.is_null()) {
                merge_strategically(members.entry(key).or_insert(Value::Null), change);
            }
        }
        (Value::Array(items), Value::Array(changes)) => {
            for change in changes {
                let is_same = |item: &Value, key| change[key].is_null() || item[key] == change[key];
                let mut all = items.iter();
                match all.position(|item| is_same(item, "uid") && is_same(item, "name")) {
                    Some(at) if change["$patch"] == "delete" => drop(items.remove(at)),
                    Some(at) => merge_strategically(&mut items[at], change),
                    None => items.push(change.clone()),
                }
            }
        }
        (object, patch) => object.clone_from(patch),
    }
}

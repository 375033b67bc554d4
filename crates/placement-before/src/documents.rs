//! The objects of a scene as documents, and what requests make of them.

use crate::keys;
use crate::plan::{Observation, PlaceholderPod};
use crate::run::{HeldFrom, RELEASED, Run, SpecStatus, dated};
use json_patch::Patch;
use placement::placeholder::spec::Spec;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A request, whichever plan it is of.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    pub object: String,
    pub own: bool,
    pub verb: Verb,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    Apply(Value),
    Json(Patch),
    Merge(Value),
    Strategic(Value),
    Delete { uid: String, at_once: bool },
}

macro_rules! neutral {
    ($name:ident, $requests:ident) => {
        pub fn $name(request: &$requests::Request) -> Sent {
            use $requests::{Object, Verb as Of};
            let object = match &request.object {
                Object::Run => "run".to_owned(),
                Object::Set => "set".to_owned(),
                Object::Pod => "pod".to_owned(),
                Object::OtherSet(name) => format!("other-set/{name}"),
                Object::OtherPod(name) => format!("other-pod/{name}"),
                Object::TaskRun(name) => format!("task-run/{name}"),
            };
            let verb = match &request.verb {
                Of::Apply(set) => Verb::Apply(serde_json::to_value(set).unwrap()),
                Of::Json(patch) => Verb::Json(patch.clone()),
                Of::Merge(patch) => Verb::Merge(patch.clone()),
                Of::Strategic(patch) | Of::Resize(patch) => Verb::Strategic(patch.clone()),
                Of::Delete { uid, at_once } => Verb::Delete {
                    uid: uid.clone(),
                    at_once: *at_once,
                },
            };
            Sent {
                object,
                own: request.object.is_own(),
                verb,
            }
        }
    };
}
use crate::requests as before;
use placement::requests as after;
neutral!(of_before, before);
neutral!(of_after, after);

pub type Documents = BTreeMap<String, Value>;

pub fn documents(seen: &Observation, spec: Option<&Spec>, usual: &Value) -> Documents {
    let mut documents = Documents::new();
    documents.insert("run".to_owned(), run(&seen.run));
    if let (Some(set), Some(spec)) = (&seen.set, spec) {
        documents.insert("set".to_owned(), self::set(&set.uid, spec, &seen.run));
    }
    if let Some(pod) = &seen.pod {
        documents.insert(
            "pod".to_owned(),
            self::pod(pod, seen.set.as_ref().map(|set| set.uid.as_str()), usual),
        );
    }
    for (kind, name) in [
        ("other-pod", "big"),
        ("other-pod", "new"),
        ("task-run", "build-test"),
    ] {
        let labels = json!({keys::GROUP: seen.run.key.uid});
        documents.insert(format!("{kind}/{name}"), json!({"metadata": {"labels": labels}}));
    }
    for name in ["affinity-assistant-0"] {
        documents.insert(
            format!("other-pod/{name}"),
            json!({"metadata": {"uid": "assistant-uid"}}),
        );
    }
    documents.insert(
        "other-set/another-set".to_owned(),
        json!({"metadata": {"uid": "another-set-uid"}}),
    );
    for pod in &seen.waiting {
        let labels = json!({keys::GROUP: seen.run.key.uid});
        documents.insert(
            format!("other-pod/{}", pod.name),
            json!({"metadata": {"labels": labels}}),
        );
    }
    documents
}

fn run(run: &Run) -> Value {
    let hold = run.hold.then(|| match run.held_from {
        HeldFrom::Creation => "true".to_owned(),
        HeldFrom::Release(since) => dated(since),
        HeldFrom::UndatedRelease => RELEASED.to_owned(),
    });
    let status = match &run.status {
        SpecStatus::Unset => None,
        SpecStatus::Pending => Some(keys::PENDING.to_owned()),
        SpecStatus::Other(other) => Some(other.clone()),
    };
    let mut document = json!({"metadata": {"uid": run.key.uid, "labels": {"app": "x"}, "annotations": {"note": "y"}}, "spec": {}});
    let mut put = |path: [&str; 2], key: &str, value: &Option<String>| {
        if let Some(value) = value {
            document[path[0]][path[1]][key] = json!(value);
        }
    };
    put(["metadata", "labels"], keys::OPT_IN, &run.opt_in);
    put(["metadata", "labels"], keys::GROUP, &run.group);
    put(["metadata", "labels"], keys::STRATEGY, &run.strategy);
    put(["metadata", "labels"], keys::ISOLATION, &run.isolation);
    put(["metadata", "annotations"], keys::HOLD, &hold);
    put(["metadata", "annotations"], keys::NODE, &run.node);
    put(["metadata", "annotations"], keys::USED, &run.used);
    if let Some(status) = status {
        document["spec"]["status"] = json!(status);
    }
    document
}

fn set(uid: &str, spec: &Spec, run: &Run) -> Value {
    let mut annotations = json!({keys::SAFE_TO_EVICT: "false"});
    if let Some(left) = &spec.left {
        annotations[keys::LEFT] = json!(left);
    }
    if let Some(node) = &spec.node {
        annotations[keys::PINNED] = json!(node);
    }
    if spec.within_limits {
        annotations[keys::WITHIN_LIMITS] = json!("true");
    }
    let amounts: BTreeMap<_, _> = spec
        .size
        .iter()
        .map(|(name, amount)| (name.to_owned(), amount.to_string()))
        .collect();
    let containers =
        json!([{"name": keys::PLACEHOLDER, "resources": {"requests": amounts, "limits": amounts}}]);
    let volumes: Vec<_> = spec
        .claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    let mut affinity = json!({"podAffinity": {}});
    if let Some(node) = &spec.node {
        affinity["nodeAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
        ]}});
    }
    let _ = run;
    let mut template = json!({"containers": containers, "affinity": affinity});
    if !spec.tolerations.is_empty() {
        template["tolerations"] = serde_json::to_value(&spec.tolerations).unwrap();
    }
    if !volumes.is_empty() {
        template["volumes"] = json!(volumes);
    }
    json!({"metadata": {"uid": uid}, "spec": {"replicas": spec.replicas, "template": {"metadata": {"annotations": annotations}, "spec": template}}})
}

fn pod(pod: &PlaceholderPod, set: Option<&str>, usual: &Value) -> Value {
    let amounts: BTreeMap<_, _> = pod
        .shape
        .requests
        .iter()
        .map(|(name, amount)| (name.to_owned(), amount.to_string()))
        .collect();
    let _ = usual;
    json!({
        "metadata": {"uid": pod.uid, "labels": {keys::KEPT_BY: "x"}, "annotations": {}, "ownerReferences": [{"uid": set}]},
        "spec": {"containers": [{"name": keys::PLACEHOLDER, "resources": {"requests": amounts, "limits": amounts}}]},
    })
}

/// What the requests make of the documents, as the controller sends them; false for each that fails.
pub fn apply(documents: &mut Documents, requests: &[Sent]) -> Vec<bool> {
    let mut outcomes = Vec::new();
    for request in requests {
        let took = send(documents, request);
        outcomes.push(took);
        if !took && request.own && !matches!(request.verb, Verb::Delete { .. }) {
            break;
        }
    }
    outcomes
}

fn send(documents: &mut Documents, request: &Sent) -> bool {
    let found = documents.get(&request.object).cloned();
    if let Verb::Apply(set) = &request.verb {
        documents.insert(request.object.clone(), set.clone());
        return true;
    }
    let Some(mut object) = found else {
        return false;
    };
    let uid = object["metadata"]["uid"].clone();
    let is_it = |patch: &Value| patch["metadata"]["uid"] == uid;
    let took = match &request.verb {
        Verb::Apply(_) => true,
        Verb::Json(patch) => json_patch::patch(&mut object, patch).is_ok(),
        Verb::Merge(patch) => {
            is_it(patch) && {
                json_patch::merge(&mut object, patch);
                true
            }
        }
        Verb::Strategic(patch) => {
            is_it(patch) && {
                merge_strategically(&mut object, patch);
                true
            }
        }
        Verb::Delete { uid: deleted, .. } => {
            if uid == *deleted {
                documents.remove(&request.object);
                return true;
            }
            false
        }
    };
    if took {
        documents.insert(request.object.clone(), object);
    }
    took
}

/// Lists of containers are merged by name, lists of owners by UID.
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

/// Without what means the same to Kubernetes: an empty mark, an empty node affinity, empty lists, and the spelling of amounts.
pub fn normal(documents: &Documents) -> Documents {
    let mut documents = documents.clone();
    if let Some(set) = documents.get_mut("set") {
        let template = &mut set["spec"]["template"];
        if template["metadata"]["annotations"][keys::PINNED] == json!("") {
            template["metadata"]["annotations"]
                .as_object_mut()
                .unwrap()
                .remove(keys::PINNED);
        }
        let spec = template["spec"].as_object_mut().unwrap();
        for list in ["tolerations", "volumes"] {
            if spec.get(list) == Some(&json!([])) {
                spec.remove(list);
            }
        }
        if let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) {
            if affinity.get("nodeAffinity") == Some(&json!({})) {
                affinity.remove("nodeAffinity");
            }
        }
    }
    documents
}

//! PipelineRuns and pods for comparisons of policies and webhook: recorded objects of users and Tekton, the examples, and
//! valid and invalid variants of them by `policies_corpus.yaml`.

use crate::support::kubectl::{parsed, workspace};
use fastrand::Rng;
use placement::keys;
use serde::Deserialize;
use serde_json::{Value, json};

const RECORDED: [&str; 7] = [
    include_str!("../../../admission/tests/router/recorded/run.json"),
    include_str!("../../../admission/tests/router/recorded/run-v1beta1.json"),
    include_str!("../../../admission/tests/router/recorded/run-with-claim.json"),
    include_str!("../../../admission/tests/router/recorded/pod.json"),
    include_str!("../../../admission/tests/router/recorded/pod-with-claim.json"),
    include_str!("../../../admission/tests/router/recorded/assistant.json"),
    include_str!("../../../admission/tests/router/recorded/placeholder.json"),
];
/// A value that removes a member.
const ABSENT: &str = "<absent>";
/// Lists and reserves have fewer entries than this.
const LONG: usize = 4;

/// The content of the file, except fields that only this module uses.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Corpus {
    runs: Vec<Place>,
    pods: Vec<Place>,
    pub(crate) held: Vec<Value>,
    pub(crate) changes: Vec<Value>,
    in_other_words: Vec<String>,
    only_by_policy: Vec<(String, String)>,
}

/// The values for one place in a document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    at: String,
    /// Percentage of the documents that get a value in this place.
    often: u32,
    values: Vec<Value>,
    /// Items for a list in this place.
    #[serde(default)]
    lists: Vec<Value>,
    reserves: Option<Reserves>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reserves {
    names: Vec<String>,
    quantities: Vec<String>,
}

impl Corpus {
    pub(crate) fn read() -> Self {
        serde_yaml::from_str(include_str!("policies_corpus.yaml")).unwrap()
    }

    /// The known documents, the first one with each value of each place, and random variants.
    pub(crate) fn runs(&self, rng: &mut Rng, random: usize) -> Vec<Value> {
        let known: Vec<_> = recorded("PipelineRun").chain(examples()).collect();
        documents(&known, &self.runs, rng, random)
    }

    /// The same for pods.
    pub(crate) fn pods(&self, rng: &mut Rng, random: usize) -> Vec<Value> {
        let known: Vec<_> = recorded("Pod").collect();
        documents(&known, &self.pods, rng, random)
    }

    pub(crate) fn rejected_in_other_words(&self) -> impl Iterator<Item = Value> {
        self.in_other_words.iter().map(|reserve| with_reserve(reserve))
    }

    /// Rejected reserves, each with a part of the policy's message.
    pub(crate) fn rejected_only_by_policy(&self) -> impl Iterator<Item = (Value, &str)> {
        let rejected = self.only_by_policy.iter();
        rejected.map(|(reserve, message)| (with_reserve(reserve), message.as_str()))
    }
}

/// Recorded objects. Pods mount no token, because the API server would add a volume with a random name.
fn recorded(kind: &str) -> impl Iterator<Item = Value> {
    let reviews = RECORDED.map(|text| serde_json::from_str::<Value>(text).unwrap());
    let objects = reviews
        .into_iter()
        .map(|mut review| review["request"]["object"].take());
    objects
        .filter(move |object| object["kind"] == kind)
        .map(|mut object| {
            object["metadata"]
                .as_object_mut()
                .unwrap()
                .remove("managedFields");
            if object["kind"] == "Pod" {
                object["spec"]["automountServiceAccountToken"] = json!(false);
            }
            object
        })
}

fn examples() -> impl Iterator<Item = Value> {
    let entries = std::fs::read_dir(workspace().join("examples")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "yaml"));
    files.sort();
    let texts = files
        .into_iter()
        .map(|file| std::fs::read_to_string(file).unwrap());
    texts.flat_map(|text| parsed(&text))
}

/// A run that would be held if its reserve were valid.
pub(crate) fn with_reserve(reserve: &str) -> Value {
    let metadata = json!({
        "name": "run",
        "labels": {keys::OPT_IN: "true"},
        "annotations": {keys::RESERVE: reserve},
    });
    json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": metadata,
        "spec": {"pipelineRef": {"name": "p"}},
    })
}

fn documents(known: &[Value], places: &[Place], rng: &mut Rng, random: usize) -> Vec<Value> {
    let alone = known.first().into_iter().flat_map(|document| {
        let values = places
            .iter()
            .flat_map(|place| place.each().map(move |value| (place, value)));
        values.map(move |(place, value)| changed(document.clone(), &place.at, value))
    });
    let mut documents: Vec<_> = known.iter().cloned().chain(alone).collect();
    for _ in 0..random {
        let document = rng.choice(known).unwrap().clone();
        documents.push(
            places
                .iter()
                .fold(document, |document, place| place.maybe(rng, document)),
        );
    }
    documents
}

impl Place {
    fn each(&self) -> impl Iterator<Item = Value> {
        let lists = self.lists.iter().map(|item| json!([item]));
        let reserves = self.reserves.iter().flat_map(Reserves::each).map(Value::from);
        self.values.iter().cloned().chain(lists).chain(reserves)
    }

    fn maybe(&self, rng: &mut Rng, document: Value) -> Value {
        if rng.u32(0..100) >= self.often {
            return document;
        }
        let value = self.random(rng);
        changed(document, &self.at, value)
    }

    fn random(&self, rng: &mut Rng) -> Value {
        let plain = rng.u32(0..4) == 0;
        match &self.reserves {
            Some(reserves) if !plain => json!(reserves.random(rng)),
            None if !plain && !self.lists.is_empty() => {
                let items = (0..rng.usize(0..LONG)).map(|_| rng.choice(&self.lists));
                items.map(|item| item.unwrap().clone()).collect()
            }
            Some(_) | None => rng.choice(&self.values).unwrap().clone(),
        }
    }
}

impl Reserves {
    /// Each quantity of CPU, memory and a device, and one quantity of each resource.
    fn each(&self) -> impl Iterator<Item = String> {
        let kinds = ["cpu", "memory", "nvidia.com/gpu"];
        let quantities = kinds.into_iter().flat_map(|name| {
            self.quantities
                .iter()
                .map(move |quantity| format!("{name}={quantity}"))
        });
        quantities.chain(self.names.iter().map(|name| format!("{name}=1Gi")))
    }

    fn random(&self, rng: &mut Rng) -> String {
        let entries = (0..rng.usize(1..LONG)).map(|_| {
            let (name, quantity) = (mostly(rng, &self.names, 5), mostly(rng, &self.quantities, 4));
            format!("{name}={quantity}")
        });
        let entries: Vec<_> = entries.collect();
        entries.join(rng.choice([",", ", ", " ,"]).unwrap())
    }
}

/// Chooses one of the first texts, which are valid, three times out of four: the first mistake in a reserve hides the later
/// ones.
fn mostly<'a>(rng: &mut Rng, texts: &'a [String], first: usize) -> &'a str {
    let among = if rng.u8(0..4) == 0 { texts.len() } else { first };
    &texts[rng.usize(0..among)]
}

/// Sets a value at a JSON pointer, if the document can have a value there.
fn changed(mut document: Value, at: &str, value: Value) -> Value {
    let (parents, last) = at.rsplit_once('/').unwrap();
    let mut parent = Some(&mut document);
    for key in parents.split('/').skip(1) {
        parent = parent.and_then(|parent| child(parent, key));
    }
    if let Some(members) = parent.and_then(object) {
        let key = unescaped(last);
        if value == ABSENT {
            members.remove(&key);
        } else {
            members.insert(key, value);
        }
    }
    document
}

fn child<'a>(parent: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    Some(object(parent)?.entry(unescaped(key)).or_insert(Value::Null))
}

/// Replaces null by an object, because a member is added.
fn object(value: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

/// Decodes one step of a JSON pointer.
fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

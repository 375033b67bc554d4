//! The verdict of the PipelineRun webhook. pod-affinity holds an opted-in run until the run has its node: from the
//! creation of the run, or from the moment in which the user or another controller releases it.
//!
//! The rules work on the raw JSON of v1 and v1beta1, because a typed round trip would add and lose fields. The patch
//! changes `/spec/status` and labels and annotations of pod-affinity only. An object that is being created has no UID
//! yet, so the controller, and not the webhook, enrols the run.

mod rejection;

use crate::admission::{Outcome, Verdict};
use crate::bounded::Fields;
use crate::keys;
use crate::opt_in::{NamespaceLabel, OptIn, UnknownValue, namespace_warning};
use crate::raw::{self, Malformed};
use crate::reserve;
use crate::run::{RELEASED, SpecStatus, is_controlled_by_run, is_managed_elsewhere};
use crate::text::quoted;
use json_patch::{Patch, PatchOperation};
use rejection::{Rejection, required_pod_affinity};
use serde_json::{Map, Value};

/// Value of the hold annotation of a run that is held since its creation.
const SINCE_CREATION: &str = "true";

/// The fields of a PipelineRun that these rules read. The patches change only members of these fields.
pub const FIELDS: Fields = Fields::Object(&[
    ("metadata", METADATA),
    (
        "spec",
        Fields::Object(&[
            ("status", Fields::Scalar),
            ("managedBy", Fields::Scalar),
            ("taskRunTemplate", rejection::TASKS),
            ("taskRunSpecs", Fields::List(&rejection::TASKS)),
        ]),
    ),
]);

const METADATA: Fields = Fields::Object(&[
    ("name", Fields::Scalar),
    ("generateName", Fields::Scalar),
    ("namespace", Fields::Scalar),
    ("uid", Fields::Scalar),
    (
        "labels",
        Fields::Object(&[
            (keys::OPT_IN, Fields::Scalar),
            (keys::KUEUE_QUEUE_NAME, Fields::Scalar),
            (keys::GROUP, Fields::Scalar),
            (keys::STRATEGY, Fields::Scalar),
            (keys::ISOLATION, Fields::Scalar),
        ]),
    ),
    (
        "annotations",
        Fields::Object(&[
            (keys::HOLD, Fields::Scalar),
            (keys::RESERVE, Fields::Scalar),
            (keys::NODE, Fields::Scalar),
            (keys::USED, Fields::Scalar),
            (keys::KEPT_UNTIL, Fields::Scalar),
            (keys::OPTED_IN_BY, Fields::Scalar),
        ]),
    ),
    ("ownerReferences", Fields::Matching(&OWNER, is_controller)),
]);

const OWNER: Fields = Fields::Object(&[
    ("apiVersion", Fields::Scalar),
    ("kind", Fields::Scalar),
    ("controller", Fields::Scalar),
]);

fn is_controller(owner: &Value) -> bool {
    owner["controller"] == true
}

/// The verdict on the creation of a PipelineRun with the opt-in label.
pub fn admit(object: &Value) -> Verdict {
    match PipelineRunDoc::parse(object) {
        Ok(run) => run.on_creation(),
        Err(Malformed) => Verdict::unpatched(Outcome::WrongType),
    }
}

/// The verdict on the creation of a PipelineRun without the opt-in label, in a Namespace that has the label.
pub fn admit_by_namespace(object: &Value, label: NamespaceLabel) -> Verdict {
    match (PipelineRunDoc::parse(object), label) {
        (Ok(run), NamespaceLabel::Means(value)) => run.with_namespace_label(value).on_creation(),
        (Ok(run), NamespaceLabel::Unknown) => run.on_creation_in_unknown_namespace(),
        (Err(Malformed), _) => Verdict::unpatched(Outcome::WrongType),
    }
}

/// The verdict on an update of a PipelineRun. If the user or another controller releases a run that it held,
/// pod-affinity holds the run until the run has its node. Otherwise the placeholder would be created at the same time
/// as the first tasks: if a first task ended before the placeholder had a node, the second task could get another node.
/// A second release is admitted, so that users can always start a run. For this reason, runs that Kueue queues are not
/// held here: Kueue would repeat the release at once. An update is never rejected. Mistakes in a run are reported when
/// the run is created, and later by the controller.
pub fn admit_change(old: &Value, object: &Value) -> Verdict {
    match (PipelineRunDoc::parse(old), PipelineRunDoc::parse(object)) {
        (Ok(old), Ok(run)) if run.is_released(&old) => run.on_release(),
        (Ok(_), Ok(_)) => Verdict::unpatched(Outcome::NotReleased),
        (Err(Malformed), _) | (_, Err(Malformed)) => Verdict::unpatched(Outcome::WrongType),
    }
}

/// The members of a PipelineRun that the rules read. `None` stands for absent members and for null.
struct PipelineRunDoc<'a> {
    metadata: &'a Map<String, Value>,
    spec: &'a Map<String, Value>,
    labels: Option<&'a Map<String, Value>>,
    annotations: Option<&'a Map<String, Value>>,
    owners: &'a [Value],
    opt_in: Option<&'a str>,
    /// The opt-in label that the run gets from its Namespace.
    by_namespace: Option<&'static str>,
    reserve: Option<&'a str>,
    managed_by: Option<&'a str>,
    status: SpecStatus,
}

impl<'a> PipelineRunDoc<'a> {
    fn parse(object: &'a Value) -> Result<Self, Malformed> {
        let object = object.as_object().ok_or(Malformed)?;
        let metadata = raw::object(object, "metadata")?.ok_or(Malformed)?;
        let spec = raw::object(object, "spec")?.ok_or(Malformed)?;
        let labels = raw::object(metadata, "labels")?;
        let annotations = raw::object(metadata, "annotations")?;
        Ok(Self {
            metadata,
            spec,
            labels,
            annotations,
            owners: raw::list(metadata, "ownerReferences")?.unwrap_or_default(),
            opt_in: label_text(labels, keys::OPT_IN)?,
            by_namespace: None,
            reserve: label_text(annotations, keys::RESERVE)?,
            managed_by: raw::text(spec, "managedBy")?,
            status: SpecStatus::parse(raw::text(spec, "status")?),
        })
    }

    /// The opt-in label of the run has precedence over the label of the Namespace.
    fn with_namespace_label(self, value: &'static str) -> Self {
        match self.opt_in {
            Some(_) => self,
            None => Self {
                opt_in: Some(value),
                by_namespace: Some(value),
                ..self
            },
        }
    }

    fn on_creation_in_unknown_namespace(&self) -> Verdict {
        match self.outcome() {
            Ok(Outcome::NotOptedIn) => Verdict::Warn {
                warning: namespace_warning(self.text("namespace").unwrap_or_default()).into(),
                outcome: Outcome::UnknownByNamespace,
            },
            // With policies, no policy selects such a run.
            Ok(outcome @ Outcome::ManagedElsewhere) if self.opt_in.is_none() => Verdict::unpatched(outcome),
            Ok(_) | Err(UnknownValue { .. }) => self.on_creation(),
        }
    }

    fn on_creation(&self) -> Verdict {
        match self.creation_outcome() {
            Ok(outcome) => Verdict::Allow {
                patch: self.patch(outcome),
                outcome,
            },
            Err(rejection) => Verdict::Deny {
                message: rejection.to_string(),
                outcome: Outcome::Denied,
            },
        }
    }

    fn creation_outcome(&self) -> Result<Outcome, Rejection> {
        let outcome = self.outcome().map_err(|cause| Rejection::OptIn {
            run: self.name(),
            cause,
        })?;
        if let Outcome::Held | Outcome::LeftHeldByOther = outcome {
            self.check_reserve()?;
            self.check_pod_affinity()?;
        }
        Ok(outcome)
    }

    /// The update releases a hold of the user or of another controller. The release of a hold of pod-affinity is
    /// intended, so it is no reason for a new hold.
    fn is_released(&self, old: &Self) -> bool {
        let held_by_other = old.status == SpecStatus::Pending && !contains(old.annotations, keys::HOLD);
        held_by_other && self.status == SpecStatus::Unset
    }

    /// The hold gets no date here: only the API server's clock dates a hold, and the webhook does not know this clock. The controller
    /// knows the clock and dates the hold.
    fn on_release(&self) -> Verdict {
        match self.outcome() {
            Ok(Outcome::Held) => Verdict::Allow {
                patch: Patch(self.hold(RELEASED)),
                outcome: Outcome::Held,
            },
            Ok(outcome) => Verdict::unpatched(outcome),
            Err(UnknownValue { .. }) => Verdict::unpatched(Outcome::NotOptedIn),
        }
    }

    fn is_nested(&self) -> bool {
        let group = self.labels.and_then(|labels| labels.get(keys::GROUP));
        let is_in_group_of_other = group.is_some() && group != self.metadata.get("uid");
        self.owners.iter().any(|owner| {
            let text = |key: &str| owner[key].as_str().unwrap_or_default();
            let controller = owner["controller"].as_bool();
            is_controlled_by_run(text("apiVersion"), text("kind"), controller, is_in_group_of_other)
        })
    }

    fn outcome(&self) -> Result<Outcome, UnknownValue> {
        if self.is_nested() {
            return Ok(Outcome::Nested);
        }
        if is_managed_elsewhere(self.managed_by) {
            return Ok(Outcome::ManagedElsewhere);
        }
        Ok(match OptIn::parse(self.opt_in)? {
            OptIn::Absent => Outcome::NotOptedIn,
            OptIn::Declined => Outcome::Declined,
            OptIn::Default | OptIn::Chosen(_) => self.outcome_by_status(),
        })
    }

    fn check_reserve(&self) -> Result<(), Rejection> {
        let value = self.reserve.unwrap_or_default();
        let rejected = |cause| Rejection::Reserve {
            run: self.name(),
            value: quoted(value).into_owned(),
            cause: Box::new(cause),
        };
        reserve::parse_setting(value).map(drop).map_err(rejected)
    }

    fn check_pod_affinity(&self) -> Result<(), Rejection> {
        let rejected = |field| Rejection::PodAffinity {
            run: self.name(),
            field,
        };
        required_pod_affinity(self.spec).map_or(Ok(()), |field| Err(rejected(field)))
    }

    /// Pending together with the hold annotation is a hold of pod-affinity, from an earlier call for the same object,
    /// or from a copied manifest. No controller would ever end a hold of pod-affinity without the annotation. A queued
    /// run is left alone even if its status is unset: Kueue sets Pending itself, and the controller never releases a
    /// run that Kueue queues.
    fn outcome_by_status(&self) -> Outcome {
        match self.status {
            SpecStatus::Pending if contains(self.annotations, keys::HOLD) => Outcome::Held,
            SpecStatus::Unset if !contains(self.labels, keys::KUEUE_QUEUE_NAME) => Outcome::Held,
            SpecStatus::Unset | SpecStatus::Pending | SpecStatus::Other(_) => Outcome::LeftHeldByOther,
        }
    }

    fn patch(&self, outcome: Outcome) -> Patch {
        Patch(match outcome {
            // The labels of its group are right: Tekton copied them from the run that contains the nested run.
            Outcome::Nested => Vec::new(),
            Outcome::Held => [
                self.remove_copied(outcome),
                self.opt_in_label(),
                self.hold(SINCE_CREATION),
            ]
            .concat(),
            Outcome::LeftHeldByOther => [
                self.remove_copied(outcome),
                self.opt_in_label(),
                self.annotate(self.opted_in_by()),
            ]
            .concat(),
            _ => self.remove_copied(outcome),
        })
    }

    /// Removes the labels and annotations of another run: a copied manifest must not join the group of the original.
    /// The hold annotation stays on a run that is Pending: without the annotation, the controller would not release the run.
    fn remove_copied(&self, outcome: Outcome) -> Vec<PatchOperation> {
        let labels = [keys::GROUP, keys::STRATEGY, keys::ISOLATION];
        let labels = labels.iter().filter(|key| contains(self.labels, key));
        let annotations = [
            keys::NODE,
            keys::USED,
            keys::KEPT_UNTIL,
            keys::HOLD,
            keys::OPTED_IN_BY,
        ];
        let is_held = outcome == Outcome::Held || self.status == SpecStatus::Pending;
        let goes = |key: &&&str| **key != keys::HOLD || !is_held;
        let annotations = annotations
            .iter()
            .filter(goes)
            .filter(|key| contains(self.annotations, key));
        labels
            .map(|key| raw::remove(&["metadata", "labels", key]))
            .chain(annotations.map(|key| raw::remove(&["metadata", "annotations", key])))
            .collect()
    }

    fn hold(&self, mark: &str) -> Vec<PatchOperation> {
        let pending =
            (self.status != SpecStatus::Pending).then(|| raw::add(&["spec", "status"], keys::PENDING));
        let marked = self.annotations.and_then(|all| all.get(keys::HOLD));
        let mark = marked
            .is_none_or(|value| value != mark)
            .then_some((keys::HOLD, mark));
        let marks = self.annotate(mark.into_iter().chain(self.opted_in_by()));
        pending.into_iter().chain(marks).collect()
    }

    /// The opt-in label that the run gets from its Namespace.
    fn opt_in_label(&self) -> Vec<PatchOperation> {
        let entry = self.by_namespace.map(|value| (keys::OPT_IN, value));
        add_entries("labels", self.labels, entry)
    }

    /// The annotation that names the source of this label.
    fn opted_in_by(&self) -> Option<(&'static str, &'static str)> {
        self.by_namespace.map(|_| (keys::OPTED_IN_BY, keys::BY_NAMESPACE))
    }

    fn annotate<'b>(&self, entries: impl IntoIterator<Item = (&'b str, &'b str)>) -> Vec<PatchOperation> {
        add_entries("annotations", self.annotations, entries)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.metadata.get(key)?.as_str().filter(|text| !text.is_empty())
    }

    fn name(&self) -> String {
        let name = match (self.text("name"), self.text("generateName")) {
            (Some(name), _) => quoted(name),
            (None, Some(prefix)) => format!("{}*", quoted(prefix)).into(),
            (None, None) => "without a name".into(),
        };
        match self.text("namespace") {
            Some(namespace) => format!("{}/{name}", quoted(namespace)),
            None => name.into_owned(),
        }
    }
}

/// Adds entries to the labels or the annotations, and adds the map itself if it is absent.
fn add_entries<'a>(
    name: &str,
    map: Option<&Map<String, Value>>,
    entries: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<PatchOperation> {
    let entries = entries.into_iter();
    if map.is_some() {
        let add = |(key, value): (&str, &str)| raw::add(&["metadata", name, key], value);
        return entries.map(add).collect();
    }
    let entries = entries.map(|(key, value)| (key.to_owned(), value.into()));
    let whole: Map<_, _> = entries.collect();
    let whole = (!whole.is_empty()).then(|| raw::add(&["metadata", name], whole));
    whole.into_iter().collect()
}

fn label_text<'a>(map: Option<&'a Map<String, Value>>, key: &str) -> raw::Member<&'a str> {
    map.map_or(Ok(None), |map| raw::text(map, key))
}

fn contains(map: Option<&Map<String, Value>>, key: &str) -> bool {
    map.is_some_and(|map| map.contains_key(key))
}

#[cfg(test)]
mod tests;

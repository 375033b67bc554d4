//! The two webhooks: which requests each is for, and the rule of `placement` that it asks.

use crate::review::{Kind, Request};
use jiff::Timestamp;
use json_patch::Patch;
use placement::namespace::NamespaceLabel;
use placement::{hold, inject};
use serde_json::Value;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Webhook {
    PipelineRun,
    /// The first one's for runs without the label, in Namespaces that have it.
    InNamespace(NamespaceLabel),
    Pod,
}

/// What is asked about a request.
pub(crate) enum Question {
    /// What to make of the object that it creates.
    Creation(fn(&Value) -> Ruling),
    /// The same, in a Namespace with this label.
    CreationIn(NamespaceLabel, fn(&Value, NamespaceLabel) -> Ruling),
    /// What to make of its change from the first object to the second.
    Change(fn(&Value, &Value) -> Ruling),
}

/// What a rule says about an object.
pub(crate) enum Ruling {
    Allow { patch: Patch, outcome: &'static str },
    Warn { warning: String, outcome: &'static str },
    Deny { message: String },
}

impl Webhook {
    /// The webhook as metric label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::PipelineRun | Self::InNamespace(_) => "pipelinerun",
            Self::Pod => "pod",
        }
    }

    /// What is to be asked about a request, if this webhook is for it. A version is not asked for: by matchPolicy
    /// Equivalent the API server converts to the one it was told, and the rules read them all.
    pub(crate) fn question(self, request: &Request<'_>) -> Option<Question> {
        let whole = request.sub_resource.as_deref().unwrap_or_default().is_empty();
        if !(whole && self.is_for(&request.kind)) {
            return None;
        }
        match (self, request.operation.as_ref()) {
            (Self::PipelineRun, "CREATE") => Some(Question::Creation(|run| hold::admit(run).into())),
            (Self::PipelineRun, "UPDATE") => Some(Question::Change(|old, run| {
                hold::admit_change(old, run, Timestamp::now()).into()
            })),
            (Self::InNamespace(label), "CREATE") => Some(Question::CreationIn(label, |run, label| {
                hold::admit_by_namespace(run, label).into()
            })),
            (Self::Pod, "CREATE") => Some(Question::Creation(|pod| inject::admit(pod).into())),
            (Self::PipelineRun | Self::InNamespace(_) | Self::Pod, _) => None,
        }
    }

    fn is_for(self, kind: &Kind<'_>) -> bool {
        match self {
            Self::PipelineRun | Self::InNamespace(_) => {
                kind.group == "tekton.dev" && kind.kind == "PipelineRun"
            }
            Self::Pod => kind.group.is_empty() && kind.kind == "Pod",
        }
    }
}

impl From<hold::Verdict> for Ruling {
    fn from(verdict: hold::Verdict) -> Self {
        match verdict {
            hold::Verdict::Allow { patch, outcome } => Self::Allow {
                patch,
                outcome: outcome.as_str(),
            },
            hold::Verdict::Warn { warning, outcome } => Self::Warn {
                warning,
                outcome: outcome.as_str(),
            },
            hold::Verdict::Deny(refusal) => Self::Deny {
                message: refusal.to_string(),
            },
        }
    }
}

impl From<inject::Injection> for Ruling {
    fn from(inject::Injection { patch, outcome }: inject::Injection) -> Self {
        Self::Allow {
            patch,
            outcome: outcome.as_str(),
        }
    }
}

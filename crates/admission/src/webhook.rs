//! The two webhooks: which requests each is for, and the rule of `placement` that each applies.

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
    /// The webhook for runs without the label, in Namespaces that have it.
    InNamespace(NamespaceLabel),
    Pod,
}

/// What a rule decides about an object.
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

    /// Whether this webhook is for a request. The version of the object is not compared: by matchPolicy Equivalent the API
    /// server converts to the version of the webhook configuration, and the rules read every version.
    pub(crate) fn is_for(self, request: &Request<'_>) -> bool {
        let whole = request.sub_resource.as_deref().unwrap_or_default().is_empty();
        whole && self.is_for_kind(&request.kind) && self.is_for_operation(&request.operation)
    }

    /// What the rule decides about an object that is created, or changed if there is an old one.
    pub(crate) fn rule(self, old: Option<&Value>, object: &Value) -> Ruling {
        match (self, old) {
            (Self::PipelineRun, None) => hold::admit(object).into(),
            (Self::PipelineRun, Some(old)) => hold::admit_change(old, object, Timestamp::now()).into(),
            (Self::InNamespace(label), _) => hold::admit_by_namespace(object, label).into(),
            (Self::Pod, _) => inject::admit(object).into(),
        }
    }

    fn is_for_operation(self, operation: &str) -> bool {
        match operation {
            "CREATE" => true,
            "UPDATE" => self == Self::PipelineRun,
            _ => false,
        }
    }

    fn is_for_kind(self, kind: &Kind<'_>) -> bool {
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

//! The two webhooks: which objects each is for, and the rule of `placement` that it asks.

use crate::review::{Kind, Request};
use json_patch::Patch;
use placement::{hold, inject};
use serde_json::Value;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Webhook {
    PipelineRun,
    Pod,
}

/// What a rule says about an object.
pub(crate) enum Ruling {
    Allow { patch: Patch, outcome: &'static str },
    Deny { message: String },
}

impl Webhook {
    /// The webhook as metric label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::PipelineRun => "pipelinerun",
            Self::Pod => "pod",
        }
    }

    /// Whether the request creates an object that this webhook is for. A version is not asked for: by
    /// matchPolicy Equivalent the API server converts to the one it was told, and the rules read them all.
    pub(crate) fn concerns(self, request: &Request<'_>) -> bool {
        let whole = request.sub_resource.as_deref().unwrap_or_default().is_empty();
        request.operation == "CREATE" && whole && self.is_for(&request.kind)
    }

    fn is_for(self, kind: &Kind<'_>) -> bool {
        match self {
            Self::PipelineRun => kind.group == "tekton.dev" && kind.kind == "PipelineRun",
            Self::Pod => kind.group.is_empty() && kind.kind == "Pod",
        }
    }

    /// Asks the rule.
    pub(crate) fn rule(self, object: &Value) -> Ruling {
        match self {
            Self::PipelineRun => hold::admit(object).into(),
            Self::Pod => inject::admit(object).into(),
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

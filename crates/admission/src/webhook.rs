//! The two webhooks: which requests each webhook handles, and which rule of `placement` each webhook applies.

use crate::review::{Kind, Request};
use jiff::Timestamp;
use placement::admission::{Verdict, pipeline_run, pod};
use placement::opt_in::NamespaceLabel;
use serde_json::Value;

/// One of the two webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Webhook {
    PipelineRun,
    /// The webhook for runs without the label, in Namespaces with the label.
    InNamespace(NamespaceLabel),
    Pod,
}

impl Webhook {
    /// The webhook as metric label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::PipelineRun | Self::InNamespace(_) => "pipelinerun",
            Self::Pod => "pod",
        }
    }

    /// Whether this webhook handles a request. The version of the object is not compared: with matchPolicy Equivalent, the API
    /// server converts to the version in the webhook configuration, and the rules read every version.
    pub(crate) fn is_for(self, request: &Request<'_>) -> bool {
        let whole = request.sub_resource.as_deref().unwrap_or_default().is_empty();
        whole && self.is_for_kind(&request.kind) && self.is_for_operation(&request.operation)
    }

    /// The verdict of the rule about an object that is created or, with an old object, updated.
    pub(crate) fn rule(self, old: Option<&Value>, object: &Value) -> Verdict {
        match (self, old) {
            (Self::PipelineRun, None) => pipeline_run::admit(object),
            (Self::PipelineRun, Some(old)) => pipeline_run::admit_change(old, object, Timestamp::now()),
            (Self::InNamespace(label), _) => pipeline_run::admit_by_namespace(object, label),
            (Self::Pod, _) => pod::admit(object),
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

//! Computes the verdict of a request: which of the two webhooks handles the request, and which rule of `placement` applies. Pure, and
//! defined for every object.
//!
//! A bug of pod-affinity denies no object. If a rule panics, or if a patch does not apply (the API server would reject the object
//! under any failure policy), the webhook admits the object with a warning, and the metrics count the failure.

use crate::review::{Kind, Request, RequestError};
use placement::admission::{Outcome, Verdict, pipeline_run, pod};
use placement::bounded::{BYTES, Decoded, ENTRIES, Fields};
use placement::opt_in::NamespaceLabel;
use placement::text::quoted;
use serde_json::Value;
use serde_json::value::RawValue;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tracing::{Span, debug, error, field, info_span};

const FAILED: &str = "pod-affinity could not handle this object and left it as it is; see the webhook's log for this request's uid";

/// The verdict on an object.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) verdict: Verdict,
    /// The name of a field that the rule ignored, because the field is over a limit.
    pub(crate) over_limit: Option<&'static str>,
}

impl Decision {
    /// The warnings for the client. The API server may cut warnings of more than 256 bytes.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let of_verdict = match &self.verdict {
            Verdict::Warn { warning, .. } => Some(warning.clone().into_owned()),
            Verdict::Allow { .. } | Verdict::Deny { .. } => None,
        };
        let over_limit = self.over_limit.map(|name| {
            format!(
                "pod-affinity ignores the field {name}, because a list in the field has more than {ENTRIES} entries, or the field \
                 has more than {} KiB",
                BYTES >> 10
            )
        });
        of_verdict.into_iter().chain(over_limit).collect()
    }
}

impl From<Verdict> for Decision {
    fn from(verdict: Verdict) -> Self {
        let over_limit = None;
        Self { verdict, over_limit }
    }
}

/// Decides about one request, and logs the verdict.
pub(crate) fn decide(webhook: Webhook, request: &Request<'_>) -> Decision {
    let _entered = span(webhook, request).entered();
    let decision = consider(webhook, request);
    if let Verdict::Deny { message, .. } = &decision.verdict {
        debug!(message, "denied");
    }
    Span::current().record("verdict", decision.verdict.outcome().as_str());
    debug!(over_limit = decision.over_limit, "answered");
    decision
}

/// Logs a request without a valid review, and returns its outcome.
pub(crate) fn reject(error: &RequestError) -> Outcome {
    debug!(%error, "rejected a request");
    Outcome::Malformed
}

fn consider(webhook: Webhook, request: &Request<'_>) -> Decision {
    if !webhook.is_for(request) {
        return Verdict::unpatched(Outcome::NotConcerned).into();
    }
    match objects(webhook.fields(), request) {
        Ok((_, object)) if object.over_limit.is_some() && webhook == Webhook::Pod => Decision {
            verdict: Verdict::unpatched(Outcome::WrongType),
            over_limit: object.over_limit,
        },
        Ok((old, object)) => Decision {
            verdict: judge(object.value, |object| {
                webhook.rule(old.as_ref().map(|old| &old.value), object)
            }),
            over_limit: object.over_limit,
        },
        Err(message) => Verdict::Deny {
            message,
            outcome: Outcome::Malformed,
        }
        .into(),
    }
}

/// The old object of an update, and the object. In an update, an unreadable object is null for the rule: the webhook does not
/// reject an object that already exists.
fn objects(fields: &'static Fields, request: &Request<'_>) -> Result<(Option<Decoded>, Decoded), String> {
    let decode = |raw: &RawValue| fields.decode(&mut serde_json::Deserializer::from_str(raw.get()));
    if request.operation != "CREATE" {
        let [old, object] = [request.old_object, request.object]
            .map(|raw| raw.and_then(|raw| decode(raw).ok()).unwrap_or_default());
        return Ok((Some(old), object));
    }
    let raw = request
        .object
        .ok_or("the request to create an object contains no object")?;
    let object = decode(raw);
    let object =
        object.map_err(|error| format!("the object cannot be read: {}", quoted(&error.to_string())))?;
    Ok((None, object))
}

/// Applies a rule to the fields of an object, and applies the patch to these fields: a patch that applies to the fields also applies
/// to the object.
fn judge(mut object: Value, rule: impl FnOnce(&Value) -> Verdict) -> Verdict {
    let Ok(verdict) = catch_unwind(AssertUnwindSafe(|| rule(&object))) else {
        return failed("the rule panicked");
    };
    if let Verdict::Allow { patch, .. } = &verdict
        && let Err(error) = json_patch::patch(&mut object, patch)
    {
        return failed(&error.to_string());
    }
    verdict
}

fn failed(cause: &str) -> Verdict {
    error!(cause, "admitted without a patch after an error of pod-affinity");
    Verdict::Warn {
        warning: FAILED.into(),
        outcome: Outcome::Failed,
    }
}

fn span(webhook: Webhook, request: &Request<'_>) -> Span {
    info_span!(
        "admission",
        webhook = webhook.as_str(),
        uid = %request.uid,
        kind = %request.kind.kind,
        namespace = request.namespace.as_deref(),
        name = request.name.as_deref(),
        dry_run = request.dry_run,
        verdict = field::Empty,
    )
}

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
    fn is_for(self, request: &Request<'_>) -> bool {
        let whole = request.sub_resource.as_deref().unwrap_or_default().is_empty();
        whole && self.is_for_kind(&request.kind) && self.is_for_operation(&request.operation)
    }

    /// The fields that the rule reads.
    fn fields(self) -> &'static Fields {
        match self {
            Self::PipelineRun | Self::InNamespace(_) => &pipeline_run::FIELDS,
            Self::Pod => &pod::FIELDS,
        }
    }

    /// The verdict of the rule about an object that is created or, with an old object, updated.
    fn rule(self, old: Option<&Value>, object: &Value) -> Verdict {
        match (self, old) {
            (Self::PipelineRun, None) => pipeline_run::admit(object),
            (Self::PipelineRun, Some(old)) => pipeline_run::admit_change(old, object),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::reply;
    use json_patch::Patch;
    use serde_json::json;

    /// The reply to an empty object.
    fn reply_by(rule: impl FnOnce(&Value) -> Verdict) -> (Value, Outcome) {
        let decision = Decision::from(judge(json!({}), rule));
        let mut review: Value =
            serde_json::from_slice(&reply("u", &decision.verdict, decision.warnings()).unwrap()).unwrap();
        (review["response"].take(), decision.verdict.outcome())
    }

    fn add(path: &str) -> Patch {
        serde_json::from_value(json!([{"op": "add", "path": path, "value": 1}])).unwrap()
    }

    fn held_by(patch: Patch) -> Verdict {
        let outcome = Outcome::Held;
        Verdict::Allow { patch, outcome }
    }

    #[test]
    fn an_object_whose_rule_panics_is_admitted_with_a_warning() {
        let (reply, outcome) = reply_by(|_| panic!("on purpose"));
        assert_eq!(outcome, Outcome::Failed);
        assert_eq!(reply, json!({"uid": "u", "allowed": true, "warnings": [FAILED]}));
    }

    #[test]
    fn a_patch_that_would_not_apply_is_not_sent() {
        let (reply, outcome) = reply_by(|_| held_by(add("/no/parent")));
        assert_eq!(outcome, Outcome::Failed);
        assert_eq!(reply, json!({"uid": "u", "allowed": true, "warnings": [FAILED]}));
    }

    #[test]
    fn a_patch_is_sent_as_base64_with_its_outcome() {
        let (reply, outcome) = reply_by(|_| held_by(add("/a")));
        assert_eq!(outcome, Outcome::Held);
        assert_eq!(reply["patchType"], "JSONPatch");
        let sent: k8s_openapi::ByteString = serde_json::from_value(reply["patch"].clone()).unwrap();
        assert_eq!(serde_json::from_slice::<Patch>(&sent.0).unwrap(), add("/a"));
    }

    #[test]
    fn an_answer_with_an_empty_patch_has_no_patch_field() {
        let (reply, _) = reply_by(|_| held_by(Patch::default()));
        assert_eq!(reply, json!({"uid": "u", "allowed": true}));
    }

    #[test]
    fn each_warning_has_at_most_256_bytes() {
        let over_limit = Some("requiredDuringSchedulingIgnoredDuringExecution");
        let verdict = Verdict::Warn {
            warning: FAILED.into(),
            outcome: Outcome::Failed,
        };
        let warnings = Decision { verdict, over_limit }.warnings();
        assert_eq!(warnings.len(), 2);
        for warning in warnings {
            assert!(warning.len() <= 256, "longer warnings may be cut: {warning}");
        }
    }
}

//! Computes the verdict of a request. Pure, and defined for every object.
//!
//! A bug of pod-affinity denies no object. If a rule panics, or if a patch does not apply (the API server would reject the object
//! under any failure policy), the webhook admits the object with a warning, and the metrics count the failure.

use crate::fault::Fault;
use crate::review::Request;
use crate::webhook::Webhook;
use placement::admission::{Outcome, Verdict};
use serde_json::Value;
use serde_json::value::RawValue;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tracing::{Span, debug, error, field, info, info_span};

const FAILED: &str = "pod-affinity could not handle this object and left it as it is; see the webhook's log for this request's uid";

/// Decides about one request, and logs the verdict.
pub(crate) fn decide(webhook: Webhook, request: &Request<'_>) -> Verdict {
    let _entered = span(webhook, request).entered();
    let verdict = consider(webhook, request);
    if let Verdict::Deny { message, .. } = &verdict {
        info!(message, "denied");
    }
    Span::current().record("verdict", verdict.outcome().as_str());
    debug!("answered");
    verdict
}

/// Logs a request without a valid review, and returns its outcome.
pub(crate) fn refuse(fault: &Fault) -> Outcome {
    info!(%fault, "refused a request");
    Outcome::Malformed
}

fn consider(webhook: Webhook, request: &Request<'_>) -> Verdict {
    if !webhook.is_for(request) {
        return Verdict::unpatched(Outcome::NotConcerned);
    }
    match objects(request) {
        Ok((old, object)) => judge(object, |object| webhook.rule(old.as_ref(), object)),
        Err(message) => Verdict::Deny {
            message,
            outcome: Outcome::Malformed,
        },
    }
}

/// The old object of an update, and the object. In an update, an unreadable object is null for the rule: the webhook does not
/// reject an object that already exists.
fn objects(request: &Request<'_>) -> Result<(Option<Value>, Value), String> {
    if request.operation != "CREATE" {
        let [old, object] = [request.old_object, request.object]
            .map(|raw| raw.and_then(|raw| read(raw).ok()).unwrap_or_default());
        return Ok((Some(old), object));
    }
    let raw = request
        .object
        .ok_or("the request to create an object carries no object")?;
    let object = read(raw).map_err(|error| format!("the object cannot be read: {error}"))?;
    Ok((None, object))
}

/// `serde_json` rejects a depth of more than 128, far beyond any real object, so that the stack does not overflow.
fn read(raw: &RawValue) -> serde_json::Result<Value> {
    serde_json::from_str(raw.get())
}

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
    error!(cause, "let in unpatched because of a fault of ours");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::reply;
    use json_patch::Patch;
    use serde_json::json;

    /// The reply to an empty object.
    fn reply_by(rule: impl FnOnce(&Value) -> Verdict) -> (Value, Outcome) {
        let verdict = judge(json!({}), rule);
        let mut review: Value = serde_json::from_slice(&reply("u", &verdict).unwrap()).unwrap();
        (review["response"].take(), verdict.outcome())
    }

    fn add(path: &str) -> Patch {
        serde_json::from_value(json!([{"op": "add", "path": path, "value": 1}])).unwrap()
    }

    fn held_by(patch: Patch) -> Verdict {
        let outcome = Outcome::Held;
        Verdict::Allow { patch, outcome }
    }

    #[test]
    fn a_rule_that_panics_lets_the_object_in_with_a_warning() {
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
    fn a_patch_goes_out_as_base64_under_its_outcome() {
        let (reply, outcome) = reply_by(|_| held_by(add("/a")));
        assert_eq!(outcome, Outcome::Held);
        assert_eq!(reply["patchType"], "JSONPatch");
        let sent: k8s_openapi::ByteString = serde_json::from_value(reply["patch"].clone()).unwrap();
        assert_eq!(serde_json::from_slice::<Patch>(&sent.0).unwrap(), add("/a"));
    }

    #[test]
    fn an_empty_patch_is_left_out() {
        let (reply, _) = reply_by(|_| held_by(Patch::default()));
        assert_eq!(reply, json!({"uid": "u", "allowed": true}));
    }

    #[test]
    fn a_warning_fits_what_the_api_server_passes_on() {
        assert!(FAILED.len() <= 256, "longer warnings may be cut");
    }
}

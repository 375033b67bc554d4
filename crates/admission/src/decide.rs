//! From the bytes of a request to the bytes of the answer: pure, and total over any bytes.
//!
//! Two promises are kept here. A request with a readable uid is answered with a well-formed review that has this uid. And a
//! bug of ours never denies: a rule that panics, or a patch that would not apply (the API server refuses the object for
//! that, whatever the failure policy), lets the object in with a warning and is counted.

use crate::fault::Fault;
use crate::review::{API_VERSION, Envelope, KIND, Reply, Request};
use crate::webhook::{Ruling, Webhook};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use json_patch::Patch;
use serde_json::Value;
use serde_json::value::RawValue;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tracing::{Span, debug, error, field, info, info_span};

/// The answer, with its labels in the metrics.
pub(crate) struct Decision {
    /// CREATE and so on; one of a closed set.
    pub(crate) operation: &'static str,
    /// What was decided; one of a closed set.
    pub(crate) verdict: &'static str,
    answer: Result<Vec<u8>, Fault>,
}

/// The written review and the verdict's name.
type Verdict = (Result<Vec<u8>, Fault>, &'static str);

/// The verdict on an object that a bug of ours let in.
pub(crate) const FAULT: &str = "failed";

const FAILED: &str = "pod-affinity could not handle this object and left it as it is; see the webhook's log for this request's uid";

/// Answers one request.
pub(crate) fn decide(webhook: Webhook, body: &[u8]) -> Decision {
    match open(body) {
        Ok(request) => answer(webhook, &request),
        Err(fault) => Decision::of(fault),
    }
}

fn open(body: &[u8]) -> Result<Request<'_>, Fault> {
    let envelope: Envelope<'_> = serde_json::from_slice(body)?;
    if envelope.api_version != API_VERSION || envelope.kind != KIND {
        let (api_version, kind) = (envelope.api_version.into_owned(), envelope.kind.into_owned());
        return Err(Fault::WrongKind { api_version, kind });
    }
    envelope.request.ok_or(Fault::NoRequest)
}

fn answer(webhook: Webhook, request: &Request<'_>) -> Decision {
    let _entered = span(webhook, request).entered();
    let (reply, verdict) = consider(webhook, request);
    Span::current().record("verdict", verdict);
    debug!("answered");
    Decision {
        operation: operation(request),
        verdict,
        answer: reply,
    }
}

fn consider(webhook: Webhook, request: &Request<'_>) -> Verdict {
    let uid = request.uid.as_ref();
    if !webhook.is_for(request) {
        return (write(&Reply::allow(uid)), "not_concerned");
    }
    match objects(request) {
        Ok((old, object)) => judge(uid, object, |object| webhook.rule(old.as_ref(), object)),
        Err(message) => denied(uid, &message, "malformed"),
    }
}

/// The object before a change, and the object. In a change, an object that cannot be read is null to the rule: what exists
/// already is not ours to refuse.
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

/// `serde_json` stops at a depth of 128, far beyond any real object, so that no stack overflows.
fn read(raw: &RawValue) -> serde_json::Result<Value> {
    serde_json::from_str(raw.get())
}

fn judge(uid: &str, object: Value, rule: impl FnOnce(&Value) -> Ruling) -> Verdict {
    match catch_unwind(AssertUnwindSafe(|| rule(&object))) {
        Ok(Ruling::Allow { patch, outcome }) if patch.is_empty() => (write(&Reply::allow(uid)), outcome),
        Ok(Ruling::Allow { patch, outcome }) => patched(uid, object, &patch, outcome),
        Ok(Ruling::Warn { warning, outcome }) => (write(&Reply::warn(uid, &warning)), outcome),
        Ok(Ruling::Deny { message }) => denied(uid, &message, "denied"),
        Err(_) => failed(uid, "the rule panicked"),
    }
}

fn patched(uid: &str, mut object: Value, patch: &Patch, outcome: &'static str) -> Verdict {
    let applied = json_patch::patch(&mut object, patch).map_err(|error| error.to_string());
    match applied.and_then(|()| serde_json::to_vec(patch).map_err(|error| error.to_string())) {
        Ok(bytes) => (write(&Reply::patched(uid, bytes)), outcome),
        Err(error) => failed(uid, &error),
    }
}

fn denied(uid: &str, message: &str, verdict: &'static str) -> Verdict {
    info!(message, "denied");
    (write(&Reply::deny(uid, message)), verdict)
}

fn failed(uid: &str, cause: &str) -> Verdict {
    error!(cause, "let in unpatched because of a fault of ours");
    (write(&Reply::warn(uid, FAILED)), FAULT)
}

fn write(reply: &Reply<'_>) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(reply).map_err(Fault::Unwritable)
}

fn operation(request: &Request<'_>) -> &'static str {
    match request.operation.as_ref() {
        "CREATE" => "CREATE",
        "UPDATE" => "UPDATE",
        "DELETE" => "DELETE",
        "CONNECT" => "CONNECT",
        _ => "other",
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

impl Decision {
    /// The answer to a request that is no review.
    pub(crate) fn of(fault: Fault) -> Self {
        info!(%fault, "refused a request");
        Self {
            operation: "none",
            verdict: "malformed",
            answer: Err(fault),
        }
    }
}

impl IntoResponse for Decision {
    fn into_response(self) -> Response {
        match self.answer {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(fault) => fault.into_response(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer_of((reply, verdict): Verdict) -> (Value, &'static str) {
        (serde_json::from_slice(&reply.unwrap()).unwrap(), verdict)
    }

    fn add(path: &str) -> Patch {
        serde_json::from_value(json!([{"op": "add", "path": path, "value": 1}])).unwrap()
    }

    #[test]
    fn a_rule_that_panics_lets_the_object_in_with_a_warning() {
        let (reply, verdict) = answer_of(judge("u", json!({}), |_| panic!("on purpose")));
        assert_eq!(verdict, "failed");
        assert_eq!(
            reply["response"],
            json!({"uid": "u", "allowed": true, "warnings": [FAILED]})
        );
    }

    #[test]
    fn a_patch_that_would_not_apply_is_not_sent() {
        let rule = |_: &Value| Ruling::Allow {
            patch: add("/no/parent"),
            outcome: "held",
        };
        let (reply, verdict) = answer_of(judge("u", json!({}), rule));
        assert_eq!(verdict, "failed");
        assert_eq!(reply["response"]["patch"], Value::Null);
        assert_eq!(reply["response"]["allowed"], true);
    }

    #[test]
    fn a_patch_goes_out_as_base64_under_its_outcome() {
        let rule = |_: &Value| Ruling::Allow {
            patch: add("/a"),
            outcome: "held",
        };
        let (reply, verdict) = answer_of(judge("u", json!({}), rule));
        assert_eq!(verdict, "held");
        assert_eq!(reply["response"]["patchType"], "JSONPatch");
        let sent: k8s_openapi::ByteString =
            serde_json::from_value(reply["response"]["patch"].clone()).unwrap();
        assert_eq!(serde_json::from_slice::<Patch>(&sent.0).unwrap(), add("/a"));
    }

    #[test]
    fn an_empty_patch_is_left_out() {
        let rule = |_: &Value| Ruling::Allow {
            patch: Patch(Vec::new()),
            outcome: "left_alone",
        };
        let (reply, _) = answer_of(judge("u", json!({}), rule));
        assert_eq!(reply["response"], json!({"uid": "u", "allowed": true}));
    }

    #[test]
    fn a_warning_fits_what_the_api_server_passes_on() {
        assert!(FAILED.len() <= 256, "longer warnings may be cut");
    }
}

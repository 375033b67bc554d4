//! The wire format of AdmissionReview v1: the fields that the webhooks read, and the response.
//!
//! kube's `AdmissionReview` is not used: unknown fields must neither fail nor be lost, and this decoder skips the options and the
//! user's groups without building them.

use crate::fault::Fault;
use k8s_openapi::ByteString;
use placement::admission::Verdict;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The AdmissionReview that the API server sends.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

/// The request in an AdmissionReview.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request<'a> {
    #[serde(borrow)]
    pub(crate) uid: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) operation: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) kind: Kind<'a>,
    pub(crate) sub_resource: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) dry_run: Option<bool>,
    #[serde(borrow)]
    pub(crate) object: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) old_object: Option<&'a RawValue>,
}

/// Group and kind of the object; the version does not matter to any rule.
#[derive(Deserialize)]
pub(crate) struct Kind<'a> {
    #[serde(borrow, default)]
    pub(crate) group: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) kind: Cow<'a, str>,
}

/// The request in the body of a review.
pub(crate) fn request(body: &[u8]) -> Result<Request<'_>, Fault> {
    let envelope: Envelope<'_> = serde_json::from_slice(body)?;
    if envelope.api_version != API_VERSION || envelope.kind != KIND {
        let (api_version, kind) = (envelope.api_version.into_owned(), envelope.kind.into_owned());
        return Err(Fault::WrongKind { api_version, kind });
    }
    envelope.request.ok_or(Fault::NoRequest)
}

/// The body of the review that answers the request with this uid.
pub(crate) fn reply(uid: &str, verdict: &Verdict) -> Result<Vec<u8>, Fault> {
    let response = Answer::of(uid, verdict).map_err(Fault::Unwritable)?;
    let reply = Reply {
        api_version: API_VERSION,
        kind: KIND,
        response,
    };
    serde_json::to_vec(&reply).map_err(Fault::Unwritable)
}

/// The AdmissionReview that the webhook returns.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reply<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Answer<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<[&'a str; 1]>,
}

#[derive(Serialize)]
struct Status<'a> {
    code: u16,
    reason: &'static str,
    message: &'a str,
}

impl<'a> Answer<'a> {
    fn of(uid: &'a str, verdict: &'a Verdict) -> serde_json::Result<Self> {
        let mut answer = Self {
            uid,
            allowed: true,
            status: None,
            patch_type: None,
            patch: None,
            warnings: None,
        };
        match verdict {
            Verdict::Allow { patch, .. } if patch.is_empty() => {}
            Verdict::Allow { patch, .. } => {
                answer.patch_type = Some("JSONPatch");
                answer.patch = Some(ByteString(serde_json::to_vec(patch)?));
            }
            Verdict::Warn { warning, .. } => answer.warnings = Some([warning]),
            Verdict::Deny { message, .. } => {
                answer.allowed = false;
                answer.status = Some(Status::of(message));
            }
        }
        Ok(answer)
    }
}

impl<'a> Status<'a> {
    /// 400 rather than 422: for `Invalid`, kubectl prints a list of fields before the message, and a verdict has no such list.
    fn of(message: &'a str) -> Self {
        Self {
            code: 400,
            reason: "BadRequest",
            message,
        }
    }
}

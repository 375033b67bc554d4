//! The wire format of AdmissionReview v1: the fields that the webhooks read, the response, and the errors of requests that contain
//! no valid review.
//!
//! kube's `AdmissionReview` is not used: unknown fields must neither fail nor be lost, and this decoder skips the options and the
//! user's groups without building them.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use k8s_openapi::ByteString;
use placement::admission::Verdict;
use placement::text::quoted;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use thiserror::Error;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// The most bytes of a uid, which the response repeats. The API server sends a UUID of 36 bytes.
const UID_AT_MOST: usize = 128;

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
pub(crate) fn request(body: &[u8]) -> Result<Request<'_>, RequestError> {
    let envelope: Envelope<'_> = serde_json::from_slice(body)?;
    if envelope.api_version != API_VERSION || envelope.kind != KIND {
        let api_version = quoted(&envelope.api_version).into_owned();
        let kind = quoted(&envelope.kind).into_owned();
        return Err(RequestError::WrongKind { api_version, kind });
    }
    match envelope.request.ok_or(RequestError::NoRequest)? {
        request if request.uid.len() > UID_AT_MOST => Err(RequestError::LongUid),
        request => Ok(request),
    }
}

/// The body of the review that answers the request with this uid.
pub(crate) fn reply(uid: &str, verdict: &Verdict, warnings: Vec<String>) -> Result<Vec<u8>, RequestError> {
    let response = Answer::new(uid, verdict, warnings).map_err(RequestError::Unwritable)?;
    let reply = Reply {
        api_version: API_VERSION,
        kind: KIND,
        response,
    };
    serde_json::to_vec(&reply).map_err(RequestError::Unwritable)
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Status<'a> {
    code: u16,
    reason: &'static str,
    message: &'a str,
}

impl<'a> Answer<'a> {
    fn new(uid: &'a str, verdict: &'a Verdict, warnings: Vec<String>) -> serde_json::Result<Self> {
        let mut answer = Self {
            uid,
            allowed: true,
            status: None,
            patch_type: None,
            patch: None,
            warnings,
        };
        match verdict {
            Verdict::Allow { patch, .. } if patch.is_empty() => {}
            Verdict::Allow { patch, .. } => {
                answer.patch_type = Some("JSONPatch");
                answer.patch = Some(ByteString(serde_json::to_vec(patch)?));
            }
            Verdict::Warn { .. } => {}
            Verdict::Deny { message, .. } => {
                answer.allowed = false;
                answer.status = Some(Status::new(message));
            }
        }
        Ok(answer)
    }
}

impl<'a> Status<'a> {
    /// 400 rather than 422: for `Invalid`, kubectl prints a list of fields before the message, and a verdict has no such list.
    fn new(message: &'a str) -> Self {
        Self {
            code: 400,
            reason: "BadRequest",
            message,
        }
    }
}

/// Why the webhook cannot answer a request with a review. The body of the response is a Kubernetes Status, because the API server's
/// client reads errors from a Status.
#[derive(Debug, Error)]
pub(crate) enum RequestError {
    #[error("nothing is served at this path")]
    UnknownPath,
    #[error("a review is sent by POST")]
    WrongMethod,
    #[error("the content type of a review is application/json")]
    WrongType,
    #[error("the body is over the limit of {0} bytes")]
    TooLarge(usize),
    #[error("the body did not arrive in time")]
    TooSlow,
    #[error("the connection broke before the body was complete")]
    CutOff,
    #[error("the body is empty; an AdmissionReview is expected")]
    EmptyBody,
    #[error("the body is not an AdmissionReview: {}", quoted(&.0.to_string()))]
    Malformed(#[from] serde_json::Error),
    #[error(
        "the body is a {kind:?} of {api_version:?}; an AdmissionReview of admission.k8s.io/v1 is expected"
    )]
    WrongKind { api_version: String, kind: String },
    #[error("the AdmissionReview carries no request")]
    NoRequest,
    #[error("the uid of the request has over {UID_AT_MOST} bytes")]
    LongUid,
    #[error("the answer cannot be written: {0}")]
    Unwritable(#[source] serde_json::Error),
}

impl RequestError {
    fn status(&self) -> StatusCode {
        match self {
            Self::UnknownPath => StatusCode::NOT_FOUND,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::WrongType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::CutOff
            | Self::EmptyBody
            | Self::Malformed(_)
            | Self::WrongKind { .. }
            | Self::NoRequest
            | Self::LongUid => StatusCode::BAD_REQUEST,
            Self::Unwritable(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for RequestError {
    fn into_response(self) -> Response {
        let status = self.status();
        let body = json!({
            "apiVersion": "v1",
            "kind": "Status",
            "status": "Failure",
            "message": self.to_string(),
            "code": status.as_u16(),
        });
        (
            status,
            [(header::CONTENT_TYPE, "application/json")],
            body.to_string(),
        )
            .into_response()
    }
}

//! Errors of requests that carry no valid review. Each error has a status code and a message.
//!
//! The body of the response is a Kubernetes Status, because the API server's client reads errors from a Status.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use thiserror::Error;

/// Why the webhook cannot answer a request with a review.
#[derive(Debug, Error)]
pub(crate) enum Fault {
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
    #[error("the body is not an AdmissionReview: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error(
        "the body is a {kind:?} of {api_version:?}; an AdmissionReview of admission.k8s.io/v1 is expected"
    )]
    WrongKind { api_version: String, kind: String },
    #[error("the AdmissionReview carries no request")]
    NoRequest,
    #[error("the answer cannot be written: {0}")]
    Unwritable(#[source] serde_json::Error),
}

impl Fault {
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
            | Self::NoRequest => StatusCode::BAD_REQUEST,
            Self::Unwritable(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Fault {
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

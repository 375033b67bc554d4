//! AdmissionReview v1 as it goes over the wire: the few fields we read, and the answer.
//!
//! Not kube's `AdmissionReview`: fields that we do not know must neither fail nor be lost, and the options and the user's
//! groups are skipped without being built.

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

pub(crate) const API_VERSION: &str = "admission.k8s.io/v1";
pub(crate) const KIND: &str = "AdmissionReview";

/// What the API server sends.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Envelope<'a> {
    #[serde(borrow, default)]
    pub(crate) api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) request: Option<Request<'a>>,
}

/// What the API server asks.
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

/// What we answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reply<'a> {
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

impl<'a> Reply<'a> {
    /// Let the object in as it is.
    pub(crate) fn allow(uid: &'a str) -> Self {
        let response = Answer {
            uid,
            allowed: true,
            status: None,
            patch_type: None,
            patch: None,
            warnings: None,
        };
        Self {
            api_version: API_VERSION,
            kind: KIND,
            response,
        }
    }

    /// Let the object in with this JSON patch.
    pub(crate) fn patched(uid: &'a str, patch: Vec<u8>) -> Self {
        let mut reply = Self::allow(uid);
        reply.response.patch_type = Some("JSONPatch");
        reply.response.patch = Some(ByteString(patch));
        reply
    }

    /// Let the object in and warn its author.
    pub(crate) fn warn(uid: &'a str, warning: &'a str) -> Self {
        let mut reply = Self::allow(uid);
        reply.response.warnings = Some([warning]);
        reply
    }

    /// Refuse the object with a sentence.
    pub(crate) fn deny(uid: &'a str, message: &'a str) -> Self {
        let mut reply = Self::allow(uid);
        reply.response.allowed = false;
        // 400 rather than 422: with Invalid, kubectl prints a list of fields, which we do not have, before our message.
        reply.response.status = Some(Status {
            code: 400,
            reason: "BadRequest",
            message,
        });
        reply
    }
}

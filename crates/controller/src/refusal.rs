//! Why a write did not succeed: one closed set of causes, for metrics, and the words for the run's events.

use kube::core::Status;
use placement::requests::Operation;
use std::time::Duration;
use thiserror::Error;

/// A step that did not succeed, and will be tried again.
#[derive(Debug, Error)]
#[error("{operation} failed: {fault}")]
pub(crate) struct Refused {
    pub(crate) operation: Operation,
    #[source]
    pub(crate) fault: Fault,
}

/// What went wrong.
#[derive(Debug, Error)]
pub(crate) enum Fault {
    #[error("{}", words(.0))]
    Api(Box<kube::Error>),
    #[error("no answer from the API server within {} s", .0.as_secs())]
    Late(Duration),
    #[error("the watches have not delivered their first list yet")]
    NotSynced,
}

/// Why, as one of a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Cause {
    /// An admission webhook or policy said no.
    Denied,
    /// An admission webhook could not be asked.
    WebhookDown,
    /// A ResourceQuota is used up.
    Quota,
    /// The API server does not let us.
    Forbidden,
    /// The API server finds the object wrong.
    Invalid,
    /// Another was faster.
    Conflict,
    /// The object, its namespace or its kind is not there.
    NotFound,
    /// The API server asks for patience.
    Throttled,
    /// The API server is away or in trouble.
    Unavailable,
    /// Our caches are not filled yet.
    NotSynced,
}

impl Refused {
    /// Why, as one of a closed set.
    pub(crate) fn cause(&self) -> Cause {
        match &self.fault {
            Fault::Api(error) => cause(error),
            Fault::Late(_) => Cause::Unavailable,
            Fault::NotSynced => Cause::NotSynced,
        }
    }
}

/// Why the API server, or the way to it, failed.
pub(crate) fn cause(error: &kube::Error) -> Cause {
    match error {
        kube::Error::Api(status) => cause_of_status(status),
        _ => Cause::Unavailable,
    }
}

fn cause_of_status(status: &Status) -> Cause {
    let message = status.message.as_str();
    match status.code {
        500 if message.contains("failed calling webhook") => Cause::WebhookDown,
        _ if is_denial(message) => Cause::Denied,
        403 if message.contains("exceeded quota") => Cause::Quota,
        403 if message.contains("because it is being terminated") => Cause::NotFound,
        401 | 403 => Cause::Forbidden,
        404 => Cause::NotFound,
        409 => Cause::Conflict,
        429 => Cause::Throttled,
        400..500 => Cause::Invalid,
        _ => Cause::Unavailable,
    }
}

/// Whether an admission webhook or policy said no.
pub(crate) fn is_denial(message: &str) -> bool {
    message.contains("denied the request") || message.contains("denied request")
}

/// Whether a guarded patch failed because the object is gone, is another one by now, or has moved on: nothing is
/// wrong then, only our cache is behind.
///
/// A failed `test` or `remove` of a JSON patch comes back as 422 with words so general that no webhook's or
/// validation's message can be taken for them; a foreign UID in a merge patch as 409, or as 422 on that field.
pub(crate) fn is_overtaken(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    match status.code {
        404 | 409 => true,
        422 => is_guard(&status.message),
        _ => false,
    }
}

fn is_guard(message: &str) -> bool {
    message.starts_with("the server rejected our request due to an error in our request")
        || message.contains("metadata.uid")
}

/// Whether a delete found nothing left of the very object that it meant: nothing, or another one in its place. Any other
/// conflict is a quarrel of writers, after which the object is still there.
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    match status.code {
        404 => true,
        409 => status.message.contains("precondition"),
        _ => false,
    }
}

/// Whether the server will not do it, however often it is asked: it has no such subresource, does not let us, or
/// finds it wrong. A webhook that cannot be asked, or a server in trouble, may answer otherwise next time.
pub(crate) fn is_no(error: &kube::Error) -> bool {
    match cause(error) {
        Cause::Denied | Cause::Quota | Cause::Forbidden | Cause::Invalid | Cause::NotFound => true,
        Cause::WebhookDown | Cause::Conflict | Cause::Throttled | Cause::Unavailable | Cause::NotSynced => {
            false
        }
    }
}

fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, "").with_code(code).boxed())
    }

    #[test]
    fn each_failure_has_one_cause() {
        let table = [
            (
                400,
                "admission webhook \"validation.webhook.pipeline.tekton.dev\" denied the request: no",
                Cause::Denied,
            ),
            (
                422,
                "sets \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                Cause::Denied,
            ),
            (
                500,
                "Internal error occurred: failed calling webhook \"w\": connection refused",
                Cause::WebhookDown,
            ),
            (
                403,
                "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1",
                Cause::Quota,
            ),
            (
                403,
                "statefulsets.apps \"x\" is forbidden: unable to create new content in namespace ns because it is being \
                 terminated",
                Cause::NotFound,
            ),
            (
                403,
                "statefulsets.apps is forbidden: User \"u\" cannot patch",
                Cause::Forbidden,
            ),
            (404, "pipelineruns.tekton.dev \"x\" not found", Cause::NotFound),
            (409, "the object has been modified", Cause::Conflict),
            (422, "StatefulSet \"x\" is invalid", Cause::Invalid),
            (429, "too many requests", Cause::Throttled),
            (500, "etcdserver: request timed out", Cause::Unavailable),
            (503, "", Cause::Unavailable),
        ];
        for (code, message, expected) in table {
            assert_eq!(cause(&error(code, message)), expected, "{code} {message}");
        }
        assert_eq!(cause(&kube::Error::TlsRequired), Cause::Unavailable);
    }

    #[test]
    fn a_failed_guard_is_told_from_a_refusal() {
        for (code, message) in [
            (404, "not found"),
            (
                409,
                "Precondition failed: UID in precondition: a, UID in object meta: b",
            ),
            (
                422,
                "the server rejected our request due to an error in our request",
            ),
            (
                422,
                "PipelineRun \"x\" is invalid: metadata.uid: Invalid value: \"a\": field is immutable",
            ),
        ] {
            assert!(is_overtaken(&error(code, message)), "{message}");
        }
        for (code, message) in [
            (
                400,
                "admission webhook \"validation.webhook.pipeline.tekton.dev\" denied the request: no",
            ),
            (
                422,
                "PipelineRun \"x\" is invalid: metadata.labels: Invalid value",
            ),
            (500, "failed calling webhook"),
        ] {
            assert!(!is_overtaken(&error(code, message)), "{message}");
        }
    }

    #[test]
    fn a_no_is_told_from_trouble_that_passes() {
        for code in [400, 403, 404, 405, 422] {
            assert!(is_no(&error(code, "no")), "{code}");
        }
        for code in [409, 429, 500, 503] {
            assert!(!is_no(&error(code, "failed calling webhook")), "{code}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_own_words() {
        let refused = Refused {
            operation: Operation::Release,
            fault: Fault::Api(Box::new(error(400, "no spec changes"))),
        };
        assert_eq!(refused.to_string(), "release failed: no spec changes");
        assert_eq!(refused.cause(), Cause::Invalid);
    }
}

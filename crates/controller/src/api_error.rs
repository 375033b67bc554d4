//! Why a request failed: a closed set of causes for metrics, and the text for the run's events.

use kube::core::Status;
use placement::messages;
use placement::placeholder::is_copied;
use placement::requests::Operation;
use placement::text::shortened;
use std::time::Duration;
use thiserror::Error;

/// The most bytes of an error message in logs and events. The API server repeats every invalid value of an object in its message.
const LONGEST: usize = 800;

/// A step that failed. The controller retries the step.
#[derive(Debug, Error)]
#[error("{operation} failed: {fault}")]
pub(crate) struct StepError {
    pub(crate) operation: Operation,
    #[source]
    pub(crate) fault: Failure,
}

/// The error of a failed step.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("{}", message_of(.0))]
    Api(Box<kube::Error>),
    #[error("no answer from the API server within {} s", .0.as_secs())]
    Late(Duration),
    #[error("the watches have not delivered their first list yet")]
    NotSynced,
}

/// The cause of an error, as the label value of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ErrorCause {
    /// An admission webhook or policy denied the request.
    Denied,
    /// An admission webhook could not be called.
    WebhookDown,
    /// A ResourceQuota is used up.
    Quota,
    /// The controller lacks the right.
    Forbidden,
    /// The object is invalid.
    Invalid,
    /// Another client wrote the object first.
    Conflict,
    /// The object, its namespace or its kind does not exist.
    NotFound,
    /// The API server asks the controller to send fewer requests.
    Throttled,
    /// The API server is unavailable or failed.
    Unavailable,
    /// The caches do not have their first lists yet.
    NotSynced,
}

impl StepError {
    pub(crate) fn cause(&self) -> ErrorCause {
        match &self.fault {
            Failure::Api(error) => cause(error),
            Failure::Late(_) => ErrorCause::Unavailable,
            Failure::NotSynced => ErrorCause::NotSynced,
        }
    }

    /// Whether the API server may have released the run although its answer is lost.
    pub(crate) fn may_have_released(&self) -> bool {
        self.operation == Operation::Release && self.cause() == ErrorCause::Unavailable
    }

    /// The message of the API server, if it rejects the placeholder only for fields that are copied from the run's podTemplate. The
    /// API server would reject the pods of the tasks for the same fields. An error in any other field is retried.
    pub(crate) fn invalid_template(&self) -> Option<String> {
        let Failure::Api(error) = &self.fault else {
            return None;
        };
        let kube::Error::Api(status) = &**error else {
            return None;
        };
        let causes = status.details.as_ref().map(|details| details.causes.as_slice());
        let causes = causes.unwrap_or_default();
        let is_of_template = self.operation == Operation::Placeholder
            && self.cause() == ErrorCause::Invalid
            && !causes.is_empty()
            && causes.iter().all(|cause| is_copied(&cause.field));
        is_of_template.then(|| self.fault.to_string())
    }
}

/// The cause of an error from the API server, or from the connection to the API server.
pub(crate) fn cause(error: &kube::Error) -> ErrorCause {
    match error {
        kube::Error::Api(status) => cause_of_status(status),
        _ => ErrorCause::Unavailable,
    }
}

fn cause_of_status(status: &Status) -> ErrorCause {
    let message = status.message.as_str();
    match status.code {
        500 if messages::is_webhook_down(message) => ErrorCause::WebhookDown,
        _ if messages::is_denied(message) => ErrorCause::Denied,
        403 if messages::is_over_quota(message) => ErrorCause::Quota,
        403 if messages::is_namespace_ending(message) => ErrorCause::NotFound,
        401 | 403 => ErrorCause::Forbidden,
        404 => ErrorCause::NotFound,
        409 => ErrorCause::Conflict,
        429 => ErrorCause::Throttled,
        400..500 => ErrorCause::Invalid,
        _ => ErrorCause::Unavailable,
    }
}

/// Whether a guarded patch failed because the object was deleted, replaced or changed: the cache is stale, which is no error. A
/// failed `test` or `remove` of a JSON patch is a 422; a foreign UID in a merge patch is a 409, or a 422 on that field.
pub(crate) fn is_overtaken(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    match status.code {
        404 | 409 => true,
        422 => messages::is_guard_failed(&status.message),
        _ => false,
    }
}

/// Whether a delete failed because the object no longer exists, or because another object has its name. Any other conflict is
/// between writers, and the object still exists.
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    match status.code {
        404 => true,
        409 => messages::is_precondition_failed(&status.message),
        _ => false,
    }
}

/// Whether every retry of the request would fail: the API server lacks the subresource, the controller lacks the right, or the
/// request is invalid. After a webhook that cannot be called, or an error of the API server, a retry may succeed.
pub(crate) fn is_permanent(error: &kube::Error) -> bool {
    match cause(error) {
        ErrorCause::Denied
        | ErrorCause::Quota
        | ErrorCause::Forbidden
        | ErrorCause::Invalid
        | ErrorCause::NotFound => true,
        ErrorCause::WebhookDown
        | ErrorCause::Conflict
        | ErrorCause::Throttled
        | ErrorCause::Unavailable
        | ErrorCause::NotSynced => false,
    }
}

fn message_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => {
            shortened(&status.message, LONGEST).into_owned()
        }
        other => shortened(&other.to_string(), LONGEST).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, "").with_code(code).boxed())
    }

    #[test]
    fn each_failure_has_one_cause() {
        let table = [
            (
                400,
                "admission webhook \"validation.webhook.pipeline.tekton.dev\" denied the request: no",
                ErrorCause::Denied,
            ),
            (
                422,
                "sets \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                ErrorCause::Denied,
            ),
            (
                500,
                "Internal error occurred: failed calling webhook \"w\": connection refused",
                ErrorCause::WebhookDown,
            ),
            (
                403,
                "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1",
                ErrorCause::Quota,
            ),
            (
                403,
                "statefulsets.apps \"x\" is forbidden: unable to create new content in namespace ns because it is being \
                 terminated",
                ErrorCause::NotFound,
            ),
            (
                403,
                "statefulsets.apps is forbidden: User \"u\" cannot patch",
                ErrorCause::Forbidden,
            ),
            (
                404,
                "pipelineruns.tekton.dev \"x\" not found",
                ErrorCause::NotFound,
            ),
            (409, "the object has been modified", ErrorCause::Conflict),
            (422, "StatefulSet \"x\" is invalid", ErrorCause::Invalid),
            (429, "too many requests", ErrorCause::Throttled),
            (500, "etcdserver: request timed out", ErrorCause::Unavailable),
            (503, "", ErrorCause::Unavailable),
        ];
        for (code, message, expected) in table {
            assert_eq!(cause(&error(code, message)), expected, "{code} {message}");
        }
        assert_eq!(cause(&kube::Error::TlsRequired), ErrorCause::Unavailable);
    }

    #[test]
    fn a_failed_guard_is_distinguished_from_a_refusal() {
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
    fn a_final_refusal_is_distinguished_from_a_passing_failure() {
        for code in [400, 403, 404, 405, 422] {
            assert!(is_permanent(&error(code, "no")), "{code}");
        }
        for code in [409, 429, 500, 503] {
            assert!(!is_permanent(&error(code, "failed calling webhook")), "{code}");
        }
    }

    fn rejected(operation: Operation, code: u16, fields: &[&str]) -> StepError {
        let causes: Vec<_> = fields.iter().map(|field| json!({"field": field})).collect();
        let status =
            json!({"code": code, "message": "invalid", "reason": "Invalid", "details": {"causes": causes}});
        let status: Status = serde_json::from_value(status).unwrap();
        StepError {
            operation,
            fault: Failure::Api(Box::new(kube::Error::Api(Box::new(status)))),
        }
    }

    #[test]
    fn only_an_error_in_fields_of_the_template_is_an_error_of_the_run() {
        let selector = "spec.template.spec.nodeSelector";
        let toleration = "spec.template.spec.tolerations[3].operator";
        let placeholder =
            |code, fields: &[&str]| rejected(Operation::Placeholder, code, fields).invalid_template();
        assert_eq!(placeholder(422, &[selector, toleration]), Some("invalid".into()));
        for ours in [
            "metadata.labels",
            "spec.template.spec.containers[0].resources",
            "spec.template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]",
        ] {
            assert_eq!(placeholder(422, &[selector, ours]), None, "{ours}");
        }
        assert_eq!(placeholder(422, &[]), None);
        assert_eq!(placeholder(503, &[selector]), None);
        assert_eq!(
            rejected(Operation::Release, 422, &[selector]).invalid_template(),
            None
        );
    }

    #[test]
    fn a_refusal_is_reported_in_the_servers_own_words() {
        let refused = StepError {
            operation: Operation::Release,
            fault: Failure::Api(Box::new(error(400, "no spec changes"))),
        };
        assert_eq!(refused.to_string(), "release failed: no spec changes");
        assert_eq!(refused.cause(), ErrorCause::Invalid);
    }
}

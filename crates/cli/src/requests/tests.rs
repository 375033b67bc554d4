use super::*;

fn attributes(verb: &'static str) -> RequestAttributes {
    RequestAttributes {
        verb,
        resource: "statefulsets.apps".into(),
        name: None,
        namespace: Some("ci".into()),
        namespaced: true,
    }
}

fn said(code: u16, message: &str) -> String {
    error("list", code, message).to_string()
}

fn error(verb: &'static str, code: u16, message: &str) -> RequestError {
    let error = Error::Api(Status::failure(message, "").with_code(code).boxed());
    request_error(attributes(verb), &error)
}

#[test]
fn a_patch_whose_test_fails_is_told_from_a_patch_that_a_policy_rejects() {
    let guard = "the server rejected our request due to an error in our request";
    assert!(matches!(error("patch", 422, guard), RequestError::Changed(_)));
    let policy = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
    assert!(error("patch", 422, policy).to_string().contains(policy));
}

#[test]
fn a_missing_right_is_named_by_verb_resource_and_scope() {
    let message = r#"pods is forbidden: User "u" cannot list resource "pods" in API group """#;
    assert_eq!(
        said(403, message),
        "you lack the right to list statefulsets.apps in namespace ci"
    );
    let everywhere = RequestAttributes {
        namespace: None,
        ..attributes("watch")
    };
    assert_eq!(
        everywhere.to_string(),
        "watch statefulsets.apps in all namespaces"
    );
}

#[test]
fn a_refusal_by_admission_is_no_missing_right() {
    assert_eq!(
        said(403, "pods \"x\" is forbidden: exceeded quota"),
        "could not list statefulsets.apps in namespace ci: pods \"x\" is forbidden: exceeded quota"
    );
}

#[test]
fn a_kind_that_is_not_there_is_told_as_that() {
    assert_eq!(
        said(404, "page not found"),
        "this cluster does not know statefulsets.apps"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_without_answer_ends_with_what_was_waited_for() {
    let limit = Some(Duration::from_secs(3));
    let late = answer::<()>(limit, attributes("get"), std::future::pending()).await;
    assert_eq!(
        late.unwrap_err().to_string(),
        "no answer within 3s to: get statefulsets.apps in namespace ci"
    );
}

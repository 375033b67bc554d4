//! Explains why a registry rejected a push, and what the user can do. Pure: converts one error into another.

use oci_client::errors::{OciDistributionError, OciErrorCode};
use std::path::PathBuf;

/// The request that failed.
#[derive(Clone, Debug)]
pub(crate) struct PushContext {
    pub(crate) registry: String,
    /// The request used plain HTTP.
    pub(crate) plain: bool,
    pub(crate) docker_config: PathBuf,
    /// The request had no credentials.
    pub(crate) anonymous: bool,
}

/// A failed push.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "the registry {registry} cannot be reached ({cause}): check whether KO_DOCKER_REPO is right and the registry is running{hint}"
    )]
    Unreachable {
        registry: String,
        cause: String,
        hint: &'static str,
    },
    #[error(
        "the registry {registry} requires authentication, and {} has no entry for it: run `docker login {registry}`, or set \
         DOCKER_CONFIG to the folder of another config.json",
        docker_config.display()
    )]
    CredentialsMissing {
        registry: String,
        docker_config: PathBuf,
    },
    #[error(
        "the registry {registry} does not accept the credentials in {} ({cause}): run `docker login {registry}` again",
        docker_config.display()
    )]
    CredentialsRefused {
        registry: String,
        docker_config: PathBuf,
        cause: String,
    },
    #[error(
        "the registry {registry} accepts your credentials but does not let you push there ({cause}): ask for the right to write to the \
         repository, or set KO_DOCKER_REPO to one of your own"
    )]
    Denied { registry: String, cause: String },
    #[error(
        "the registry {registry} accepts no pushes ({cause}): it may be read-only or a mirror; set KO_DOCKER_REPO to \
         another one"
    )]
    ReadOnly { registry: String, cause: String },
    #[error(
        "the registry {registry} does not know the repository ({cause}): create it first if the registry requires this; or \
         KO_DOCKER_REPO is misspelt, or is not a registry"
    )]
    Unknown { registry: String, cause: String },
    #[error("the registry {registry} limits the rate of requests ({cause}): try again later")]
    TooMany { registry: String, cause: String },
    #[error("the registry {registry} failed ({cause}): try again, and check its log if that does not help")]
    Broken { registry: String, cause: String },
    #[error("the push to {registry} failed: {cause}")]
    Other { registry: String, cause: String },
}

/// Converts the client's error into an error with a remedy.
pub(crate) fn explain(error: OciDistributionError, context: PushContext) -> Error {
    match error {
        OciDistributionError::ServerError { code, message, .. } => {
            by_code(code, cause(code, &message), context)
        }
        OciDistributionError::UnauthorizedError { .. } => by_code(401, "401".to_owned(), context),
        OciDistributionError::AuthenticationFailure(reason) => by_code(401, cause(401, &reason), context),
        OciDistributionError::RegistryError { envelope, .. } => {
            let code = envelope.errors.first().map_or(0, |error| code(&error.code));
            by_code(code, envelope.to_string(), context)
        }
        OciDistributionError::RequestError(error) => match error.status() {
            Some(status) => by_code(status.as_u16(), status.to_string(), context),
            None => unreachable(innermost(&error), context),
        },
        other => Error::Other {
            registry: context.registry,
            cause: other.to_string(),
        },
    }
}

fn by_code(code: u16, cause: String, context: PushContext) -> Error {
    let PushContext {
        registry,
        plain: _,
        docker_config,
        anonymous,
    } = context;
    match code {
        // Some registries answer in the same way to anonymous users and to users without rights.
        401 | 403 if anonymous => Error::CredentialsMissing {
            registry,
            docker_config,
        },
        401 => Error::CredentialsRefused {
            registry,
            docker_config,
            cause,
        },
        403 => Error::Denied { registry, cause },
        405 => Error::ReadOnly { registry, cause },
        404 => Error::Unknown { registry, cause },
        429 => Error::TooMany { registry, cause },
        500..600 => Error::Broken { registry, cause },
        _ => Error::Other { registry, cause },
    }
}

fn code(code: &OciErrorCode) -> u16 {
    match code {
        OciErrorCode::Unauthorized => 401,
        OciErrorCode::Denied => 403,
        OciErrorCode::Unsupported => 405,
        OciErrorCode::NameUnknown | OciErrorCode::NotFound => 404,
        OciErrorCode::Toomanyrequests => 429,
        _ => 0,
    }
}

fn unreachable(cause: String, context: PushContext) -> Error {
    let hint = if context.plain {
        "; the connection used plain HTTP"
    } else {
        "; if it uses plain HTTP, add --insecure-registry; if your own CA signed its certificate, set SSL_CERT_FILE to the \
         file of that CA"
    };
    Error::Unreachable {
        registry: context.registry,
        cause,
        hint,
    }
}

/// The status code, and the beginning of the registry's message, on one line.
fn cause(code: u16, message: &str) -> String {
    const AT_MOST: usize = 200;
    let words = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = &words[..words.floor_char_boundary(AT_MOST)];
    if words.is_empty() {
        code.to_string()
    } else {
        format!("{code}: {words}")
    }
}

/// The innermost cause is the one that a user can act on.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(anonymous: bool) -> PushContext {
        PushContext {
            registry: "ghcr.io".into(),
            plain: false,
            docker_config: "/home/me/.docker/config.json".into(),
            anonymous,
        }
    }

    fn answered(code: u16, message: &str, anonymous: bool) -> Error {
        let error = OciDistributionError::ServerError {
            code,
            url: "https://ghcr.io/v2/".into(),
            message: message.into(),
        };
        explain(error, context(anonymous))
    }

    #[test]
    fn an_anonymous_user_is_referred_to_docker_login() {
        let error = answered(401, "", true).to_string();
        assert!(error.contains("run `docker login ghcr.io`"), "{error}");
        assert!(
            error.contains("/home/me/.docker/config.json has no entry"),
            "{error}"
        );
        assert_eq!(answered(403, "", true), answered(401, "", true));
    }

    #[test]
    fn a_wrong_password_and_a_missing_password_have_different_errors() {
        let error = answered(401, "authentication\n required", false);
        assert!(
            matches!(&error, Error::CredentialsRefused { cause, .. } if cause == "401: authentication required")
        );
        let by_token = explain(
            OciDistributionError::AuthenticationFailure("bad".into()),
            context(false),
        );
        assert!(matches!(by_token, Error::CredentialsRefused { .. }));
    }

    #[test]
    fn each_status_code_has_its_own_remedy() {
        for (code, remedy) in [
            (403, "ask for the right to write"),
            (405, "read-only or a mirror"),
            (404, "create it first"),
            (429, "try again later"),
            (503, "check its log"),
            (418, "the push to ghcr.io failed: 418: words"),
        ] {
            let error = answered(code, "words", false).to_string();
            assert!(error.contains(remedy), "{code}: {error}");
        }
    }

    #[test]
    fn an_error_in_the_registrys_own_format_is_parsed() {
        let envelope = serde_json::from_str(r#"{"errors": [{"code": "DENIED", "message": "no"}]}"#).unwrap();
        let url = String::new();
        let error = explain(
            OciDistributionError::RegistryError { envelope, url },
            context(false),
        );
        assert!(matches!(error, Error::Denied { .. }), "{error}");
    }

    #[test]
    fn a_long_answer_is_cut_between_characters() {
        let said = cause(500, &"\u{e9}".repeat(1000));
        assert!(said.len() <= 205 && said.starts_with("500: \u{e9}"));
    }

    #[test]
    fn an_unreachable_registry_is_reported_with_a_hint_about_http() {
        assert!(
            unreachable("refused".into(), context(true))
                .to_string()
                .contains("--insecure-registry")
        );
    }
}

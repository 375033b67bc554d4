//! Reads the credentials for a registry from the file that `docker login` writes. Without the file or an entry, requests are
//! anonymous, which many local registries accept.

use docker_credential::{CredentialRetrievalError, DockerCredential, get_credential_from_reader};
use oci_client::secrets::RegistryAuth;
use std::io;
use std::path::{Path, PathBuf};

/// Docker's own registry, and its name in configuration files and credential helpers.
const DOCKER_HUB: (&str, &str) = ("docker.io", "https://index.docker.io/v1/");

/// Credentials exist but cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{} cannot be read ({source}): `cargo ship` reads the credentials for registries from it", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is not a Docker configuration in JSON: correct it, or replace it with `docker login {registry}`", path.display())]
    NoConfiguration { path: PathBuf, registry: String },
    #[error(
        "the credential helper that {} names for {registry} returned no credentials: {}; check whether \
         docker-credential-... is on the PATH, or log in again",
        path.display(), without_output(problem)
    )]
    Helper {
        path: PathBuf,
        registry: String,
        problem: Box<CredentialRetrievalError>,
    },
    #[error(
        "the entry of {} for {registry} is invalid: {problem}; replace it with `docker login {registry}`",
        path.display()
    )]
    Entry {
        path: PathBuf,
        registry: String,
        problem: Box<CredentialRetrievalError>,
    },
    #[error(
        "{} holds an identity token for {registry}, which `cargo ship` does not support: log in with a user name and an \
         access token, as in `docker login -u NAME --password-stdin {registry}`",
        path.display()
    )]
    IdentityToken { path: PathBuf, registry: String },
}

/// Reads the credentials for a registry from a configuration file, which need not exist.
pub(crate) fn look_up(path: &Path, registry: &str) -> Result<RegistryAuth, Error> {
    match std::fs::read(path) {
        Ok(content) => found_in(&content, path, registry),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(RegistryAuth::Anonymous),
        Err(source) => Err(Error::Unreadable {
            path: path.to_owned(),
            source,
        }),
    }
}

fn found_in(content: &[u8], path: &Path, registry: &str) -> Result<RegistryAuth, Error> {
    match get_credential_from_reader(content, key(registry)) {
        Ok(DockerCredential::UsernamePassword(name, password)) => Ok(RegistryAuth::Basic(name, password)),
        Ok(DockerCredential::IdentityToken(_)) => Err(Error::IdentityToken {
            path: path.to_owned(),
            registry: registry.to_owned(),
        }),
        Err(problem) if is_absence(&problem) => Ok(RegistryAuth::Anonymous),
        Err(problem) => Err(unusable(problem, path.to_owned(), registry.to_owned())),
    }
}

fn key(registry: &str) -> &str {
    if registry == DOCKER_HUB.0 {
        DOCKER_HUB.1
    } else {
        registry
    }
}

/// A credential helper without an entry reports this as a failure. All helpers use the same message.
fn is_absence(problem: &CredentialRetrievalError) -> bool {
    match problem {
        CredentialRetrievalError::NoCredentialConfigured => true,
        CredentialRetrievalError::HelperFailure { stdout, .. } => stdout.contains("credentials not found"),
        _ => false,
    }
}

/// The error without the helper's output, which may contain the password.
fn without_output(problem: &CredentialRetrievalError) -> String {
    match problem {
        CredentialRetrievalError::HelperFailure { helper, .. } => {
            format!("{helper} failed (its output is not shown, because it may contain a secret)")
        }
        other => other.to_string(),
    }
}

fn unusable(problem: CredentialRetrievalError, path: PathBuf, registry: String) -> Error {
    use CredentialRetrievalError as Problem;
    match problem {
        Problem::ConfigReadError | Problem::ConfigNotFound => Error::NoConfiguration { path, registry },
        Problem::HelperCommunicationError
        | Problem::MalformedHelperResponse
        | Problem::HelperFailure { .. } => Error::Helper {
            path,
            registry,
            problem: Box::new(problem),
        },
        Problem::CredentialDecodingError
        | Problem::CredentialMismatchError
        | Problem::NoCredentialConfigured => Error::Entry {
            path,
            registry,
            problem: Box::new(problem),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Base64 of `me:secret`.
    const SECRET: &str = "bWU6c2VjcmV0";

    fn look(content: &str, registry: &str) -> Result<RegistryAuth, Error> {
        found_in(
            content.as_bytes(),
            Path::new("/home/me/.docker/config.json"),
            registry,
        )
    }

    fn me() -> RegistryAuth {
        RegistryAuth::Basic("me".into(), "secret".into())
    }

    #[test]
    fn an_entry_is_found_by_the_registrys_name() {
        let content =
            format!(r#"{{"auths": {{"ghcr.io": {{"auth": "{SECRET}"}}, "other": {{"auth": "eDp5"}}}}}}"#);
        assert_eq!(look(&content, "ghcr.io").unwrap(), me());
    }

    #[test]
    fn dockers_own_registry_is_found_by_its_old_name() {
        let content = format!(r#"{{"auths": {{"https://index.docker.io/v1/": {{"auth": "{SECRET}"}}}}}}"#);
        assert_eq!(look(&content, "docker.io").unwrap(), me());
    }

    #[test]
    fn no_file_and_no_entry_mean_an_anonymous_request() {
        let nowhere = Path::new("/nonexistent/config.json");
        assert_eq!(look_up(nowhere, "ghcr.io").unwrap(), RegistryAuth::Anonymous);
        assert_eq!(
            look(r#"{"auths": {}}"#, "ghcr.io").unwrap(),
            RegistryAuth::Anonymous
        );
    }

    #[test]
    fn a_missing_helper_is_an_error_with_its_name() {
        let content = r#"{"credHelpers": {"ghcr.io": "no-such-helper-anywhere"}}"#;
        let error = look(content, "ghcr.io").unwrap_err().to_string();
        assert!(
            error.contains("on the PATH") && error.contains("ghcr.io"),
            "{error}"
        );
    }

    #[test]
    fn a_helper_without_an_entry_means_an_anonymous_request() {
        let failure = |stdout: &str| CredentialRetrievalError::HelperFailure {
            helper: "docker-credential-x".into(),
            stdout: stdout.into(),
            stderr: String::new(),
        };
        assert!(is_absence(&failure("credentials not found in native keychain\n")));
        assert!(!is_absence(&failure("the keychain is locked\n")));
    }

    #[test]
    fn the_output_of_a_failing_helper_is_in_no_message() {
        let failure = CredentialRetrievalError::HelperFailure {
            helper: "docker-credential-x".into(),
            stdout: r#"{"Username": "me", "Secret": "hunter2"}"#.into(),
            stderr: "hunter2".into(),
        };
        let error = unusable(failure, "/home/me/.docker/config.json".into(), "ghcr.io".into());
        let error = error.to_string();
        assert!(
            !error.contains("hunter2") && error.contains("docker-credential-x failed"),
            "{error}"
        );
    }

    #[test]
    fn an_identity_token_is_refused_with_the_remedy() {
        let content = r#"{"auths": {"x.azurecr.io": {"auth": "", "identitytoken": "t"}}}"#;
        let error = look(content, "x.azurecr.io").unwrap_err().to_string();
        assert!(
            error.contains("docker login -u NAME --password-stdin x.azurecr.io"),
            "{error}"
        );
    }

    #[test]
    fn broken_files_and_broken_entries_have_different_errors() {
        assert!(matches!(look("{", "ghcr.io"), Err(Error::NoConfiguration { .. })));
        let broken = r#"{"auths": {"ghcr.io": {"auth": "%"}}}"#;
        assert!(matches!(look(broken, "ghcr.io"), Err(Error::Entry { .. })));
    }

    #[test]
    fn a_secret_is_in_no_message() {
        let content = r#"{"auths": {"ghcr.io": {"auth": "c2VjcmV0"}}}"#;
        let error = look(content, "ghcr.io").unwrap_err().to_string();
        assert!(
            !error.contains("c2VjcmV0") && !error.contains("secret"),
            "{error}"
        );
    }
}

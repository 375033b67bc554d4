//! Requests to the API server: the timeout of connections, the parameters of all writes, and errors as one sentence.

use kube::{
    Config, Error, Result,
    api::{PatchParams, PostParams},
    core::Status,
    runtime::watcher,
};
use placement::keys::FIELD_MANAGER;
use std::time::Duration;
use tokio::time::sleep;

/// Pause between two attempts of [`read`]. Other parts of the process log connection errors.
const PAUSE: Duration = Duration::from_secs(5);

/// A connection without any data for this time is dead, although nothing closed it: its peer, a machine of the control plane, is gone.
/// An API server sends a bookmark to each watch every minute, except for watches of events, which must end sooner. Other requests have
/// shorter timeouts.
const SILENCE: Duration = Duration::from_secs(90);

/// Ends connections that fell silent. By default, kube waits for five minutes for data of a watch, and forever for a list. kube's own
/// retries are off: after a few, kube waits for minutes before the caller, which retries sooner, learns of an error.
pub fn without_silence(mut config: Config) -> Config {
    config.default_retry = false;
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    config
}

/// Parameters of a create or a replace. The API server records our field manager with each written field.
pub(crate) fn post_params() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// Parameters of a patch, with the same field manager.
pub(crate) fn patch_params() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER)
}

/// Retries until the API server answers with an object. `None` if the request is forbidden (some hardened clusters).
pub(crate) async fn read<T, F: Future<Output = Result<T>>>(
    object: &str,
    request: impl Fn() -> F,
) -> Option<T> {
    loop {
        match request().await {
            Ok(found) => return Some(found),
            Err(Error::Api(status)) if status.is_forbidden() => return None,
            Err(error) => tracing::debug!(object, error = error_text(&error), "an object could not be read"),
        }
        sleep(PAUSE).await;
    }
}

/// The error of a request. kube's own text repeats the whole `Status` after the message.
pub fn error_text(error: &Error) -> String {
    match error {
        Error::Api(status) => status_text(status),
        other => other.to_string(),
    }
}

/// The error of a watch.
pub fn watch_error_text(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => error_text(source),
        watcher::Error::WatchError(status) => status_text(status),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

fn status_text(status: &Status) -> String {
    let text = if status.message.is_empty() {
        &status.reason
    } else {
        &status.message
    };
    format!("{text} ({})", status.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_learns_of_each_error_and_of_silence() {
        let config = without_silence(Config::new("http://127.0.0.1".parse().unwrap()));
        assert!(!config.default_retry);
        assert_eq!(config.read_timeout, Some(SILENCE));
    }

    #[test]
    fn an_error_text_is_the_message_of_the_api_server() {
        let status = Status::failure("secrets is forbidden", "Forbidden").with_code(403);
        let text = error_text(&Error::Api(status.boxed()));
        assert_eq!(text, "secrets is forbidden (403)");
        let watch = watcher::Error::WatchError(Status::failure("", "Gone").with_code(410).boxed());
        assert_eq!(watch_error_text(&watch), "Gone (410)");
    }
}

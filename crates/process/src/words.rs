//! Formats errors of the API server as one sentence. kube's own text repeats the whole `Status` after the message.

use kube::{Error, core::Status, runtime::watcher};

/// The error of a request.
pub fn of(error: &Error) -> String {
    match error {
        Error::Api(status) => of_status(status),
        other => other.to_string(),
    }
}

/// The error of a watch.
pub fn of_watch(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => of(source),
        watcher::Error::WatchError(status) => of_status(status),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

fn of_status(status: &Status) -> String {
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
    fn a_refusal_is_reported_in_the_servers_own_words() {
        let status = Status::failure("secrets is forbidden", "Forbidden").with_code(403);
        let said = of(&Error::Api(status.boxed()));
        assert_eq!(said, "secrets is forbidden (403)");
        let watch = watcher::Error::WatchError(Status::failure("", "Gone").with_code(410).boxed());
        assert_eq!(of_watch(&watch), "Gone (410)");
    }
}

//! Which version the API server is of. A version that is not supported is logged once, at the start.

use crate::words;
use kube::{Client, Error};
use placement::supported;
use std::future::pending;
use std::time::Duration;
use tokio::time::sleep;

/// Between two attempts to read it: other parts of the process log what is wrong with the connection.
const PAUSE: Duration = Duration::from_secs(5);

/// Logs one warning if the API server's version is not one that this release was tested with; never ends.
pub async fn judge(client: Client) {
    if let Some(version) = read(&client).await
        && let Some(warning) = supported::warning(&version)
    {
        tracing::warn!(version, "{warning}");
    }
    pending::<()>().await;
}

/// Waits until the API server answers. Nothing if it forbids to ask, as only some hardened clusters do.
async fn read(client: &Client) -> Option<String> {
    loop {
        match client.apiserver_version().await {
            Ok(info) => return Some(info.git_version),
            Err(Error::Api(status)) if status.is_forbidden() => return None,
            Err(error) => tracing::debug!(
                error = words::of(&error),
                "the API server's version could not be read"
            ),
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http::{Response, StatusCode};
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// A server that fails for as many times as are asked for, and then answers.
    fn server(failure: StatusCode, failures: usize) -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let answer = move |request: http::Request<kube::client::Body>| {
            assert_eq!(request.uri().path(), "/version");
            let fails = count.fetch_add(1, Relaxed) < failures;
            let response = if fails { failed(failure) } else { version() };
            async move { Ok::<_, Infallible>(response) }
        };
        (Client::new(tower::service_fn(answer), "ns"), asked)
    }

    fn version() -> Response<Body> {
        let info = json!({
            "major": "1", "minor": "30", "gitVersion": "v1.30.1", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
        });
        Response::new(Body::from(info.to_string()))
    }

    fn failed(code: StatusCode) -> Response<Body> {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(), "message": "no",
            "reason": if code == StatusCode::FORBIDDEN { "Forbidden" } else { "ServiceUnavailable" },
        });
        let mut response = Response::new(Body::from(status.to_string()));
        *response.status_mut() = code;
        response
    }

    #[tokio::test(start_paused = true)]
    async fn the_version_is_read_again_until_the_api_server_answers() {
        let (client, asked) = server(StatusCode::SERVICE_UNAVAILABLE, 2);
        assert_eq!(read(&client).await.as_deref(), Some("v1.30.1"));
        assert_eq!(asked.load(Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_version_is_not_asked_for_again_where_it_is_forbidden() {
        let (client, asked) = server(StatusCode::FORBIDDEN, 2);
        assert_eq!(read(&client).await, None);
        assert_eq!(asked.load(Relaxed), 1);
    }
}

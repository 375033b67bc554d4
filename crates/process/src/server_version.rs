//! Which version the API server is of. A version that is not supported is logged once, at the start.

use crate::words;
use kube::Client;
use placement::supported;
use std::future::pending;
use std::time::Duration;
use tokio::time::sleep;

/// Between two attempts to read it: other parts of the process log what is wrong with the connection.
const PAUSE: Duration = Duration::from_secs(5);

/// Logs one warning if the API server's version is not one that this release was tested with; never ends.
pub async fn judge(client: Client) {
    let version = read(&client).await;
    if let Some(warning) = supported::warning(&version) {
        tracing::warn!(version, "{warning}");
    }
    pending::<()>().await;
}

async fn read(client: &Client) -> String {
    loop {
        match client.apiserver_version().await {
            Ok(info) => return info.git_version,
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

    #[tokio::test(start_paused = true)]
    async fn the_version_is_read_again_until_the_api_server_answers() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let answer = move |request: http::Request<kube::client::Body>| {
            assert_eq!(request.uri().path(), "/version");
            let is_down = count.fetch_add(1, Relaxed) < 2;
            async move {
                let info = json!({
                    "major": "1", "minor": "30", "gitVersion": "v1.30.1", "gitCommit": "", "gitTreeState": "",
                    "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
                });
                let response = Response::new(Body::from(info.to_string()));
                Ok::<_, Infallible>(if is_down { unavailable() } else { response })
            }
        };
        let client = Client::new(tower::service_fn(answer), "ns");
        assert_eq!(read(&client).await, "v1.30.1");
        assert_eq!(asked.load(Relaxed), 3);
    }

    fn unavailable() -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
    }
}

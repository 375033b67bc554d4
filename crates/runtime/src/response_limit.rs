//! Limits the size of a response that the client reads from the API server, so that no list and no error uses up the memory.
//!
//! kube has no such limit, and reads a response as a whole. A watch has no end, so its response has no limit: kube reads a watch
//! event by event.

use axum::http::{Request, Response, Uri};
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use http_body_util::Limited;
use kube::client::Body;
use std::task::{Context, Poll};
use tower::{Layer, Service};

/// The longest response, in bytes. While kube reads a response, memory holds two copies.
const LIMIT: usize = 16 << 20;

/// Adds the limit to a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseLimit;

/// A client with the limit.
#[derive(Clone, Debug)]
pub(crate) struct LimitedClient<S>(S);

impl<S> Layer<S> for ResponseLimit {
    type Service = LimitedClient<S>;

    fn layer(&self, client: S) -> Self::Service {
        LimitedClient(client)
    }
}

impl<S, B> Service<Request<Body>> for LimitedClient<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = Response<Limited<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let limit = if is_watch(request.uri()) {
            usize::MAX
        } else {
            LIMIT
        };
        let response = self.0.call(request);
        response
            .map_ok(move |response| response.map(|body| Limited::new(body, limit)))
            .boxed()
    }
}

fn is_watch(uri: &Uri) -> bool {
    let mut params = uri.query().unwrap_or_default().split('&');
    params.any(|param| param == "watch=true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::api::{Api, ListParams, WatchParams};
    use std::convert::Infallible;
    use tower::service_fn;

    /// A client of an API server that answers each request with spaces.
    fn client(bytes: usize) -> Client {
        let server = service_fn(move |_: Request<Body>| async move {
            Ok::<_, Infallible>(Response::new(Body::from(vec![b' '; bytes])))
        });
        Client::new(ResponseLimit.layer(server), "default")
    }

    async fn error(bytes: usize) -> String {
        let maps: Api<ConfigMap> = Api::all(client(bytes));
        format!("{:?}", maps.list(&ListParams::default()).await.unwrap_err())
    }

    #[tokio::test]
    async fn a_response_over_the_limit_is_an_error_and_is_not_read() {
        assert!(error(LIMIT + 1).await.contains("LengthLimitError"));
        assert!(error(LIMIT).await.contains("SerdeError"));
    }

    #[tokio::test]
    async fn a_watch_has_no_limit() {
        let maps: Api<ConfigMap> = Api::all(client(LIMIT + 1));
        let events =
            futures::StreamExt::collect::<Vec<_>>(maps.watch(&WatchParams::default(), "0").await.unwrap());
        let events = format!("{:?}", events.await);
        assert!(!events.contains("LengthLimitError"), "{events}");
    }
}

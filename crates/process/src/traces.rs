//! Exports spans over OTLP if the standard variable `OTEL_EXPORTER_OTLP_ENDPOINT` is set. Otherwise the process has no exporter,
//! no export thread and no tracing layer.
//!
//! The SDK's own thread sends the batches on a runtime of its own: a slow or unavailable collector never delays an admission
//! request or a reconcile, and the binary contains only one HTTP stack.

use async_trait::async_trait;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{ExporterBuildError, Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use std::{env, io, time::Duration};
use thiserror::Error;
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};
use tracing::Subscriber;
use tracing_subscriber::{Layer, filter::LevelFilter, registry::LookupSpan};

const ENDPOINT: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
const PROTOCOL: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
];
const NAME: &str = "OTEL_SERVICE_NAME";
/// Timeout for one batch. The next batch waits; the SDK drops spans that exceed its queue.
const PATIENCE: Duration = Duration::from_secs(10);
/// Timeout for the last batch, when the process ends.
const LAST_BATCH: Duration = Duration::from_secs(2);
/// Maximum response size. Collectors respond with a few bytes.
const LONGEST_ANSWER: usize = 64 * 1024;

/// The environment requests traces that cannot be exported.
#[derive(Debug, Error)]
pub enum Error {
    /// The scheme of the endpoint differs from http.
    #[error(
        "{variable}={value:?} is no plain http:// address; name a collector or agent in the cluster, such as http://otel-collector.observability:4318"
    )]
    Scheme {
        /// Name of the variable.
        variable: &'static str,
        /// Value of the variable.
        value: String,
    },
    /// The protocol differs from the built-in protocol.
    #[error("{variable}={value:?} is not built in; use http/protobuf, which collectors take at port 4318")]
    Protocol {
        /// Name of the variable.
        variable: &'static str,
        /// Value of the variable.
        value: String,
    },
    /// The exporter rejects another `OTEL_*` variable of the environment.
    #[error(
        "traces cannot be exported: {0}; correct the OTEL_* variables, or remove OTEL_EXPORTER_OTLP_ENDPOINT"
    )]
    Exporter(#[from] ExporterBuildError),
    /// The runtime for the exporter cannot be created.
    #[error("no runtime for the export of traces: {0}; remove OTEL_EXPORTER_OTLP_ENDPOINT to do without")]
    Runtime(#[from] io::Error),
}

/// Looks up an environment variable.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The export of traces. On drop, the remaining spans are sent.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts the export that the environment requests for this process; usually `None`.
    pub(crate) fn asked_for(process: &str) -> Result<Option<Self>, Error> {
        Self::of(process, &|name| env::var(name).ok())
    }

    fn of(process: &str, environment: Environment<'_>) -> Result<Option<Self>, Error> {
        let Some((variable, value)) = first(ENDPOINT, environment) else {
            return Ok(None);
        };
        if !value.starts_with("http://") {
            return Err(Error::Scheme { variable, value });
        }
        if let Some((variable, value)) = first(PROTOCOL, environment).filter(|(_, it)| it != "http/protobuf")
        {
            return Err(Error::Protocol { variable, value });
        }
        let endpoint = if variable == ENDPOINT[0] {
            value
        } else {
            format!("{}/v1/traces", value.trim_end_matches('/'))
        };
        let name = environment(NAME).unwrap_or_else(|| format!("pod-affinity-{process}"));
        Self::start(name, endpoint).map(Some)
    }

    fn start(name: String, endpoint: String) -> Result<Self, Error> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Sender::new()?)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint)
            .build()?;
        let resource = Resource::builder()
            .with_service_name(name)
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_resource(resource)
            .with_batch_exporter(exporter)
            .build();
        Ok(Self(provider))
    }

    /// The layer that exports spans of level INFO and above, independent of `RUST_LOG`.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("pod-affinity"))
            .with_location(false)
            .with_threads(false)
            .with_filter(LevelFilter::INFO)
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(LAST_BATCH) {
            tracing::warn!(%error, "the last traces were not taken");
        }
    }
}

/// Name and value of the first of these variables that is set and not empty.
fn first(names: [&'static str; 2], environment: Environment<'_>) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| {
        let value = environment(name)?;
        (!value.is_empty()).then_some((name, value))
    })
}

/// Posts a batch and blocks the calling thread until the response.
#[derive(Debug)]
struct Sender {
    runtime: Runtime,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Sender {
    fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        // The runtime does not run between two batches, so the client keeps no idle connections.
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build_http();
        Ok(Self { runtime, client })
    }

    async fn answer(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = self.client.request(request.map(Full::new)).await?.into_parts();
        let body = Limited::new(body, LONGEST_ANSWER).collect().await?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

#[async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        self.runtime
            .block_on(async { timeout(PATIENCE, self.answer(request)).await })?
    }
}

#[cfg(test)]
#[path = "traces_tests.rs"]
mod tests;

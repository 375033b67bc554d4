use super::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Instant;
use tracing_subscriber::layer::SubscriberExt;

fn asked(variables: &[(&str, &str)]) -> Result<Option<Traces>, Error> {
    Traces::of("webhook", &|name| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

/// Takes one request, and returns it.
fn collector() -> (String, thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let taken = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut request = vec![0; 64 * 1024];
        let mut length = 0;
        while !is_whole(&request[..length]) {
            length += stream.read(&mut request[length..]).unwrap();
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .unwrap();
        request.truncate(length);
        request
    });
    (address, taken)
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, _)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap();
    request.len() >= head.len() + 4 + length.parse::<usize>().unwrap()
}

fn has(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

#[test]
fn without_an_endpoint_there_are_no_traces() {
    assert!(asked(&[]).unwrap().is_none());
    assert!(asked(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).unwrap().is_none());
    assert!(asked(&[("OTEL_SERVICE_NAME", "x")]).unwrap().is_none());
}

#[test]
fn a_span_goes_to_the_collector_with_its_fields_and_the_processs_name() {
    let (address, taken) = collector();
    let traces = asked(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &address)])
        .unwrap()
        .unwrap();
    let subscriber = tracing_subscriber::registry().with(traces.layer());
    tracing::subscriber::with_default(subscriber, || {
        tracing::info_span!("admission", uid = "u-1").in_scope(|| tracing::info!("answered"));
        tracing::debug_span!("secret").in_scope(|| ());
    });
    drop(traces);
    let request = taken.join().unwrap();
    assert!(request.starts_with(b"POST /v1/traces HTTP/1.1\r\n"));
    for word in [
        "admission",
        "u-1",
        "answered",
        "pod-affinity-webhook",
        "service.version",
    ] {
        assert!(has(&request, word), "{word}");
    }
    assert!(!has(&request, "secret"), "what is below INFO stays here");
}

#[test]
fn a_collector_that_is_away_does_not_hold_up_the_end() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", nobody.local_addr().unwrap());
    let traces = asked(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &address)])
        .unwrap()
        .unwrap();
    let subscriber = tracing_subscriber::registry().with(traces.layer());
    tracing::subscriber::with_default(subscriber, || tracing::info_span!("lost").in_scope(|| ()));
    let started = Instant::now();
    drop(traces);
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
}

#[test]
fn what_is_not_built_in_is_refused_with_what_is() {
    let refusal = |variables| asked(variables).unwrap_err().to_string();
    let tls = refusal(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://x:4318")]);
    assert!(
        tls.starts_with("OTEL_EXPORTER_OTLP_ENDPOINT=\"https://x:4318\" is no plain http://"),
        "{tls}"
    );
    let grpc = refusal(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    ]);
    assert!(grpc.contains("use http/protobuf"), "{grpc}");
}

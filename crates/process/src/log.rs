//! Logs on standard error: JSON for machines, readable lines on a terminal. `RUST_LOG` filters them. Traces as well if the
//! environment requests them.

use crate::traces::{self, Traces};
use std::env;
use std::io::{self, IsTerminal};
use strum::EnumString;
use thiserror::Error;
use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer, filter::LevelFilter, layer::SubscriberExt, registry::LookupSpan,
    util::SubscriberInitExt,
};

/// Used when `RUST_LOG` is empty. The client logs each failed request, and we log it with its consequence.
const FILTER: &str = "info,kube_client::client::builder=off";

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "snake_case", parse_err_ty = UnknownFormat, parse_err_fn = unknown)]
pub enum Format {
    /// Readable on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// A value of `--log-format` that is no format.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{0}' is no log format: use auto, json or text")]
pub struct UnknownFormat(String);

/// Logging could not be set up.
#[derive(Debug, Error)]
pub enum Error {
    /// `RUST_LOG` cannot be read.
    #[error("RUST_LOG is not a filter: {0}; an example that is one: info,controller=debug")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Traces were requested, and cannot be sent.
    #[error(transparent)]
    Traces(#[from] traces::Error),
    /// Logging was set up before.
    #[error("logging is already set up in this process: {0}")]
    Taken(#[from] tracing_subscriber::util::TryInitError),
}

fn unknown(text: &str) -> UnknownFormat {
    UnknownFormat(text.to_owned())
}

/// Sets up logging for the whole process; to be called once, first of all. Traces that were requested are sent until the
/// returned value is dropped.
pub fn init(format: Format, process: &str) -> Result<Option<Traces>, Error> {
    let filter = filter(env::var(EnvFilter::DEFAULT_ENV).ok().as_deref())?;
    let traces = Traces::asked_for(process)?;
    tracing_subscriber::registry()
        .with(traces.as_ref().map(Traces::layer))
        .with(lines(format).with_filter(filter))
        .try_init()?;
    Ok(traces)
}

fn lines<S>(format: Format) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    if is_json(format, io::stderr().is_terminal()) {
        lines.json().flatten_event(true).with_current_span(false).boxed()
    } else {
        lines.with_ansi(io::stderr().is_terminal()).boxed()
    }
}

fn filter(wanted: Option<&str>) -> Result<EnvFilter, Error> {
    let text = wanted.filter(|text| !text.is_empty()).unwrap_or(FILTER);
    Ok(EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse(text)?)
}

fn is_json(format: Format, terminal: bool) -> bool {
    match format {
        Format::Auto => !terminal,
        Format::Json => true,
        Format::Text => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_text_and_a_pipe_json_unless_told() {
        assert!(!is_json(Format::Auto, true));
        assert!(is_json(Format::Auto, false));
        assert!(is_json(Format::Json, true));
        assert!(!is_json(Format::Text, false));
    }

    #[test]
    fn a_filter_that_is_none_is_refused_and_none_at_all_means_our_own() {
        assert_eq!(
            filter(None).unwrap().to_string(),
            filter(Some("")).unwrap().to_string()
        );
        assert_eq!(filter(Some("debug")).unwrap().to_string(), "debug");
        assert!(
            filter(Some("a=b=c"))
                .unwrap_err()
                .to_string()
                .starts_with("RUST_LOG is not a filter")
        );
    }

    #[test]
    fn without_traces_no_level_is_on_that_the_filter_leaves_out() {
        let none: Option<Traces> = None;
        let subscriber = tracing_subscriber::registry()
            .with(none.as_ref().map(Traces::layer))
            .with(lines(Format::Json).with_filter(filter(None).unwrap()));
        assert_eq!(subscriber.max_level_hint(), Some(LevelFilter::INFO));
    }

    #[test]
    fn an_unknown_format_is_refused_with_those_that_exist() {
        assert_eq!("json".parse(), Ok(Format::Json));
        let refusal = "yaml".parse::<Format>().unwrap_err().to_string();
        assert_eq!(refusal, "'yaml' is no log format: use auto, json or text");
    }
}

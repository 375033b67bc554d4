//! Logs on standard error: JSON for machines, text for terminals. `RUST_LOG` filters the logs.

use std::env;
use std::io::{self, IsTerminal};
use strum::EnumString;
use thiserror::Error;
use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer, filter::LevelFilter, layer::SubscriberExt, registry::LookupSpan,
    util::SubscriberInitExt,
};

/// Default of `RUST_LOG`. The client's log of failed requests is off, because pod-affinity logs each failure with its consequence.
const FILTER: &str = "info,kube_client::client::builder=off";

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "snake_case", parse_err_ty = UnknownFormat, parse_err_fn = unknown)]
pub enum Format {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// One JSON object per line.
    Json,
    /// Text for people.
    Text,
}

/// An unknown value of `--log-format`.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{0}' is no log format: use auto, json or text")]
pub struct UnknownFormat(String);

/// Logging could not be set up.
#[derive(Debug, Error)]
pub enum Error {
    /// The filter in `RUST_LOG` is invalid.
    #[error("RUST_LOG is not a filter: {0}; an example of a filter: info,controller=debug")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Another call has already set up logging.
    #[error("logging is already set up in this process: {0}")]
    Taken(#[from] tracing_subscriber::util::TryInitError),
}

fn unknown(text: &str) -> UnknownFormat {
    UnknownFormat(text.to_owned())
}

/// Sets up logging for the whole process. Call this once, before any other code.
pub fn init(format: Format) -> Result<(), Error> {
    let filter = filter(env::var(EnvFilter::DEFAULT_ENV).ok().as_deref())?;
    tracing_subscriber::registry()
        .with(lines(format).with_filter(filter))
        .try_init()?;
    Ok(())
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
    fn the_format_auto_is_text_on_a_terminal_and_json_otherwise() {
        assert!(!is_json(Format::Auto, true));
        assert!(is_json(Format::Auto, false));
        assert!(is_json(Format::Json, true));
        assert!(!is_json(Format::Text, false));
    }

    #[test]
    fn an_invalid_filter_is_refused_and_an_empty_filter_is_the_default() {
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
    fn the_error_about_an_unknown_format_lists_the_valid_formats() {
        assert_eq!("json".parse(), Ok(Format::Json));
        let refusal = "yaml".parse::<Format>().unwrap_err().to_string();
        assert_eq!(refusal, "'yaml' is no log format: use auto, json or text");
    }
}

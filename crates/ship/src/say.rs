//! Progress, on standard error: standard output is for what other programs read.

/// Says one line.
macro_rules! say {
    ($($words:tt)*) => { eprintln!("ship: {}", format_args!($($words)*)) };
}
pub(crate) use say;

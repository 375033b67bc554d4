//! Prints progress to standard error, because other programs read standard output.

/// Prints one line.
macro_rules! say {
    ($($words:tt)*) => { eprintln!("ship: {}", format_args!($($words)*)) };
}
pub(crate) use say;

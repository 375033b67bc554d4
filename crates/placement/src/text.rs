//! Shortens texts that users write, before messages, logs and events repeat them.

use std::borrow::Cow;

/// The most bytes of a user's value in a message, log line or event.
pub const QUOTED: usize = 200;
pub(crate) const ELLIPSIS: &str = "…";

/// The text, or its beginning with an ellipsis if the text has more than this many bytes.
pub fn shortened(text: &str, bytes: usize) -> Cow<'_, str> {
    if text.len() <= bytes {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(bytes.saturating_sub(ELLIPSIS.len()));
    Cow::Owned([&text[..end], ELLIPSIS].concat())
}

/// A user's value as a message repeats it.
pub fn quoted(value: &str) -> Cow<'_, str> {
    shortened(value, QUOTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        for bytes in [3, 10, 11, 12, QUOTED] {
            let cut = shortened(&"\u{e9}".repeat(2000), bytes).into_owned();
            assert!(cut.len() <= bytes && cut.ends_with('…'), "{cut}");
        }
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(quoted(&"x".repeat(QUOTED + 1)).len(), QUOTED);
    }
}

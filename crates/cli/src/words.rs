//! Texts of times, counts and lists, and line breaks. Pure.

use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// The width of a text without a terminal.
pub(crate) const WIDTH: usize = 80;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The time between two moments; zero if the second is earlier, because the clocks of two machines differ.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// A time span in at most two units, as kubectl shows ages.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..HOUR => two(seconds, MINUTE, "m", 1, "s", 10 * MINUTE),
        HOUR..DAY => two(seconds, HOUR, "h", MINUTE, "m", 8 * HOUR),
        _ => two(seconds, DAY, "d", HOUR, "h", 8 * DAY),
    }
}

/// The smaller unit is left out if it is zero, and in long durations.
fn two(seconds: u64, large: u64, name: &str, small: u64, small_name: &str, until: u64) -> String {
    let rest = seconds % large / small;
    if rest == 0 || seconds >= until {
        format!("{}{name}", seconds / large)
    } else {
        format!("{}{name}{rest}{small_name}", seconds / large)
    }
}

/// How long ago a moment was.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    span(between(then, now))
}

/// How long something lasted.
pub(crate) fn lasting(from: Timestamp, to: Timestamp) -> String {
    match between(from, to) {
        short if short.as_secs() == 0 => "less than a second".to_owned(),
        long => span(long),
    }
}

/// The moment after this duration.
pub(crate) fn after(then: Timestamp, duration: Duration) -> Timestamp {
    SignedDuration::try_from(duration)
        .ok()
        .and_then(|duration| then.checked_add(duration).ok())
        .unwrap_or(Timestamp::MAX)
}

/// `1 node`, `2 nodes`.
pub(crate) fn count(number: usize, word: &str) -> String {
    if number == 1 {
        format!("1 {word}")
    } else {
        format!("{number} {word}s")
    }
}

/// `a`, `a and b`, `a, b and c`. After the first items, the number of the others.
pub(crate) fn list(items: &[String], most: usize) -> String {
    let shown = &items[..items.len().min(most)];
    let more = items.len() - shown.len();
    match (shown, more) {
        ([], _) => String::new(),
        ([one], 0) => one.clone(),
        ([first @ .., last], 0) => format!("{} and {last}", first.join(", ")),
        (shown, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// A message of another component in quotation marks, without its full stop.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.trim().trim_end_matches('.'))
}

/// Breaks a text into lines of this width. A longer word has its own line, and so does a command between backticks, so that the user
/// can copy it.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words(text) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            Some(_) | None => lines.push(word),
        }
    }
    lines
}

/// The words of a text. A command between backticks counts as one word.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut open = false;
    for word in text.split_whitespace() {
        match words.last_mut() {
            Some(command) if open => {
                command.push(' ');
                command.push_str(word);
            }
            Some(_) | None => words.push(word.to_owned()),
        }
        open ^= word.matches('`').count() % 2 == 1;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_at_most_two_units() {
        let table = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (601, "10m"),
            (3600, "1h"),
            (3660, "1h1m"),
            (90_000, "1d1h"),
            (86_400 * 30 + 3600, "30d"),
        ];
        for (seconds, text) in table {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn what_lies_in_the_future_is_no_time_ago() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(age(after(now, Duration::from_secs(9)), now), "0s");
    }

    #[test]
    fn a_list_reads_as_a_sentence_and_is_cut() {
        let items: Vec<String> = ["a", "b", "c"].map(String::from).into();
        assert_eq!(list(&items[..0], 3), "");
        assert_eq!(list(&items[..1], 3), "a");
        assert_eq!(list(&items[..2], 3), "a and b");
        assert_eq!(list(&items, 3), "a, b and c");
        assert_eq!(list(&items, 1), "a and 2 more");
    }

    #[test]
    fn lines_are_as_long_as_they_may_be_and_no_word_is_broken() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("unbreakable as it is", 5), ["unbreakable", "as it", "is"]);
        assert!(wrap(" ", 5).is_empty());
    }

    #[test]
    fn a_command_is_not_broken() {
        assert_eq!(
            wrap("see `a long command`. Or not", 12),
            ["see", "`a long command`.", "Or not"]
        );
    }

    #[test]
    fn what_took_no_time_worth_telling_is_told_so() {
        let start = Timestamp::UNIX_EPOCH;
        assert_eq!(lasting(start, start), "less than a second");
        assert_eq!(lasting(start, after(start, Duration::from_secs(61))), "61s");
    }
}

//! The notes that were reported on a run, so that a lasting state is reported at intervals and not by each reconciliation.
//!
//! The notes may be lost: a new leader repeats a note, which increases the count of the existing event.

use crate::memory::backoff::{later, until};
use jiff::Timestamp;
use placement::notes::{Note, Reason, Repeat};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The pause between two notes of one reason about a lasting state, even if the text changes more often.
const NEWS: Duration = Duration::from_secs(20);
/// The most notes that are remembered of one run: the scheduler's message changes when a node is added or removed.
const REMEMBERED: usize = 16;

/// The latest notes of one run, newest first.
#[derive(Debug, Default)]
pub(crate) struct EventDeduplicator(Vec<Reported>);

#[derive(Debug)]
struct Reported {
    reason: Reason,
    note: u64,
    at: Timestamp,
    count: i32,
}

/// When to report a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Now. The number says how often the note was reported, including this time.
    Now(i32),
    /// After this pause, because the note or another note of its reason was reported shortly before.
    Later(Duration),
    /// The note is never reported again.
    Not,
}

impl EventDeduplicator {
    /// Decides when to report a note, and remembers a note that is due now.
    pub(crate) fn due(&mut self, note: &Note, now: Timestamp) -> Due {
        let (id, repeat) = (id(note), note.reason.repeat());
        let Some(reported) = self.0.iter_mut().find(|reported| reported.note == id) else {
            return self.due_news(note.reason, id, now);
        };
        let left = repeat
            .pause()
            .and_then(|pause| until(later(reported.at, pause), now));
        if repeat == Repeat::Never {
            return Due::Not;
        }
        if let Some(left) = left {
            return Due::Later(left);
        }
        (reported.at, reported.count) = (now, reported.count.saturating_add(1));
        Due::Now(reported.count)
    }

    fn due_news(&mut self, reason: Reason, note: u64, now: Timestamp) -> Due {
        if let Some(left) = self.quiet(reason, now) {
            return Due::Later(left);
        }
        let (at, count) = (now, 1);
        self.make_room();
        self.0.insert(
            0,
            Reported {
                reason,
                note,
                at,
                count,
            },
        );
        Due::Now(count)
    }

    /// Forgets a note, if possible a note that may be repeated.
    fn make_room(&mut self) {
        if self.0.len() == REMEMBERED {
            let repeated = self.0.iter().rposition(|it| it.reason.repeat() != Repeat::Never);
            self.0.remove(repeated.unwrap_or(REMEMBERED - 1));
        }
    }

    /// The rest of the pause after the last note of this reason. The scheduler's message changes when a node is added or removed;
    /// the latest message is reported after the pause.
    fn quiet(&self, reason: Reason, now: Timestamp) -> Option<Duration> {
        let Repeat::Every(_) = reason.repeat() else {
            return None;
        };
        let same = self.0.iter().filter(|reported| reported.reason == reason);
        until(later(same.map(|reported| reported.at).max()?, NEWS), now)
    }
}

fn id(note: &Note) -> u64 {
    let mut hasher = DefaultHasher::new();
    note.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::at;

    #[test]
    fn a_note_that_is_sent_once_is_remembered_longer_than_notes_that_are_repeated() {
        let mut reported = EventDeduplicator::default();
        let note = |reason, text: &str| Note {
            reason,
            text: text.to_owned(),
        };
        let once = note(Reason::FieldIgnored, "once");
        assert_eq!(once.reason.repeat(), Repeat::Never);
        reported.due(&once, at(0));
        for number in 0..100 {
            let news = note(Reason::WaitingForNode, &number.to_string());
            assert_eq!(reported.due(&news, at(100 * number)), Due::Now(1));
        }
        assert_eq!(reported.due(&once, at(10_000)), Due::Not);
    }

    #[test]
    fn of_many_different_notes_only_the_newest_are_remembered() {
        let mut reported = EventDeduplicator::default();
        for number in 0..100 {
            let (reason, text) = (Reason::PlaceholderReturned, number.to_string());
            reported.due(&Note { reason, text }, at(0));
        }
        assert_eq!(reported.0.len(), REMEMBERED);
    }
}

//! Replaces parts of a text.

use super::files::Text;
use std::collections::BTreeMap;
use std::ops::Range;

/// Replacements by their start. The value of a YAML anchor is visited more than once, and is replaced once.
#[derive(Debug, Default)]
pub(super) struct Edits(BTreeMap<usize, (usize, String)>);

impl Edits {
    pub(super) fn replace(&mut self, place: Range<usize>, piece: impl Into<String>) {
        self.0.insert(place.start, (place.end, piece.into()));
    }

    pub(super) fn insert(&mut self, place: usize, piece: impl Into<String>) {
        self.replace(place..place, piece);
    }

    pub(super) fn applied(self, text: &Text) -> Text {
        let mut content = text.content.clone();
        for (start, (end, piece)) in self.0.into_iter().rev() {
            content.replace_range(start..end, &piece);
        }
        Text {
            name: text.name.clone(),
            content,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_do_not_move_each_others_places() {
        let text = Text {
            name: String::new(),
            content: "a b c".into(),
        };
        let mut edits = Edits::default();
        edits.replace(0..1, "long");
        edits.replace(2..3, "");
        edits.insert(5, "!");
        assert_eq!(edits.applied(&text).content, "long  c!");
    }
}

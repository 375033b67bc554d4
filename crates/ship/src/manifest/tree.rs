//! A parsed text: values with their positions, functions to read them, and replacements of parts of the text.

use super::Error;
use super::files::Text;
use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};
use std::collections::BTreeMap;
use std::ops::Range;

/// A value and its position.
pub(super) type Node = MarkedYaml<'static>;

/// Checks that each document is a Kubernetes object. Empty documents are allowed.
pub(super) fn check(text: &Text) -> Result<(), Error> {
    let documents = documents(text)?;
    let mut objects = documents.iter().filter(|document| !is_empty(document));
    objects.try_for_each(|document| check_object(text, document))
}

/// All documents of a text.
pub(super) fn documents(text: &Text) -> Result<Vec<Node>, Error> {
    MarkedYaml::load_from_iter(text.content.chars()).map_err(|error| Error::NoYaml {
        file: text.name.clone(),
        line: error.marker().line(),
        problem: error.info().to_owned(),
    })
}

fn is_empty(document: &Node) -> bool {
    matches!(&document.data, YamlData::BadValue | YamlData::Value(Scalar::Null))
}

fn check_object(text: &Text, document: &Node) -> Result<(), Error> {
    let what = match &document.data {
        YamlData::Mapping(_) if is_object(document) => return Ok(()),
        YamlData::Mapping(_) => "a mapping without them",
        YamlData::Sequence(_) => "a list",
        _ => "plain text",
    };
    Err(Error::NoObject {
        file: text.name.clone(),
        line: document.span.start.line(),
        what,
    })
}

fn is_object(document: &Node) -> bool {
    ["apiVersion", "kind"]
        .iter()
        .all(|key| get(document, key).and_then(string).is_some())
}

/// The value of a key in a mapping.
fn get<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    let (_, value) = entries(node).find(|(name, _)| string(name) == Some(key))?;
    Some(value)
}

/// The keys and values of a mapping, in their order.
fn entries(node: &Node) -> impl Iterator<Item = (&Node, &Node)> {
    let mapping = match &node.data {
        YamlData::Mapping(mapping) => Some(mapping),
        _ => None,
    };
    mapping.into_iter().flat_map(|mapping| mapping.iter())
}

/// The string, if the value is a string.
fn string(node: &Node) -> Option<&str> {
    match &node.data {
        YamlData::Value(Scalar::String(text)) => Some(text),
        _ => None,
    }
}

/// Visits every string in a value, keys included.
pub(super) fn strings<'n>(node: &'n Node, visit: &mut dyn FnMut(&'n Node, &'n str)) {
    match &node.data {
        YamlData::Value(Scalar::String(text)) => visit(node, text),
        YamlData::Sequence(items) => items.iter().for_each(|item| strings(item, visit)),
        YamlData::Mapping(_) => entries(node).for_each(|(key, value)| {
            strings(key, visit);
            strings(value, visit);
        }),
        YamlData::Tagged(_, inner) => strings(inner, visit),
        YamlData::Value(_) | YamlData::Representation(..) | YamlData::Alias(_) | YamlData::BadValue => {}
    }
}

/// Converts positions in characters to positions in bytes.
pub(super) struct Places(Vec<usize>);

impl Places {
    pub(super) fn new(text: &Text) -> Self {
        let starts = text.content.char_indices().map(|(place, _)| place);
        Self(starts.chain([text.content.len()]).collect())
    }

    pub(super) fn range(&self, node: &Node) -> Range<usize> {
        self.place(node.span.start.index())..self.place(node.span.end.index())
    }

    fn place(&self, index: usize) -> usize {
        let end = self.0.last().copied().unwrap_or_default();
        self.0.get(index).copied().unwrap_or(end)
    }
}

/// Replacements by their start. The value of a YAML anchor is visited more than once, and is replaced once.
#[derive(Debug, Default)]
pub(super) struct Edits(BTreeMap<usize, (usize, String)>);

impl Edits {
    pub(super) fn replace(&mut self, place: Range<usize>, piece: impl Into<String>) {
        self.0.insert(place.start, (place.end, piece.into()));
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

    fn text(content: &str) -> Text {
        Text {
            name: "x.yaml".into(),
            content: content.into(),
        }
    }

    fn error(content: &str) -> String {
        check(&text(content)).unwrap_err().to_string()
    }

    #[test]
    fn documents_without_content_are_allowed() {
        let content = "# only words\n---\n---\napiVersion: v1\nkind: Namespace\n---\n# the end\n";
        for content in [content, ""] {
            assert_eq!(check(&text(content)), Ok(()));
        }
    }

    #[test]
    fn invalid_yaml_is_an_error_with_its_line() {
        let error = error("apiVersion: v1\nkind: [\n");
        assert!(error.starts_with("x.yaml is not valid YAML (line "), "{error}");
    }

    #[test]
    fn a_duplicate_key_is_an_error() {
        assert!(error("apiVersion: v1\nkind: A\nkind: B\n").contains("duplicated key"));
    }

    #[test]
    fn a_document_that_is_not_an_object_is_an_error_that_says_why() {
        for (content, what) in [
            ("# Title\n\nSome words.\n", "line 3 begins plain text"),
            ("- a\n- b\n", "a list"),
            ("a: 1\n", "a mapping without them"),
            ("apiVersion: 1\nkind: x\n", "a mapping without them"),
        ] {
            assert!(error(content).contains(what), "{}", error(content));
        }
    }

    #[test]
    fn positions_are_in_bytes() {
        let text = text("\u{e9}\u{e9}: \u{e9}x\n");
        let documents = documents(&text).unwrap();
        let (_, value) = entries(&documents[0]).next().unwrap();
        assert_eq!(&text.content[Places::new(&text).range(value)], "\u{e9}x");
    }

    #[test]
    fn replacements_do_not_move_each_others_positions() {
        let text = Text {
            name: String::new(),
            content: "a b c".into(),
        };
        let mut edits = Edits::default();
        edits.replace(0..1, "long");
        edits.replace(2..3, "");
        edits.replace(5..5, "!");
        assert_eq!(edits.applied(&text).content, "long  c!");
    }
}

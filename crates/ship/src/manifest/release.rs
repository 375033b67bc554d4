//! Adds the version as a label to every object of a release and to its pod templates. Selectors are left unchanged, because
//! a later release could not change them.

use super::Error;
use super::files::Text;
use super::tree::{self, Edits, Node, Places};

const LABEL: &str = "app.kubernetes.io/version";
const NULLS: [&str; 4] = ["~", "null", "Null", "NULL"];

/// Sets the label in all metadata.
pub(super) fn labelled(text: &Text, version: &str) -> Result<Text, Error> {
    let objects = tree::objects(text)?;
    let mut labelling = Labelling {
        text,
        places: Places::new(text),
        version: format!("\"{version}\""),
        edits: Edits::default(),
    };
    for object in &objects {
        labelling.object(object);
    }
    Ok(labelling.edits.applied(text))
}

struct Labelling<'a> {
    text: &'a Text,
    places: Places,
    version: String,
    edits: Edits,
}

impl Labelling<'_> {
    fn object(&mut self, object: &Node) {
        for item in tree::get(object, "items").into_iter().flat_map(tree::items) {
            self.object(item);
        }
        let template = tree::get(object, "spec").and_then(|spec| tree::get(spec, "template"));
        for owner in [Some(object), template].into_iter().flatten() {
            if let Some(metadata) = tree::get(owner, "metadata") {
                self.metadata(metadata);
            }
        }
    }

    fn metadata(&mut self, metadata: &Node) {
        match tree::entry(metadata, "labels") {
            Some((_, labels)) if tree::entries(labels).next().is_some() => self.labels(labels),
            Some((key, empty)) => self.fill(key, empty),
            None => self.prepend(metadata, "labels", &self.alone()),
        }
    }

    fn labels(&mut self, labels: &Node) {
        match tree::get(labels, LABEL) {
            Some(value) => self.edits.replace(self.places.range(value), self.version.clone()),
            None => self.prepend(labels, LABEL, &self.version.clone()),
        }
    }

    /// Inserts the label for `labels: {}`, `labels: null`, or an empty value. The position of a mapping ends before its
    /// bracket, and the position of an empty value is that of the next token.
    fn fill(&mut self, key: &Node, empty: &Node) {
        let (key, empty) = (self.places.range(key), self.places.range(empty));
        let content = &self.text.content;
        let end_of = |piece: &str, from: usize| {
            content[from..]
                .find(piece)
                .map(|found| from + found + piece.len())
        };
        if content[empty.start..].starts_with('{') {
            let end = end_of("}", empty.start).unwrap_or(empty.end);
            self.edits.replace(empty.start..end, self.alone());
        } else if NULLS.contains(&&content[empty.clone()]) {
            self.edits.replace(empty, self.alone());
        } else if let Some(behind) = end_of(":", key.end) {
            self.edits.insert(behind, format!(" {}", self.alone()));
        }
    }

    fn alone(&self) -> String {
        format!("{{\"{LABEL}\": {}}}", self.version)
    }

    /// Inserts the entry before the first entry of a mapping, in the mapping's own style.
    fn prepend(&mut self, mapping: &Node, key: &str, value: &str) {
        let Some((first, _)) = tree::entries(mapping).next() else {
            return;
        };
        let piece = if self.is_flow(mapping) {
            format!("\"{key}\": {value}, ")
        } else {
            format!("{key}: {value}\n{:1$}", "", first.span.start.col())
        };
        self.edits.insert(self.places.range(first).start, piece);
    }

    fn is_flow(&self, mapping: &Node) -> bool {
        self.text.content[self.places.range(mapping).start..].starts_with('{')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: v1\nkind: X\n";

    fn labelled_text(content: &str) -> String {
        let text = Text {
            name: "x.yaml".into(),
            content: format!("{HEAD}{content}"),
        };
        let labelled = labelled(&text, "v1.2.3").unwrap();
        // A second YAML library must be able to parse every result.
        serde_yaml::from_str::<serde_yaml::Value>(&labelled.content).unwrap();
        labelled.content[HEAD.len()..].to_owned()
    }

    #[test]
    fn the_label_joins_the_others_of_the_object_and_of_its_pods_but_not_the_selector() {
        let content = "metadata:\n  labels:\n    a: b # why\nspec:\n  selector:\n    matchLabels:\n      a: b\n  template:\n    metadata:\n      labels:\n        a: b\n";
        let expected = "metadata:\n  labels:\n    app.kubernetes.io/version: \"v1.2.3\"\n    a: b # why\nspec:\n  selector:\n    matchLabels:\n      a: b\n  template:\n    metadata:\n      labels:\n        app.kubernetes.io/version: \"v1.2.3\"\n        a: b\n";
        assert_eq!(labelled_text(content), expected);
    }

    #[test]
    fn an_existing_version_is_replaced() {
        let content = "metadata:\n  labels:\n    app.kubernetes.io/version: devel # x\n    a: b\n";
        assert_eq!(labelled_text(content), content.replace("devel", "\"v1.2.3\""));
    }

    #[test]
    fn every_way_of_writing_metadata_is_understood() {
        let pair = "\"app.kubernetes.io/version\": \"v1.2.3\"";
        for (before, after) in [
            (
                "metadata:\n  name: x\n",
                format!("metadata:\n  labels: {{{pair}}}\n  name: x\n"),
            ),
            (
                "metadata: {name: x}\n",
                format!("metadata: {{\"labels\": {{{pair}}}, name: x}}\n"),
            ),
            (
                "metadata:\n  labels: {a: b}\n",
                format!("metadata:\n  labels: {{{pair}, a: b}}\n"),
            ),
            (
                "metadata:\n  labels: {}\n",
                format!("metadata:\n  labels: {{{pair}}}\n"),
            ),
            (
                "metadata:\n  labels:\n  name: x\n",
                format!("metadata:\n  labels: {{{pair}}}\n  name: x\n"),
            ),
        ] {
            assert_eq!(labelled_text(before), after);
        }
    }

    #[test]
    fn each_object_of_a_list_gets_the_label() {
        let labelled =
            labelled_text("items:\n- metadata:\n    labels:\n      a: b\n- metadata:\n    name: x\n");
        assert_eq!(labelled.matches(LABEL).count(), 2);
    }

    #[test]
    fn json_stays_json() {
        let text = Text {
            name: "x.json".into(),
            content: "{\"apiVersion\": \"v1\", \"kind\": \"X\", \"metadata\": {\"labels\": {\"a\": \"b\"}}}"
                .into(),
        };
        let labelled = labelled(&text, "v1").unwrap().content;
        let value: serde_json::Value = serde_json::from_str(&labelled).unwrap();
        assert_eq!(value["metadata"]["labels"][LABEL], "v1");
    }
}

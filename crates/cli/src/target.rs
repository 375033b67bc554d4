//! How users name a run: alone, after its kind, or after its namespace. Pure.

use thiserror::Error;

/// The kind, as `kubectl api-resources` has it.
const KINDS: [&str; 4] = ["pipelineruns", "pipelinerun", "prs", "pr"];
const GROUPS: [&str; 2] = ["tekton.dev", "v1.tekton.dev"];

/// A run by its name, in a namespace of its own or in the one that holds otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

/// Words that name no run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum NameError {
    /// The first of two words is no kind.
    #[error("'{0}' is no kind of run; write NAME, pr/NAME, pipelinerun NAME or NAMESPACE/NAME")]
    Kind(String),
    /// A part of it is empty, or there are too many.
    #[error("'{0}' names no run; write NAME, pr/NAME, pipelinerun NAME or NAMESPACE/NAME")]
    Name(String),
    /// The flag for the namespace has another namespace than the name.
    #[error("the name of the run has namespace '{0}', and -n has '{1}'; leave one of them out")]
    Namespaces(String, String),
}

impl Target {
    /// Reads one or two words. A kind goes before a namespace of the same name, which `-n` can still name.
    pub(crate) fn parse(words: &[String]) -> Result<Self, NameError> {
        match words {
            [kind, name] if is_kind(kind) => Self::of(name),
            [kind, _, ..] => Err(NameError::Kind(kind.clone())),
            [name] => Self::of(name),
            [] => Err(NameError::Name(String::new())),
        }
    }

    fn of(word: &str) -> Result<Self, NameError> {
        let (namespace, name) = match word.split_once('/') {
            Some((kind, name)) if is_kind(kind) => (None, name),
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, word),
        };
        if name.is_empty() || name.contains('/') || namespace == Some("") {
            return Err(NameError::Name(word.to_owned()));
        }
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        })
    }

    /// Compares the namespace of the name with the value of `-n`.
    pub(crate) fn check(&self, flag: Option<&str>) -> Result<(), NameError> {
        match (&self.namespace, flag) {
            (Some(own), Some(flag)) if own != flag => {
                Err(NameError::Namespaces(own.clone(), flag.to_owned()))
            }
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    /// Its namespace: its own, or else this one.
    pub(crate) fn namespace<'a>(&'a self, other: &'a str) -> &'a str {
        self.namespace.as_deref().unwrap_or(other)
    }
}

/// Whether a word is the kind of runs, with its group or without.
pub(crate) fn is_kind(word: &str) -> bool {
    let word = word.to_lowercase();
    match word.split_once('.') {
        Some((kind, group)) => KINDS.contains(&kind) && GROUPS.contains(&group),
        None => KINDS.contains(&word.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(Option<String>, String), NameError> {
        let words: Vec<_> = line.split_whitespace().map(String::from).collect();
        Target::parse(&words).map(|target| (target.namespace, target.name))
    }

    #[test]
    fn a_run_may_be_named_alone_after_its_kind_or_after_its_namespace() {
        for line in [
            "build",
            "pr/build",
            "prs/build",
            "pipelinerun/build",
            "pipelineruns/build",
            "pipelinerun.tekton.dev/build",
            "pipelineruns.v1.tekton.dev/build",
            "PipelineRun/build",
            "pr build",
            "pipelineruns build",
            "pr pr/build",
        ] {
            assert_eq!(parsed(line), Ok((None, "build".into())), "{line}");
        }
        for line in ["web/build", "pr web/build"] {
            assert_eq!(parsed(line), Ok((Some("web".into()), "build".into())), "{line}");
        }
        assert_eq!(parsed("pr"), Ok((None, "pr".into())));
        assert_eq!(
            parsed("pipelinerun-tests/x"),
            Ok((Some("pipelinerun-tests".into()), "x".into()))
        );
    }

    #[test]
    fn words_that_name_no_run_are_refused() {
        for line in [
            "",
            "/build",
            "build/",
            "pr/",
            "a/b/c",
            "pr a/b/c",
            "pod build",
            "a b",
        ] {
            parsed(line).unwrap_err();
        }
    }
}

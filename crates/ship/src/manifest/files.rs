//! Reads the files of `-f` and the kustomization of `-k`. Folders are read as kubectl reads them, without files of
//! kustomize; kubectl renders kustomizations.

use crate::kubectl;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

const STDIN: &str = "-";
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// Files that configure kustomize and are not Kubernetes objects.
const KUSTOMIZE: [&str; 2] = ["kustomization.yaml", "kustomization.yml"];

/// The manifests on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// The arguments of `-f` and `-R`.
    Files { paths: Vec<PathBuf>, recursive: bool },
    /// The argument of `-k`.
    Kustomization(PathBuf),
}

/// A file's content, and its name for error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) name: String,
    pub(crate) content: String,
}

/// The files cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("there is no {}: give -f files and folders that exist, or - for standard input", .0.display())]
    Missing(PathBuf),
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{name} is not text in UTF-8: give only manifests")]
    NoText { name: String },
    #[error(
        "the folder {} contains no manifest (*.yaml, *.yml, *.json): give another folder, add -R for subfolders, or use -k if \
         it contains a kustomization",
        .0.display()
    )]
    Empty(PathBuf),
    #[error(transparent)]
    Kustomize(#[from] kubectl::Error),
}

/// Reads all selected manifests.
pub(crate) fn read(selection: &Selection) -> Result<Vec<Text>, Error> {
    match selection {
        Selection::Files { paths, recursive } => files(paths, *recursive),
        Selection::Kustomization(folder) => {
            let rendered = kubectl::kustomize(folder)?;
            Ok(vec![text(folder.display().to_string(), rendered)?])
        }
    }
}

/// The files in the order of the arguments; files of a folder are sorted by name.
fn files(paths: &[PathBuf], recursive: bool) -> Result<Vec<Text>, Error> {
    let mut texts = Vec::new();
    for path in paths {
        if path.as_os_str() == STDIN {
            texts.push(standard_input()?);
            continue;
        }
        for file in expanded(path, recursive)? {
            texts.push(one(&file)?);
        }
    }
    Ok(texts)
}

fn standard_input() -> Result<Text, Error> {
    let mut content = Vec::new();
    let read = io::stdin().read_to_end(&mut content);
    read.map_err(unreadable(Path::new(STDIN)))?;
    text("standard input".to_owned(), content)
}

fn one(path: &Path) -> Result<Text, Error> {
    let content = std::fs::read(path).map_err(unreadable(path))?;
    text(path.display().to_string(), content)
}

fn text(name: String, content: Vec<u8>) -> Result<Text, Error> {
    match String::from_utf8(content) {
        Ok(content) => Ok(Text { name, content }),
        Err(_) => Err(Error::NoText { name }),
    }
}

fn expanded(path: &Path, recursive: bool) -> Result<Vec<PathBuf>, Error> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let files = folder(path, recursive)?;
    if files.is_empty() {
        return Err(Error::Empty(path.to_owned()));
    }
    Ok(files)
}

fn folder(path: &Path, recursive: bool) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for entry in entries(path)? {
        if entry.is_dir() {
            if recursive {
                files.extend(folder(&entry, recursive)?);
            }
        } else if is_manifest(&entry) {
            files.push(entry);
        }
    }
    Ok(files)
}

fn entries(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let listed = std::fs::read_dir(path).and_then(|entries| {
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        paths.collect::<io::Result<Vec<_>>>()
    });
    let mut entries = listed.map_err(unreadable(path))?;
    entries.sort();
    Ok(entries)
}

fn is_manifest(path: &Path) -> bool {
    let is_kustomize = path
        .file_name()
        .is_some_and(|name| KUSTOMIZE.iter().any(|its| name == *its));
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    !is_kustomize && EXTENSIONS.contains(&extension)
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::NotFound => Error::Missing(path),
        _ => Error::Unreadable { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn folder_of(files: &[&str]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
        folder
    }

    fn contents(folder: &TempDir, paths: &[&str], recursive: bool) -> Result<Vec<String>, Error> {
        let paths = paths.iter().map(|path| folder.path().join(path)).collect();
        let texts = read(&Selection::Files { paths, recursive })?;
        Ok(texts.into_iter().map(|text| text.content).collect())
    }

    #[test]
    fn a_folder_is_read_in_the_order_of_names_without_other_files() {
        let folder = folder_of(&[
            "b.yml",
            "a.yaml",
            "c.json",
            "README.md",
            "kustomization.yaml",
            "deep/d.yaml",
        ]);
        assert_eq!(
            contents(&folder, &["."], false).unwrap(),
            ["a.yaml", "b.yml", "c.json"]
        );
        assert_eq!(
            contents(&folder, &["."], true).unwrap(),
            ["a.yaml", "b.yml", "c.json", "deep/d.yaml"]
        );
    }

    #[test]
    fn files_are_read_in_the_order_of_the_arguments() {
        let folder = folder_of(&["a.yaml", "b.txt"]);
        assert_eq!(
            contents(&folder, &["b.txt", "a.yaml"], false).unwrap(),
            ["b.txt", "a.yaml"]
        );
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = folder_of(&[]);
        let error = contents(&folder, &["nowhere.yaml"], false)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("there is no ") && error.contains("nowhere.yaml"),
            "{error}"
        );
    }

    #[test]
    fn a_folder_without_manifests_is_an_error() {
        let folder = folder_of(&["deep/d.yaml"]);
        assert!(matches!(contents(&folder, &["."], false), Err(Error::Empty(_))));
    }

    #[test]
    fn bytes_that_are_not_text_are_not_a_manifest() {
        let folder = folder_of(&["a.yaml"]);
        std::fs::write(folder.path().join("a.yaml"), [0xff, 0xfe]).unwrap();
        assert!(matches!(
            contents(&folder, &["a.yaml"], false),
            Err(Error::NoText { .. })
        ));
    }
}

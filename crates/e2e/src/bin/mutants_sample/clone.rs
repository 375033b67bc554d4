//! The state of the clone, and copies in which mutants are built. The clone itself is never changed.

use anyhow::{Context, Result, bail};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The paths from which the tests of a mutant are built.
const CODE: [&str; 10] = [
    "Cargo.lock",
    "Cargo.toml",
    "config",
    "crates/admission",
    "crates/cli",
    "crates/controller",
    "crates/placement",
    "crates/pod-affinity",
    "crates/runtime",
    "crates/tekton",
];

/// All files of the clone, including uncommitted changes and untracked files.
#[derive(Debug)]
pub(crate) struct Snapshot {
    git: PathBuf,
    /// The id of a git tree object.
    tree: String,
}

impl Snapshot {
    /// `index` is a file for git's index, so that the clone's own index stays unchanged.
    pub(crate) fn take(clone: &Path, index: &Path) -> Result<Self> {
        let git = run(Command::new("git")
            .args(["rev-parse", "--absolute-git-dir"])
            .current_dir(clone))?;
        let git = PathBuf::from(git);
        run(at(&git, clone, index).args(["add", "--all"]))?;
        let tree = run(at(&git, clone, index).arg("write-tree"))?;
        Ok(Self { git, tree })
    }

    /// A hash of the code.
    pub(crate) fn code(&self) -> Result<String> {
        let objects = run(Command::new("git")
            .env("GIT_DIR", &self.git)
            .args(["ls-tree", &self.tree])
            .args(CODE))?;
        let mut hasher = DefaultHasher::new();
        objects.hash(&mut hasher);
        Ok(format!("{:016x}", hasher.finish()))
    }

    /// Replaces the files in a folder by these files, and keeps the builds in its `target`. Equal files are not written
    /// again, because cargo would rebuild them. A mutant that was left in the folder is overwritten.
    pub(crate) fn copy_to(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let index = folder.with_extension("index");
        run(at(&self.git, folder, &index).args(["read-tree", "--reset", "-u", &self.tree]))?;
        run(at(&self.git, folder, &index).args(["clean", "-d", "--force", "--quiet"]))?;
        Ok(())
    }
}

fn at(git: &Path, folder: &Path, index: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .env("GIT_DIR", git)
        .env("GIT_WORK_TREE", folder)
        .env("GIT_INDEX_FILE", index)
        .current_dir(folder);
    command
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().context("starting git")?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, read_to_string, remove_file, write};
    use tempfile::TempDir;

    const RULES: &str = "crates/placement/rules.rs";

    /// A repository, and a folder for a copy.
    struct Scene(TempDir);

    impl Scene {
        fn new() -> Self {
            let scene = Self(tempfile::tempdir().unwrap());
            create_dir_all(scene.clone().join("crates/placement")).unwrap();
            run(Command::new("git").arg("init").arg(scene.clone())).unwrap();
            for (file, text) in [(RULES, "rules"), ("README.md", "text"), (".gitignore", "/target")] {
                write(scene.clone().join(file), text).unwrap();
            }
            scene
        }

        fn clone(&self) -> PathBuf {
            self.0.path().join("clone")
        }

        fn copy(&self) -> PathBuf {
            self.0.path().join("copy")
        }

        fn snapshot(&self) -> Snapshot {
            Snapshot::take(&self.clone(), &self.0.path().join("index")).unwrap()
        }
    }

    #[test]
    fn a_copy_has_the_files_that_the_clone_has_now_and_keeps_its_builds() {
        let scene = Scene::new();
        let (clone, copy) = (scene.clone(), scene.copy());
        scene.snapshot().copy_to(&copy).unwrap();
        assert_eq!(read_to_string(copy.join(RULES)).unwrap(), "rules");

        create_dir_all(copy.join("target")).unwrap();
        write(copy.join("target/built"), "").unwrap();
        write(copy.join(RULES), "mutant").unwrap();
        write(copy.join("left.rs"), "").unwrap();
        remove_file(clone.join("README.md")).unwrap();
        write(clone.join("new.rs"), "new").unwrap();
        scene.snapshot().copy_to(&copy).unwrap();
        assert_eq!(read_to_string(copy.join(RULES)).unwrap(), "rules");
        let exists = ["new.rs", "target/built", "README.md", "left.rs"].map(|file| copy.join(file).exists());
        assert_eq!(exists, [true, true, false, false]);
        assert!(!clone.join(".git/index").exists());
    }

    #[test]
    fn outcomes_belong_to_the_code_and_not_to_the_pages() {
        let scene = Scene::new();
        let code = scene.snapshot().code().unwrap();
        write(scene.clone().join("README.md"), "more text").unwrap();
        assert_eq!(scene.snapshot().code().unwrap(), code);
        write(scene.clone().join(RULES), "other rules").unwrap();
        assert_ne!(scene.snapshot().code().unwrap(), code);
    }
}

//! Builds the parts once and keeps them: `go build` of each module under hack/ into a cache outside the
//! checkout, keyed by the module's version and by what else decides the result.

use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::recipe::{self, ALL, Recipe, required_version};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CACHE_VARIABLE: &str = "POD_AFFINITY_TESTBED_CACHE";
/// What hack/*/go.mod asks for.
const OLDEST_GO: (u32, u32) = (1, 26);

/// A part's binaries and assets, ready to use.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    folder: PathBuf,
}

impl Built {
    /// Path of a binary.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// Path of an asset folder or file, as it lies in the module.
    pub(crate) fn asset(&self, path: &str) -> PathBuf {
        self.folder.join("assets").join(path)
    }
}

/// Builds what the cache lacks of `recipes`, telling the progress, and hands out all of them.
pub(crate) fn ensure<const N: usize>(recipes: [&Recipe; N]) -> Result<[Built; N]> {
    let jobs = recipes
        .iter()
        .map(|recipe| Job::of(recipe))
        .collect::<Result<Vec<_>>>()?;
    if jobs.iter().any(|job| !job.is_built()) {
        build_missing(&jobs)?;
    }
    let mut jobs = jobs.into_iter();
    recipes
        .iter()
        .map(|_| jobs.next().map(|job| Built { folder: job.folder }))
        .collect::<Option<Vec<_>>>()
        .and_then(|built| built.try_into().ok())
        .ok_or_else(|| Error::NotRunning("a recipe without a job".into()))
}

/// Builds what any testbed may want, but for what only the real node does.
pub fn build_all() -> Result<()> {
    ensure(ALL).map(drop)
}

fn build_missing(jobs: &[Job<'_>]) -> Result<()> {
    let cache = cache_folder()?;
    fs::create_dir_all(&cache).map_err(Error::io("creating", &cache))?;
    require_go()?;
    // Two testbeds that start together build once: the second waits here and then finds all built.
    let _one_builder = lock(&cache)?;
    let missing: Vec<_> = jobs.iter().filter(|job| !job.is_built()).collect();
    for (index, job) in missing.iter().enumerate() {
        let label = format!(
            "building {} {} ({} of {})",
            job.recipe.name,
            job.version,
            index + 1,
            missing.len()
        );
        let progress = Progress::start(label);
        job.build()?;
        progress.done();
    }
    Ok(())
}

fn lock(cache: &Path) -> Result<File> {
    let path = cache.join("lock");
    let file = File::create(&path).map_err(Error::io("creating", &path))?;
    if file.try_lock().is_err() {
        let progress = Progress::start("waiting for another testbed that builds".into());
        file.lock().map_err(Error::io("locking", &path))?;
        progress.done();
    }
    Ok(file)
}

fn cache_folder() -> Result<PathBuf> {
    let from = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    from(CACHE_VARIABLE)
        .or_else(|| from("XDG_CACHE_HOME").map(|cache| cache.join("pod-affinity-testbed")))
        .or_else(|| from("HOME").map(|home| home.join(".cache/pod-affinity-testbed")))
        .ok_or(Error::MissingTool {
            tool: "a home folder",
            remedy: "set HOME or POD_AFFINITY_TESTBED_CACHE",
        })
}

/// hack/ of the checkout that this was compiled from.
fn hack_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack")
}

/// Which versions of the control plane's parts a testbed runs.
pub fn versions() -> Result<Vec<(&'static str, String)>> {
    let parts = [
        &recipe::ETCD,
        &recipe::KUBERNETES,
        &recipe::KWOK,
        &recipe::TEKTON,
        &recipe::CLUSTER_AUTOSCALER,
    ];
    let version = |recipe: &'static Recipe| Ok((recipe.name, Job::of(recipe)?.version));
    parts.into_iter().map(version).collect()
}

#[derive(Debug)]
struct Job<'a> {
    recipe: &'a Recipe,
    module_folder: PathBuf,
    version: String,
    folder: PathBuf,
}

impl<'a> Job<'a> {
    fn of(recipe: &'a Recipe) -> Result<Self> {
        let module_folder = hack_folder().join(recipe.name);
        let go_mod = read(&module_folder.join("go.mod"))?;
        let go_sum = read(&module_folder.join("go.sum"))?;
        let version = required_version(&go_mod, recipe.module)
            .ok_or_else(|| Error::Manifest {
                file: module_folder.join("go.mod"),
                problem: format!("it requires no version of {}", recipe.module),
            })?
            .to_owned();
        let key = key(&[&go_mod, &go_sum, &format!("{recipe:?}")]);
        let folder = cache_folder()?.join(format!("{}-{version}-{key}", recipe.name));
        Ok(Self {
            recipe,
            module_folder,
            version,
            folder,
        })
    }

    // The folder appears by one rename, so that it is either whole or not there.
    fn is_built(&self) -> bool {
        self.folder.is_dir()
    }

    fn build(&self) -> Result<()> {
        let draft = self
            .folder
            .with_extension(format!("draft-{}", std::process::id()));
        let bin = draft.join("bin");
        fs::create_dir_all(&bin).map_err(Error::io("creating", &bin))?;
        let outcome = self.build_into(&draft);
        if outcome.is_err() {
            // What is left of a failed build helps nobody; the error that matters is the build's.
            let _ = fs::remove_dir_all(&draft);
        }
        outcome?;
        fs::rename(&draft, &self.folder).map_err(Error::io("renaming", &draft))
    }

    fn build_into(&self, draft: &Path) -> Result<()> {
        for (package, binary) in self.recipe.programs {
            let target = draft.join("bin").join(binary);
            self.go(&["build", "-trimpath", "-tags", self.recipe.tags, "-ldflags"])
                .arg(self.recipe.link_flags(&self.version))
                .arg("-o")
                .arg(target)
                .arg(package)
                .run(self.recipe.name)?;
        }
        self.keep_assets(draft)
    }

    fn keep_assets(&self, draft: &Path) -> Result<()> {
        if self.recipe.assets.is_empty() {
            return Ok(());
        }
        // A module of which nothing was built is not there yet.
        self.go(&["mod", "download", self.recipe.module])
            .run(self.recipe.name)?;
        let folder = self
            .go(&["list", "-m", "-f", "{{.Dir}}", self.recipe.module])
            .run(self.recipe.name)?;
        for asset in self.recipe.assets {
            copy_folder(
                &Path::new(folder.trim()).join(asset),
                &draft.join("assets").join(asset),
            )?;
        }
        Ok(())
    }

    fn go(&self, args: &[&str]) -> Go {
        let mut command = Command::new("go");
        // Static binaries: they run wherever they were built, and no C compiler is asked.
        command
            .args(args)
            .current_dir(&self.module_folder)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly");
        Go(command)
    }
}

struct Go(Command);

impl Go {
    fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Self {
        self.0.arg(arg);
        self
    }

    fn run(mut self, part: &'static str) -> Result<String> {
        let output = self.0.stdin(Stdio::null()).output().map_err(|_| MISSING_GO)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let log = tail(&String::from_utf8_lossy(&output.stderr), 20);
        Err(Error::Build {
            part,
            remedy: build_remedy(&log),
            log,
        })
    }
}

const MISSING_GO: Error = Error::MissingTool {
    tool: "go",
    remedy: "install Go 1.26 or newer and put it on the PATH; it builds the control plane",
};

fn build_remedy(log: &str) -> &'static str {
    if log.contains("no space left") {
        "free some disk space (the build takes about 6 GB with Go's own cache), or set GOCACHE and POD_AFFINITY_TESTBED_CACHE"
    } else if log.contains("dial tcp") || log.contains("proxy") {
        "look whether the Go module proxy can be reached (go env GOPROXY)"
    } else {
        "see the log"
    }
}

fn require_go() -> Result<()> {
    let output = Command::new("go")
        .arg("version")
        .output()
        .map_err(|_| MISSING_GO)?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match go_version(&found) {
        Some(version) if version >= OLDEST_GO => Ok(()),
        _ => Err(Error::OldGo {
            found,
            wanted: format!("{}.{}", OLDEST_GO.0, OLDEST_GO.1),
        }),
    }
}

/// Major and minor of what `go version` prints.
fn go_version(printed: &str) -> Option<(u32, u32)> {
    let word = printed
        .split_whitespace()
        .find_map(|word| word.strip_prefix("go1."))?;
    let minor = word.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((1, minor.parse().ok()?))
}

fn key(inputs: &[&str]) -> String {
    let mut digest = Sha256::new();
    for input in inputs {
        digest.update(input.as_bytes());
    }
    digest
        .finalize()
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::io("reading", path))
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(Error::io("creating", to))?;
    for entry in fs::read_dir(from).map_err(Error::io("reading", from))? {
        let entry = entry.map_err(Error::io("reading", from))?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            // Read and write, not copy: files of the module cache are read-only and would stay so.
            let content = fs::read(entry.path()).map_err(Error::io("reading", entry.path()))?;
            fs::write(&target, content).map_err(Error::io("writing", target))?;
        }
    }
    Ok(())
}

/// The last lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{KUBELET, TEKTON_ENTRYPOINT};

    #[test]
    fn every_recipe_has_a_committed_module_with_its_version() {
        for recipe in ALL.into_iter().chain([&KUBELET, &TEKTON_ENTRYPOINT]) {
            let job = Job::of(recipe).unwrap();
            assert!(job.version.starts_with('v'), "{job:?}");
        }
    }

    #[test]
    fn go_versions_are_read_as_go_prints_them() {
        assert_eq!(go_version("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(go_version("go version go1.27rc1 linux/amd64"), Some((1, 27)));
        assert_eq!(go_version("bash: go: command not found"), None);
        assert!(go_version("go version go1.9 linux/amd64").unwrap() < OLDEST_GO);
    }

    #[test]
    fn another_go_sum_is_another_key() {
        assert_ne!(key(&["a", "b"]), key(&["a", "c"]));
    }

    #[test]
    fn a_tail_keeps_the_last_lines() {
        assert_eq!(tail("a\nb\nc", 2), "b\nc");
        assert_eq!(tail("a", 2), "a");
    }
}

//! Builds the parts once: `go build` of each module under hack/ into a cache outside the checkout. The cache key is the version of
//! the module and everything else that changes the result.

use crate::error::{Error, Result};
use crate::go::{self, Download, Go};
use crate::progress::Progress;
use crate::recipe::{ALL, CLUSTER_AUTOSCALER, CONTROL_PLANE, KARPENTER, Recipe, parts, required_version};
use crate::versions::Versions;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const AUTOSCALERS: [&Recipe; 2] = [&CLUSTER_AUTOSCALER, &KARPENTER];
const CACHE_VARIABLE: &str = "POD_AFFINITY_TESTBED_CACHE";

/// A part's binaries and assets, ready to use.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    folder: PathBuf,
    version: String,
}

impl Built {
    /// Version of the module that names the build, such as `v1.36.3`.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Path of a binary.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// Path of an asset folder or file, with the path that it has in the module.
    pub(crate) fn asset(&self, path: &str) -> PathBuf {
        self.folder.join("assets").join(path)
    }
}

/// Builds all `recipes` that the cache lacks, shows the progress, and returns all builds.
pub(crate) fn ensure<const N: usize>(recipes: [&Recipe; N]) -> Result<[Built; N]> {
    let jobs = recipes
        .iter()
        .map(|recipe| Job::new(recipe))
        .collect::<Result<Vec<_>>>()?;
    if jobs.iter().any(|job| !job.is_built()) {
        build_missing(&jobs)?;
    }
    let mut jobs = jobs.into_iter();
    recipes
        .iter()
        .map(|_| jobs.next().map(Job::built))
        .collect::<Option<Vec<_>>>()
        .and_then(|built| built.try_into().ok())
        .ok_or_else(|| Error::NotRunning("a recipe without a job".into()))
}

/// Builds all parts, except those that only the real node and optional tests need.
pub fn build_all() -> Result<()> {
    ensure(ALL).map(drop)
}

/// Builds the parts of a testbed with Tekton and the cluster autoscaler. One call for all parts lets downloads run beside
/// compilation.
pub fn build_for_autoscaler(versions: Versions) -> Result<()> {
    let (kubernetes, tekton) = (versions.kubernetes.recipe(), versions.tekton.recipe());
    ensure([&CONTROL_PLANE, kubernetes, tekton, &CLUSTER_AUTOSCALER]).map(drop)
}

/// Whether both autoscalers are built. Few tests need the autoscalers, and their build takes minutes.
pub fn autoscalers_are_built() -> Result<bool> {
    let jobs = AUTOSCALERS.iter().map(|recipe| Job::new(recipe));
    let jobs = jobs.collect::<Result<Vec<_>>>()?;
    Ok(jobs.iter().all(Job::is_built))
}

/// Builds both autoscalers, after the parts that every testbed of these versions needs, so that other testbeds start earlier.
pub fn build_autoscalers(versions: Versions) -> Result<()> {
    let (kubernetes, tekton) = (versions.kubernetes.recipe(), versions.tekton.recipe());
    ensure([&CONTROL_PLANE, kubernetes, tekton])?;
    ensure(AUTOSCALERS).map(drop)
}

fn build_missing(jobs: &[Job<'_>]) -> Result<()> {
    let cache = cache_folder()?;
    fs::create_dir_all(&cache).map_err(Error::io("creating", &cache))?;
    go::require(&hack_folder().join(CONTROL_PLANE.name))?;
    let missing = missing(jobs);
    // Parts are built one after the other: each build uses all cores, and later builds reuse the packages of earlier builds.
    let _downloads: Vec<_> = missing.iter().skip(1).map(|job| job.download()).collect();
    for (index, job) in missing.iter().enumerate() {
        // If two testbeds need the same build, the second testbed waits here and then finds the build.
        let _one_builder = lock(job)?;
        if job.is_built() {
            continue;
        }
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

/// The missing builds, without duplicates: a recipe can be in the list twice.
fn missing<'a, 'b>(jobs: &'a [Job<'b>]) -> Vec<&'a Job<'b>> {
    let mut seen = BTreeSet::new();
    let missing = jobs.iter().filter(|job| !job.is_built());
    missing.filter(|job| seen.insert(&job.folder)).collect()
}

/// Locks one part, so that a small part need not wait for the build of a large part.
fn lock(job: &Job<'_>) -> Result<File> {
    let path = job.beside(".lock");
    let file = File::create(&path).map_err(Error::io("creating", &path))?;
    if file.try_lock().is_err() {
        let label = format!("waiting for another testbed that builds {}", job.recipe.name);
        let progress = Progress::start(label);
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

/// The folder hack/ of the checkout that contains this crate.
fn hack_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack")
}

/// The releases of the control plane's parts in a testbed of these versions.
pub fn releases(versions: Versions) -> Result<Vec<(&'static str, String)>> {
    let version = |(part, recipe, module): (&'static str, &'static Recipe, &str)| {
        let go_mod = hack_folder().join(recipe.name).join("go.mod");
        Ok((part, version_in(&go_mod, &read(&go_mod)?, module)?))
    };
    parts(versions.kubernetes.recipe(), versions.tekton.recipe())
        .into_iter()
        .map(version)
        .collect()
}

fn version_in(file: &Path, go_mod: &str, module: &str) -> Result<String> {
    required_version(go_mod, module)
        .map(str::to_owned)
        .ok_or_else(|| Error::Manifest {
            file: file.to_owned(),
            problem: format!("it requires no version of {module}"),
        })
}

#[derive(Debug)]
struct Job<'a> {
    recipe: &'a Recipe,
    module_folder: PathBuf,
    version: String,
    folder: PathBuf,
}

impl<'a> Job<'a> {
    fn new(recipe: &'a Recipe) -> Result<Self> {
        let module_folder = hack_folder().join(recipe.name);
        let go_mod_file = module_folder.join("go.mod");
        let go_mod = read(&go_mod_file)?;
        let go_sum = read(&module_folder.join("go.sum"))?;
        let version = version_in(&go_mod_file, &go_mod, recipe.module)?;
        let own_code = own_code(&module_folder)?;
        let key = key(&[&go_mod, &go_sum, &own_code, &format!("{recipe:?}")]);
        let folder = cache_folder()?.join(format!("{}-{version}-{key}", recipe.name));
        Ok(Self {
            recipe,
            module_folder,
            version,
            folder,
        })
    }

    fn built(self) -> Built {
        Built {
            folder: self.folder,
            version: self.version,
        }
    }

    // The folder is created by a rename, so an existing folder is complete.
    fn is_built(&self) -> bool {
        self.folder.is_dir()
    }

    /// The path of the folder with this suffix. The names of two folders may differ only after the last dot.
    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.folder.clone().into_os_string();
        path.push(suffix);
        PathBuf::from(path)
    }

    fn build(&self) -> Result<()> {
        let draft = self.beside(&format!(".draft-{}", std::process::id()));
        let bin = draft.join("bin");
        fs::create_dir_all(&bin).map_err(Error::io("creating", &bin))?;
        let outcome = self.build_into(&draft);
        if outcome.is_err() {
            // A failure to clean up is ignored, because the error of the build matters.
            let _ = fs::remove_dir_all(&draft);
        }
        outcome?;
        fs::rename(&draft, &self.folder).map_err(Error::io("renaming", &draft))
    }

    fn build_into(&self, draft: &Path) -> Result<()> {
        if !self.recipe.programs.is_empty() {
            self.build_programs(draft)?;
        }
        self.keep_assets(draft)
    }

    fn build_programs(&self, draft: &Path) -> Result<()> {
        let built = draft.join("built");
        fs::create_dir_all(&built).map_err(Error::io("creating", &built))?;
        self.go(&["build", "-trimpath", "-buildvcs=false"])
            // This flag saves the creation of debug information, which the linker would remove.
            .arg("-gcflags=all=-dwarf=false")
            .args(["-tags", self.recipe.tags, "-ldflags"])
            .arg(self.recipe.link_flags(&self.version))
            .arg("-o")
            .arg(&built)
            .args(self.recipe.packages())
            .run(self.recipe.name)?;
        for (package, name) in self.recipe.programs {
            let (from, to) = (built.join(go::binary_name(package)), draft.join("bin").join(name));
            fs::hard_link(&from, &to).map_err(Error::io("linking", &from))?;
        }
        fs::remove_dir_all(&built).map_err(Error::io("removing", &built))
    }

    fn download(&self) -> Download {
        self.go(&["list", "-deps", "-tags", self.recipe.tags])
            .args(self.recipe.packages())
            .start()
    }

    fn keep_assets(&self, draft: &Path) -> Result<()> {
        for (module, asset) in self.recipe.assets {
            // The module cache lacks a module if none of its packages was built.
            self.go(&["mod", "download", module]).run(self.recipe.name)?;
            let folder = self
                .go(&["list", "-m", "-f", "{{.Dir}}", module])
                .run(self.recipe.name)?;
            let from = Path::new(folder.trim()).join(asset);
            copy_folder(&from, &draft.join("assets").join(asset))?;
        }
        Ok(())
    }

    fn go(&self, args: &[&str]) -> Go {
        Go::new(&self.module_folder, args)
    }
}

/// The Go files beside a go.mod. A change of these files needs a new build.
fn own_code(folder: &Path) -> Result<String> {
    let entries = fs::read_dir(folder).map_err(Error::io("reading", folder))?;
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "go"))
        .collect();
    files.sort();
    files.iter().map(|file| read(file)).collect()
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
            // Reads and writes instead of copying, because a copy would keep the read-only mode of files in the module cache.
            let content = fs::read(entry.path()).map_err(Error::io("reading", entry.path()))?;
            fs::write(&target, content).map_err(Error::io("writing", target))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{FLUX, HELM_3, HELM_4, KUBELET, KUEUE, PROMETHEUS, PROMTOOL, TEKTON_ENTRYPOINT};
    use crate::versions::{Kubernetes, Tekton};
    use clap::ValueEnum;

    #[test]
    fn every_recipe_has_a_committed_module_with_its_version() {
        let on_request = [
            &FLUX,
            &HELM_3,
            &HELM_4,
            &KUEUE,
            &PROMTOOL,
            &PROMETHEUS,
            &KUBELET,
            &TEKTON_ENTRYPOINT,
        ];
        for recipe in ALL.into_iter().chain(on_request) {
            let job = Job::new(recipe).unwrap();
            assert!(job.version.starts_with('v'), "{job:?}");
        }
    }

    #[test]
    fn a_recipe_that_is_requested_twice_is_built_once() {
        let empty = tempfile::tempdir().unwrap();
        let job = |name: &str| Job {
            folder: empty.path().join(name),
            ..Job::new(&CONTROL_PLANE).unwrap()
        };
        let jobs = [job("one"), job("two"), job("one")];
        assert_eq!(missing(&jobs).len(), 2);
    }

    #[test]
    fn the_module_of_a_version_requires_that_version() {
        let is_patch_of = |recipe, minor| {
            let version = Job::new(recipe).unwrap().version;
            assert!(version.starts_with(&format!("v1.{minor}.")), "{version}");
        };
        for version in Kubernetes::value_variants() {
            is_patch_of(version.recipe(), version.minor());
        }
        for version in Tekton::value_variants() {
            is_patch_of(version.recipe(), version.minor());
        }
    }

    #[test]
    fn releases_are_reported_for_the_chosen_versions() {
        let versions = Versions {
            kubernetes: Kubernetes::V1_34,
            tekton: Tekton::V1_9,
        };
        let releases = releases(versions).unwrap();
        let of = |part| &releases.iter().find(|(name, _)| *name == part).unwrap().1;
        assert!(of("kubernetes").starts_with("v1.34.") && of("tekton").starts_with("v1.9."));
    }

    #[test]
    fn another_go_sum_is_another_key() {
        assert_ne!(key(&["a", "b"]), key(&["a", "c"]));
    }
}

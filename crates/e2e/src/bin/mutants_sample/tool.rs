//! cargo-mutants, which makes the mutants and runs the tests.

use crate::crates::{Mutated, Tests};
use crate::outcome::{Outcome, printed};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const VERSION: &str = "27.1.0";
/// With this number a mutant takes seconds. A mutant that survives meets all cases.
const FEW_CASES: &str = "256";
/// A busy machine must not make a timeout of a slow test.
const SHORTEST_TIMEOUT: Duration = Duration::from_mins(2);

/// Tests, in a copy of the clone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Suite<'a> {
    pub(crate) copy: &'a Path,
    pub(crate) of: Mutated,
    pub(crate) tests: Tests,
}

impl Suite<'_> {
    fn packages(self) -> &'static [&'static str] {
        self.of.packages(self.tests)
    }

    fn targets(self) -> &'static [&'static str] {
        self.of.targets(self.tests)
    }
}

/// The installed program.
#[derive(Debug)]
pub(crate) struct Tool {
    program: PathBuf,
    /// For the random cases of properties, so that a sample has the same outcomes again.
    pub(crate) seed: u64,
    /// What cargo and cargo-mutants print.
    pub(crate) log: File,
}

impl Tool {
    /// Installs cargo-mutants if the cache has none of this version.
    pub(crate) fn installed(seed: u64, log: File) -> Result<Self> {
        let root = cache()?;
        let program = root.join("bin/cargo-mutants");
        if !is_current(&program) {
            println!(
                "installing cargo-mutants {VERSION} in {}: minutes",
                root.display()
            );
            let mut install = e2e::cargo();
            install
                .args(["install", "--quiet", "--locked", "--version", VERSION, "--root"])
                .arg(&root)
                .arg("cargo-mutants")
                .env_remove("CARGO_TARGET_DIR");
            let status = install.status().context("starting cargo")?;
            if !status.success() {
                bail!("cargo-mutants {VERSION} cannot be installed ({status}): {install:?}");
            }
        }
        Ok(Self { program, seed, log })
    }

    /// All mutants, as JSON.
    pub(crate) fn list(&self, copy: &Path) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(["mutants", "--list", "--json", "--dir"]).arg(copy);
        for of in Mutated::ALL {
            command.args(["--package", of.name()]);
        }
        let output = command.output().context("starting cargo-mutants")?;
        if !output.status.success() {
            bail!(
                "cargo-mutants --list: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        String::from_utf8(output.stdout).context("the list of cargo-mutants")
    }

    /// How long these tests may take: they run once without a mutant, and have to pass.
    pub(crate) fn timeout(&self, suite: Suite) -> Result<Duration> {
        self.cargo_test(suite, &["--no-run"])?;
        let started = Instant::now();
        self.cargo_test(suite, &[])?;
        Ok(SHORTEST_TIMEOUT.max(started.elapsed() * 5))
    }

    fn cargo_test(&self, suite: Suite, arguments: &[&str]) -> Result<()> {
        let mut command = self.set(e2e::cargo(), suite);
        command.arg("test").args(arguments).args(suite.targets());
        for package in suite.packages() {
            command.args(["--package", package]);
        }
        let status = command.stdout(self.log()?).stderr(self.log()?).status();
        if !status.context("starting cargo")?.success() {
            bail!("the tests of {} fail without a mutant", suite.of);
        }
        Ok(())
    }

    /// Runs these tests against each mutant of the crate except those that are named, and reports each outcome with the
    /// seconds it took.
    pub(crate) fn test<'a>(
        &self,
        suite: Suite,
        except: impl Iterator<Item = &'a str>,
        timeout: Duration,
        mut report: impl FnMut(Outcome, &str, u64) -> Result<()>,
    ) -> Result<()> {
        skip(suite.copy, except).context("writing which mutants are skipped")?;
        let mut running = self
            .mutants(suite, timeout)?
            .spawn()
            .context("starting cargo-mutants")?;
        let stdout = running.stdout.take().context("no output of cargo-mutants")?;
        let mut log = self.log()?;
        for line in BufReader::new(stdout).lines() {
            let line = line.context("reading the output of cargo-mutants")?;
            writeln!(log, "{line}").context("writing the log")?;
            if let Some((outcome, name, seconds)) = printed(&line) {
                report(outcome, name, seconds)?;
            }
        }
        let status = running.wait().context("waiting for cargo-mutants")?;
        // Mutants were missed, or tests timed out: both were reported.
        if !matches!(status.code(), Some(0 | 2 | 3)) {
            bail!("cargo-mutants ended with {status}");
        }
        Ok(())
    }

    fn mutants(&self, suite: Suite, timeout: Duration) -> Result<Command> {
        let targets = suite
            .targets()
            .iter()
            .map(|target| format!("--cargo-arg={target}"));
        let packages = suite
            .packages()
            .iter()
            .map(|package| format!("--test-package={package}"));
        let mut command = self.set(Command::new(&self.program), suite);
        command
            .args(["mutants", "--in-place", "--baseline=skip", "--iterate"])
            .args(["--colors=never", "--caught", "--unviable"])
            .args(["--package", suite.of.name()])
            .args(targets.chain(packages))
            .arg(format!("--timeout={}", timeout.as_secs()))
            .arg("--output")
            .arg(target(suite.copy))
            .stdout(Stdio::piped())
            // The lock on the log is shared: it lasts until cargo-mutants ends, even if this program is killed.
            .stderr(self.log()?);
        Ok(command)
    }

    fn log(&self) -> Result<File> {
        self.log.try_clone().context("the log")
    }

    fn set(&self, mut command: Command, suite: Suite) -> Command {
        command
            .current_dir(suite.copy)
            .stdin(Stdio::null())
            .env("CARGO_TARGET_DIR", target(suite.copy))
            // Each build is one change away from the last.
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("PROPTEST_RNG_SEED", self.seed.to_string())
            // Which input fails does not matter, and no mutant may leave an input to the next.
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
        match suite.tests {
            Tests::Own => command.env("PROPTEST_CASES", FEW_CASES),
            Tests::All => command.env_remove("PROPTEST_CASES"),
        };
        command
    }
}

/// Names the mutants that cargo-mutants skips with `--iterate`. Its `--re` does not choose mutants exactly: those that delete a
/// field always match (<https://github.com/sourcefrog/cargo-mutants/issues/632>).
fn skip<'a>(copy: &Path, names: impl Iterator<Item = &'a str>) -> std::io::Result<()> {
    let output = target(copy).join("mutants.out");
    if output.exists() {
        std::fs::remove_dir_all(&output)?;
    }
    std::fs::create_dir_all(&output)?;
    let lines: String = names.flat_map(|name| [name, "\n"]).collect();
    std::fs::write(output.join("previously_caught.txt"), lines)
}

fn target(copy: &Path) -> PathBuf {
    copy.join("target")
}

fn is_current(program: &Path) -> bool {
    let output = Command::new(program).args(["mutants", "--version"]).output();
    output.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).trim() == format!("cargo-mutants {VERSION}")
    })
}

/// The one of .ci/run.
fn cache() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    Ok(cache.context("no home directory")?.join("pod-affinity-ci"))
}

//! Calls cargo-mutants, which creates the mutants and runs the tests.

use crate::crates::{Mutated, Tests};
use crate::outcome::{Outcome, printed};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const VERSION: &str = "27.1.0";
/// The number of cases with which a mutant takes seconds. Mutants that survive run with all cases.
const FEW_CASES: &str = "256";
/// The shortest timeout. On a busy machine, a slow test must not count as a timeout.
const SHORTEST_TIMEOUT: Duration = Duration::from_mins(2);

/// The tests of one crate, in a copy of the clone.
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

/// The installed cargo-mutants.
#[derive(Debug)]
pub(crate) struct Tool {
    program: PathBuf,
    /// The seed of the random cases of properties, so that a sample has the same outcomes again.
    pub(crate) seed: u64,
    /// The output of cargo and cargo-mutants.
    pub(crate) log: File,
}

impl Tool {
    /// Installs cargo-mutants if the cache does not contain this version.
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

    /// The timeout of these tests, from one run without a mutant, which must pass.
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

    /// Runs these tests against each mutant of the crate except the named ones, and reports each outcome with its duration
    /// in seconds.
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
        // Mutants were missed, or tests timed out: both are reported.
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
            // Each build differs from the previous one by one change.
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("PROPTEST_RNG_SEED", self.seed.to_string())
            // Shrinking is switched off: the failing input does not matter, and a mutant must not store an input for later
            // mutants.
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
        match suite.tests {
            Tests::Own => command.env("PROPTEST_CASES", FEW_CASES),
            Tests::All => command.env_remove("PROPTEST_CASES"),
        };
        command
    }
}

/// Writes the mutants that cargo-mutants skips with `--iterate`. Its `--re` does not select mutants exactly: mutants that
/// delete a field always match (<https://github.com/sourcefrog/cargo-mutants/issues/632>).
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

/// The cache that .ci/run uses as well.
fn cache() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    Ok(cache.context("no home directory")?.join("pod-affinity-ci"))
}

//! Runs other programs. Go builds crane, cosign and helm from the modules in hack/ at their first use, and keeps them in its own build
//! cache.

use anyhow::{Context, Result, anyhow, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs a program, which must succeed. The last line of its standard error is the cause of a failure. The remedy is for a program
/// that is missing.
pub(crate) fn output(command: &mut Command, remedy: &str) -> Result<Output> {
    let name = name(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| anyhow!("{name} does not run ({error}): {remedy}"))?;
    if !output.status.success() {
        let verb = command.get_args().next().unwrap_or_default();
        bail!("{name} {} failed: {}", verb.display(), last_line(&output.stderr));
    }
    Ok(output)
}

/// Runs a program, and returns its standard output as text.
pub(crate) fn printed(command: &mut Command, remedy: &str) -> Result<String> {
    let output = output(command, remedy)?;
    String::from_utf8(output.stdout).with_context(|| format!("{} prints no text", name(command)))
}

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

/// Reads a file with any content.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))
}

/// Writes a file.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<()> {
    let written = std::fs::write(path, content);
    written.with_context(|| format!("{} cannot be written: choose a writable path", path.display()))
}

/// The files in a folder, in the order of their names.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = folder
        .read_dir()
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut files: Vec<PathBuf> =
        entries.with_context(|| format!("the folder {} cannot be read", folder.display()))?;
    files.retain(|path| path.is_file());
    files.sort();
    Ok(files)
}

/// A temporary folder, which is removed when the value is dropped.
pub(crate) fn scratch() -> Result<tempfile::TempDir> {
    tempfile::tempdir().context("the temporary folder cannot be written: set TMPDIR to a writable folder")
}

/// A program that Go builds.
#[derive(Clone, Debug)]
pub(crate) struct GoTool(PathBuf);

impl GoTool {
    /// Builds the program unless Go's cache has the program of these versions.
    pub(crate) fn built(root: &Path, name: &str) -> Result<Self> {
        let mut go = Command::new("go");
        go.args(["tool", "-n", name])
            .current_dir(root.join("hack").join(name))
            // The flags of the testbed's builds, so that both use the same compiled packages.
            .env("CGO_ENABLED", "0")
            .env(
                "GOFLAGS",
                "-mod=readonly -trimpath -buildvcs=false -gcflags=all=-dwarf=false",
            );
        let path = printed(
            &mut go,
            "install Go 1.26 or newer, which builds crane, cosign and helm",
        );
        let path = path.with_context(|| format!("go cannot build {name}"))?;
        Ok(Self(path.trim().into()))
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.0);
        command.args(arguments);
        command
    }

    /// Runs the program, and returns its standard output without the line break at its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String> {
        let printed = printed(
            &mut self.command(arguments),
            "repeat the command, which builds it",
        )?;
        Ok(printed.trim_end().to_owned())
    }
}

fn name(command: &Command) -> String {
    let program = Path::new(command.get_program());
    program.file_name().unwrap_or_default().display().to_string()
}

fn last_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    line.unwrap_or("no message")
        .trim_start_matches("error: ")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(program: &str, arguments: &[&str]) -> String {
        let failed = printed(Command::new(program).args(arguments), "install it");
        failed.unwrap_err().to_string()
    }

    #[test]
    fn the_last_line_of_a_program_is_the_cause() {
        let script = "echo retrying >&2; echo 'Error: 401 Unauthorized' >&2; echo >&2; exit 1";
        assert_eq!(
            error("sh", &["-c", script]),
            "sh -c failed: Error: 401 Unauthorized"
        );
        assert_eq!(error("false", &[]), "false  failed: no message");
    }

    #[test]
    fn a_program_that_is_missing_is_an_error_with_the_remedy() {
        let error = error("/nowhere/crane", &[]);
        assert!(
            error.starts_with("crane does not run") && error.ends_with("install it"),
            "{error}"
        );
    }
}

//! Calls cargo to build the binary, so that the same commit gives the same bytes in any folder.

use crate::platform::Platform;
use crate::toolchain::Rustc;
use cargo_metadata::Message;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The inputs of a build.
#[derive(Clone, Debug)]
pub(crate) struct Recipe<'a> {
    pub(crate) root: &'a Path,
    pub(crate) target_directory: &'a Path,
    pub(crate) cargo_home: &'a Path,
    pub(crate) rustc: &'a Rustc,
    /// The package, and its binary.
    pub(crate) program: (&'a str, &'a str),
    pub(crate) platform: Platform,
    pub(crate) linking: Linking<'a>,
}

/// How the binary is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linking<'a> {
    /// With all libraries, by this C compiler: an image contains no library.
    Static(&'a str),
    /// For machines of users, by cargo-zigbuild: a static glibc cannot resolve host names without the files of its own version.
    OldGlibc,
}

/// The oldest glibc of supported distributions, as in the images of manylinux2014.
const OLD_GLIBC: &str = "2.17";

/// The build failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cargo does not run ({0}): install Rust with rustup")]
    Cargo(std::io::Error),
    #[error(
        "cargo build of {0} failed ({1}); see its messages above. If it says that Cargo.lock needs to be updated, \
         run `cargo check` and commit the change"
    )]
    Failed(String, ExitStatus),
    #[error("cargo built {0} but reported no executable; this is a bug in `cargo ship`")]
    Nameless(String),
}

/// Builds the binary, with cargo's progress on standard error, and returns its path.
pub(crate) fn compile(recipe: &Recipe<'_>) -> Result<PathBuf, Error> {
    let output = recipe.command().output().map_err(Error::Cargo)?;
    let binary = || recipe.program.1.to_owned();
    if !output.status.success() {
        return Err(Error::Failed(binary(), output.status));
    }
    executable(&output.stdout).ok_or_else(|| Error::Nameless(binary()))
}

impl Recipe<'_> {
    fn command(&self) -> Command {
        let target = self.platform.target();
        let mut command = Command::new(cargo());
        match self.linking {
            Linking::Static(linker) => command
                .args(["build", "--target", &target])
                .env(variable("CC", &target), linker)
                .env(linker_variable(&target), linker),
            Linking::OldGlibc => command.args(["zigbuild", "--target", &format!("{target}.{OLD_GLIBC}")]),
        };
        let (package, binary) = self.program;
        command
            .args([
                "--release",
                "--locked",
                "--message-format=json-render-diagnostics",
            ])
            .args(["--package", package, "--bin", binary])
            .current_dir(self.root)
            .env("CARGO_ENCODED_RUSTFLAGS", self.flags())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        command
    }

    /// Flags for rustc. The user's own flags are left out, because they would change the bytes.
    fn flags(&self) -> OsString {
        let mut flags = OsString::from(match self.linking {
            Linking::Static(_) => "-Ctarget-feature=+crt-static",
            Linking::OldGlibc => "-Ctarget-feature=-crt-static",
        });
        for (from, to) in self.remapped() {
            flags.push("\u{1f}--remap-path-prefix=");
            flags.push(from);
            flags.push("=");
            flags.push(to);
        }
        flags
    }

    // Panic messages contain paths of source files. Paths of this workspace are relative, so its folder is not remapped:
    // cargo recompiles everything when flags change, and checkouts in different folders could not share a target folder.
    fn remapped(&self) -> Vec<(PathBuf, String)> {
        let commit = self.rustc.commit.as_deref().unwrap_or("unknown");
        vec![
            (self.cargo_home.to_owned(), "/cargo".to_owned()),
            (
                self.rustc.sysroot.join("lib/rustlib/src/rust"),
                format!("/rustc/{commit}"),
            ),
            (self.target_directory.to_owned(), "/target".to_owned()),
        ]
    }
}

/// The cargo that called this program, so that a toolchain chosen on the command line is used.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn variable(name: &str, target: &str) -> String {
    format!("{name}_{}", target.replace('-', "_"))
}

fn linker_variable(target: &str) -> String {
    format!("CARGO_TARGET_{}_LINKER", target.replace('-', "_").to_uppercase())
}

fn executable(messages: &[u8]) -> Option<PathBuf> {
    let artifacts = Message::parse_stream(messages).filter_map(|message| match message {
        Ok(Message::CompilerArtifact(artifact)) => artifact.executable,
        _ => None,
    });
    artifacts.last().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{Libc, Processor};

    fn rustc() -> Rustc {
        Rustc {
            release: "1.95.0".into(),
            host: "x86_64-unknown-linux-gnu".into(),
            commit: Some("5980".into()),
            sysroot: "/rust".into(),
        }
    }

    fn flags() -> Vec<String> {
        let rustc = rustc();
        let recipe = Recipe {
            root: Path::new("/home/me/my checkout"),
            target_directory: Path::new("/home/me/my checkout/target"),
            cargo_home: Path::new("/home/me/.cargo"),
            rustc: &rustc,
            platform: Platform {
                processor: Processor::Amd64,
                libc: Libc::Gnu,
            },
            program: ("pod-affinity", "pod-affinity"),
            linking: Linking::Static("cc"),
        };
        let flags = recipe.flags().into_string().unwrap();
        flags.split('\u{1f}').map(str::to_owned).collect()
    }

    #[test]
    fn the_c_library_is_linked_in() {
        assert_eq!(flags()[0], "-Ctarget-feature=+crt-static");
    }

    #[test]
    fn flags_remove_the_paths_of_this_machine_from_the_binary() {
        assert_eq!(
            flags()[1..],
            [
                "--remap-path-prefix=/home/me/.cargo=/cargo",
                "--remap-path-prefix=/rust/lib/rustlib/src/rust=/rustc/5980",
                "--remap-path-prefix=/home/me/my checkout/target=/target",
            ]
        );
    }

    #[test]
    fn cargo_and_the_cc_crate_get_the_linker_in_their_own_variables() {
        let target = "aarch64-unknown-linux-gnu";
        assert_eq!(variable("CC", target), "CC_aarch64_unknown_linux_gnu");
        assert_eq!(
            linker_variable(target),
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER"
        );
    }

    #[test]
    fn output_that_is_not_a_message_contains_no_executable() {
        assert_eq!(
            executable(b"{\"reason\":\"build-finished\",\"success\":true}\nhello\n"),
            None
        );
    }
}

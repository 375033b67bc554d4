//! Checks whether this machine can compile for a platform. The check runs rustc and the C compiler before the build, so that
//! the error is one sentence instead of linker output.

use crate::platform::Platform;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version of the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rustc {
    pub(crate) release: String,
    pub(crate) host: String,
    /// The commit of the compiler, which is missing in compilers that were built from a tarball.
    pub(crate) commit: Option<String>,
    pub(crate) sysroot: PathBuf,
}

/// This machine cannot build for the platform.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("rustc does not run ({0}): install Rust with rustup")]
    Rustc(std::io::Error),
    #[error("rustc's answer to -vV has no line '{0}': check whether it is a Rust compiler")]
    Answer(&'static str),
    #[error(
        "there is no standard library for {target} here: `rustup target add {target}` if rustup supports it, or leave --platform \
         and --libc as they are"
    )]
    Target { target: String },
    #[error(
        "no program on this machine compiles and links C for {target}: install one of {wanted}, or leave --platform and --libc as they are"
    )]
    Linker { target: String, wanted: String },
    #[error(
        "cargo-zigbuild does not run: install it with `pip install cargo-zigbuild ziglang`; it links the plugin for old releases of glibc"
    )]
    Zig,
}

/// Reads the version of rustc.
pub(crate) fn rustc() -> Result<Rustc, Error> {
    let sysroot = run_rustc(&["--print", "sysroot"])?;
    parse(&run_rustc(&["-vV"])?, Path::new(sysroot.trim()))
}

/// Checks that the standard library is installed, and returns the program that links.
pub(crate) fn linker(rustc: &Rustc, platform: Platform) -> Result<String, Error> {
    let target = platform.target();
    if !library(&rustc.sysroot, &target).is_dir() {
        return Err(Error::Target { target });
    }
    let compilers = platform.compilers(&rustc.host);
    let wanted = compilers.join(", ");
    let found = compilers.into_iter().find(|compiler| runs(compiler));
    found.ok_or(Error::Linker { target, wanted })
}

/// Checks that the standard library and cargo-zigbuild are installed.
pub(crate) fn zig(rustc: &Rustc, platform: Platform) -> Result<(), Error> {
    let target = platform.target();
    if !library(&rustc.sysroot, &target).is_dir() {
        return Err(Error::Target { target });
    }
    runs("cargo-zigbuild").then_some(()).ok_or(Error::Zig)
}

fn library(sysroot: &Path, target: &str) -> PathBuf {
    sysroot.join("lib/rustlib").join(target).join("lib")
}

fn run_rustc(arguments: &[&str]) -> Result<String, Error> {
    let output = Command::new("rustc")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::Rustc)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program can be started; its output is ignored.
fn runs(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| output.status.success())
}

fn parse(answer: &str, sysroot: &Path) -> Result<Rustc, Error> {
    let line = |key: &'static str| {
        let mut values = answer.lines().filter_map(|line| line.strip_prefix(key));
        values
            .next()
            .map(|value| value.trim().to_owned())
            .ok_or(Error::Answer(key))
    };
    Ok(Rustc {
        release: line("release:")?,
        host: line("host:")?,
        commit: line("commit-hash:").ok().filter(|hash| hash != "unknown"),
        sysroot: sysroot.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{Libc, Processor};

    const ANSWER: &str =
        "rustc 1.95.0\nbinary: rustc\ncommit-hash: 5980\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0\n";

    fn told(answer: &str) -> Result<Rustc, Error> {
        parse(answer, Path::new("/nowhere"))
    }

    #[test]
    fn the_version_of_rustc_is_parsed() {
        let rustc = told(ANSWER).unwrap();
        assert_eq!(
            (
                rustc.release.as_str(),
                rustc.host.as_str(),
                rustc.commit.as_deref()
            ),
            ("1.95.0", "x86_64-unknown-linux-gnu", Some("5980"))
        );
    }

    #[test]
    fn an_unknown_commit_is_none() {
        assert_eq!(told(&ANSWER.replace("5980", "unknown")).unwrap().commit, None);
    }

    #[test]
    fn output_without_a_host_is_an_error() {
        assert!(matches!(told("release: 1"), Err(Error::Answer("host:"))));
    }

    #[test]
    fn a_target_without_a_standard_library_is_refused_with_the_remedy() {
        let platform = Platform {
            processor: Processor::Arm64,
            libc: Libc::Musl,
        };
        let error = linker(&told(ANSWER).unwrap(), platform).unwrap_err().to_string();
        assert!(
            error.contains("rustup target add aarch64-unknown-linux-musl"),
            "{error}"
        );
    }

    #[test]
    fn a_target_without_a_linker_is_refused_with_what_to_install() {
        let sysroot = tempfile::tempdir().unwrap();
        let platform = Platform {
            processor: Processor::Arm64,
            libc: Libc::Musl,
        };
        std::fs::create_dir_all(library(sysroot.path(), &platform.target())).unwrap();
        let rustc = parse(ANSWER, sysroot.path()).unwrap();
        let error = linker(&rustc, platform).unwrap_err().to_string();
        assert!(error.contains("install one of aarch64-linux-musl-gcc"), "{error}");
    }
}

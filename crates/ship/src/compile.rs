//! Calls cargo to build a program, so that the same commit gives the same bytes in any folder.

use crate::source::{PRODUCT, Source};
use crate::tool::{output, printed};
use crate::values::Platform;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The oldest glibc of supported distributions, as in the images of manylinux2014.
const OLD_GLIBC: &str = "2.17";
const INSTALL_ZIG: &str = "install cargo-zigbuild and zig, see docs/releasing.md";
const INSTALL_RUST: &str = "install Rust with rustup";

/// A program of this workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// The program of the image, linked statically, because the image has no library.
    Image,
    /// The kubectl plugin for the machines of users. A static glibc cannot resolve host names without the files of its own version, so
    /// cargo-zigbuild links the plugin with the functions of an old glibc.
    Plugin,
}

impl Program {
    /// The package, and the file of its binary.
    pub(crate) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Image => (PRODUCT, PRODUCT),
            Self::Plugin => ("cli", "kubectl-pod_affinity"),
        }
    }
}

/// The compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rustc {
    pub(crate) release: String,
    pub(crate) host: String,
    commit: String,
    sysroot: PathBuf,
}

impl Rustc {
    /// Reads the version.
    pub(crate) fn read() -> Result<Self> {
        let rustc = |arguments: &[&str]| printed(Command::new("rustc").args(arguments), INSTALL_RUST);
        let version = rustc(&["-vV"])?;
        let line = |key: &str| {
            let value = version.lines().find_map(|line| line.strip_prefix(key));
            value
                .map(|value| value.trim().to_owned())
                .with_context(|| format!("`rustc -vV` prints no line {key}"))
        };
        Ok(Self {
            release: line("release:")?,
            host: line("host:")?,
            commit: line("commit-hash:")?,
            sysroot: rustc(&["--print", "sysroot"])?.trim().into(),
        })
    }

    /// The C compiler that links for a platform.
    fn linker(&self, platform: Platform) -> String {
        if self.host == platform.target {
            return "cc".to_owned();
        }
        format!("{}-gcc", platform.target.replace("-unknown", ""))
    }

    /// Checks before the build, which takes minutes, that a program can be linked.
    pub(crate) fn check(&self, program: Program, platform: Platform) -> Result<()> {
        match program {
            Program::Image => {
                let remedy = "install this C compiler, or build for another --platform";
                output(Command::new(self.linker(platform)).arg("--version"), remedy).map(drop)
            }
            Program::Plugin => {
                output(Command::new("cargo-zigbuild").arg("--version"), INSTALL_ZIG)?;
                find_zig()
            }
        }
    }
}

/// Looks for zig where cargo-zigbuild does.
fn find_zig() -> Result<()> {
    let python = std::env::var_os("CARGO_ZIGBUILD_PYTHON_PATH").unwrap_or_else(|| "python3".into());
    let zig = std::env::var_os("CARGO_ZIGBUILD_ZIG_PATH").unwrap_or_else(|| "zig".into());
    output(
        Command::new(python).args(["-m", "ziglang", "version"]),
        INSTALL_ZIG,
    )
    .or_else(|_| output(Command::new(zig).arg("version"), INSTALL_ZIG))
    .map(drop)
}

/// Builds the program, with cargo's progress on standard error, and returns its path.
pub(crate) fn compile(
    source: &Source,
    rustc: &Rustc,
    program: Program,
    platform: Platform,
) -> Result<PathBuf> {
    let (target, binary) = (platform.target, program.names().1);
    status!("building {binary} for {target}; without a cache, the build takes some minutes");
    let mut command = command(source, rustc, program, platform);
    let status = command.status().context(INSTALL_RUST)?;
    ensure!(
        status.success(),
        "cargo build of {binary} failed ({status}); see its messages above. If it says that Cargo.lock needs to be updated, run \
         `cargo check` and commit the change"
    );
    let folder = target_directory(source, program, platform);
    Ok(folder.join(target).join("release").join(binary))
}

/// cargo-zigbuild sets a linker for the platform. On this platform, cargo uses the linker for build scripts as well, and would compile
/// everything again after a build with another linker.
fn target_directory(source: &Source, program: Program, platform: Platform) -> PathBuf {
    match program {
        Program::Image => source.target_directory.clone(),
        Program::Plugin => source
            .target_directory
            .join(format!("plugin-{}", platform.processor)),
    }
}

fn command(source: &Source, rustc: &Rustc, program: Program, platform: Platform) -> Command {
    let (target, linker) = (platform.target, rustc.linker(platform));
    let mut command = Command::new(cargo());
    match program {
        Program::Image => command.args(["build", "--target", target]),
        Program::Plugin => command.args(["zigbuild", "--target", &format!("{target}.{OLD_GLIBC}")]),
    };
    if program == Program::Image && rustc.host != target {
        command.env(variable("CC", target), &linker).env(
            variable("CARGO_TARGET", target).to_uppercase() + "_LINKER",
            &linker,
        );
    }
    let (package, binary) = program.names();
    command
        .args(["--release", "--locked", "--package", package, "--bin", binary])
        .arg("--target-dir")
        .arg(target_directory(source, program, platform))
        .current_dir(&source.root)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(source, rustc, program))
        .stdin(Stdio::null())
        // Other programs read standard output.
        .stdout(std::io::stderr());
    command
}

/// Flags for rustc. The user's own flags are left out, because they would change the bytes.
fn flags(source: &Source, rustc: &Rustc, program: Program) -> OsString {
    let mut flags = OsString::from(match program {
        Program::Image => "-Ctarget-feature=+crt-static",
        Program::Plugin => "-Ctarget-feature=-crt-static",
    });
    // Panic messages contain paths of source files. Paths of this workspace are relative, so its folder is not remapped:
    // cargo recompiles everything when flags change, and checkouts in different folders could not share a target folder.
    let standard_library = rustc.sysroot.join("lib/rustlib/src/rust");
    for (from, to) in [
        (cargo_home().as_path(), "/cargo"),
        (&standard_library, &format!("/rustc/{}", rustc.commit)),
        (&source.target_directory, "/target"),
    ] {
        flags.push("\u{1f}--remap-path-prefix=");
        flags.push(from);
        flags.push("=");
        flags.push(to);
    }
    flags
}

/// The folder of cargo's registry.
fn cargo_home() -> PathBuf {
    let default = || std::env::home_dir().unwrap_or_default().join(".cargo");
    std::env::var_os("CARGO_HOME").map_or_else(default, PathBuf::from)
}

/// The cargo that called this program, so that a toolchain chosen on the command line is used.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn variable(name: &str, target: &str) -> String {
    format!("{name}_{}", target.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::source;
    use crate::values::platform;

    fn rustc() -> Rustc {
        Rustc {
            release: "1.95.0".into(),
            host: "x86_64-unknown-linux-gnu".into(),
            commit: "5980".into(),
            sysroot: "/rust".into(),
        }
    }

    #[test]
    fn the_image_is_linked_statically_without_paths_of_this_machine() {
        let flags = flags(&source(None), &rustc(), Program::Image)
            .into_string()
            .unwrap();
        let flags: Vec<_> = flags.split('\u{1f}').collect();
        let home = format!("--remap-path-prefix={}=/cargo", cargo_home().display());
        let remapped = [
            "--remap-path-prefix=/rust/lib/rustlib/src/rust=/rustc/5980",
            "--remap-path-prefix=/checkout/target=/target",
        ];
        assert_eq!(
            flags,
            [&["-Ctarget-feature=+crt-static", &home][..], &remapped].concat()
        );
    }

    /// The variables of a build that choose a linker.
    fn linkers(program: Program, name: &str) -> Vec<String> {
        let command = command(&source(None), &rustc(), program, platform(name).unwrap());
        let variables = command
            .get_envs()
            .filter_map(|(key, value)| Some((key.to_str()?, value?.to_str()?)));
        let linkers = variables.filter(|(key, _)| key.starts_with("CC_") || key.starts_with("CARGO_TARGET_"));
        linkers.map(|(key, value)| format!("{key}={value}")).collect()
    }

    #[test]
    fn cargo_and_the_cc_crate_get_the_linker_of_another_platform_in_their_own_variables() {
        let expected = [
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc",
            "CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc",
        ];
        assert_eq!(linkers(Program::Image, "linux/arm64"), expected);
    }

    #[test]
    fn no_build_sets_the_linker_of_build_scripts_because_cargo_would_compile_everything_again() {
        assert_eq!(linkers(Program::Image, "linux/amd64"), [""; 0]);
        let folder = |name| target_directory(&source(None), Program::Plugin, platform(name).unwrap());
        assert_ne!(folder("linux/amd64"), folder("linux/arm64"));
    }

    #[test]
    fn only_the_platform_of_this_machine_is_linked_by_its_own_compiler() {
        assert_eq!(rustc().linker(platform("linux/amd64").unwrap()), "cc");
        assert_eq!(
            rustc().linker(platform("linux/arm64").unwrap()),
            "aarch64-linux-gnu-gcc"
        );
    }
}

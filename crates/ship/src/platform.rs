//! The platforms of an image, and their names in rustc, OCI and C compilers. [`crate::toolchain`] checks whether this
//! machine can build for a platform.

use clap::ValueEnum;
use std::fmt;
use std::str::FromStr;

/// A processor; the operating system is always Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processor {
    Amd64,
    Arm64,
}

/// The C library that is linked statically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Libc {
    /// glibc, which is part of a default Rust installation.
    Gnu,
    /// musl, which needs the Rust target and a musl C compiler.
    Musl,
}

/// The platform of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    pub(crate) processor: Processor,
    pub(crate) libc: Libc,
}

impl Processor {
    /// The name in OCI, and in `--platform` after the slash.
    pub(crate) fn oci(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The name in rustc and GNU tools.
    pub(crate) fn gnu(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }
}

impl Platform {
    /// The Rust target.
    pub(crate) fn target(self) -> String {
        format!("{}-unknown-linux-{}", self.processor.gnu(), self.libc)
    }

    /// Programs that compile and link C for this platform, the preferred one first.
    pub(crate) fn compilers(self, host: &str) -> Vec<String> {
        let prefixed = format!("{}-linux-{}-gcc", self.processor.gnu(), self.libc);
        let own_processor = host.starts_with(self.processor.gnu());
        match self.libc {
            Libc::Gnu if own_processor => vec!["cc".to_owned()],
            Libc::Musl if own_processor => vec![prefixed, "musl-gcc".to_owned()],
            Libc::Gnu | Libc::Musl => vec![prefixed],
        }
    }
}

impl fmt::Display for Libc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gnu => "gnu",
            Self::Musl => "musl",
        })
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linux/{}", self.oci())
    }
}

impl FromStr for Processor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "linux/amd64" => Ok(Self::Amd64),
            "linux/arm64" => Ok(Self::Arm64),
            _ => Err(format!(
                "'{text}' is not a supported platform: use linux/amd64 or linux/arm64, one at a time"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "x86_64-unknown-linux-gnu";

    fn platform(processor: Processor, libc: Libc) -> Platform {
        Platform { processor, libc }
    }

    #[test]
    fn a_platform_is_displayed_as_it_is_parsed() {
        for text in ["linux/amd64", "linux/arm64"] {
            assert_eq!(text.parse::<Processor>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_unsupported_platform_is_an_error_with_the_supported_ones() {
        let error = "windows/amd64".parse::<Processor>().unwrap_err();
        assert!(
            error.contains("'windows/amd64'") && error.contains("linux/arm64"),
            "{error}"
        );
    }

    #[test]
    fn targets_are_named_as_rustc_names_them() {
        assert_eq!(platform(Processor::Amd64, Libc::Gnu).target(), HOST);
        assert_eq!(
            platform(Processor::Arm64, Libc::Musl).target(),
            "aarch64-unknown-linux-musl"
        );
    }

    #[test]
    fn only_the_hosts_own_platform_is_linked_by_its_own_compiler() {
        assert_eq!(platform(Processor::Amd64, Libc::Gnu).compilers(HOST), ["cc"]);
        assert_eq!(
            platform(Processor::Arm64, Libc::Gnu).compilers(HOST),
            ["aarch64-linux-gnu-gcc"]
        );
        assert_eq!(
            platform(Processor::Amd64, Libc::Musl).compilers(HOST),
            ["x86_64-linux-musl-gcc", "musl-gcc"]
        );
    }
}

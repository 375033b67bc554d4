//! Values of the command line.

use cargo_metadata::semver;
use std::fmt;
use std::path::PathBuf;

/// A platform of an image or of the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    pub(crate) system: &'static str,
    /// The name of the processor in OCI.
    pub(crate) processor: &'static str,
    /// The Rust target.
    pub(crate) target: &'static str,
}

const fn platform_of(system: &'static str, processor: &'static str, target: &'static str) -> Platform {
    Platform {
        system,
        processor,
        target,
    }
}

const LINUX: [Platform; 2] = [
    platform_of("linux", "amd64", "x86_64-unknown-linux-gnu"),
    platform_of("linux", "arm64", "aarch64-unknown-linux-gnu"),
];
const DARWIN: [Platform; 2] = [
    platform_of("darwin", "amd64", "x86_64-apple-darwin"),
    platform_of("darwin", "arm64", "aarch64-apple-darwin"),
];

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.system, self.processor)
    }
}

/// Parses `linux/arm64`.
pub(crate) fn platform(text: &str) -> Result<Platform, String> {
    let found = LINUX.into_iter().find(|platform| platform.to_string() == text);
    found.ok_or_else(|| format!("'{text}' is not a supported platform: use linux/amd64 or linux/arm64"))
}

/// A compiled kubectl plugin for macOS.
pub(crate) type DarwinPlugin = (Platform, PathBuf);

/// Parses `darwin/arm64=FILE`.
pub(crate) fn darwin_plugin(text: &str) -> Result<DarwinPlugin, String> {
    let parsed = text.split_once('=').and_then(|(name, path)| {
        let found = DARWIN.into_iter().find(|platform| platform.to_string() == name);
        Some((found?, path.into()))
    });
    parsed.ok_or_else(|| format!("'{text}' is not a plugin for macOS: write it as darwin/arm64=FILE"))
}

/// A version such as `v1.2.3` or `v1.2.3-rc.1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version(String);

impl Version {
    /// Parses a version. Build metadata is not allowed, because a tag and a label cannot contain a plus sign.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let plain = text.strip_prefix('v').unwrap_or_default();
        match semver::Version::parse(plain) {
            Ok(version) if version.build.is_empty() && text.len() <= 63 && !text.ends_with('-') => {
                Ok(Self(text.to_owned()))
            }
            _ => Err(format!(
                "'{text}' is not a valid version: write it as v1.2.3 or v1.2.3-rc.1"
            )),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The version without the letter, as in Cargo.
    pub(crate) fn plain(&self) -> &str {
        self.0.trim_start_matches('v')
    }
}

/// A person with a mail address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) mail: String,
}

/// Parses `Ann <ann@example.com>`.
pub(crate) fn person(text: &str) -> Result<Person, String> {
    match text.strip_suffix('>').and_then(|text| text.split_once(" <")) {
        Some((name, mail)) if mail.contains('@') => Ok(Person {
            name: name.to_owned(),
            mail: mail.to_owned(),
        }),
        _ => Err(format!(
            "'{text}' is not a person: write it as Ann <ann@example.com>"
        )),
    }
}

/// Parses the address of a page or a mailbox.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let known = ["https://", "http://", "mailto:"];
    let is_known = known
        .iter()
        .any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
    if is_known && !text.contains(|c: char| c.is_whitespace() || c == '"') {
        return Ok(text.trim_end_matches('/').to_owned());
    }
    Err(format!(
        "'{text}' is not an address: write it as https://example.com/path"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_for_linux() {
        assert_eq!(
            platform("linux/arm64").unwrap().target,
            "aarch64-unknown-linux-gnu"
        );
        for bad in ["windows/amd64", "darwin/arm64", "linux", ""] {
            assert!(platform(bad).unwrap_err().contains("use linux/amd64"), "{bad}");
        }
    }

    #[test]
    fn a_plugin_has_a_platform_of_macos_and_a_file() {
        let (platform, path) = darwin_plugin("darwin/arm64=target/x=y").unwrap();
        assert_eq!(platform.to_string(), "darwin/arm64");
        assert_eq!(path, PathBuf::from("target/x=y"));
        for bad in ["darwin/arm64", "linux/arm64=x", "darwin/riscv64=x", "x"] {
            assert!(
                darwin_plugin(bad).unwrap_err().contains("darwin/arm64=FILE"),
                "{bad}"
            );
        }
    }

    #[test]
    fn versions_are_written_as_releases_are() {
        for good in ["v0.1.0", "v1.2.3", "v10.0.0-rc.1"] {
            assert_eq!(Version::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "1.2.3",
            "v1.2",
            "v1.2.3.4",
            "v1.2.x",
            "v01.2.3",
            "v1.2.3-",
            "v1.2.3+x",
            "v1.2.3-a_",
            "",
        ] {
            assert!(Version::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Version::parse("v1.2.3-rc.1").unwrap().plain(), "1.2.3-rc.1");
    }

    #[test]
    fn a_person_has_a_name_and_a_mail_address() {
        let ann = person("Ann Example <ann@example.com>").unwrap();
        assert_eq!(
            (ann.name.as_str(), ann.mail.as_str()),
            ("Ann Example", "ann@example.com")
        );
        for bad in ["Ann", "ann@example.com", "Ann <ann>", "<ann@example.com>"] {
            assert!(person(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_address_has_a_scheme() {
        assert_eq!(
            address("https://example.com/x/").as_deref(),
            Ok("https://example.com/x")
        );
        assert_eq!(
            address("mailto:a@example.com").as_deref(),
            Ok("mailto:a@example.com")
        );
        for bad in ["example.com", "https://", "https://a b", "ftp://x"] {
            assert!(address(bad).unwrap_err().contains("https://example.com"), "{bad}");
        }
    }
}

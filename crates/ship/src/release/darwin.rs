//! The kubectl plugin for macOS on the command line. A machine with macOS compiled the plugin.

use crate::platform::Processor;
use std::fmt;
use std::path::PathBuf;

/// A compiled plugin for macOS.
#[derive(Clone, Debug)]
pub(crate) struct DarwinPlugin {
    pub(super) processor: Processor,
    pub(super) path: PathBuf,
}

impl DarwinPlugin {
    /// Parses `darwin/arm64=FILE`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let platforms = [Processor::Amd64, Processor::Arm64];
        let parsed = text.split_once('=').and_then(|(platform, path)| {
            let is_named = |processor: &Processor| platform.strip_prefix("darwin/") == Some(processor.oci());
            let processor = platforms.into_iter().find(is_named)?;
            let path = PathBuf::from(path);
            Some(Self { processor, path })
        });
        parsed.ok_or_else(|| format!("'{text}' is not a plugin for macOS: write it as darwin/arm64=FILE"))
    }
}

impl fmt::Display for DarwinPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "darwin/{}", self.processor.oci())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_has_a_platform_of_macos_and_a_file() {
        let plugin = DarwinPlugin::parse("darwin/arm64=target/x=y").unwrap();
        assert_eq!(plugin.to_string(), "darwin/arm64");
        assert_eq!(plugin.path, PathBuf::from("target/x=y"));
        for bad in ["darwin/arm64", "linux/arm64=x", "darwin/riscv64=x", "x"] {
            let error = DarwinPlugin::parse(bad).unwrap_err();
            assert!(error.contains("darwin/arm64=FILE"), "{error}");
        }
    }
}

//! The version of a release.

/// A version such as `v1.2.3` or `v1.2.3-rc.1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version(String);

impl Version {
    /// Parses a version of the command line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (numbers, suffix) = text
            .split_once('-')
            .map_or((text, None), |(numbers, suffix)| (numbers, Some(suffix)));
        let numbers: Vec<&str> = numbers.strip_prefix('v').unwrap_or_default().split('.').collect();
        let is_number = |part: &&str| {
            part.parse::<u32>()
                .is_ok_and(|number| number.to_string() == **part)
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
        // The value of a label must end with a letter or digit.
        let good_end = |suffix: &str| {
            suffix.ends_with(|c: char| c.is_ascii_alphanumeric()) && suffix.chars().all(allowed)
        };
        if numbers.len() == 3
            && numbers.iter().all(is_number)
            && suffix.is_none_or(good_end)
            && text.len() <= 63
        {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "'{text}' is not a valid version: write it as v1.2.3 or v1.2.3-rc.1"
            ))
        }
    }

    /// The version in Cargo.toml, which has no leading `v`.
    pub(crate) fn of_source(version: &str) -> Self {
        Self(format!("v{version}"))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The version without the letter, as in Cargo.
    pub(crate) fn plain(&self) -> &str {
        self.0.trim_start_matches('v')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn cargo_writes_the_version_without_its_letter() {
        assert_eq!(Version::parse("v1.2.3-rc.1").unwrap().plain(), "1.2.3-rc.1");
    }
}

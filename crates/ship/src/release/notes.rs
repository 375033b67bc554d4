//! The release notes, from the changelog.

use super::Version;

/// The section of the version in the changelog, or the section of unreleased changes.
pub(super) fn notes(changelog: &str, version: &Version) -> String {
    let titles = [version.as_str(), version.plain(), "Unreleased"];
    let sections = titles.iter().filter_map(|title| section(changelog, title));
    let changes = sections.map(str::trim).find(|section| !section.is_empty());
    format!("# {}\n\n{}\n", version.as_str(), changes.unwrap_or("No changes."))
}

fn section<'a>(changelog: &'a str, title: &str) -> Option<&'a str> {
    let mut sections = changelog.split("\n## ").skip(1);
    sections.find_map(|section| {
        let (head, text) = section.split_once('\n')?;
        // A date may follow the version.
        (head.split_whitespace().next() == Some(title)).then_some(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\n## Unreleased\n\n- new\n\n## v1.0.0 (2026-01-01)\n\n- old\n";

    fn of(version: &str) -> String {
        notes(CHANGELOG, &Version::parse(version).unwrap())
    }

    #[test]
    fn notes_are_the_section_of_the_version() {
        assert_eq!(of("v1.0.0"), "# v1.0.0\n\n- old\n");
    }

    #[test]
    fn a_version_without_a_section_has_the_unreleased_changes() {
        assert_eq!(of("v1.1.0"), "# v1.1.0\n\n- new\n");
    }
}

//! The links between the pages: each names a file of the repository, and a heading of the page.

use crate::support::kubectl::workspace;
use crate::support::pages::pages;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The lines of a page without blocks of code.
fn prose(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.map(str::to_owned).collect()
}

/// The anchors of a page, as forges derive them from headings.
fn anchors(page: &Path) -> BTreeSet<String> {
    let headings = prose(page).into_iter().filter(|line| line.starts_with('#'));
    let anchors = headings.map(|heading| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter));
        kept.collect::<String>().replace(' ', "-")
    });
    anchors.collect()
}

/// The targets of the links on a page, except other sites.
fn targets(page: &Path) -> Vec<String> {
    let text = prose(page).join("\n");
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let targets = targets.filter(|target| !target.contains(':') && !target.contains(' '));
    targets.map(str::to_owned).collect()
}

#[e2e_test]
fn every_link_of_every_page_names_a_file_and_a_heading() {
    let mut checked = 0;
    let mut broken = Vec::new();
    for page in pages() {
        let page = workspace().join(page);
        for target in targets(&page) {
            checked += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(file)
            };
            if !file.exists() || !(anchor.is_empty() || anchors(&file).contains(anchor)) {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert_eq!(broken, [""; 0]);
    assert!(checked > 200, "{checked}");
}

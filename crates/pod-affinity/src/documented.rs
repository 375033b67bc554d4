//! The flags, the keys of the ConfigMap, its events, and the labels and annotations, compared with docs/reference.md. Reads files only.

use crate::args::Args;
use clap::{Arg, CommandFactory};
use placement::config::Config;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The cells of every table in a section of docs/reference.md.
fn rows(section: &str) -> Vec<Vec<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, text) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let text = text.split("\n## ").next().unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix('|'));
    rows.map(|row| row.split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// The words in backquotes in the first column of the tables in a section.
fn named(section: &str) -> BTreeSet<String> {
    let cells = rows(section).into_iter().map(|row| row[0].clone());
    cells
        .flat_map(|cell| {
            let words = cell.split('`').skip(1).step_by(2).map(str::to_owned);
            words.collect::<Vec<_>>()
        })
        .collect()
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// All flags except hidden flags and the flags that clap adds.
fn flags() -> BTreeMap<String, Arg> {
    let command = Args::command();
    let subcommands = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let all = command.get_arguments().chain(subcommands);
    all.filter(|arg| !arg.is_hide_set())
        .filter_map(|arg| Some((arg.get_long()?.to_owned(), arg.clone())))
        .collect()
}

#[test]
fn the_reference_lists_each_flag_with_its_variable_and_its_default() {
    let rows = rows("Flags of the processes");
    let flags = flags();
    for (name, arg) in &flags {
        let flag = code(&format!("--{name}"));
        let row = rows.iter().find(|row| row[0] == flag);
        let row = row.unwrap_or_else(|| panic!("docs/reference.md has no row for {flag}"));
        assert_eq!(row[1], code(arg.get_env().unwrap().to_str().unwrap()), "{flag}");
        for default in arg.get_default_values() {
            assert_eq!(row[2], code(default.to_str().unwrap()), "{flag}");
        }
    }
    let documented = named("Flags of the processes");
    let flags = flags.into_keys().map(|flag| format!("--{flag}"));
    assert_eq!(documented, flags.collect());
}

#[test]
fn the_reference_lists_each_key_of_the_config_map_with_its_default() {
    let rows = rows("Configuration");
    let defaults = crate::manifests::example();
    assert_eq!(defaults.len(), Config::KEYS.len());
    for (key, default) in &defaults {
        let row = rows.iter().find(|row| row[0].contains(&code(key)));
        let row = row.unwrap_or_else(|| panic!("docs/reference.md has no row for {key}"));
        let wanted = if default.is_empty() {
            "empty".to_owned()
        } else {
            code(default)
        };
        assert!(row[1].contains(&wanted), "{key}: {default:?} in {row:?}");
    }
    let keys = defaults.into_keys();
    assert_eq!(named("Configuration"), keys.collect());
}

#[test]
fn the_reference_lists_each_label_and_annotation_of_pod_affinity() {
    let keys = include_str!("../../placement/src/keys.rs");
    let prefixed = keys.lines().filter_map(|line| {
        let (_, key) = line.split_once(&format!("\"{}", placement::keys::OWN_PREFIX))?;
        key.strip_suffix("\";").filter(|key| !key.is_empty())
    });
    let keys = prefixed.chain([placement::keys::OPT_IN]).map(str::to_owned);
    assert_eq!(named("Labels and annotations"), keys.collect());
}

#[test]
fn the_reference_lists_the_events_of_the_config_map() {
    let code = include_str!("config_events.rs");
    let listed = named("Events")
        .into_iter()
        .filter(|reason| reason.starts_with("Configuration"));
    let in_code = code.split('"').filter(|word| {
        word.starts_with("Configuration") && word.chars().all(|letter| letter.is_ascii_alphabetic())
    });
    assert_eq!(
        listed.collect::<BTreeSet<_>>(),
        in_code.map(str::to_owned).collect()
    );
}

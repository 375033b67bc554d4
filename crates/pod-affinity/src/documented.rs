//! The flags, the keys of the ConfigMap, and the labels and annotations, compared with the pages that describe them. Reads files only.

use crate::args::Args;
use clap::{Arg, CommandFactory};
use placement::config::Config;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn page(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::read_to_string(docs.join(name)).unwrap()
}

/// The cells of every table of a page.
fn rows(page: &str) -> Vec<Vec<String>> {
    let rows = page.lines().filter_map(|line| line.strip_prefix('|'));
    rows.map(|row| row.split('|').map(|cell| cell.trim().to_owned()).collect())
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
fn the_install_page_lists_each_flag_with_its_variable_and_its_default() {
    let rows = rows(&page("install.md"));
    let flags = flags();
    for (name, arg) in &flags {
        let flag = code(&format!("--{name}"));
        let row = rows.iter().find(|row| row[0] == flag);
        let row = row.unwrap_or_else(|| panic!("docs/install.md has no row for {flag}"));
        assert_eq!(row[1], code(arg.get_env().unwrap().to_str().unwrap()), "{flag}");
        for default in arg.get_default_values() {
            assert_eq!(row[3], code(default.to_str().unwrap()), "{flag}");
        }
    }
    let documented = rows.iter().filter_map(|row| row[0].strip_prefix("`--"));
    let documented: BTreeSet<_> = documented
        .map(|flag| flag.trim_end_matches('`').to_owned())
        .collect();
    assert_eq!(documented, flags.into_keys().collect());
}

#[test]
fn the_configuration_page_lists_each_key_of_the_config_map_with_its_default() {
    let rows = rows(&page("configuration.md"));
    let defaults = crate::manifests::example();
    assert_eq!(defaults.len(), Config::KEYS.len());
    for (key, default) in defaults {
        let row = rows.iter().find(|row| row[0].contains(&code(&key)));
        let row = row.unwrap_or_else(|| panic!("docs/configuration.md has no row for {key}"));
        let wanted = if default.is_empty() {
            "empty".to_owned()
        } else {
            code(&default)
        };
        assert!(row[1].contains(&wanted), "{key}: {default:?} in {row:?}");
    }
}

#[test]
fn the_stability_page_lists_each_label_and_annotation_of_pod_affinity() {
    let keys = include_str!("../../placement/src/keys.rs");
    let prefixed = keys.lines().filter_map(|line| {
        let (_, key) = line.split_once(&format!("\"{}", placement::keys::OWN_PREFIX))?;
        key.strip_suffix("\";").filter(|key| !key.is_empty())
    });
    let prefixed: Vec<_> = prefixed.collect();
    assert!(prefixed.len() > 10, "{prefixed:?}");
    let rows = rows(&page("stability.md")).concat().concat();
    for key in prefixed {
        let whole = format!("{}{key}", placement::keys::OWN_PREFIX);
        assert!(rows.contains(&code(key)) || rows.contains(&code(&whole)), "{key}");
    }
}

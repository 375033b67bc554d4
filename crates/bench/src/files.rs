//! The files of docs/benchmarks: the JSON file, and the pages and the charts that are made from the JSON file.

use crate::chart;
use crate::machine::Session;
use crate::page;
use crate::part::BenchPart;
use crate::parts::PARTS;
use crate::results::{FILE, Results};
use crate::scenario::Scenario;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// With `--quick`, two parts are measured at the same time. Each reads, changes and writes the same files.
static WRITING: Mutex<()> = Mutex::new(());

/// Adds the results of a part to the files in a folder, or replaces the results of the part. Returns the part's page.
pub(crate) fn record(
    folder: &Path,
    part: &BenchPart,
    session: Session,
    scenarios: Vec<Scenario>,
    add: bool,
) -> Result<String> {
    let _lock = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut results = Results::read(folder)?;
    let page = page::page(part, results.record(part, session, scenarios, add));
    write(folder, &results)?;
    Ok(page)
}

/// Writes all files.
pub(crate) fn write(folder: &Path, results: &Results) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    for (name, text) in texts(results)? {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// The text of each file, by its name.
fn texts(results: &Results) -> Result<BTreeMap<String, String>> {
    let charts = PARTS.iter().filter_map(|part| {
        let chart = chart::bars(part.title, &results.part(part)?.scenarios, part.chart?);
        Some((format!("{}.svg", part.name), chart))
    });
    let pages = PARTS
        .iter()
        .filter_map(|part| Some((format!("{}.md", part.name), page::page(part, results.part(part)?))));
    let others = [
        ("README.md".to_owned(), page::introduction(&PARTS, results)),
        ("improvements.md".to_owned(), page::improvements(results)),
        (FILE.to_owned(), results.json()?),
    ];
    Ok(charts.chain(pages).chain(others).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::RESULTS;
    use crate::results::Measured;
    use crate::template::MISSING;
    use crate::variants;
    use e2e::workspace;

    #[test]
    fn pages_and_charts_of_the_repository_are_made_from_its_json_file() {
        let folder = workspace().join(RESULTS);
        let texts = texts(&Results::read(&folder).unwrap()).unwrap();
        for (name, text) in &texts {
            let found = fs::read_to_string(folder.join(name)).unwrap();
            assert!(found == *text, "{name} differs: run `cargo bench-all --render`");
            let missing = text.lines().find(|line| line.contains(MISSING));
            assert_eq!(missing, None, "{name}");
        }
        let files = fs::read_dir(&folder)
            .unwrap()
            .map(|file| file.unwrap().file_name());
        let mut others: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
        others.retain(|name| !texts.contains_key(name));
        assert!(others.is_empty(), "{others:?}");
    }

    #[test]
    fn the_results_of_the_repository_have_each_figure_of_the_page_and_a_colour_for_each_variant() {
        let results = Results::read(&workspace().join(RESULTS)).unwrap();
        for part in PARTS {
            // A new part has no page until the part is measured.
            let Some(Measured { scenarios, .. }) = results.part(&part) else {
                continue;
            };
            let variants = scenarios.iter().flat_map(Scenario::variants);
            let without: Vec<_> = variants
                .filter(|variant| variants::style(variant).is_none())
                .collect();
            assert!(without.is_empty(), "no colour: {without:?}");
            for figure in part.figures.iter().chain(&part.chart) {
                let has = |scenario: &Scenario| {
                    let mut variants = scenario.variants().into_iter();
                    variants.any(|variant| scenario.spread(variant, figure).is_some())
                };
                assert!(
                    scenarios.iter().any(has),
                    "{} has no figure {figure:?}",
                    part.name
                );
            }
        }
    }
}

//! What a part found, as a page, as JSON and as a plot.

use crate::aim::{self, Aim, verdict};
use crate::machine::Machine;
use crate::plot;
use crate::scenario::{Ratio, Scenario};
use crate::stats::Spread;
use anyhow::{Context, Result};
use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The overview is of all parts.
static WRITING: Mutex<()> = Mutex::new(());

/// Everything that a part found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) part: &'static str,
    pub(crate) title: &'static str,
    /// How it was measured, in sentences.
    pub(crate) method: &'static str,
    pub(crate) aims: Vec<Aim>,
    pub(crate) scenarios: Vec<Scenario>,
    /// The figure of the plot.
    pub(crate) plotted: &'static str,
    /// Where another choice is faster.
    pub(crate) faster: Vec<String>,
    pub(crate) notes: Vec<String>,
}

/// When and where rounds were measured one after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sitting {
    at: String,
    machine: Machine,
}

/// What earlier sittings left of a part.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Before {
    scenarios: Vec<Scenario>,
    #[serde(flatten)]
    last: Option<Sitting>,
    #[serde(default)]
    earlier: Vec<Sitting>,
}

/// A report with where, when and how it came to be.
#[derive(Debug, Serialize)]
struct Taken<'a> {
    quick: bool,
    #[serde(flatten)]
    sitting: Sitting,
    /// Those whose rounds it has beside those of the last one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<Sitting>,
    #[serde(flatten)]
    report: &'a Report,
}

impl Sitting {
    pub(crate) fn now(machine: &Machine) -> Result<Self> {
        let at = Timestamp::now().round(Unit::Minute)?;
        Ok(Self {
            at: at.strftime("%Y-%m-%d %H:%M UTC").to_string(),
            machine: machine.clone(),
        })
    }

    fn words(&self) -> String {
        format!("{}. {}", self.at, self.machine.words())
    }
}

impl Before {
    /// None is there yet: nothing to join.
    pub(crate) fn read(folder: &Path, part: &str) -> Result<Self> {
        let taken = taken(folder, part)?.map(serde_json::from_value).transpose();
        let taken =
            taken.with_context(|| format!("{part}.json in {} is no measurement", folder.display()))?;
        Ok(taken.unwrap_or_default())
    }

    /// Its scenarios with these rounds after their own; those that were not measured again stay as they are.
    /// With the sittings that gave what is left of it.
    pub(crate) fn and(self, measured: Vec<Scenario>) -> (Vec<Scenario>, Vec<Sitting>) {
        let mut all = self.scenarios;
        let mut left = all.len();
        for scenario in measured {
            match all.iter_mut().find(|known| known.title == scenario.title) {
                Some(known) => left -= usize::from(!known.join(scenario)),
                None => all.push(scenario),
            }
        }
        let sittings = self.earlier.into_iter().chain(self.last);
        (all, sittings.filter(|_| left > 0).collect())
    }
}

impl Report {
    /// Writes the three files and the overview of all parts that lie there.
    pub(crate) fn write(
        &self,
        folder: &Path,
        sitting: Sitting,
        earlier: Vec<Sitting>,
        quick: bool,
    ) -> Result<()> {
        let taken = Taken {
            quick,
            sitting,
            earlier,
            report: self,
        };
        let scenarios: Vec<_> = self.scenarios.iter().collect();
        let svg = plot::bars(
            &format!("{}: {}", self.title, self.plotted),
            &scenarios,
            self.plotted,
        );
        let _turn = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        save(
            folder,
            &format!("{}.json", self.part),
            &(serde_json::to_string_pretty(&taken)? + "\n"),
        )?;
        save(folder, &format!("{}.svg", self.part), &svg)?;
        save(folder, &format!("{}.md", self.part), &taken.page())?;
        save(folder, "README.md", &overview(folder)?)
    }

    /// Aims and tables.
    pub(crate) fn figures(&self) -> String {
        let mut text = aim::table(&self.aims);
        for scenario in &self.scenarios {
            let _ = write!(text, "## {}\n\n{}\n", scenario.title, table(scenario));
        }
        text
    }
}

impl Taken<'_> {
    fn page(&self) -> String {
        let Self {
            quick,
            sitting,
            earlier,
            report,
        } = self;
        let Report {
            part,
            title,
            method,
            faster,
            notes,
            plotted,
            ..
        } = report;
        let quick = if *quick {
            " **Quick version: the figures say little.**"
        } else {
            ""
        };
        let mut page = format!("# {title}\n\n{method}\n\nTaken {}{quick}\n\n", sitting.words());
        for sitting in earlier {
            let _ = write!(page, "Earlier rounds were taken {}\n\n", sitting.words());
        }
        let _ = write!(page, "{}![{title}: {plotted}]({part}.svg)\n\n", report.figures());
        page += &list("Where another choice is faster", faster);
        page += &list("Notes", notes);
        page + "The JSON file of the same name has the values of every round.\n"
    }
}

fn list(title: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let items: String = items.iter().map(|item| format!("- {item}\n")).collect();
    format!("## {title}\n\n{items}\n")
}

/// One column a variant; ratios first, then the figures themselves.
fn table(scenario: &Scenario) -> String {
    let variants = &scenario.variants;
    let head = format!(
        "| | {} |\n|{}\n",
        variants.join(" | "),
        " --- |".repeat(variants.len() + 1)
    );
    let ratios = scenario.ratios.iter().map(|Ratio { figure, to }| {
        row(&format!("**{figure}, to {to}**"), variants, |variant| {
            ratio_cell(scenario, variant, to, figure)
        })
    });
    let figures = scenario.figures.iter();
    let figures =
        figures.map(|figure| row(figure, variants, |variant| cell(scenario.spread(variant, figure))));
    head + &ratios.chain(figures).collect::<String>()
}

fn row(name: &str, variants: &[String], cell_of: impl Fn(&str) -> String) -> String {
    let cells: Vec<_> = variants.iter().map(|variant| cell_of(variant)).collect();
    format!("| {name} | {} |\n", cells.join(" | "))
}

/// Marked where some rounds are on one side of the compared variant, and some on the other.
fn ratio_cell(scenario: &Scenario, variant: &str, to: &str, figure: &str) -> String {
    let ratio = scenario.ratio(variant, to, figure);
    let is_noise = |ratio: Spread| variant != to && ratio.rounds > 1 && ratio.spans(1.0);
    let mark = if ratio.is_some_and(is_noise) { " ≈" } else { "" };
    cell(ratio) + mark
}

fn cell(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| spread.to_string())
}

fn save(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

/// The first page: how to measure, and the aims of every part that was.
fn overview(folder: &Path) -> Result<String> {
    let mut text = include_str!("overview.md").to_owned();
    for part in crate::PARTS {
        if let Some(taken) = taken(folder, part.name)? {
            text += &chapter(part.name, &taken);
        }
    }
    Ok(text)
}

/// What an earlier call found.
pub(crate) fn taken(folder: &Path, part: &str) -> Result<Option<Value>> {
    let path = folder.join(format!("{part}.json"));
    match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)
            .with_context(|| format!("reading {}", path.display()))
            .map(Some),
        Err(_) => Ok(None),
    }
}

fn chapter(part: &str, taken: &Value) -> String {
    let words = |key: &str| taken[key].as_str().unwrap_or_default().to_owned();
    let commit = taken["machine"]["commit"].as_str().unwrap_or_default();
    let mut text = format!(
        "\n## [{}]({part}.md)\n\nTaken {}, commit {commit}.\n\n",
        words("title"),
        words("at")
    );
    for aim in taken["aims"].as_array().into_iter().flatten() {
        let number = |value: &Value| crate::stats::short(value.as_f64().unwrap_or_default());
        let mark = verdict(aim["reached"] == true, aim["within_noise"] == true);
        let (what, measured) = (aim["what"].as_str().unwrap_or_default(), &aim["measured"]);
        let (middle, low, high) = (
            number(&measured["median"]),
            number(&measured["low"]),
            number(&measured["high"]),
        );
        let _ = writeln!(
            text,
            "- {what}: {middle} ({low} to {high}), aim {}: {mark}",
            aim["at_most"]
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_come_before_figures_and_what_was_not_measured_is_a_dash() {
        let mut scenario = Scenario::new("s", &[("time", "base")]);
        scenario.add("base", vec![("time", 2.0)]).unwrap();
        scenario.add("ours", vec![("time", 3.0), ("nodes", 1.0)]).unwrap();
        let expected = "| | base | ours |\n| --- | --- | --- |\n| **time, to base** | 1 | 1.50 |\n| time | 2 | 3 |\n| nodes | - | 1 |\n";
        assert_eq!(table(&scenario), expected);
    }

    #[test]
    fn a_report_is_written_as_page_json_and_plot_and_found_in_the_overview() {
        let folder = tempfile::tempdir().unwrap();
        let mut scenario = Scenario::new("s", &[]);
        scenario.add("base", vec![("time", 2.0)]).unwrap();
        let report = Report {
            part: "runs",
            title: "Runs",
            method: "By hand.",
            aims: Aim::at_most("small", 3.0, scenario.spread("base", "time"))
                .into_iter()
                .collect(),
            scenarios: vec![scenario],
            plotted: "time",
            faster: Vec::new(),
            notes: vec!["note".into()],
        };
        let sitting = Sitting::now(&Machine::look().unwrap()).unwrap();
        report.write(folder.path(), sitting, Vec::new(), true).unwrap();
        let page = fs::read_to_string(folder.path().join("runs.md")).unwrap();
        assert!(
            page.contains("Quick version") && page.contains("- note"),
            "{page}"
        );
        let overview = fs::read_to_string(folder.path().join("README.md")).unwrap();
        assert!(
            overview.contains("## [Runs](runs.md)")
                && overview.contains("- small: 2 (2 to 2), aim 3.0: reached, within noise"),
            "{overview}"
        );
    }

    #[test]
    fn rounds_that_are_added_join_those_that_are_there_and_say_when_both_were_taken() {
        let folder = tempfile::tempdir().unwrap();
        let sitting = || Sitting::now(&Machine::look().unwrap()).unwrap();
        let scenario = |title: &str, time| {
            let mut scenario = Scenario::new(title, &[]);
            scenario.add("base", vec![("time", time)]).unwrap();
            scenario
        };
        let add = |measured| {
            let before = Before::read(folder.path(), "runs").unwrap();
            let (scenarios, earlier) = before.and(measured);
            let report = crate::runs::report("runs", "Runs", scenarios);
            report.write(folder.path(), sitting(), earlier, false).unwrap();
        };
        add(vec![scenario("20 runs", 1.0), scenario("80 runs", 5.0)]);
        add(vec![scenario("20 runs", 3.0)]);
        add(vec![scenario("20 runs", 2.0)]);
        let page = fs::read_to_string(folder.path().join("runs.md")).unwrap();
        assert!(
            page.contains("| time | 2 (1 to 3) |") && page.contains("| time | 5 |"),
            "{page}"
        );
        assert_eq!(page.matches("Earlier rounds were taken").count(), 2);
        let others = ["20 runs", "80 runs"].map(|title| {
            let mut scenario = scenario(title, 4.0);
            scenario.add("ours", vec![("time", 4.0)]).unwrap();
            scenario
        });
        add(others.into());
        let page = fs::read_to_string(folder.path().join("runs.md")).unwrap();
        assert!(!page.contains("Earlier rounds were taken"), "{page}");
    }
}

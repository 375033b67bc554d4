//! The JSON file with all figures.

use crate::machine::Session;
use crate::part::BenchPart;
use crate::scenario::Scenario;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Serializer;
use serde_json::ser::{Formatter, PrettyFormatter};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

pub(crate) const FILE: &str = "results.json";

/// The results of all parts, by the name of the part.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results(BTreeMap<String, Measured>);

/// The results of one part.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// The sessions that measured the rounds. The latest session is the last one.
    pub(crate) sessions: Vec<Session>,
    pub(crate) scenarios: Vec<Scenario>,
}

impl Measured {
    /// Appends rounds. Scenarios that were not measured again keep their rounds. If no earlier round remains, the earlier sessions are
    /// removed.
    fn add(&mut self, session: Session, scenarios: Vec<Scenario>) {
        let mut earlier = self.scenarios.len();
        for scenario in scenarios {
            let known = self
                .scenarios
                .iter_mut()
                .find(|known| known.title == scenario.title);
            match known {
                Some(known) => earlier -= usize::from(!known.join(scenario)),
                None => self.scenarios.push(scenario),
            }
        }
        if earlier == 0 {
            self.sessions.clear();
        }
        self.sessions.push(session);
    }
}

impl Results {
    /// The results in a folder. Without the file, there are none yet.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    pub(crate) fn part(&self, part: &BenchPart) -> Option<&Measured> {
        self.0.get(part.name)
    }

    pub(crate) fn scenario(&self, part: &str, title: &str) -> Option<&Scenario> {
        let mut scenarios = self.0.get(part)?.scenarios.iter();
        scenarios.find(|scenario| scenario.title == title)
    }

    /// Whether the latest session of a part measured the same commit.
    pub(crate) fn has(&self, part: &BenchPart, session: &Session) -> bool {
        let latest = self.part(part).and_then(|measured| measured.sessions.last());
        latest.is_some_and(|latest| latest.has_commit_of(session))
    }

    /// Adds rounds to those of a part, or replaces them. Returns the results of the part.
    pub(crate) fn record(
        &mut self,
        part: &BenchPart,
        session: Session,
        scenarios: Vec<Scenario>,
        add: bool,
    ) -> &Measured {
        let measured = self.0.entry(part.name.to_owned()).or_default();
        if !add {
            *measured = Measured::default();
        }
        measured.add(session, scenarios);
        measured
    }

    /// Indented, with the rounds of a figure on one line.
    pub(crate) fn json(&self) -> Result<String> {
        let (mut text, format) = (Vec::new(), RoundsOnOneLine(PrettyFormatter::new()));
        self.serialize(&mut Serializer::with_formatter(&mut text, format))?;
        Ok(String::from_utf8(text)? + "\n")
    }
}

/// Objects are indented; arrays are not.
struct RoundsOnOneLine(PrettyFormatter<'static>);

impl Formatter for RoundsOnOneLine {
    fn begin_array_value<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::FEW;

    fn scenario(title: &str, variants: &[&str], time: f64) -> Scenario {
        let mut scenario = Scenario::new(title);
        for variant in variants {
            scenario.add(variant, [("time", time)]).unwrap();
        }
        scenario
    }

    #[test]
    fn rounds_are_added_to_a_part_and_its_other_scenarios_stay() {
        let (session, mut results) = (Session::start(true).unwrap(), Results::default());
        let mut record = |scenarios, add| {
            let measured = results.record(&FEW, session.clone(), scenarios, add);
            let spreads = measured
                .scenarios
                .iter()
                .map(|scenario| scenario.spread("a", "time").unwrap());
            let rounds: Vec<_> = spreads.map(|spread| (spread.rounds, spread.median)).collect();
            (measured.sessions.len(), rounds)
        };
        let two = vec![scenario("1", &["a"], 1.0), scenario("2", &["a"], 5.0)];
        assert_eq!(record(two, false), (1, vec![(1, 1.0), (1, 5.0)]));
        let one = |time| vec![scenario("1", &["a"], time)];
        assert_eq!(record(one(3.0), true), (2, vec![(2, 2.0), (1, 5.0)]));
        let others = ["1", "2"].map(|title| scenario(title, &["a", "b"], 4.0));
        assert_eq!(record(others.into(), true), (1, vec![(1, 4.0), (1, 4.0)]));
        assert_eq!(record(one(2.0), false), (1, vec![(1, 2.0)]));
    }

    #[test]
    fn the_rounds_of_a_figure_are_on_one_line() {
        let mut scenario = scenario("20 runs", &["a"], 1.0);
        scenario.add("a", [("time", 2.5)]).unwrap();
        let mut results = Results::default();
        results.record(&FEW, Session::start(true).unwrap(), vec![scenario], false);
        let text = results.json().unwrap();
        assert!(text.contains("\n          \"time\": [1.0, 2.5]\n"), "{text}");
    }
}

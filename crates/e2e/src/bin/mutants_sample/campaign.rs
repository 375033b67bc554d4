//! Tests mutants until a sample is complete: first with the tests of their own crate, then the survivors with all tests.

use crate::crates::{Mutated, Tests};
use crate::equivalent::Equivalent;
use crate::mutant::{Mutant, others, sample};
use crate::outcome::{Outcome, Outcomes};
use crate::tool::{Suite, Tool};
use anyhow::{Result, anyhow, bail};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

#[derive(Debug)]
pub(crate) struct Campaign {
    pub(crate) tool: Tool,
    /// Copies of the clone. Each copy tests one mutant at a time.
    pub(crate) copies: Vec<PathBuf>,
    pub(crate) drawn: Vec<Mutant>,
    pub(crate) outcomes: Mutex<Outcomes>,
}

impl Campaign {
    /// Tests mutants until all outcomes of the sample are known, and returns the sample.
    pub(crate) fn run(&self, count: usize, equivalent: &Equivalent) -> Result<&[Mutant]> {
        let own = |mutant: &Mutant| self.outcomes().of(Tests::Own, mutant);
        let sample = loop {
            let sample = sample(&self.drawn, count, |mutant| {
                own(mutant) == Some(Outcome::Unviable)
            });
            let open: Vec<_> = sample.iter().filter(|mutant| own(mutant).is_none()).collect();
            if open.is_empty() {
                break sample;
            }
            println!("with the tests of their crates: {} mutants", open.len());
            self.test(&open, Tests::Own)?;
        };
        let survivors = sample
            .iter()
            .filter(|mutant| own(mutant) == Some(Outcome::Missed) && !equivalent.contains(&mutant.key));
        let open: Vec<_> = survivors
            .filter(|mutant| self.outcomes().of(Tests::All, mutant).is_none())
            .collect();
        if !open.is_empty() {
            println!("with all tests: {} mutants that survived", open.len());
            self.test(&open, Tests::All)?;
        }
        Ok(sample)
    }

    pub(crate) fn outcomes(&self) -> MutexGuard<'_, Outcomes> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn test(&self, mutants: &[&Mutant], tests: Tests) -> Result<()> {
        let count = self.copies.len();
        thread::scope(|scope| {
            let jobs = self.copies.iter().enumerate().map(|(first, copy)| {
                let share: Vec<_> = mutants.iter().copied().skip(first).step_by(count).collect();
                scope.spawn(move || self.test_in(copy, &share, tests))
            });
            let jobs: Vec<_> = jobs.collect();
            let mut ends = jobs.into_iter().map(thread::ScopedJoinHandle::join);
            ends.try_for_each(|end| end.map_err(|_| anyhow!("a job panicked"))?)
        })
    }

    fn test_in(&self, copy: &Path, mutants: &[&Mutant], tests: Tests) -> Result<()> {
        for of in Mutated::ALL {
            let mutants: Vec<_> = mutants.iter().copied().filter(|mutant| mutant.of == of).collect();
            if mutants.is_empty() {
                continue;
            }
            let suite = Suite { copy, of, tests };
            let timeout = self.tool.timeout(suite)?;
            let except = others(&self.drawn, &mutants);
            self.tool.test(suite, except, timeout, |outcome, name, seconds| {
                println!("{:<8} {seconds:>4} s  {name}", outcome.word());
                self.outcomes().add(tests, name, outcome, seconds)
            })?;
            let mut without = mutants
                .iter()
                .filter(|mutant| self.outcomes().of(tests, mutant).is_none());
            if let Some(mutant) = without.next() {
                bail!("cargo-mutants reported no outcome of {}", mutant.name);
            }
        }
        Ok(())
    }
}

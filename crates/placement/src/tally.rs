//! Counts the cases of a property test that meet its conditions. Without this count, a property whose condition is
//! never met would pass.

use proptest::strategy::Just;
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::{env, thread};

/// An argument of a property, such as `met in tally(&[("released", 100)])`. After the last case, the test fails if
/// fewer cases met the condition. The numbers are a third of the mean or less, and 1 if the mean is ten, so that no seed fails by chance;
/// `--nocapture` prints the counts. The numbers are for the usual number of cases, and are not asserted if
/// `PROPTEST_CASES` sets another.
pub(crate) fn tally(least: &[(&'static str, u32)]) -> Just<Tally> {
    Just(Tally::new(least, env::var_os("PROPTEST_CASES").is_none()))
}

#[derive(Clone)]
pub(crate) struct Tally(Rc<Counts>);

struct Counts {
    met: Vec<(&'static str, u32, Cell<u32>)>,
    are_checked: bool,
}

impl Tally {
    fn new(least: &[(&'static str, u32)], are_checked: bool) -> Self {
        let met = least.iter().map(|(what, least)| (*what, *least, Cell::new(0)));
        Self(Rc::new(Counts {
            met: met.collect(),
            are_checked,
        }))
    }

    /// Counts one case that meets the condition.
    pub(crate) fn count(&self, what: &str) {
        let known = self.0.met.iter().find(|(known, ..)| *known == what);
        let (.., met) = known.unwrap_or_else(|| panic!("{what:?} is not expected"));
        met.set(met.get() + 1);
    }
}

/// The arguments of a case that fails are printed.
impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tally")
    }
}

/// The property holds the last reference until all cases have passed.
impl Drop for Counts {
    fn drop(&mut self) {
        let all: Vec<_> = self.met.iter().map(|(what, _, met)| (*what, met.get())).collect();
        eprintln!("met {all:?}");
        for (what, least, met) in self
            .met
            .iter()
            .filter(|_| self.are_checked && !thread::panicking())
        {
            assert!(
                met.get() >= *least,
                "fewer than {least} cases met {what:?}: {all:?}"
            );
        }
    }
}

#[test]
#[should_panic(expected = "fewer than 2 cases met \"seldom\"")]
fn a_property_fails_if_too_few_cases_met_a_condition() {
    drop(Tally::new(&[("never", 1)], false));
    let met = Tally::new(&[("often", 1), ("seldom", 2)], true);
    for what in ["often", "often", "seldom"] {
        met.count(what);
    }
}

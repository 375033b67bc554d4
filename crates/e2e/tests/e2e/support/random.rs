//! Helpers of random tests. The seeds of random tests that failed are in checked-in files: one seed per line; `#` begins a comment.

use fastrand::Rng;
use std::path::Path;
use std::{env, fs};

/// The seeds in a file of this folder.
pub(crate) fn kept_seeds(file: &str) -> Vec<String> {
    let text = fs::read_to_string(seeds_file(file)).unwrap();
    let lines = text.lines().map(str::trim);
    let seeds = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    seeds.map(str::to_owned).collect()
}

/// Adds a seed to a file, unless the file contains it.
pub(crate) fn keep_seed(file: &str, seed: &str) {
    if kept_seeds(file).iter().any(|kept| kept == seed) {
        return;
    }
    let path = seeds_file(file);
    let text = fs::read_to_string(&path).unwrap();
    println!("the seed {seed} is added to {}: commit the file", path.display());
    fs::write(path, format!("{text}{seed}\n")).unwrap();
}

fn seeds_file(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e").join(file)
}

/// One of the values.
pub(crate) fn one_of<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.usize(0..choices.len())]
}

/// The number in an environment variable.
pub(crate) fn number_of(variable: &str) -> Option<u64> {
    let given = env::var(variable).ok()?;
    Some(
        given
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {given}")),
    )
}

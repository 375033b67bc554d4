//! Seeds of random tests that failed, in checked-in files: one seed per line; `#` begins a comment.

use std::fs;
use std::path::Path;

/// The seeds in a file of this folder.
pub(crate) fn kept(file: &str) -> Vec<String> {
    let text = fs::read_to_string(path(file)).unwrap();
    let lines = text.lines().map(str::trim);
    let seeds = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    seeds.map(str::to_owned).collect()
}

/// Adds a seed to a file, unless the file contains it.
pub(crate) fn keep(file: &str, seed: &str) {
    if kept(file).iter().any(|kept| kept == seed) {
        return;
    }
    let path = path(file);
    let text = fs::read_to_string(&path).unwrap();
    println!("the seed {seed} is added to {}: commit the file", path.display());
    fs::write(path, format!("{text}{seed}\n")).unwrap();
}

fn path(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e").join(file)
}

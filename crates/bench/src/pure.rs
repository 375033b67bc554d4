//! The pure functions of the webhook: criterion's figures and the count of allocations, from `cargo bench`.

use crate::Effort;
use crate::machine::workspace;
use crate::report::Report;
use crate::scenario::Scenario;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const METHOD: &str = "Measured with Criterion, optimised as in the release. Parse: from the text of the pod to a \
document. Decide: the rule. Patch: apply the patch and encode the result. Answer: from the body of the request to the body \
of the response, with routing, metrics and traces, but without a socket.";
const TIME: &str = "time, us";
const STEPS: [&str; 4] = ["parse", "decide", "patch", "answer"];
const SIZES: [&str; 3] = ["2", "10", "50"];

pub(crate) fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let mut scenarios = SIZES.map(|size| Scenario::new(format!("pods of {size} KB"), &[]));
    for _ in 0..effort.rounds {
        cargo_bench("pure")?;
        for (scenario, size) in scenarios.iter_mut().zip(SIZES) {
            for step in STEPS {
                scenario.add(step, vec![(TIME, median(step, size)? / 1e3)])?;
            }
        }
    }
    for line in cargo_bench("allocations")?.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let [step, size, count, bytes] = words[..] else {
            continue;
        };
        let scenario = SIZES
            .iter()
            .position(|known| *known == size)
            .context("allocations of another size")?;
        let figures = vec![
            ("allocations", count.parse()?),
            ("bytes allocated", bytes.parse()?),
        ];
        scenarios[scenario].add(step, figures)?;
    }
    Ok(scenarios.into())
}

pub(crate) fn report(scenarios: Vec<Scenario>) -> Report {
    Report {
        part: "pure",
        title: "The webhook's pure functions",
        method: METHOD,
        aims: Vec::new(),
        scenarios,
        plotted: TIME,
        faster: Vec::new(),
        notes: Vec::new(),
    }
}

fn cargo_bench(bench: &str) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["bench", "--quiet", "--package=admission", "--bench", bench])
        .current_dir(workspace())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo bench")?;
    if !output.status.success() {
        bail!("cargo bench --package=admission --bench {bench} failed: see above");
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Nanoseconds, from where criterion keeps them.
fn median(step: &str, size: &str) -> Result<f64> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    let file = target
        .join("criterion")
        .join(step)
        .join(size)
        .join("new/estimates.json");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let estimates: Value = serde_json::from_str(&text)?;
    estimates["median"]["point_estimate"]
        .as_f64()
        .with_context(|| format!("{} has no median", file.display()))
}

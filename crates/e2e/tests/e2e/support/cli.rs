//! Builds the real command line tool, runs it against a testbed, and normalizes its output.

use crate::support::SOON;
use kube::api::DeleteParams;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testbed::Testbed;
use testbed::program::PLUGIN;
use testbed::runs::{self, RunSpec};

/// Longer than any test.
pub(crate) const LONG: &str = "10m";

/// The exit code and the output of the tool.
#[derive(Clone, Debug)]
pub(crate) struct CliOutput {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: Option<i32>,
}

/// Runs the tool as the administrator.
pub(crate) async fn tool(bed: &Testbed, line: &str) -> CliOutput {
    tool_as(bed.kubeconfig(), line).await
}

/// Runs the tool with a kubeconfig.
pub(crate) async fn tool_as(kubeconfig: &Path, line: &str) -> CliOutput {
    let mut command = Command::new(binary().await);
    command
        .args(line.split_whitespace())
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let output = output
        .expect("the tool to be waited for")
        .expect("the tool to start");
    CliOutput {
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
        code: output.status.code(),
    }
}

/// Runs the tool until its output contains these words.
pub(crate) async fn until_output_contains(bed: &Testbed, line: &str, words: &str) -> CliOutput {
    bed.until(format!("`{line}` to say {words:?}"), SOON, async || {
        let said = tool(bed, line).await;
        if plain(&said.out).contains(words) {
            Ok(said)
        } else {
            Err(said)
        }
    })
    .await
    .unwrap()
}

/// A run with one task.
pub(crate) fn only(name: &str) -> RunSpec {
    RunSpec::new("default", name).task("only", &[])
}

/// The output of `explain` for a run, as soon as it contains these words.
pub(crate) async fn explain_until(bed: &Testbed, name: &str, words: &str) -> String {
    plain(
        &until_output_contains(bed, &format!("explain {name}"), words)
            .await
            .out,
    )
}

/// The lines of one section, and the section of remedies.
pub(crate) fn section(text: &str, title: &str) -> String {
    let blocks = text.split("\n\n");
    let wanted = blocks.filter(|block| block.starts_with(title) || block.starts_with("What would help"));
    let wanted: Vec<_> = wanted.map(str::trim_end).collect();
    wanted.join("\n")
}

/// Deletes a run, and waits until it is deleted.
pub(crate) async fn delete(bed: &Testbed, name: &str) {
    let api = runs::runs(&bed.client().await.unwrap(), "default");
    api.delete(name, &DeleteParams::default()).await.unwrap();
    bed.until(format!("run {name} to be gone"), SOON, async || {
        if api.get_opt(name).await.unwrap().is_none() {
            Ok(())
        } else {
            Err("there")
        }
    })
    .await
    .unwrap();
}

/// The binary under test: `POD_AFFINITY_CLI`, or a new build.
pub(crate) async fn binary() -> PathBuf {
    let built = tokio::task::spawn_blocking(|| PLUGIN.path()).await;
    built.expect("a build").expect("the plugin")
}

/// The text of the tool on one line, for sentences that the tool breaks.
pub(crate) fn on_one_line(text: &str) -> String {
    plain(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Removes what differs between two runs of the tool: ages, hashes, messages of the scheduler, line breaks.
pub(crate) fn plain(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in unbroken(text) {
        let words: Vec<&str> = line.split(' ').collect();
        let words = (0..words.len()).map(|index| word(&words, index));
        lines.push(without_messages(&words.collect::<Vec<_>>().join(" ")));
    }
    format!("{}\n", lines.join("\n").replace("less than a second", "<age>"))
}

/// Joins lines that continue an indented item with the line above.
fn unbroken(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        let is_item = trimmed.starts_with("- ") || trimmed.starts_with("* ") || trimmed.starts_with("-> ");
        match lines.last_mut() {
            Some(last) if indent >= 4 && !is_item => {
                last.push(' ');
                last.push_str(trimmed);
            }
            Some(_) | None => lines.push(line.to_owned()),
        }
    }
    lines
}

fn word(words: &[&str], index: usize) -> String {
    let word = words[index];
    let core = word.trim_end_matches([',', '.', ';']);
    let before = index.checked_sub(1).map_or("", |index| words[index]);
    let after = words.get(index + 1).copied().unwrap_or_default();
    let is_told = ["for", "in", "since", "another"].contains(&before)
        || after.trim_end_matches([',', '.', ':']) == "ago"
        || after == "after";
    if is_told && is_age(core) {
        return word.replace(core, "<age>");
    }
    match word.split_once("custom-pod-affinity-") {
        Some((before, rest)) if rest.len() >= 10 && !before.ends_with("tekton.dev/") => {
            format!("{before}custom-pod-affinity-<hash>{}", &rest[10..])
        }
        _ => word.to_owned(),
    }
}

fn is_age(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h', 'd'])
        && word.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c))
}

/// Replaces messages of other components by a placeholder.
fn without_messages(line: &str) -> String {
    match line.split_once(" reports: \"") {
        Some((before, rest)) => {
            let after = rest.split_once("\".").map(|(_, after)| after).unwrap_or_default();
            format!("{before} reports: \"<words>\".{after}")
        }
        None => line.to_owned(),
    }
}

#[e2e_test]
fn text_that_differs_between_two_runs_is_removed() {
    let text = "Held         by pod-affinity for 3s, until it\n             ends; in 9m57s (deadline 10m). 50m of cpu.\n";
    assert_eq!(
        plain(text),
        "Held         by pod-affinity for <age>, until it ends; in <age> (deadline 10m). 50m of cpu.\n"
    );
    let text =
        "             - x: pod custom-pod-affinity-0123456789-0, 1h2m ago. A reports: \"no. never\". Go.";
    assert_eq!(
        plain(text),
        "             - x: pod custom-pod-affinity-<hash>-0, <age> ago. A reports: \"<words>\". Go.\n"
    );
}

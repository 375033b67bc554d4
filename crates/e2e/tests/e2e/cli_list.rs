//! `list --watch` prints each state of a run.

use crate::support::cli::binary;
use crate::support::runs::create;
use crate::support::testbeds::installed;
use std::process::Stdio;
use std::time::Duration;
use testbed::Testbed;
use testbed::runs::RunSpec;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_secs(90);

async fn watch(bed: &Testbed, namespace: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(binary().await)
        .args(["list", "--watch", "-n", namespace, "--kubeconfig"])
        .arg(bed.kubeconfig())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

/// Reads until a line contains these words, and returns all lines.
async fn read_until(lines: &mut Lines<BufReader<ChildStdout>>, words: &str) -> Vec<String> {
    let mut read = Vec::new();
    let found = timeout(TIMEOUT, async {
        while let Some(line) = lines.next_line().await.unwrap() {
            let is_it = line.contains(words);
            read.push(line);
            if is_it {
                return true;
            }
        }
        false
    });
    assert_eq!(found.await, Ok(true), "{words}: {read:#?}");
    read
}

#[e2e_test]
async fn a_watched_list_prints_each_state_of_a_run() {
    let bed = &installed().await;
    let namespace = bed.namespace("watched").await.unwrap();
    create(
        bed,
        &RunSpec::new(&namespace, "first")
            .opted_in("false")
            .lasting("10m")
            .task("only", &[]),
    )
    .await;
    let (mut child, mut lines) = watch(bed, &namespace).await;
    let begin = read_until(&mut lines, "first").await;
    assert!(begin[0].starts_with("NAME") && begin.len() == 2, "{begin:#?}");
    let spec = RunSpec::new(&namespace, "second")
        .task("only", &[])
        .opted_in("true");
    create(bed, &spec.lasting("2s")).await;
    let mut read = read_until(&mut lines, "Running").await;
    read.extend(read_until(&mut lines, "Done").await);
    assert!(read.iter().all(|line| line.starts_with("second")), "{read:#?}");
    let mut unlike = read.clone();
    unlike.dedup();
    assert_eq!(read, unlike, "a row comes only when it changes");
    child.kill().await.unwrap();
}

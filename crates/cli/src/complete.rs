//! Completion for kubectl: kubectl runs the program `kubectl_complete-pod_affinity` with the words so far as arguments. The program
//! prints the candidates for the last word, and a directive for the shell.

use crate::args::{Args, Caller, Limit, Verb, command, parse};
use crate::client::cluster;
use crate::target::is_kind;
use crate::view::PipelineRun;
use clap::{Arg, Command};
use kube::api::ListParams;
use placement::keys;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The file name of the plugin.
const PLUGIN: &str = "kubectl-pod_affinity";
/// The file name of the program that completes the plugin.
const COMPLETER: &str = "kubectl_complete-pod_affinity";
/// The directive that the shell must not offer file names.
const NO_FILES: &str = ":4";
/// The user waits for the completion of a word.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the program was called under the name for completion.
pub(crate) fn is_completion(program: &str) -> bool {
    let file = program.rsplit(['/', '\\']).next().unwrap_or_default();
    file.starts_with("kubectl_complete-")
}

/// Creates a link to the plugin under the name for completion, in the folder of the plugin. The plugin manager krew creates only one
/// link for a plugin. A relative link stays valid when krew upgrades the plugin.
pub(crate) fn install(path: Option<&OsStr>) -> io::Result<PathBuf> {
    let mut folders = std::env::split_paths(path.unwrap_or_default());
    let Some(folder) = folders.find(|folder| folder.join(PLUGIN).is_file()) else {
        let text = format!("{PLUGIN} is in no folder of PATH");
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    };
    let link = folder.join(COMPLETER);
    match std::os::unix::fs::symlink(PLUGIN, &link) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io::Error::new(
            error.kind(),
            format!("{}: {error}", link.display()),
        )),
        Ok(()) | Err(_) => Ok(link),
    }
}

/// The candidates for the last word, one per line, and the directive.
pub(crate) async fn answer(caller: Caller, words: &[String]) -> String {
    let (last, before) = words
        .split_last()
        .map_or(("", words), |(last, before)| (last.as_str(), before));
    let mut found = candidates(&command(caller), before, last);
    if found.is_empty() && !last.starts_with('-') {
        let kind = last.find('/').map_or("", |end| &last[..=end]);
        found = runs(caller, before).await.unwrap_or_default();
        if is_kind(kind.trim_end_matches('/')) {
            found = found.iter().map(|name| format!("{kind}{name}")).collect();
        }
    }
    found.retain(|word| word.starts_with(last));
    found.iter().map(|word| format!("{word}\n")).collect::<String>() + NO_FILES + "\n"
}

/// Flags, values of flags, and commands.
fn candidates(root: &Command, before: &[String], last: &str) -> Vec<String> {
    let verb = before.iter().find_map(|word| root.find_subcommand(word));
    let flags: Vec<&Arg> = root
        .get_arguments()
        .chain(verb.into_iter().flat_map(Command::get_arguments))
        .collect();
    let before = before.last().map(String::as_str).unwrap_or_default();
    let asked = flags.iter().find(|flag| is_called(flag, before));
    match (asked, verb) {
        (Some(flag), _) if flag.get_action().takes_values() => values(flag),
        (_, _) if last.starts_with('-') => flags
            .iter()
            .filter_map(|flag| flag.get_long())
            .map(long)
            .collect(),
        (_, None) => root
            .get_subcommands()
            .map(|verb| verb.get_name().to_owned())
            .collect(),
        (_, Some(verb)) => verb.get_positionals().flat_map(values).collect(),
    }
}

fn is_called(flag: &Arg, word: &str) -> bool {
    let short = flag.get_short().map(|letter| format!("-{letter}"));
    short.as_deref() == Some(word) || flag.get_long().map(long).as_deref() == Some(word)
}

fn long(name: &str) -> String {
    format!("--{name}")
}

fn values(argument: &Arg) -> Vec<String> {
    let values = argument.get_possible_values();
    values.iter().map(|value| value.get_name().to_owned()).collect()
}

/// The names of labelled runs, if the next word names a run.
async fn runs(caller: Caller, before: &[String]) -> Option<Vec<String>> {
    let program = OsString::from(caller.file);
    let words = before.iter().map(OsString::from).chain(["x".into()]);
    let Args { mut cluster, command } = parse(caller, std::iter::once(program).chain(words)).ok()?;
    match command {
        Verb::List(_) | Verb::Explain(_) | Verb::Wait(_) | Verb::Release(_) => {}
        Verb::Timeline(_) if before.last().is_some_and(|word| word == "--run") => {}
        _ => return None,
    }
    cluster.request_timeout = Limit(Some(PATIENCE));
    let found = self::cluster(&cluster).await.ok()?;
    let place = found.server.within::<PipelineRun>(&found.namespace);
    let labelled = ListParams::default().labels(keys::OPT_IN);
    place.collect(labelled, |run| run.metadata.name).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn offered(line: &str) -> String {
        let words: Vec<_> = line.split(' ').map(String::from).collect();
        let text = answer(Caller::of("kubectl-pod_affinity"), &words).await;
        text.trim_end_matches(":4\n").trim_end().replace('\n', " ")
    }

    #[test]
    fn the_file_name_selects_completion() {
        assert!(is_completion("/usr/bin/kubectl_complete-pod_affinity"));
        assert!(!is_completion("/usr/bin/kubectl-pod_affinity"));
    }

    #[test]
    fn the_link_for_kubectl_is_beside_the_plugin_that_kubectl_starts() {
        let folder = std::env::temp_dir().join(format!("pod-affinity-complete-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = std::env::join_paths(["/none".into(), folder.clone()]).unwrap();
        let error = install(Some(&path)).unwrap_err();
        assert!(error.to_string().contains("in no folder of PATH"), "{error}");
        std::fs::write(folder.join(PLUGIN), "").unwrap();
        for _ in 0..2 {
            let link = install(Some(&path)).unwrap();
            assert_eq!(std::fs::read_link(link).unwrap().to_str(), Some(PLUGIN));
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn commands_flags_and_values_are_offered() {
        let table = [
            (
                "",
                "list explain wait nodes timeline cost doctor release disable enable completion version",
            ),
            ("ex", "explain"),
            ("-n ci d", "doctor disable"),
            ("list --w", "--watch"),
            ("list -o ", "table wide json yaml name"),
            ("doctor --output j", "json"),
            ("completion z", "zsh"),
            ("list -n ", ""),
            ("timeline -o ", "text svg html"),
            ("timeline --ru", "--run"),
            ("nodes ", ""),
        ];
        for (line, expected) in table {
            assert_eq!(offered(line).await, expected, "{line:?}");
        }
    }

    #[tokio::test]
    async fn without_an_api_server_no_run_is_offered() {
        assert_eq!(offered("--kubeconfig=/none explain x").await, "");
    }
}

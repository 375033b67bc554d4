//! The command line, under both names.

use super::*;
use clap::{Arg, ValueEnum};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

const KUBECTL: &str = "/usr/local/bin/kubectl-pod_affinity";
const TKN: &str = "/home/u/.config/tkn/plugins/tkn-pod-affinity";

fn parsed(line: &str) -> Result<Args, clap::Error> {
    let words = line.split(' ').map(OsString::from);
    parse(Caller::of(KUBECTL), std::iter::once(KUBECTL.into()).chain(words))
}

#[test]
fn the_definition_is_sound() {
    command(Caller::of(KUBECTL)).debug_assert();
}

#[test]
fn the_usage_has_the_name_by_which_the_program_was_called() {
    let usage = |program: &str| command(Caller::of(program)).render_usage().to_string();
    assert!(
        usage(KUBECTL).contains("kubectl pod-affinity [OPTIONS]"),
        "{}",
        usage(KUBECTL)
    );
    assert!(usage(TKN).contains("tkn pod-affinity [OPTIONS]"));
    assert!(usage("").contains("kubectl pod-affinity"));
    let help = parsed("list -h").unwrap_err().to_string();
    assert!(help.contains("kubectl pod-affinity list [OPTIONS]"), "{help}");
}

#[test]
fn flags_are_those_of_kubectl() {
    let args = parsed("list -n ci --context prod --kubeconfig=f --request-timeout=1m -o wide -w").unwrap();
    assert_eq!(args.cluster.namespace.as_deref(), Some("ci"));
    assert_eq!(args.cluster.context.as_deref(), Some("prod"));
    assert_eq!(args.cluster.request_timeout, Limit(Some(Duration::from_mins(1))));
    let Verb::List(list) = args.command else { panic!() };
    assert!(list.watch && list.output == Output::Wide && !list.all_namespaces);
    assert!(parsed("list -A -n ci").is_err());
    assert!(parsed("list --sort-by state --no-headers -l a=b --field-selector metadata.name=x").is_ok());
    assert!(parsed("nodes --as jane --as-group dev --as-group ops --cluster c --user u").is_ok());
    assert!(parsed("-n ci explain build").is_ok());
    assert!(parsed("explain ci/build -n ci").is_ok());
}

#[test]
fn an_empty_namespace_is_refused_because_it_would_mean_all_namespaces() {
    for line in [
        "disable --namespace=",
        "list --namespace=",
        "disable -A --install-namespace=",
    ] {
        assert!(parsed(line).is_err(), "{line}");
    }
}

#[test]
fn a_timeout_is_a_duration_or_seconds_and_zero_is_for_ever() {
    assert_eq!(timeout("0"), Ok(Limit(None)));
    assert_eq!(timeout("0s"), Ok(Limit(None)));
    assert_eq!(timeout("7"), Ok(Limit(Some(Duration::from_secs(7)))));
    assert!(timeout("soon").is_err() && timeout("").is_err() && timeout("-1s").is_err());
}

#[test]
fn there_is_a_completion_script_for_every_shell_and_name() {
    for shell in Shell::value_variants() {
        for program in [KUBECTL, TKN] {
            let caller = Caller::of(program);
            let script = String::from_utf8(completion(caller, *shell)).unwrap();
            assert!(
                script.contains(caller.file) && script.contains("explain"),
                "{shell} {program}"
            );
        }
    }
}

#[test]
fn kubectls_words_for_list_and_explain_are_known() {
    assert!(matches!(parsed("get pr").unwrap().command, Verb::List(_)));
    assert!(matches!(
        parsed("describe pr build").unwrap().command,
        Verb::Explain(_)
    ));
    assert!(matches!(
        parsed("describe pr/build -n ci").unwrap().command,
        Verb::Explain(_)
    ));
}

#[test]
fn what_is_wrong_is_told_with_what_would_be_right() {
    let lines = [
        "explain",
        "explain pod build",
        "explain a/b/c",
        "explain web/build -n ci",
        "get pr/",
        "list --sort-by age",
        "list -w --sort-by name",
        "nodes --as-group dev",
        "wait build",
        "wait build --for=node --timeout=soon",
        "timeline --run a/b/c",
        "timeline --since yesterday",
        "timeline -A --run build",
        "disable",
        "enable -n kube-system",
        "disable -n ci --stop-controller",
    ];
    let told = lines.map(|line| format!("$ {line}\n{}", parsed(line).unwrap_err()));
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn the_help_of_each_verb_is_as_documented() {
    let mut texts = vec![parsed("-h").unwrap_err().to_string()];
    for verb in [
        "list",
        "explain",
        "wait",
        "nodes",
        "timeline",
        "cost",
        "doctor",
        "release",
        "disable",
        "enable",
        "completion",
        "version",
    ] {
        texts.push(parsed(&format!("{verb} -h")).unwrap_err().to_string());
    }
    insta::assert_snapshot!(texts.join("\n========\n"));
}

fn in_backquotes(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The commands by their names and aliases, with the flags that the reference lists.
fn in_the_reference() -> BTreeMap<String, BTreeSet<String>> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n## Commands\n").unwrap();
    let rows = section.split("\n## ").next().unwrap().lines();
    let rows = rows.filter_map(|row| row.strip_prefix('|')).skip(2);
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').collect();
        let flags = in_backquotes(cells[2]);
        (in_backquotes(cells[0]).join(" "), flags.into_iter().collect())
    })
    .collect()
}

fn flags<'a>(args: impl Iterator<Item = &'a Arg>) -> BTreeSet<String> {
    let args = args.filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()));
    let flags = args.flat_map(|arg| {
        let short = arg.get_short().map(|letter| format!("-{letter}"));
        short
            .into_iter()
            .chain(arg.get_long().map(|name| format!("--{name}")))
    });
    flags.collect()
}

#[test]
fn the_reference_lists_each_command_with_its_flags() {
    let command = command(Caller::of(KUBECTL));
    let commands = command.get_subcommands().map(|verb| {
        let names = std::iter::once(verb.get_name()).chain(verb.get_visible_aliases());
        let own = verb.get_arguments().filter(|arg| !arg.is_global_set());
        (names.collect::<Vec<_>>().join(" "), flags(own))
    });
    let global = (String::new(), flags(command.get_arguments()));
    assert_eq!(in_the_reference(), commands.chain([global]).collect());
}

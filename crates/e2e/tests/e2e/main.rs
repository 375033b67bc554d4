//! End-to-end tests on real control planes, one behaviour per file.
//!
//! One binary, so that tests can share a running testbed: a start takes about ten seconds, a run takes a few.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is tests"
)]

#[macro_use]
extern crate e2e_macros;

mod auto_reserve;
mod autoscalers;
mod autoscalers_want_nodes;
mod caps;
mod cli_cost;
mod cli_doctor;
mod cli_explain;
mod cli_list;
mod cli_states;
mod cli_timeline;
mod cli_writes;
mod cluster_upgrades;
mod clusters_differ;
mod docs_commands;
mod docs_length;
mod docs_links;
mod docs_pages;
mod endings;
mod events;
mod examples;
mod faults;
mod foreign_policies;
mod gitops;
mod guardrails;
mod heals;
mod helm;
mod helm_lifecycle;
mod holds;
mod image_pull;
mod install_docs;
mod install_overlays;
mod install_rights;
mod install_upgrade;
mod isolation;
mod kept_nodes;
mod kueue;
mod limits_as_shipped;
mod metrics;
mod metrics_prometheus;
mod metrics_queries;
mod metrics_rules;
mod moves;
mod moves_between_kinds;
mod moves_of_nested_runs;
mod moves_with_volumes;
mod nothing_lost;
mod nothing_lost_certificates;
mod one_node_per_run;
mod opt_in_by_namespace;
mod order;
mod pairs;
mod policies_and_webhook;
mod policies_at_work;
mod policies_corpus;
mod policies_equal;
mod policies_lose_nothing;
mod policies_switch;
mod quota_of_statefulsets;
mod real_node;
mod reserve;
mod reserved_label;
mod rights;
mod scheduler_races;
mod security_forged;
mod security_logs;
mod security_memory;
mod security_pods;
mod ship;
mod soak;
mod strategies;
mod support;
mod task_requirements;
mod tektons_examples;
mod tektons_pods;
mod tenants;
mod testbed_coschedules;
mod testbed_keeps_data;
mod testbed_leaves_nothing;
mod testbed_plays_outcomes;
mod testbed_resets;
mod testbed_settings;
mod testbed_survives_deletion;
mod volumes;
mod volumes_node_local;
mod volumes_of_tasks;
mod warm_nodes;
mod warm_starts;

fn main() -> std::process::ExitCode {
    if real_node::is_the_process_to_kill() {
        return real_node::wait_to_be_killed();
    }
    support::harness::run()
}

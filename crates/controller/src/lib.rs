//! The controller: one run at a time, observe -> plan -> (read -> plan) -> write -> report.
//!
//! `reconcile` is that line as a function. `observe` reads the caches that the watches keep; `placement::plan` decides,
//! purely; `read` reads at the API server what a decision must not take from a cache; `write` is the one door through
//! which writes leave, events included; `report` turns what happened into logs, events, metrics and what is
//! remembered. Whatever is written is safe when it was decided from a stale cache or by a second leader: names are
//! deterministic, and every patch and delete carries the UID, and what else it relies on, as a precondition.
//!
//! Not in here: leader election, signals, the configuration's file format, serving of metrics (`process`), and
//! every rule about what should happen and every request (`placement`).

mod api_error;
mod claims;
mod definitions;
mod events;
#[cfg(test)]
mod fixture;
mod gauges;
mod index;
mod members;
mod memory;
mod metrics;
mod moves;
mod news;
mod nodes;
mod notes;
mod observe;
mod pace;
mod placeholders;
mod pod_view;
mod quota_events;
mod read;
mod reason;
mod reconcile;
mod refusals;
mod report;
mod reserves;
mod run;
mod stints;
#[cfg(test)]
mod takeover_tests;
mod tasks;
mod timers;
mod waiting_pods;
mod watch;
mod write;

pub use metrics::Metrics;
pub use observe::Clock;
pub use run::{Context, Error, run};

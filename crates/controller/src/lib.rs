//! The controller reconciles each run in five phases: observe, plan, read (and plan again), write, report.
//!
//! `reconcile` calls the phases. `observe` reads the caches of the watches. `placement::plan` decides and is pure. `read` requests
//! from the API server what a decision must not take from a cache. `write` sends all writes, also those of events. `report` emits
//! logs, events and metrics, and updates the memory. A write is safe even if the decision used a stale cache, or if a second leader
//! made it: names are deterministic, and the preconditions of a patch or delete are the UID and all values that it relies on.
//!
//! The `runtime` crate has leader election, signals, the file format of the configuration and the metrics server. The `placement`
//! crate has the rules and the requests.

mod api_error;
mod events;
#[cfg(test)]
mod fixture;
mod foreign_events;
mod gauges;
mod index;
mod kept_nodes;
mod lists;
mod memory;
mod metrics;
mod need;
mod node_time;
mod nodes;
mod notes;
mod observe;
mod orphans;
mod placeholders;
mod pods;
mod quotas;
mod read;
mod reconcile;
mod report;
mod run;
#[cfg(test)]
mod takeover_tests;
mod tekton_flags;
mod turns;
mod waiting_pods;
mod watch;
mod write;

pub use metrics::Metrics;
pub use observe::Clock;
pub use run::{Context, Error, run};

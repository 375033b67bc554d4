//! The controller: observe, plan, act, report, one run at a time.
//!
//! A run is settled in four steps, each a file. `observe` reads the caches that the watches keep, and makes no
//! API call; `placement::plan` decides, purely; `act` is the one door through which writes leave; `report` is
//! the one place that turns what happened into logs, events and metrics. Whatever is written is safe when it was
//! decided from a stale cache or by a second leader: names are deterministic, and every patch and delete carries
//! the UID, and what else it relies on, as a precondition.
//!
//! Not in here: leader election, signals, the configuration's file format, serving of metrics (`process`), and
//! every rule about what should happen (`placement`).

mod act;
mod around;
mod ask;
mod assistants;
mod backoff;
mod cache;
mod claims;
mod count;
mod departed;
mod desk;
mod events;
#[cfg(test)]
mod fixture;
mod members;
mod memory;
mod metrics;
mod mirror;
mod moves;
mod notes;
mod observe;
mod patches;
mod reason;
mod refusal;
mod report;
mod run;
mod view;
mod watched;
mod watches;

pub use metrics::Metrics;
pub use run::{Context, Error, run};

//! What every process of pod-affinity needs around its own work: logs, traces, metrics, probes, shutdown, TLS with hot reload,
//! certificates, a lease, and the active configuration. Knows nothing of PipelineRuns.

pub mod admin;
pub mod certs;
pub mod config_watch;
mod guard;
pub mod http_limits;
pub mod lease;
pub mod listen;
pub mod log;
pub mod metrics;
mod open_files;
mod params;
pub mod readiness;
pub mod server_clock;
pub mod shutdown;
pub mod tls;
pub mod traces;
mod usage;
pub mod versions;
pub mod words;

#[cfg(test)]
mod fake_api;

//! Code that all processes of pod-affinity share: logs, metrics, probes, shutdown, TLS with hot reload, certificates, a
//! Lease, and the active configuration. This crate is independent of PipelineRuns.

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
mod usage;
pub mod versions;
pub mod words;

#[cfg(test)]
mod fake_api;

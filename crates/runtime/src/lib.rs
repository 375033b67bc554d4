//! Code that all processes of pod-affinity share: logs, metrics, probes, shutdown, TLS with hot reload, certificates, a
//! Lease, and the active configuration. This crate is independent of PipelineRuns.

pub mod admin;
pub mod api;
pub mod certs;
pub mod config_watch;
pub mod install;
pub mod lease;
pub mod log;
pub mod metrics;
pub mod readiness;
mod resources;
mod response_deadline;
mod response_limit;
pub mod server;
pub mod server_clock;
pub mod shutdown;
pub mod tekton_namespace;
pub mod tls;
pub mod versions;

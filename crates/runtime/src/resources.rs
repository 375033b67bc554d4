//! The resources of this process: memory and open files as metrics, and the limit on open files, connections included.
//!
//! This module is hand-written, because prometheus-client has no metrics of processes. The kernel reports them in /proc.

use crate::server::ADMIN_CONNECTIONS_AT_MOST;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{fmt, fs};

/// Reads /proc at each scrape; without /proc the metrics are absent. The metrics have the names that dashboards expect.
#[derive(Debug)]
pub(crate) struct ResourceCollector;

impl Collector for ResourceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        gauge(
            &mut encoder,
            "process_resident_memory_bytes",
            "Resident memory",
            resident_bytes(),
        )?;
        gauge(
            &mut encoder,
            "process_open_fds",
            "Open file descriptors",
            open_files(),
        )
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    value: Option<u64>,
) -> Result<(), fmt::Error> {
    let Some(value) = value else { return Ok(()) };
    let gauge = ConstGauge::new(value);
    let described = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
    gauge.encode(described)
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

fn open_files() -> Option<u64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    u64::try_from(count).ok()
}

/// Open files for everything except clients of the webhook: clients of the admin port, the API server, the runtime, files.
const OTHERS: u64 = ADMIN_CONNECTIONS_AT_MOST as u64 + 64;

/// Raises the limit on open files so that this many clients can connect. Returns the number of clients that the system allows.
///
/// Container runtimes set a soft limit of 1024 for programs that use `select`; processes may raise this limit. At the limit, the
/// process could neither accept a connection nor read a changed certificate.
pub(crate) fn allowed_connections(clients: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = u64::try_from(clients).unwrap_or(u64::MAX).saturating_add(OTHERS);
    let Some(had) = limit.current.filter(|had| *had < wanted) else {
        return clients;
    };
    let raised = limit.maximum.map_or(wanted, |most| most.min(wanted));
    let raising = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(raised),
            maximum: limit.maximum,
        },
    );
    let has = if raising.is_ok() { raised } else { had };
    let allowed = share_of_clients(has, clients);
    if allowed < clients {
        tracing::warn!(
            open_files = has,
            connections = allowed,
            "the limit on open files is low: raise the limit of this container"
        );
    }
    allowed
}

/// Clients get the files that `OTHERS` leaves, and at least half of all files.
fn share_of_clients(has: u64, clients: usize) -> usize {
    let room = has.saturating_sub(OTHERS).max(has / 2);
    usize::try_from(room).map_or(clients, |room| room.min(clients))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_at_least_half_of_the_open_files() {
        for (has, expected) in [
            (1024, 512),
            (1064, 532),
            (2000, 1000),
            (2128, 1064),
            (4096, 2000),
            (u64::MAX, 2000),
        ] {
            assert_eq!(share_of_clients(has, 2000), expected, "{has}");
        }
    }
}

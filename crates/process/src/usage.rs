//! Memory and open files of this process, read from /proc at each scrape. Dashboards expect these metric names.

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
};
use std::{fmt, fs};

/// The collector. On systems without /proc the metrics are absent.
#[derive(Debug)]
pub(crate) struct Usage;

impl Collector for Usage {
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

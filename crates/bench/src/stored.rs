//! What runs occupy and write in etcd.

use crate::cluster::sample;
use crate::stats::number;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;
use testbed::Testbed;
use tokio::time::timeout;

pub(crate) const HIGHEST: &str = "kB in etcd, highest sum";
pub(crate) const AFTERWARDS: &str = "kB in etcd at the end";
pub(crate) const WRITTEN: &str = "kB written to etcd";
pub(crate) const EVENTS: &str = "Event objects";
const SAMPLE: Duration = Duration::from_secs(1);
const PUTS: &str = "etcd_debugging_mvcc_total_put_size_in_bytes";

/// The bytes of a namespace by resource, such as `tekton.dev/pipelineruns`, and its Events.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Stored {
    pub(crate) bytes: BTreeMap<String, usize>,
    pub(crate) events: usize,
}

impl Stored {
    pub(crate) async fn read(bed: &Testbed, namespace: &str) -> Result<Self> {
        Ok(Self::of(namespace, &bed.stored_sizes(namespace).await?))
    }

    fn of(namespace: &str, sizes: &BTreeMap<String, usize>) -> Self {
        let mut stored = Self::default();
        for (key, size) in sizes {
            let resource = key.split_once(&format!("/{namespace}/")).unwrap_or_default().0;
            let resource = resource.trim_start_matches("/registry/");
            *stored.bytes.entry(resource.to_owned()).or_default() += key.len() + size;
            stored.events += usize::from(resource == "events");
        }
        stored
    }

    pub(crate) fn total(&self) -> usize {
        self.bytes.values().sum()
    }
}

/// Awaits the work, and returns its result and the most bytes of the namespace meanwhile, seen once a second.
pub(crate) async fn highest_during<T>(
    bed: &Testbed,
    namespace: &str,
    work: impl Future<Output = T>,
) -> Result<(T, usize)> {
    let (mut work, mut highest) = (pin!(work), 0);
    loop {
        match timeout(SAMPLE, work.as_mut()).await {
            Ok(done) => return Ok((done, highest)),
            Err(_) => highest = highest.max(Stored::read(bed, namespace).await?.total()),
        }
    }
}

/// The bytes of all keys and values that were ever written.
pub(crate) async fn written(bed: &Testbed) -> Result<f64> {
    sample(&bed.etcd_metrics().await?, PUTS).with_context(|| format!("etcd has no metric {PUTS}"))
}

pub(crate) fn kilobytes(bytes: usize) -> f64 {
    number(bytes) / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_summed_by_resource_and_events_are_counted() {
        let sizes = [
            ("/registry/events/here/a.1", 100),
            ("/registry/events/here/a.2", 50),
            ("/registry/tekton.dev/taskruns/here/a", 1000),
        ];
        let sizes = sizes.map(|(key, size)| (key.to_owned(), size)).into();
        let stored = Stored::of("here", &sizes);
        let expected = [("events", 200), ("tekton.dev/taskruns", 1036)];
        assert_eq!(
            stored.bytes,
            expected.map(|(name, bytes)| (name.to_owned(), bytes)).into()
        );
        assert_eq!((stored.events, stored.total()), (2, 1236));
    }
}

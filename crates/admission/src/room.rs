//! Limits the memory of the request bodies that are read at the same time.
//!
//! A replica may use 256 MiB. A review usually has a few ten KiB, but may have 4 MiB. While a rule reads a review, its tree of
//! values may take thirty times as much (one review at a time: the process has one thread). A client that sends bodies and does
//! not end them must use up neither the memory nor the room for reviews of the usual size.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The API server accepts no request over 3 MiB, so no object is bigger; the fourth MiB is for the envelope around it.
pub(crate) const LIMIT: usize = 4 << 20;
/// A body up to this size waits only for other bodies up to this size.
const USUAL: usize = 64 << 10;
/// The room for bodies of the usual size, and also the room for larger bodies.
const EACH: usize = 32 << 20;
/// The bytes that one permit stands for.
const UNIT: usize = 1 << 10;

/// Room for the bodies that are read and decided at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    usual: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Self {
        let room = || Arc::new(Semaphore::new(EACH / UNIT));
        Self {
            usual: room(),
            large: room(),
        }
    }
}

impl Room {
    /// Waits for room for a body of this size; a body of unknown size gets room for the largest.
    pub(crate) async fn take(&self, size: Option<usize>) -> Option<OwnedSemaphorePermit> {
        let size = size.unwrap_or(LIMIT).min(LIMIT);
        let room = if size <= USUAL { &self.usual } else { &self.large };
        let units = u32::try_from(size.div_ceil(UNIT)).ok()?;
        room.clone().acquire_many_owned(units).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn large_bodies_wait_for_each_other_and_the_usual_ones_for_none_of_them() {
        let room = Room::default();
        let taken: Vec<_> = (0..8).map(|_| room.take(None).now_or_never().unwrap()).collect();
        assert!(room.take(Some(USUAL + 1)).now_or_never().is_none());
        let usual: Vec<_> = (0..512)
            .map(|_| room.take(Some(USUAL)).now_or_never().unwrap())
            .collect();
        assert!(room.take(Some(USUAL)).now_or_never().is_none());
        drop((taken, usual));
        assert!(room.take(Some(LIMIT * 2)).now_or_never().is_some());
    }
}

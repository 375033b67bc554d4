//! The leadership, as the rest of the process sees it: leadership ends on the local clock when the process fails to renew the
//! Lease.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The role of this process in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The process has not read the Lease yet.
    Unknown,
    /// Another process leads.
    Standby,
    /// This process leads until this time; each renewal extends the time.
    Leading(Instant),
    /// The process has left the election.
    Over,
}

/// A view of the [`Standing`]. Clones share the state.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Standing>);

impl Leadership {
    pub(super) fn new(standing: watch::Receiver<Standing>) -> Self {
        Self(standing)
    }

    /// Whether this process leads now.
    #[cfg(test)]
    pub(super) fn is_held(&self) -> bool {
        matches!(*self.0.borrow(), Standing::Leading(until) if Instant::now() < until)
    }

    /// Resolves when the process has read the Lease.
    pub async fn known(&mut self) {
        self.reached(|standing| *standing != Standing::Unknown).await;
    }

    /// Resolves when this process leads; stays pending if the election ends first.
    pub async fn acquired(&mut self) {
        self.reached(|standing| matches!(standing, Standing::Leading(_)))
            .await;
    }

    /// Resolves when the leadership ends, and at once if this process does not lead.
    pub async fn lost(&mut self) {
        loop {
            let Standing::Leading(until) = *self.0.borrow_and_update() else {
                return;
            };
            tokio::select! {
                biased;
                // A renewal that came in time wins over a timer that fires late.
                changed = self.0.changed() => if changed.is_err() { return },
                () = sleep_until(until) => return,
            }
        }
    }

    async fn reached(&mut self, standing: impl FnMut(&Standing) -> bool) {
        if self.0.wait_for(standing).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::advance;

    fn in_seconds(seconds: u64) -> Standing {
        Standing::Leading(Instant::now() + Duration::from_secs(seconds))
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_is_not_renewed_ends_by_itself() {
        let (_elector, seen) = watch::channel(in_seconds(10));
        let mut leadership = Leadership::new(seen);
        assert!(leadership.is_held());
        let began = Instant::now();
        leadership.lost().await;
        assert_eq!(began.elapsed().as_secs(), 10);
        assert!(!leadership.is_held());
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_prolongs_it() {
        let (elector, seen) = watch::channel(in_seconds(10));
        let mut leadership = Leadership::new(seen);
        advance(Duration::from_secs(9)).await;
        elector.send_replace(in_seconds(10));
        let began = Instant::now();
        leadership.lost().await;
        assert_eq!(began.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn standing_by_is_not_leading() {
        let (elector, seen) = watch::channel(Standing::Unknown);
        let mut leadership = Leadership::new(seen);
        elector.send_replace(Standing::Standby);
        leadership.known().await;
        assert!(!leadership.is_held());
        elector.send_replace(in_seconds(1));
        leadership.acquired().await;
        assert!(leadership.is_held());
        elector.send_replace(Standing::Over);
        leadership.lost().await;
        assert!(!leadership.is_held());
    }
}

//! Leader election by a Lease, with the algorithm of client-go: one leader writes, the other candidates wait.
//!
//! [`decide`] is pure, [`elector`] reads and writes the Lease, the rest of the process reads [`leadership`]. There is no fencing:
//! two processes may lead for a moment, so every write must be safe for two writers.
//!
//! This module is hand-written, because kubert and kube-lease-manager compare the times in the Lease with their own clock: a
//! process whose clock is ahead would take the Lease from its holder.

pub mod decide;
pub mod elector;
pub mod leadership;
pub mod terms;

pub use terms::Terms;

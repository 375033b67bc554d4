//! Leader election by a Lease, as client-go does it: one leader writes, the others wait.
//!
//! [`decide`] is pure, [`elector`] reads and writes the Lease, [`leadership`] is what the rest of the process sees. There is
//! no fencing: for a moment two processes may lead, so every write must be safe for two writers.
//!
//! Not by a library: kubert and kube-lease-manager compare the times in the Lease with their own clock, so that a process
//! whose clock is ahead would take the Lease from its holder.

pub mod decide;
pub mod elector;
pub mod leadership;
pub mod terms;

pub use terms::Terms;

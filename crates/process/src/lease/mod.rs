//! Leader election by a Lease, as client-go does it: one leader writes, the others wait.
//!
//! [`decide`] is pure, [`elector`] reads and writes the Lease, [`leadership`] is what the rest of the process sees. No
//! fencing is promised: two processes may believe to lead for a moment, so every write must be safe for two writers.

pub mod decide;
pub mod elector;
pub mod leadership;
pub mod terms;

pub use terms::Terms;

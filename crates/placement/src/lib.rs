//! The rules of pod-affinity: what to do with a PipelineRun, a pod, a placeholder. All functions are pure.
//!
//! This crate reads no clock, no environment and no API server. A decision takes all its inputs as arguments, the time
//! included, and returns a value.

pub mod additions;
pub mod admission;
#[cfg(test)]
mod arbitrary;
pub mod attempts;
pub mod automatic_reserve;
pub mod bounded;
pub mod caps;
pub mod config;
pub mod coschedule;
pub mod cross_namespace_quota;

#[cfg(test)]
mod fixture;
pub mod image_pull;
pub mod kept_node;
pub mod keys;
mod label_syntax;
pub mod messages;
pub mod mounts;
pub mod names;
pub mod node;
pub mod notes;
pub mod opt_in;
pub mod placeholder;
pub mod plan;
pub mod pod_rejection;
pub mod quantity;
pub mod queue;
pub mod quota_room;
mod raw;
pub mod requests;
pub mod reserve;
pub mod resources;
pub mod run;
pub mod statefulset_quota;
pub mod strategy;
pub mod supported;
#[cfg(test)]
mod tally;
pub mod terms;
pub mod text;
pub mod volume;
pub mod warm;

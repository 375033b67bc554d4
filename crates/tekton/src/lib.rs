//! A read-only view of Tekton's PipelineRun with the fields that the rules read, and the resource requests of task definitions.
//!
//! This crate sends no request to an API server. A view must not be written back: it keeps only what the rules need, so that a
//! round trip would erase the rest of the object. Views do not implement `Serialize`, so that `Api::create` and `Api::replace` do
//! not compile. Every write is a patch of named fields.

mod facts;
pub mod metadata;
mod pipeline_run;
mod read_only;
pub mod tasks;
mod tolerant;

pub use facts::{Outcome, Template, Volumes};
pub use pipeline_run::{PipelineRun, PipelineRunSpec, PipelineRunStatus};

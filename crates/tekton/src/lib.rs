//! Read-only views of Tekton's PipelineRun: the few fields that the rules read; and what definitions of tasks ask for.
//!
//! Nothing in here talks to an API server, and nothing can be written back: the views keep only what the rules
//! need, so a round trip would erase the rest of the object. They cannot be serialised, which makes
//! `Api::create` and `Api::replace` refuse to compile; every write is a JSON patch of named fields.

mod facts;
pub mod metadata;
mod pipeline_run;
mod read_only;
pub mod tasks;
mod tolerant;

pub use facts::{Outcome, Volumes};
pub use pipeline_run::{PipelineRun, PipelineRunSpec, PipelineRunStatus};

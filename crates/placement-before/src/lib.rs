//! The plan as it was before it stated the wanted placeholder. Everything else is the crate `placement` itself.

#![allow(warnings)]

pub use placement::{
    config, keys, names, need, node, opt_in, quantity, reserve, resources, run, sets, strategy, terms,
};

pub mod autoscaler;
pub mod documents;
pub mod fixture;
pub mod impossible;
pub mod limits;
pub mod plan;
pub mod raw;
pub mod requests;

/// The bodies of the writes of a placeholder.
pub mod placeholder {
    pub use placement::placeholder::{size, stateful_set, wake};
    mod affinity;
    pub mod patches;
}

/// The events of the plan.
pub mod told {
    mod moves;
    pub mod notes;
    pub mod reason;
    mod refusals;
    mod reserves;
}

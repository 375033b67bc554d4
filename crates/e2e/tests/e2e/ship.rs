//! `cargo ship` with the static binary, a real registry and a real API server. Independent clients pull the pushed image:
//! requests written by hand, and crane.
//!
//! The first test compiles the binary without optimisation: minutes without a cache, a second with one.
//! `POD_AFFINITY_SHIP_BINARY`, the path of a static binary, replaces this build in all tests except `a_build_prints_...` and the nightly
//! tests.

mod arm64;
mod cluster;
mod image;
mod pulled;
mod refused;
mod release;
mod setup;

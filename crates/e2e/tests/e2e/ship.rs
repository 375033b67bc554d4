//! `cargo ship` with the release binary, a real registry and a real API server. Independent clients pull the pushed image:
//! requests written by hand, and crane.
//!
//! The first test compiles the release binary: minutes without a cache, a second with one. `POD_AFFINITY_SHIP_BINARY`, the
//! path of a static binary, replaces this build in all tests except `the_real_release_build_...`.

mod arm64;
mod cluster;
mod image;
mod pulled;
mod refused;
mod release;
mod setup;

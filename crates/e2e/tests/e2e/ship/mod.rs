//! `cargo ship` with the real things: the release binary, a real registry, a real API server. An independent client pulls
//! back what was pushed: requests written by hand, and crane.
//!
//! THE FIRST TEST TO COME COMPILES THE RELEASE BINARY: minutes when cold, a second when warm. `POD_AFFINITY_SHIP_BINARY`,
//! the path of a static one, spares that to all but `the_real_release_build_...`.

mod cluster;
mod image;
mod pulled;
mod refused;
mod world;

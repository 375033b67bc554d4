//! `cargo ship` with the real things: the release binary, a real registry, a real API server. An independent client (a
//! few lines of HTTP in `ship/pulled.rs`, and skopeo where it is on the PATH) pulls back what was pushed.
//!
//! THE FIRST TEST TO COME COMPILES THE RELEASE BINARY: minutes when cold, a second when warm. POD_AFFINITY_SHIP_BINARY,
//! the path of a static one, spares that to all but `the_real_release_build_...`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "all of this is tests")]

#[path = "ship/cluster.rs"]
mod cluster;
#[path = "ship/image.rs"]
mod image;
#[path = "ship/pulled.rs"]
mod pulled;
#[path = "ship/refused.rs"]
mod refused;
#[path = "ship/world.rs"]
mod world;

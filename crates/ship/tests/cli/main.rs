//! The program as its users meet it: what is on standard output, what is said when something is wrong, and what is not
//! done then. The registry is a few lines on loopback that answer as refusing registries do, kubectl a script that writes
//! down what it was asked; real ones are tried in crates/e2e/tests/e2e/ship.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod fixture;
mod kubectl;
mod local;
mod refused;

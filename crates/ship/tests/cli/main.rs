//! Tests the program as a user runs it: its standard output, its errors, and which steps are skipped after an error. Nothing is pushed
//! to a registry outside the program, and kubectl is a script that records its input; crates/e2e/tests/e2e/ship tests the real ones.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod fixture;
mod kubectl;
mod local;
mod refused;

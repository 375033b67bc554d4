//! The program as a process, and the kustomizations. One program of tests: a test that waits leaves the processor to the others.

#![expect(clippy::unwrap_used, reason = "helpers of a test")]

mod hostile;
mod kustomizations;
mod placeholder;
mod webhook;
mod webhook_process;

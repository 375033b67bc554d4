//! End-to-end tests on the testbed.

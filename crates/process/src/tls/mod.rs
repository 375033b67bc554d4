//! The webhook's TLS port: a certificate that can be replaced while connections are served, and an end that loses no call.

pub mod pair;
pub mod serve;
pub mod sources;
pub mod store;

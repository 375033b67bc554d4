//! The webhook's TLS port: a certificate that can be exchanged while connections are served, and an end that loses no call.

pub mod layers;
pub mod pair;
pub mod serve;
pub mod sources;
pub mod store;

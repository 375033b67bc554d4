//! The webhook's TLS port, with certificate reload while connections are open, and a shutdown that loses no call.

pub mod pair;
pub mod serve;
pub mod sources;
pub mod store;

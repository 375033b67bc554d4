//! The router as the API server sees it, by `oneshot` and without a socket.

#[cfg(test)]
mod any_input;
#[cfg(test)]
mod edge;
#[cfg(test)]
mod huge;
#[cfg(test)]
mod mutated;
#[cfg(test)]
mod mutation;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod reviews;
#[cfg(test)]
#[path = "../../../placement/src/tally.rs"]
mod tally;

//! How many files this process may have open, connections included.

use crate::admin;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For all that is no client of the port that is asked for: the other port's, the API server's, the runtime's, files.
const OTHERS: u64 = admin::CONNECTIONS_AT_MOST as u64 + 64;

/// Sees to it that this many clients can be connected at once, and tells how many of them the system allows.
///
/// Container runtimes hand down a limit of 1024 for the sake of programs that use `select`, and let us raise it. At the
/// limit nobody's connection could be accepted, nor a changed certificate be read.
pub(crate) fn room_for(clients: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = u64::try_from(clients).unwrap_or(u64::MAX).saturating_add(OTHERS);
    let Some(had) = limit.current.filter(|had| *had < wanted) else {
        return clients;
    };
    let raised = limit.maximum.map_or(wanted, |most| most.min(wanted));
    let raising = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(raised),
            maximum: limit.maximum,
        },
    );
    let has = if raising.is_ok() { raised } else { had };
    usize::try_from(has.saturating_sub(OTHERS)).map_or(clients, |room| room.min(clients))
}

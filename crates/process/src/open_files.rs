//! How many files this process may have open, connections included.

use crate::admin;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For all that is no client of this port: clients of the other port, the API server, the runtime, files.
const OTHERS: u64 = admin::CONNECTIONS_AT_MOST as u64 + 64;

/// Raises the limit of open files so that this many clients can be connected at once; returns how many the system allows.
///
/// Container runtimes set a limit of 1024 for programs that use `select`, and let us raise it. At the limit, no connection
/// could be accepted and no changed certificate be read.
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
    let room = room(has, clients);
    if room < clients {
        tracing::warn!(
            open_files = has,
            connections = room,
            "few files may be open: raise the limit of this container"
        );
    }
    room
}

/// At least half of the files, even if the others would need all.
fn room(has: u64, clients: usize) -> usize {
    let room = has.saturating_sub(OTHERS).max(has / 2);
    usize::try_from(room).map_or(clients, |room| room.min(clients))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_few_files_may_be_open_there_is_room_for_clients() {
        for (has, expected) in [
            (1024, 512),
            (1064, 532),
            (2000, 1000),
            (2128, 1064),
            (4096, 2000),
            (u64::MAX, 2000),
        ] {
            assert_eq!(room(has, 2000), expected, "{has}");
        }
    }
}

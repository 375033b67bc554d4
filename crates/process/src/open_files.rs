//! The limit on open files of this process, connections included.

use crate::admin;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files for everything except the webhook's clients: clients of the admin port, the API server, the runtime, files.
const OTHERS: u64 = admin::CONNECTIONS_AT_MOST as u64 + 64;

/// Raises the limit on open files so that this many clients can connect. Returns the number of clients that the system allows.
///
/// Container runtimes set a soft limit of 1024 for programs that use `select`; processes may raise this limit. At the limit, the
/// process could neither accept a connection nor read a changed certificate.
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

/// Clients get the files that `OTHERS` leaves, and at least half of all files.
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

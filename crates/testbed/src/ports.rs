//! Reserves a block of free ports on 127.0.0.1, among all testbeds of this user, until the value is dropped.
//!
//! The blocks are outside the kernel's range for outgoing connections, so no connection takes a port between the check and the
//! use.

use crate::error::{Error, Result};
use rustix::fs::{CWD, Mode, OFlags};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The first port of the preferred range.
const USUAL: u16 = 20_000;
/// Ports below this are used by well-known servers.
const LOW: u16 = 10_000;
/// Number of ports of one testbed.
const BLOCK: u16 = 48;
/// The file with the kernel's port range for outgoing connections, and the kernel's default.
const EPHEMERAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const USUALLY_EPHEMERAL: RangeInclusive<u16> = 32_768..=60_999;

/// A reserved block of ports.
#[derive(Debug)]
pub(crate) struct Ports {
    next: u16,
    end: u16,
    // The lock on this file is the reservation. The lock ends with the process, for any reason.
    _lock: File,
}

impl Ports {
    /// Reserves the first block that no other testbed holds and on which no process listens.
    pub(crate) fn reserve() -> Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        Self::reserve_by(&std::env::temp_dir().join(format!("pod-affinity-testbed-ports-{user}")))
    }

    fn reserve_by(locks: &Path) -> Result<Self> {
        let folder = own_folder(locks).map_err(Error::io("opening the locks of ports in", locks))?;
        let ephemeral = ephemeral();
        for base in bases(&ephemeral) {
            if let Some(lock) = try_block(&folder, locks, base)? {
                return Ok(Self {
                    next: base,
                    end: base + BLOCK,
                    _lock: lock,
                });
            }
        }
        Err(Error::NoPorts {
            wanted: BLOCK,
            low: LOW,
            high: u16::MAX,
            ephemeral,
        })
    }

    /// The next port.
    pub(crate) fn next(&self) -> u16 {
        self.next
    }

    /// Frees all ports that were taken since `next` was the next port.
    pub(crate) fn go_back_to(&mut self, next: u16) {
        self.next = next.min(self.next);
    }

    /// Takes one port.
    pub(crate) fn take(&mut self) -> Result<u16> {
        let port = self.next;
        if port == self.end {
            return Err(Error::NoPorts {
                wanted: 1,
                low: self.end - BLOCK,
                high: self.end - 1,
                ephemeral: ephemeral(),
            });
        }
        self.next += 1;
        Ok(port)
    }
}

fn ephemeral() -> RangeInclusive<u16> {
    let told = std::fs::read_to_string(EPHEMERAL).ok();
    told.as_deref().and_then(range).unwrap_or(USUALLY_EPHEMERAL)
}

fn range(told: &str) -> Option<RangeInclusive<u16>> {
    let mut bounds = told.split_whitespace().map(str::parse);
    match (bounds.next()?, bounds.next()?) {
        (Ok(low), Ok(high)) => Some(low..=high),
        _ => None,
    }
}

/// First ports of the blocks that do not overlap the range for outgoing connections.
fn bases(ephemeral: &RangeInclusive<u16>) -> impl Iterator<Item = u16> + use<> {
    let (first, last) = (*ephemeral.start(), *ephemeral.end());
    let usual = (USUAL..=u16::MAX - BLOCK).step_by(usize::from(BLOCK));
    let others = (LOW..=USUAL - BLOCK).step_by(usize::from(BLOCK));
    usual
        .chain(others)
        .filter(move |base| base + BLOCK <= first || *base > last)
}

/// Opens the user's own folder. The name is predictable, and any user can create a folder with this name in the temporary folder.
fn own_folder(path: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&folder)?;
    let is_ours = found.st_uid == rustix::process::geteuid().as_raw();
    if is_ours && Mode::from_raw_mode(found.st_mode) == Mode::RWXU {
        return Ok(folder);
    }
    let problem = "it is not a folder of the user who runs this, with mode 0700";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

fn try_block(folder: &OwnedFd, locks: &Path, base: u16) -> Result<Option<File>> {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, base.to_string(), flags, Mode::RUSR | Mode::WUSR);
    let failed = |error: rustix::io::Errno| Error::io("creating", lock_file(locks, base))(error.into());
    let file = File::from(file.map_err(failed)?);
    let free = file.try_lock().is_ok() && (base..base + BLOCK).all(is_free);
    Ok(free.then_some(file))
}

fn lock_file(locks: &Path, base: u16) -> PathBuf {
    locks.join(base.to_string())
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn two_reservations_share_no_port() {
        let (mut one, mut two) = (Ports::reserve().unwrap(), Ports::reserve().unwrap());
        let of_one: Vec<_> = (0..BLOCK).map(|_| one.take().unwrap()).collect();
        let of_two: Vec<_> = (0..BLOCK).map(|_| two.take().unwrap()).collect();
        assert!(of_one.iter().all(|port| !of_two.contains(port)));
    }

    #[test]
    fn a_block_with_a_used_port_is_skipped() {
        let first = Ports::reserve().unwrap();
        let base = first.next;
        drop(first);
        let _squatter = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 7)).unwrap();
        let mut second = Ports::reserve().unwrap();
        assert_ne!(second.take().unwrap(), base);
    }

    #[test]
    fn no_block_has_a_port_that_outgoing_connections_take() {
        for ephemeral in [
            USUALLY_EPHEMERAL,
            15_000..=64_000,
            1024..=29_999,
            32_768..=u16::MAX,
        ] {
            let bases: Vec<_> = bases(&ephemeral).collect();
            assert!(bases.len() > 10, "{ephemeral:?}: {bases:?}");
            let taken = |base: &u16| (*base..base + BLOCK).any(|port| ephemeral.contains(&port));
            assert!(!bases.iter().any(taken), "{ephemeral:?}: {bases:?}");
        }
        assert_eq!(bases(&(1024..=u16::MAX)).count(), 0);
        assert_eq!(bases(&USUALLY_EPHEMERAL).next(), Some(USUAL));
    }

    #[test]
    fn the_range_of_outgoing_connections_is_read_from_the_kernel() {
        assert_eq!(range("32768\t60999\n"), Some(USUALLY_EPHEMERAL));
        assert_eq!(range("32768"), None);
        assert_eq!(range("low high"), None);
    }

    #[test]
    fn a_folder_of_locks_that_is_a_link_or_open_to_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [elsewhere, link, open] = ["elsewhere", "link", "open"].map(|name| folder.path().join(name));
        std::fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        assert!(Ports::reserve_by(&link).is_err());
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        let refusal = Ports::reserve_by(&open).unwrap_err().to_string();
        assert!(refusal.contains("with mode 0700"), "{refusal}");
    }

    #[test]
    fn a_lock_that_is_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (locks, target) = (folder.path().join("locks"), folder.path().join("target"));
        own_folder(&locks).unwrap();
        for base in bases(&ephemeral()) {
            let file = lock_file(&locks, base);
            let _ = std::fs::remove_file(&file);
            std::os::unix::fs::symlink(&target, &file).unwrap();
        }
        assert!(Ports::reserve_by(&locks).is_err());
        assert!(!target.exists());
    }

    #[test]
    fn a_used_up_block_is_an_error() {
        let mut ports = Ports::reserve().unwrap();
        let spent = (0..=BLOCK).map(|_| ports.take()).find_map(Result::err);
        assert!(spent.unwrap().to_string().contains("free ports"));
    }
}

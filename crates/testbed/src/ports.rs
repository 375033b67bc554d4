//! A block of free ports on 127.0.0.1, reserved among all testbeds of the machine for as long as it is held.
//!
//! The blocks lie below the range from which the kernel takes outgoing ports, so that no connection takes
//! one between the look and the use.

use crate::error::{Error, Result};
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

const LOW: u16 = 20_000;
const HIGH: u16 = 32_000;
/// Ports of one testbed.
const BLOCK: u16 = 48;

/// A reserved block of ports.
#[derive(Debug)]
pub(crate) struct Ports {
    next: u16,
    end: u16,
    // The lock on this file is the reservation; it ends with the process, however that ends.
    _lock: File,
}

impl Ports {
    /// Reserves the first block that no other testbed holds and on which nothing listens.
    pub(crate) fn reserve() -> Result<Self> {
        let locks = std::env::temp_dir().join("pod-affinity-testbed-ports");
        std::fs::create_dir_all(&locks).map_err(Error::io("creating", &locks))?;
        for base in (LOW..HIGH).step_by(usize::from(BLOCK)) {
            if let Some(lock) = try_block(&locks, base)? {
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
            high: HIGH,
        })
    }

    /// Hands out one port.
    pub(crate) fn take(&mut self) -> Result<u16> {
        let port = self.next;
        if port == self.end {
            return Err(Error::NoPorts {
                wanted: 1,
                low: self.end - BLOCK,
                high: self.end,
            });
        }
        self.next += 1;
        Ok(port)
    }
}

fn try_block(locks: &Path, base: u16) -> Result<Option<File>> {
    let path = locks.join(base.to_string());
    let file = File::create(&path).map_err(Error::io("creating", &path))?;
    let free = file.try_lock().is_ok() && (base..base + BLOCK).all(is_free);
    Ok(free.then_some(file))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_reservations_share_no_port() {
        let (mut one, mut two) = (Ports::reserve().unwrap(), Ports::reserve().unwrap());
        let of_one: Vec<_> = (0..BLOCK).map(|_| one.take().unwrap()).collect();
        let of_two: Vec<_> = (0..BLOCK).map(|_| two.take().unwrap()).collect();
        assert!(of_one.iter().all(|port| !of_two.contains(port)));
    }

    #[test]
    fn a_block_with_a_taken_port_is_passed_over() {
        let first = Ports::reserve().unwrap();
        let base = first.next;
        drop(first);
        let _squatter = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 7)).unwrap();
        let mut second = Ports::reserve().unwrap();
        assert_ne!(second.take().unwrap(), base);
    }

    #[test]
    fn a_spent_block_says_so() {
        let mut ports = Ports::reserve().unwrap();
        let spent = (0..=BLOCK).map(|_| ports.take()).find_map(Result::err);
        assert!(spent.unwrap().to_string().contains("free ports"));
    }
}

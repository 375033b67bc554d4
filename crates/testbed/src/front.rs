//! One address for several replicas, like a Service: each new connection goes to the next ready replica; open connections stay at
//! their replica.
//!
//! Like the endpoints of a Service, the front sees a change of readiness with a delay, and like kube-proxy it does not read the
//! traffic. The front runs in the process that started the testbed, so the loss of a node is not simulated.

use crate::error::{Error, Result};
use crate::probe;
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Interval of readiness checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// A replica, with its serving port and its port for readiness.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replica {
    pub(crate) port: u16,
    pub(crate) admin: u16,
}

/// A running front.
#[derive(Debug)]
pub(crate) struct Front {
    port: u16,
    ready: Arc<Ready>,
    stop: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Ready {
    ports: Mutex<BTreeSet<u16>>,
    next: AtomicUsize,
}

impl Front {
    pub(crate) fn start(port: u16, replicas: Vec<Replica>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(Error::io(
            "listening for the webhook's Service on a port of",
            "127.0.0.1",
        ))?;
        let (stop, ready) = (Arc::new(AtomicBool::new(false)), Arc::new(Ready::default()));
        for replica in replicas {
            let (stop, ready) = (stop.clone(), ready.clone());
            thread::spawn(move || check_readiness(replica, &ready, &stop));
        }
        let (routes, stop_serving) = (ready.clone(), stop.clone());
        thread::spawn(move || serve(&listener, &routes, &stop_serving));
        Ok(Self { port, ready, stop })
    }

    /// Whether new connections can go to this replica.
    pub(crate) fn routes_to(&self, replica: Replica) -> bool {
        self.ready.ports().contains(&replica.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the accepting thread, which then sees the stop flag.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
    }
}

/// A thread for each replica: a slow answer of one replica does not hide the end of another.
fn check_readiness(replica: Replica, ready: &Ready, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let is_ready = probe::get_blocking(replica.admin, "/readyz").is_ok();
        let mut ports = ready.ports();
        if is_ready {
            ports.insert(replica.port);
        } else {
            ports.remove(&replica.port);
        }
        drop(ports);
        thread::sleep(CHECK_INTERVAL);
    }
}

fn serve(listener: &TcpListener, ready: &Arc<Ready>, stop: &AtomicBool) {
    for client in listener.incoming().flatten() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let ready = ready.clone();
        // Without a ready replica the connection is closed, like a connection to a Service without endpoints.
        thread::spawn(move || ready.pick().and_then(|port| proxy_connection(&client, port).ok()));
    }
}

impl Ready {
    fn pick(&self) -> Option<u16> {
        let ports = self.ports();
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        ports.iter().nth(turn.checked_rem(ports.len())?).copied()
    }

    fn ports(&self) -> MutexGuard<'_, BTreeSet<u16>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn proxy_connection(client: &TcpStream, port: u16) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    // kube-proxy forwards packets unchanged. A second TCP connection with Nagle's algorithm would delay small packets by 40 ms.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from, to) = (server.try_clone()?, client.try_clone()?);
    let back = thread::spawn(move || copy_until_closed(&from, &to));
    copy_until_closed(client, &server);
    // A panic of the thread has already ended this direction.
    let _ = back.join();
    Ok(())
}

/// Copies until one side closes, then closes the other side.
fn copy_until_closed(mut from: &TcpStream, mut to: &TcpStream) {
    // A reset is normal on either side; the shutdown closes the other side.
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    /// A replica that sends its name on each connection, and is ready or not.
    fn replica(name: &'static str, ready: bool) -> Replica {
        let answer = if ready {
            "HTTP/1.0 200 OK\r\n\r\n"
        } else {
            "HTTP/1.0 503 No\r\n\r\n"
        };
        Replica {
            port: say(name),
            admin: say(answer),
        }
    }

    fn say(text: &'static str) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                client.write_all(text.as_bytes()).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                // What is left unread would reset the connection, and with it the answer.
                let _ = io::copy(&mut client, &mut io::sink());
            }
        });
        port
    }

    fn ask(port: u16) -> String {
        let mut text = String::new();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    fn free_port() -> u16 {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port()
    }

    #[test]
    fn connections_go_in_turn_to_the_replicas_that_are_ready() {
        let replicas = vec![
            replica("one", true),
            replica("two", false),
            replica("three", true),
        ];
        let port = free_port();
        let _front = Front::start(port, replicas).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        let mut seen = BTreeSet::new();
        while !["one", "three"].iter().all(|name| seen.contains(*name)) {
            assert!(std::time::Instant::now() < deadline, "only {seen:?} became ready");
            seen.insert(ask(port));
        }
        let mut answers: Vec<_> = (0..4).map(|_| ask(port)).collect();
        answers.sort();
        assert_eq!(answers, ["one", "one", "three", "three"]);
    }
}

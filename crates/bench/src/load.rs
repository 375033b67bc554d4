//! Requests at a constant rate over kept-alive TLS connections, as an API server holds them.
//!
//! Open loop: each request has the moment in which it should be sent, whatever became of those before it, and its
//! latency counts from that moment. A server that stalls is charged for everything that piled up meanwhile.
//! Blocking threads, one a connection: nothing but the kernel between the clock and the socket.

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// As many idle connections as client-go keeps to one host.
const CONNECTIONS: u32 = 25;
/// Longest silence of a server that still serves.
const PATIENCE: Duration = Duration::from_secs(30);
/// So much longer than planned may a load take before it is given up.
const OVERTIME: u32 = 2;

/// Where to send what.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) name: ServerName<'static>,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) path: &'static str,
    pub(crate) body: String,
    /// What each answer must hold.
    pub(crate) expected: &'static str,
}

/// What came of a load; milliseconds, one each request.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// From the moment in which it should have been sent to the last byte of its answer.
    pub(crate) latencies: Vec<f64>,
    /// How late it was sent though its connection was free: the generator's own fault.
    pub(crate) late: Vec<f64>,
    /// Not sent in time, since the server did not keep up.
    pub(crate) unsent: usize,
}

type Connection = StreamOwned<ClientConnection, TcpStream>;

/// Sends `rate` requests a second for so long. An answer that is none is an error, a slow one is not.
pub(crate) fn send(target: &Target, rate: u32, lasting: Duration) -> Result<Outcome> {
    let connections: Vec<_> = (0..CONNECTIONS.min(rate))
        .map(|_| connect(target))
        .collect::<Result<_>>()?;
    let plan = Plan {
        request: request(target),
        expected: target.expected,
        gap: Duration::from_secs(1) / rate,
        start: Instant::now() + Duration::from_millis(20),
        lasting,
        step: CONNECTIONS.min(rate),
    };
    let turns = (0..).zip(connections);
    thread::scope(|scope| {
        let plan = &plan;
        let threads: Vec<_> = turns
            .map(|(first, connection)| scope.spawn(move || plan.follow(first, connection)))
            .collect();
        let outcomes = threads.into_iter().map(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => bail!("a thread of the generator panicked"),
        });
        outcomes.sum()
    })
}

impl std::iter::Sum for Outcome {
    fn sum<I: Iterator<Item = Self>>(outcomes: I) -> Self {
        outcomes.fold(Self::default(), |mut all, one| {
            all.latencies.extend(one.latencies);
            all.late.extend(one.late);
            all.unsent += one.unsent;
            all
        })
    }
}

/// What every connection follows, each from another first request on.
struct Plan {
    request: Vec<u8>,
    expected: &'static str,
    gap: Duration,
    start: Instant,
    lasting: Duration,
    step: u32,
}

impl Plan {
    fn follow(&self, first: u32, mut connection: Connection) -> Result<Outcome> {
        // Sleeps may otherwise end 50 us late, which would be counted as latency.
        set_current_timer_slack(NonZeroU64::new(1))?;
        let (mut outcome, mut free) = (Outcome::default(), self.start);
        let mut number = first;
        while self.gap * number < self.lasting {
            let meant = self.start + self.gap * number;
            number += self.step;
            if free > self.start + self.lasting * OVERTIME {
                outcome.unsent += 1;
                continue;
            }
            thread::sleep(meant.saturating_duration_since(Instant::now()));
            let sent = Instant::now();
            self.exchange(&mut connection)?;
            outcome.late.push(milliseconds(sent - meant.max(free)));
            free = Instant::now();
            outcome.latencies.push(milliseconds(free - meant));
        }
        Ok(outcome)
    }

    fn exchange(&self, connection: &mut Connection) -> Result<()> {
        connection.write_all(&self.request).context("sending a request")?;
        connection.flush().context("sending a request")?;
        let answer = read_answer(connection)?;
        if !(answer.starts_with("HTTP/1.1 200 ") && answer.contains(self.expected)) {
            bail!("an answer is not as it should be: {answer}");
        }
        Ok(())
    }
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn connect(target: &Target) -> Result<Connection> {
    let socket = TcpStream::connect(target.address).context("connecting to the webhook")?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut connection = StreamOwned::new(
        ClientConnection::new(target.tls.clone(), target.name.clone())?,
        socket,
    );
    // The handshake is no part of a request on a kept-alive connection.
    while connection.conn.is_handshaking() {
        connection
            .conn
            .complete_io(&mut connection.sock)
            .context("the TLS handshake")?;
    }
    Ok(connection)
}

fn request(target: &Target) -> Vec<u8> {
    let Target { path, body, .. } = target;
    let head = format!(
        "POST {path}?timeout=10s HTTP/1.1\r\nhost: webhook\r\naccept: application/json, */*\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

fn read_answer(connection: &mut impl Read) -> Result<String> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 8192]);
    loop {
        let read = connection.read(&mut chunk).context("reading an answer")?;
        if read == 0 {
            bail!("the connection was closed before an answer");
        }
        bytes.extend_from_slice(&chunk[..read]);
        if is_whole(&bytes)? {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}

fn is_whole(bytes: &[u8]) -> Result<bool> {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, _)) = text.split_once("\r\n\r\n") else {
        return Ok(false);
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.context("an answer has no length")?;
    Ok(bytes.len() >= head.len() + 4 + length)
}

/// Runs something on one core only; what it starts stays there.
pub(crate) fn on_core<T>(core: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = sched_getaffinity(None).context("reading the thread's cores")?;
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).with_context(|| format!("binding a thread to core {core}"))?;
    let done = work();
    sched_setaffinity(None, &before).context("giving back a thread's cores")?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_last_byte() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert!(is_whole(answer).unwrap());
        assert!(!is_whole(&answer[..answer.len() - 1]).unwrap());
        assert!(is_whole(b"HTTP/1.1 200 OK\r\n\r\nabc").is_err());
    }

    #[test]
    fn work_on_one_core_sees_one_core() {
        let cores = || sched_getaffinity(None).unwrap().count();
        let before = cores();
        assert_eq!(on_core(0, || Ok(cores())).unwrap(), 1);
        assert_eq!(cores(), before);
    }
}

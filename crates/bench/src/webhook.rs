//! The real webhook process under load on loopback.

use crate::Effort;
use crate::aim::Aim;
use crate::load::{self, Outcome, Target, on_core};
use crate::process::{cpu_seconds, resident};
use crate::report::Report;
use crate::scenario::{Figures, Scenario};
use crate::stats::{number, quantile};
use anyhow::{Context, Result, bail};
use placement::keys;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

#[path = "../../admission/benches/reviews.rs"]
pub(crate) mod reviews;

const NAME: &str = "webhook.invalid";
const P50: &str = "p50, ms";
const P99: &str = "p99, ms";
const MEMORY: &str = "memory, MB";
/// The load of the aims.
const STEADY: u32 = 1000;
const STEADY_BYTES: usize = 10_000;

const METHOD: &str = "The process is bound to one core, and the load generator to another. TLS 1.3, HTTP/1.1, 25 \
persistent connections; each response is checked. The rate is constant, however long the responses take, and latency \
counts from the time at which a request should have been sent. Generator late: how late the generator sent a request \
although the connection was free; the server did not cause this delay. Unsent: requests that were not sent because the \
server was saturated.";

pub(crate) fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let server = Server::start(&effort.binary)?;
    let idle = resident(server.child.id())?;
    let mut scenarios = Vec::new();
    for bytes in effort.pick(&[2_000, 10_000, 50_000][..], &[10_000]) {
        scenarios.push(one_size(effort, &server, *bytes)?);
    }
    scenarios.push(soak(effort, &server, idle)?);
    Ok(scenarios)
}

fn one_size(effort: &Effort, server: &Server, bytes: usize) -> Result<Scenario> {
    let mut scenario = Scenario::new(format!("pods of {} KB", bytes / 1000), &[]);
    let lasting = effort.pick(Duration::from_secs(10), Duration::from_secs(2));
    for round in 0..effort.rounds {
        let mut rates = effort.pick([100, STEADY, 5000].to_vec(), [50, 200].to_vec());
        if round % 2 == 1 {
            rates.reverse();
        }
        for rate in rates {
            let figures = server.under(rate, lasting, bytes)?;
            eprintln!(
                "   {}, {rate}/s: p50 {:.2} ms, p99 {:.2} ms",
                scenario.title, figures[0].1, figures[1].1
            );
            scenario.add(&format!("{rate}/s"), figures)?;
        }
    }
    Ok(scenario)
}

/// Long at a steady rate, its memory looked at again and again.
fn soak(effort: &Effort, server: &Server, idle: f64) -> Result<Scenario> {
    let (minutes, pieces) = effort.pick((10, 10), (0, 3));
    let piece = effort.pick(Duration::from_mins(1), Duration::from_secs(1));
    let rate = effort.pick(STEADY, 200);
    let mut scenario = Scenario::new(format!("{minutes} minutes at {rate}/s, pods of 10 KB"), &[]);
    scenario.add("before any request", vec![(MEMORY, idle)])?;
    for piece_number in 1..=pieces {
        let figures = server.under(rate, piece, STEADY_BYTES)?;
        eprintln!("   steady, piece {piece_number} of {pieces}");
        if [1, pieces / 2, pieces].contains(&piece_number) {
            scenario.add(&format!("piece {piece_number} of {pieces}"), figures)?;
        }
    }
    Ok(scenario)
}

pub(crate) fn report(scenarios: Vec<Scenario>) -> Report {
    let steady = scenarios
        .iter()
        .find(|scenario| scenario.title == "pods of 10 KB");
    let at = |figure: &str| steady?.spread(&format!("{STEADY}/s"), figure);
    let last = scenarios.last();
    let memory = last.and_then(|soak| soak.spread(soak.variants.last()?, MEMORY));
    let growth = last.and_then(|soak| soak.ratio(soak.variants.last()?, soak.variants.get(1)?, MEMORY));
    let aims = [
        Aim::at_most("p50 at 1000/s, pods of 10 KB, ms", 0.3, at(P50)),
        Aim::at_most("p99 at 1000/s, pods of 10 KB, ms", 2.0, at(P99)),
        Aim::at_most("resident memory at the end, MB", 15.0, memory),
        Aim::at_most(
            "resident memory at the end to that after the first piece",
            1.05,
            growth,
        ),
    ];
    Report {
        part: "webhook",
        title: "The webhook process",
        method: METHOD,
        aims: aims.into_iter().flatten().collect(),
        scenarios,
        plotted: P99,
        faster: Vec::new(),
        notes: Vec::new(),
    }
}

/// The process under measurement.
struct Server {
    child: Child,
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    _folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(binary: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let tls = certificate(folder.path())?;
        let mut child = on_core(server_core()?, || spawn(binary, folder.path()))?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let mut told = |what: &str| {
            let line = lines
                .next()
                .with_context(|| format!("the webhook ended before it logged its {what} port"))??;
            let address = line
                .strip_prefix(what)
                .with_context(|| format!("{line:?} is no {what} address"))?;
            anyhow::Ok(address.trim().parse::<SocketAddr>()?)
        };
        let (address, admin) = (told("webhook")?, told("admin")?);
        let server = Self {
            child,
            address,
            tls,
            _folder: folder,
        };
        until_ready(admin)?;
        Ok(server)
    }

    fn under(&self, rate: u32, lasting: Duration, bytes: usize) -> Result<Figures> {
        let target = Target {
            address: self.address,
            name: ServerName::try_from(NAME)?,
            tls: self.tls.clone(),
            path: keys::POD_PATH,
            body: reviews::review(&reviews::pod(bytes)),
            expected: "\"patch\":",
        };
        let (before, begun) = (cpu_seconds(self.child.id())?, Instant::now());
        let outcome = on_core(0, || load::send(&target, rate, lasting))?;
        let cpu = cpu_seconds(self.child.id())? - before;
        self.figures(&outcome, cpu, begun.elapsed())
    }

    fn figures(&self, outcome: &Outcome, cpu: f64, took: Duration) -> Result<Figures> {
        let answered = number(outcome.latencies.len());
        let of = |values: &[f64], share| quantile(values, share).context("no request was answered");
        Ok(vec![
            (P50, of(&outcome.latencies, 0.5)?),
            (P99, of(&outcome.latencies, 0.99)?),
            ("p99.9, ms", of(&outcome.latencies, 0.999)?),
            ("CPU a request, us", cpu / answered * 1e6),
            (MEMORY, resident(self.child.id())?),
            ("answered a second", answered / took.as_secs_f64()),
            ("unsent", number(outcome.unsent)),
            ("generator late p99, ms", of(&outcome.late, 0.99)?),
        ])
    }
}

/// Not the generator's, where there is more than one.
fn server_core() -> Result<usize> {
    Ok(usize::from(thread::available_parallelism()?.get() > 1))
}

fn spawn(binary: &Path, folder: &Path) -> Result<Child> {
    Command::new(binary)
        .args([
            "webhook",
            "--listen=127.0.0.1:0",
            "--admin-listen=127.0.0.1:0",
            "--drain-delay=0s",
        ])
        .arg(format!("--tls-cert-file={}", folder.join("tls.crt").display()))
        .arg(format!("--tls-key-file={}", folder.join("tls.key").display()))
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {}", binary.display()))
}

/// Writes the server's certificate, and makes a client that trusts nothing else.
fn certificate(folder: &Path) -> Result<Arc<ClientConfig>> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    fs::write(folder.join("tls.crt"), made.cert.pem())?;
    fs::write(folder.join("tls.key"), made.signing_key.serialize_pem())?;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    Ok(Arc::new(
        ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth(),
    ))
}

fn until_ready(admin: SocketAddr) -> Result<()> {
    let begun = Instant::now();
    while testbed::probe::get_blocking(admin.port(), "/readyz").is_err() {
        if begun.elapsed() > Duration::from_secs(10) {
            bail!("the webhook is not ready after ten seconds");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

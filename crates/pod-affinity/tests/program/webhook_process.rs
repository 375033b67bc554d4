//! A running webhook.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::yield_now;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The DNS name of the certificate.
pub(crate) const NAME: &str = "a.b.svc";

const DEADLINE: Duration = Duration::from_mins(1);

/// The process, with its ports from standard output and its certificate in files.
pub(crate) struct Webhook {
    child: Child,
    pub(crate) admission: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Webhook {
    /// Starts with the limit on open files that container runtimes set.
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[])
    }

    pub(crate) fn start_with(folder: &Path, more: &[String]) -> Self {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "ulimit -Sn 1024; exec \"$0\" \"$@\""])
            .arg(env!("CARGO_BIN_EXE_pod-affinity"))
            .args([
                "webhook",
                "--listen=127.0.0.1:0",
                "--admin-listen=127.0.0.1:0",
                "--drain-delay=0s",
            ])
            .arg(format!("--tls-cert-file={}", folder.join("tls.crt").display()))
            .arg(format!("--tls-key-file={}", folder.join("tls.key").display()))
            .args(more)
            .env_clear()
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = |what: &str| {
            lines
                .next()
                .unwrap()
                .unwrap()
                .strip_prefix(what)
                .unwrap()
                .parse()
                .unwrap()
        };
        let (admission, admin) = (address("webhook "), address("admin "));
        Self {
            child,
            admission,
            admin,
        }
    }

    pub(crate) fn until_ready(&self) {
        self.until("/readyz", |answer| answer.starts_with("HTTP/1.1 200"));
    }

    /// Repeats the request until the response meets the condition, and returns the response.
    pub(crate) fn until(&self, path: &str, is_it: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + DEADLINE;
        loop {
            let answer = self.ask(path);
            if is_it(&answer) {
                return answer;
            }
            assert!(Instant::now() < end, "waited {DEADLINE:?} for {path}: {answer}");
            yield_now();
        }
    }

    pub(crate) fn ask(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The maximum resident memory so far, in bytes.
    pub(crate) fn most_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let mut lines = status.lines().filter_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = lines.next().unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse::<u64>().unwrap() << 10
    }

    pub(crate) fn end(mut self) -> bool {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().success()
    }
}

/// A folder with a certificate for [`NAME`].
pub(crate) fn folder_with_certificate() -> TempDir {
    let folder = TempDir::new().unwrap();
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    fs::write(folder.path().join("tls.crt"), made.cert.pem()).unwrap();
    fs::write(folder.path().join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    folder
}

/// Stops the process also if the test fails.
impl Drop for Webhook {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

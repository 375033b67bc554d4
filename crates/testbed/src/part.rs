//! The parts as processes: starts parts with their own logs, checks them, stops them and starts them again.

mod kind;

use crate::error::{Error, Result, log_remedy, tail};
use crate::options::Cores;
use crate::usage;
pub use kind::Part;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The log message of a controller that has lost its Lease.
const LOST_ITS_LEASE: &str = "could not be renewed in time, or another process acquired the Lease";

/// Number of log lines that a failed test shows.
const LAST_LOG_LINES: usize = 15;

/// How a part is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl Launch {
    pub(crate) fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
        }
    }

    pub(crate) fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn path(self, flag: &str, path: &Path) -> Self {
        self.arg(format!("{flag}={}", path.display()))
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }
}

#[derive(Debug)]
struct Running {
    launch: Launch,
    // `None` if the part was stopped.
    child: Option<Child>,
    /// Whether the part may end by itself.
    end_expected: bool,
}

/// All parts of one testbed.
#[derive(Debug)]
pub(crate) struct Parts {
    group: i32,
    logs: PathBuf,
    cores: Cores,
    running: Mutex<BTreeMap<Part, Running>>,
    /// Parts that are started again when they end by themselves, with the number of restarts.
    kept_alive: Mutex<BTreeMap<Part, u32>>,
    /// CPU time of stopped processes.
    ended: Mutex<BTreeMap<Part, Duration>>,
}

impl Parts {
    pub(crate) fn new(group: i32, logs: PathBuf, cores: Cores) -> Result<Self> {
        fs::create_dir_all(&logs).map_err(Error::io("creating", &logs))?;
        Ok(Self {
            group,
            logs,
            cores,
            running: Mutex::default(),
            kept_alive: Mutex::default(),
            ended: Mutex::default(),
        })
    }

    // The map is valid after a panic, because each change is one insert or one take.
    fn running(&self) -> MutexGuard<'_, BTreeMap<Part, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of restarts of each part that is kept alive.
    pub(crate) fn kept_alive(&self) -> MutexGuard<'_, BTreeMap<Part, u32>> {
        self.kept_alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn start(&self, part: Part, launch: Launch) -> Result<()> {
        let child = self.spawn(part, &launch)?;
        self.insert(part, launch, child);
        Ok(())
    }

    fn insert(&self, part: Part, launch: Launch, child: Child) {
        let running = Running {
            launch,
            child: Some(child),
            end_expected: false,
        };
        self.running().insert(part, running);
    }

    fn spawn(&self, part: Part, launch: &Launch) -> Result<Child> {
        let path = self.log_file(part);
        let log = || -> Result<File> {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)
                .map_err(Error::io("opening", &path))
        };
        Command::new(&launch.program)
            .args(&launch.args)
            // Most parts are written in Go. Less garbage collection saves a fifth of the CPU time of a testbed's start.
            .env("GOGC", "400")
            .envs(self.cores.environment())
            .envs(launch.env.iter().map(|(name, value)| (name, value)))
            // Processes must not find a cluster of the user, and need no proxy.
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env_remove("HTTPS_PROXY")
            .env_remove("https_proxy")
            .stdin(Stdio::null())
            .stdout(log()?)
            .stderr(log()?)
            .process_group(self.group)
            .spawn()
            .map_err(|source| Error::Spawn {
                part: part.to_string(),
                program: launch.program.clone(),
                source,
            })
    }

    pub(crate) fn log_file(&self, part: Part) -> PathBuf {
        self.logs.join(format!("{part}.log"))
    }

    /// An error with the last log lines if a part ended by itself.
    pub(crate) fn check(&self) -> Result<()> {
        for (part, running) in self.running().iter_mut() {
            let Some(child) = running.child.as_mut() else {
                continue;
            };
            let Ok(Some(status)) = child.try_wait() else {
                continue;
            };
            running.child = None;
            if running.end_expected {
                continue;
            }
            if !self.may_restart(*part) {
                return Err(self.died(*part, &status.to_string()));
            }
            running.child = Some(self.spawn(*part, &running.launch)?);
        }
        Ok(())
    }

    /// Whether a part that ended may be started again. A restart of a part that is kept alive is counted. On a machine that is busy
    /// for many seconds a leader can lose its Lease; the leader then ends by design and relies on its restart.
    fn may_restart(&self, part: Part) -> bool {
        if let Some(restarts) = self.kept_alive().get_mut(&part) {
            *restarts += 1;
            return true;
        }
        let lost_its_lease =
            matches!(part, Part::Controller(_)) && self.end_of_log(part, 1).contains(LOST_ITS_LEASE);
        if lost_its_lease {
            eprintln!("{part} has lost its Lease and is restarted, as a kubelet would do");
        }
        lost_its_lease
    }

    /// The last log lines of the controllers and of the controller manager, which creates their pods, for a failed test.
    pub(crate) fn last_log_lines(&self) -> String {
        let parts = [Part::Controller(0), Part::Controller(1), Part::ControllerManager];
        let log = |part| self.end_of_log(part, LAST_LOG_LINES);
        let ends = parts.map(|part| format!("the last log lines of {part}:\n{}\n", log(part)));
        ends.concat()
    }

    fn end_of_log(&self, part: Part, lines: usize) -> String {
        let log = fs::read(self.log_file(part)).unwrap_or_default();
        tail(&String::from_utf8_lossy(&log), lines)
    }

    fn died(&self, part: Part, status: &str) -> Error {
        let log = self.end_of_log(part, LAST_LOG_LINES);
        Error::Died {
            part: part.to_string(),
            status: status.into(),
            remedy: log_remedy(&log),
            log_file: self.log_file(part),
            log,
        }
    }

    /// Sends a signal to a running part.
    pub(crate) fn signal(&self, part: Part, signal: Signal) -> Result<()> {
        let running = self.running();
        let child = running.get(&part).and_then(|running| running.child.as_ref());
        send(part, child, signal)
    }

    /// Stops a part with a signal and waits until the part has ended.
    pub(crate) fn stop(&self, part: Part, signal: Signal) -> Result<()> {
        // Removes the child first, so that a concurrent check does not report its end or restart the part.
        let child = self
            .running()
            .get_mut(&part)
            .and_then(|running| running.child.take());
        self.count(part, child.as_ref());
        send(part, child.as_ref(), signal)?;
        if let Some(mut child) = child {
            child
                .wait()
                .map_err(Error::io("waiting for", self.log_file(part)))?;
        }
        Ok(())
    }

    /// Allows the part to end by itself, until the part is started again.
    pub(crate) fn expect_end(&self, part: Part) {
        if let Some(running) = self.running().get_mut(&part) {
            running.end_expected = true;
        }
    }

    /// Whether the part still runs. The end of a part is recorded.
    pub(crate) fn still_runs(&self, part: Part) -> bool {
        let mut running = self.running();
        let Some(running) = running.get_mut(&part) else {
            return false;
        };
        let runs = running.child.as_mut().map(Child::try_wait);
        let runs = matches!(runs, Some(Ok(None)));
        if !runs {
            running.child = None;
        }
        runs
    }

    /// Starts a stopped part with its previous settings and additional arguments for this start.
    pub(crate) fn again(&self, part: Part, args: &[&str]) -> Result<()> {
        let launch = self.running().get(&part).map(|running| running.launch.clone());
        let launch = launch.ok_or_else(|| Error::NotRunning(part.to_string()))?;
        let child = self.spawn(part, &args.iter().copied().fold(launch.clone(), Launch::arg))?;
        self.insert(part, launch, child);
        Ok(())
    }

    /// The running parts with their settings.
    pub(crate) fn launches(&self) -> BTreeMap<Part, Launch> {
        let running = self.running();
        let running = running.iter().filter(|(_, running)| running.child.is_some());
        running
            .map(|(part, running)| (*part, running.launch.clone()))
            .collect()
    }

    /// A variable in the environment of a part.
    pub(crate) fn setting(&self, part: Part, name: &str) -> Option<String> {
        let running = self.running();
        let env = &running.get(&part)?.launch.env;
        let (_, value) = env.iter().find(|(key, _)| key == name)?;
        Some(value.clone())
    }

    /// Parts that were started and not forgotten.
    pub(crate) fn known(&self, which: impl Fn(Part) -> bool) -> Vec<Part> {
        self.running()
            .keys()
            .copied()
            .filter(|part| which(*part))
            .collect()
    }

    pub(crate) fn pid(&self, part: Part) -> Option<u32> {
        self.running().get(&part)?.child.as_ref().map(Child::id)
    }

    /// CPU time of each part since the start of the testbed, without processes that ended by themselves.
    pub(crate) fn cpu_times(&self) -> BTreeMap<Part, Duration> {
        let mut times = self.ended().clone();
        for (part, running) in self.running().iter() {
            *times.entry(*part).or_default() += cpu_time(running.child.as_ref());
        }
        times
    }

    /// Adds the CPU time of a process before the process is stopped.
    fn count(&self, part: Part, child: Option<&Child>) {
        *self.ended().entry(part).or_default() += cpu_time(child);
    }

    fn ended(&self) -> MutexGuard<'_, BTreeMap<Part, Duration>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills parts and forgets them.
    pub(crate) fn end(&self, which: impl Fn(Part) -> bool) -> Vec<Part> {
        let mut running = self.running();
        let mut ended: Vec<_> = running.extract_if(.., |part, _| which(*part)).collect();
        for (part, running) in &mut ended {
            self.count(*part, running.child.as_ref());
            // Killing fails if the process has ended, which is fine.
            let _ = running.child.as_mut().map(Child::kill);
        }
        for child in ended.iter_mut().filter_map(|(_, running)| running.child.as_mut()) {
            let _ = child.wait();
        }
        ended.into_iter().map(|(part, _)| part).collect()
    }

    /// Kills parts and deletes their logs.
    pub(crate) fn erase(&self, which: impl Fn(Part) -> bool) {
        for part in self.end(which) {
            // The next process with this name starts a new log. If the deletion fails, the process appends to the old log.
            let _ = fs::remove_file(self.log_file(part));
        }
    }
}

fn cpu_time(child: Option<&Child>) -> Duration {
    let cpu_time = child.and_then(|child| usage::cpu_time(child.id()).ok());
    cpu_time.unwrap_or_default()
}

/// Sends a signal to a child. The child must not be waited for concurrently, because its process id could then be reused.
fn send(part: Part, child: Option<&Child>, signal: Signal) -> Result<()> {
    let child = child.ok_or_else(|| Error::NotRunning(part.to_string()))?;
    // Sending fails if the process has ended, which most signals request anyway.
    let _ = kill_process(Pid::from_child(child), signal);
    Ok(())
}

#[cfg(test)]
mod tests;

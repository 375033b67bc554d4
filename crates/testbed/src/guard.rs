//! The guard: a small shell process that leads the process group of a testbed and ends shortly after the process that started it.
//!
//! Rust does not call `Drop` on Ctrl-C, on `kill -9`, or for a static in a test binary. The guard waits on a pipe whose other end
//! is in the test process. If the pipe closes without a word, for any reason, the guard kills every process of its
//! group. In both cases the guard removes what processes leave behind: the state folder, and the control groups of containers,
//! which have the name of the folder.

use crate::error::{Error, Result};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

// The test process writes "keep" or "remove" when all processes have ended. The end of the pipe starts the cleanup.
const SCRIPT: &str = include_str!("guard.sh");

/// A running guard.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
    keep_folder: bool,
}

impl Guard {
    /// Starts a guard for the processes that join its group. The guard removes `folder`, unless `keep_folder` is set.
    pub(crate) fn start(folder: &Path, keep_folder: bool) -> Result<Self> {
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "testbed-guard"])
            .arg(folder)
            .arg(fate(keep_folder))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|source| Error::Spawn {
                part: "guard".into(),
                program: PathBuf::from("sh"),
                source,
            })?;
        Ok(Self { shell, keep_folder })
    }

    /// The process group that the parts join.
    pub(crate) fn group(&self) -> i32 {
        self.shell.id().cast_signed()
    }

    /// The guard will not remove the folder when it is dismissed.
    pub(crate) fn keep_folder(&mut self) {
        self.keep_folder = true;
    }

    /// Ends the guard after its processes have ended. The guard cleans up first.
    pub(crate) fn dismiss(&mut self) {
        if let Some(mut word) = self.shell.stdin.take() {
            // The write fails if the guard has already ended, which is fine.
            let _ = writeln!(word, "{}", fate(self.keep_folder));
        }
        let _ = self.shell.wait();
    }
}

/// What the guard does with the folder.
fn fate(keep_folder: bool) -> &'static str {
    if keep_folder { "keep" } else { "remove" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, test_kill_process_group};
    use std::time::{Duration, Instant};

    fn member_of(guard: &Guard) -> Child {
        Command::new("sleep")
            .arg("600")
            .process_group(guard.group())
            .spawn()
            .unwrap()
    }

    #[test]
    fn when_the_test_process_ends_the_guard_ends_its_processes_and_removes_its_folder() {
        let folder = tempfile::tempdir().unwrap().keep();
        let mut guard = Guard::start(&folder, false).unwrap();
        let mut member = member_of(&guard);
        drop(guard.shell.stdin.take());
        let status = member.wait().unwrap();
        assert!(!status.success(), "the member was ended by a signal");
        guard.shell.wait().unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn a_dismissed_guard_ends_no_process_and_keeps_the_folder_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let mut guard = Guard::start(folder.path(), false).unwrap();
        guard.keep_folder();
        let group = guard.group();
        let mut member = member_of(&guard);
        guard.dismiss();
        assert!(member.try_wait().unwrap().is_none());
        member.kill().unwrap();
        member.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while test_kill_process_group(Pid::from_raw(group).unwrap()).is_ok() {
            assert!(Instant::now() < deadline, "the group is still there");
        }
        assert!(folder.path().exists());
    }
}

//! However a testbed with a real node ends, it restores the state of the machine.

use crate::real_node::setup::{SOON, start};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use testbed::Options;

/// Environment variable of the process that is killed.
const TO_KILL: &str = "POD_AFFINITY_TESTBED_TO_KILL";
/// Settings that a kubelet or a network plugin would change.
const SETTINGS: [&str; 5] = [
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

/// State of the machine that a node could change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    settings: BTreeMap<&'static str, String>,
    interfaces: BTreeSet<String>,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let setting = |name| {
            (
                name,
                fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap(),
            )
        };
        Self {
            settings: SETTINGS.map(setting).into(),
            interfaces: names_in(Path::new("/sys/class/net")),
        }
    }

    /// Waits until the state is restored and nothing refers to the testbed's folder. The kernel removes interfaces with a
    /// delay.
    pub(crate) fn is_as_before_and_without(&self, folder: &Path) {
        let deadline = Instant::now() + SOON;
        loop {
            let (traces, now) = (traces(folder), Self::look());
            let settled = traces.is_empty() && now.interfaces.is_subset(&self.interfaces);
            if settled {
                assert_eq!(now.settings, self.settings);
                return;
            }
            assert!(
                Instant::now() < deadline,
                "was {self:?}, is {now:?} with {traces:#?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Processes, mounts, control groups and files that refer to a folder.
fn traces(folder: &Path) -> Vec<String> {
    let name = folder.file_name().unwrap().to_str().unwrap();
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mounts = mounts
        .lines()
        .filter(|line| line.contains(name))
        .map(String::from);
    let unwanted = folder.exists() && !Options::default().keep;
    let files = unwanted.then(|| folder.display().to_string());
    processes(name)
        .into_iter()
        .chain(mounts)
        .chain(control_groups(name))
        .chain(files)
        .collect()
}

/// Processes by command line, control group or mounts. Shims are found only by their mounts: they see the folder under
/// another name.
fn processes(name: &str) -> Vec<String> {
    let is_process = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    let all = names_in(Path::new("/proc")).into_iter().filter(is_process);
    all.filter_map(|pid| {
        let text = |file: &str| fs::read(Path::new("/proc").join(&pid).join(file)).unwrap_or_default();
        let command = String::from_utf8_lossy(&text("cmdline")).replace('\0', " ");
        let about = [command.clone().into_bytes(), text("cgroup"), text("mountinfo")].concat();
        String::from_utf8_lossy(&about)
            .contains(name)
            .then(|| format!("{pid} {command}"))
    })
    .collect()
}

/// Control groups in each hierarchy of version 1, or in the hierarchy of version 2.
fn control_groups(name: &str) -> Vec<String> {
    let top = PathBuf::from("/sys/fs/cgroup");
    let hierarchies = names_in(&top).into_iter().map(|hierarchy| top.join(hierarchy));
    let groups = hierarchies
        .chain([top.clone()])
        .map(|hierarchy| hierarchy.join(name));
    groups
        .filter(|group| group.exists())
        .map(|group| group.display().to_string())
        .collect()
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// The testbed is killed by SIGKILL while containers run, so that only the guard can clean up.
#[e2e_test(first, real_node, webhook, second)]
fn a_killed_testbed_leaves_nothing_of_its_node() {
    let _alone = super::alone();
    let before = Machine::look();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .env(TO_KILL, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut folder = String::new();
    let mut said = BufReader::new(process.stdout.take().unwrap());
    said.read_line(&mut folder).unwrap();
    let folder = PathBuf::from(folder.trim());
    let running = traces(&folder);
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(
        running.iter().any(|trace| trace.contains("containerd-shim")),
        "{running:#?}"
    );
    before.is_as_before_and_without(&folder);
}

pub(crate) fn is_the_process_to_kill() -> bool {
    std::env::var_os(TO_KILL).is_some()
}

/// Starts a node with a pod, prints its folder, and waits.
pub(crate) fn wait_to_be_killed() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let setup = start(false).await;
        crate::real_node::runs::a_pod_runs(&setup).await;
        println!("{}", setup.bed.folder().display());
        std::future::pending().await
    })
}

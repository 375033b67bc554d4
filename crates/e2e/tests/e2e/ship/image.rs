//! The pulled image is the pushed image, and its program runs.

use crate::ship::pulled::{decompressed, pull, sha256};
use crate::ship::setup::{BINARY, printed, setup, workspace};
use crate::support::ship_program::program;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Largest allowed size of a pull, in bytes.
const LIMIT: usize = 12_000_000;
/// Shorter than any grace period of a kubelet or of pod-affinity, longer than a process needs to end on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Compiles twice with fat LTO: up to half an hour.
#[e2e_test(nightly)]
fn the_image_as_it_is_shipped_is_small_without_local_paths_and_the_same_from_another_folder() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("checkout");
    std::fs::create_dir(&elsewhere).unwrap();
    let copy = "tar --exclude=./target --create --file=- . | tar --extract --file=- --directory";
    let copy = Command::new("sh")
        .args(["-c", &format!("{copy} {}", elsewhere.display())])
        .current_dir(workspace())
        .output();
    printed(&copy.unwrap());

    let archive = folder.path().join("image.tar");
    let built_in = |source: &Path| {
        let mut build = Command::new(program());
        build
            .args(["build", "--push=false", "--tarball"])
            .arg(&archive)
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .current_dir(source);
        printed(&build.output().unwrap())
    };
    let reference = built_in(&workspace());
    assert_eq!(built_in(&elsewhere), reference);

    let layout = unpacked(&archive);
    let (_, manifest) = manifest(&layout, &reference);
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let digest = manifest["layers"][0]["digest"].as_str().unwrap();
    let blob = layout.join("blobs").join(digest.replace(':', "/"));
    let layer = std::fs::read(blob).unwrap();
    println!("{} bytes to pull", layer.len());
    assert!(layer.len() < LIMIT, "{} bytes", layer.len());
    assert_eq!(paths_of_this_machine(&decompressed(&layer)), Vec::<String>::new());
}

/// The layout in an archive, unpacked beside the archive.
fn unpacked(archive: &Path) -> PathBuf {
    let layout = archive.with_extension("layout");
    tar::Archive::new(File::open(archive).unwrap())
        .unpack(&layout)
        .unwrap();
    layout
}

/// The manifest that a reference names in a layout, and its digest.
fn manifest<'a>(layout: &Path, reference: &'a str) -> (&'a str, Vec<u8>) {
    let (_, digest) = reference.trim().rsplit_once(':').unwrap();
    let manifest = std::fs::read(layout.join("blobs/sha256").join(digest)).unwrap();
    (digest, manifest)
}

#[e2e_test(second)]
async fn a_build_prints_the_digest_of_what_is_in_archive_and_registry() {
    let setup = setup().await;
    let archive = setup.folder("archive").join("image.tar");
    let build = setup.ship(&["build", "--tarball", archive.to_str().unwrap()]);
    let reference = build.without(BINARY).prints();
    assert!(
        reference.starts_with(&format!("{}/pod-affinity@sha256:", setup.registry)),
        "{reference}"
    );
    let (digest, manifest) = manifest(&unpacked(&archive), &reference);
    assert_eq!(sha256(&manifest), digest);
    assert_eq!(
        pull(&reference).manifest,
        serde_json::from_slice::<serde_json::Value>(&manifest).unwrap()
    );
}

#[e2e_test(second)]
async fn the_same_binary_of_the_same_commit_is_the_same_image() {
    let setup = setup().await;
    let build = || {
        setup
            .ship(&["build"])
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .prints()
    };
    assert_eq!(build(), build());
}

#[e2e_test(second)]
async fn a_pulled_image_is_one_static_binary_with_an_unprivileged_user_and_labels_of_its_source() {
    let setup = setup().await;
    let image = pull(&setup.reference);
    assert_eq!(
        image.config["rootfs"]["diff_ids"][0],
        format!("sha256:{}", sha256(&image.archive()))
    );
    assert_eq!(
        image.config["config"]["Entrypoint"],
        serde_json::json!(["/pod-affinity"])
    );
    assert_eq!(image.config["config"]["User"], "65532:65532");
    let revision = image.manifest["annotations"]["org.opencontainers.image.revision"]
        .as_str()
        .unwrap();
    assert!(is_commit(revision.trim_end_matches("-dirty")), "{revision}");

    let root = image.unpacked(&setup.folder("one-binary"));
    let files: Vec<_> = std::fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(files, ["pod-affinity"]);
    assert_eq!(loaded_by(&root.join("pod-affinity")), Vec::<String>::new());
}

#[e2e_test(second)]
async fn the_pulled_binary_runs_and_a_placeholder_ends_at_once_on_a_signal() {
    let setup = setup().await;
    let root = pull(&setup.reference).unpacked(&setup.folder("runs"));
    let binary = root.join("pod-affinity");
    let version = Command::new(&binary)
        .arg("--version")
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(
        printed(&version),
        format!("pod-affinity {}\n", env!("CARGO_PKG_VERSION"))
    );
    ends_at_once_on_a_signal(Command::new(&binary).env_clear());
}

/// Runs a placeholder, and ends the placeholder by a signal.
pub(super) fn ends_at_once_on_a_signal(program: &mut Command) {
    let mut placeholder = program.arg("placeholder").spawn().unwrap();
    let pid = Pid::from_child(&placeholder);
    until("the placeholder to wait for signals", || {
        keeps_sigterm(placeholder.id())
    });
    assert!(placeholder.try_wait().unwrap().is_none());
    let reported = Instant::now();
    kill_process(pid, Signal::TERM).unwrap();
    assert!(placeholder.wait().unwrap().success());
    assert!(reported.elapsed() < AT_ONCE, "{:?}", reported.elapsed());
}

#[e2e_test(second)]
async fn crane_validates_the_image_in_registry_and_archive() {
    let setup = setup().await;
    let archive = setup.folder("crane").join("image.tar");
    let arguments = ["build", "--tag=v1", "--tarball", archive.to_str().unwrap()];
    let reference = setup.ship(&arguments).prints();
    let (_, digest) = reference.trim().split_once('@').unwrap();
    let crane = testbed::crane().await.unwrap();
    let crane = |arguments: &[&str]| printed(&Command::new(&crane).args(arguments).output().unwrap());
    let copy = format!("{}/copy:1", setup.registry);
    crane(&["push", unpacked(&archive).to_str().unwrap(), &copy]);
    let tagged = format!("{}/pod-affinity:v1", setup.registry);
    for image in [reference.trim(), &tagged, &copy] {
        assert_eq!(crane(&["digest", image]).trim(), digest);
        crane(&["validate", "--remote", image]);
    }
}

#[e2e_test(second)]
async fn a_second_push_sends_no_existing_blob() {
    let setup = setup().await;
    let again = setup.ship(&["build", "--tag=again"]).output();
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert_eq!(said.matches("existing blob").count(), 2, "{said}");
    assert!(!said.contains("pushed blob"), "{said}");
}

fn is_commit(revision: &str) -> bool {
    let mut git = Command::new("git");
    git.args(["cat-file", "-e", &format!("{revision}^{{commit}}")])
        .current_dir(workspace());
    git.status().unwrap().success()
}

/// The interpreter and the libraries that an ELF file requests, parsed by hand: a static file has neither.
fn loaded_by(binary: &Path) -> Vec<String> {
    let bytes = std::fs::read(binary).unwrap();
    let number = |at: usize, length: usize| {
        let mut word = [0; 8];
        word[..length].copy_from_slice(&bytes[at..at + length]);
        usize::try_from(u64::from_le_bytes(word)).unwrap()
    };
    let (table, entry, count) = (number(32, 8), number(54, 2), number(56, 2));
    let segments = (0..count).map(|index| table + index * entry);
    let asked = segments.filter_map(|at| {
        let (offset, length) = (number(at + 8, 8), number(at + 32, 8));
        match number(at, 4) {
            3 => Some("an interpreter".to_owned()),
            2 if (offset..offset + length).step_by(16).any(|at| number(at, 8) == 1) => {
                Some("a library".to_owned())
            }
            _ => None,
        }
    });
    asked.collect()
}

/// Paths of this machine in the binary. A binary with such paths would differ from a build on another machine. Without optimisation,
/// the C code of the TLS library has such paths.
fn paths_of_this_machine(bytes: &[u8]) -> Vec<String> {
    let home = std::env::home_dir().unwrap().join(".cargo");
    let paths = [workspace(), home].map(|path| path.into_os_string().into_string().unwrap());
    let found = |path: &String| bytes.windows(path.len()).any(|window| window == path.as_bytes());
    paths.into_iter().filter(found).collect()
}

/// Whether the process blocks SIGTERM, in order to read the signal later.
fn keeps_sigterm(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let blocked = status
        .lines()
        .find_map(|line| line.strip_prefix("SigBlk:\t"))
        .unwrap();
    u64::from_str_radix(blocked, 16).unwrap() & (1 << (Signal::TERM.as_raw() - 1)) != 0
}

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "timed out waiting for {what}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

//! The page of `timeline` in a real browser: run with `cargo test -p cli --test timeline_browser -- --ignored`.
//!
//! The tool reads a small HTTP server that has the lists of an API server. Chromium loads the page that the tool prints,
//! measures the page, presses keys, and prints the document with the figures. `TIMELINE_PICTURES=FOLDER` keeps pages and pictures.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::{env, fs, thread};

const TOOL: &str = env!("CARGO_BIN_EXE_kubectl-pod_affinity");
const MEASURE: &str = include_str!("timeline/measure.js");
/// Records the errors of the page before the page is measured.
const PROBLEMS: &str = "<script>window.problems = [];\
    addEventListener('error', (it) => problems.push(String(it.message)));\
    addEventListener('securitypolicyviolation', (it) => problems.push(it.blockedURI));\
    console.error = (...it) => problems.push(it.join(' '));</script>";
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "headless_shell"];
/// The date of the server, after all times of the lists.
const NOW: i64 = 1_800_003_600;

/// The lists of an API server.
#[derive(Default)]
struct Lists {
    runs: Vec<Value>,
    task_runs: Vec<Value>,
    pods: Vec<Value>,
    nodes: Vec<Value>,
    events: Vec<Value>,
}

fn time(second: i64) -> String {
    jiff::Timestamp::from_second(NOW - 3600 + second)
        .unwrap()
        .to_string()
}

impl Lists {
    fn answer(&self, path: &str) -> Value {
        let path = path.split('?').next().unwrap();
        let none = Vec::new();
        let items = match path.rsplit('/').next().unwrap() {
            "pipelineruns" => &self.runs,
            "taskruns" => &self.task_runs,
            "pods" => &self.pods,
            "nodes" => &self.nodes,
            "events" => &self.events,
            _ => &none,
        };
        json!({"metadata": {"resourceVersion": "1"}, "items": items})
    }

    /// A run that was created, started and ended at these seconds, with its tasks.
    fn run(&mut self, index: i64, (created, started, ended): (i64, i64, i64), node: &str) {
        let (name, uid) = (format!("build-{index}"), format!("uid-{index}"));
        let is_labelled = index % 5 != 4;
        let labels = json!({
            "tekton.dev/custom-pod-affinity": "true", "pod-affinity.tekton.dev/group": uid,
            "pod-affinity.tekton.dev/strategy": "colocateCompleted",
        });
        let verdict = if index % 7 == 6 { "False" } else { "True" };
        self.runs.push(json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": {
                "namespace": "ci", "name": name, "uid": uid, "creationTimestamp": time(created),
                "labels": if is_labelled { labels } else { json!({}) },
                "annotations": if is_labelled { json!({"pod-affinity.tekton.dev/node": node}) } else { json!({}) },
            },
            "spec": {},
            "status": {
                "startTime": time(started), "completionTime": time(ended),
                "conditions": [{"type": "Succeeded", "status": verdict, "reason": "x"}],
            },
        }));
        let third = (ended - started) / 3;
        for task in 0..4 {
            // The last two tasks run at the same time.
            let from = started + third * i64::min(task, 2);
            self.task(&name, &uid, task, (from, from + third), node);
        }
    }

    fn task(&mut self, run: &str, uid: &str, task: i64, (from, to): (i64, i64), node: &str) {
        let (task, pod) = (format!("task-{task}"), format!("{run}-task-{task}-pod"));
        let labels = json!({"tekton.dev/pipelineRun": run, "tekton.dev/pipelineTask": task});
        self.task_runs.push(json!({
            "metadata": {
                "namespace": "ci", "name": format!("{run}-{task}"), "labels": labels,
                "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": run, "uid": uid}],
            },
            "status": {"podName": pod, "startTime": time(from), "completionTime": time(to)},
        }));
        self.pods.push(json!({
            "metadata": {"namespace": "ci", "name": pod, "labels": labels, "creationTimestamp": time(from)},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": "Succeeded", "startTime": time(from)},
        }));
    }

    fn event(&mut self, index: i64, second: i64, reason: &str, text: &str) {
        self.events.push(json!({
            "metadata": {"namespace": "ci", "name": format!("{index}.{reason}.{second}")},
            "involvedObject": {"kind": "PipelineRun", "uid": format!("uid-{index}")},
            "reportingComponent": "pod-affinity.tekton.dev/controller", "reason": reason, "message": text,
            "eventTime": time(second).replace('Z', ".500000Z"),
        }));
    }

    fn node(&mut self, name: &str, created: i64) {
        self.nodes
            .push(json!({"metadata": {"name": name, "creationTimestamp": time(created)}}));
    }

    /// A run that waited, a run that moved, and a run that is held now.
    fn three() -> Self {
        let mut lists = Self::default();
        lists.run(0, (300, 900, 1800), "node-a");
        lists.event(0, 420, "WaitingForNode", "No node for this run yet.");
        lists.event(
            0,
            900,
            "Released",
            "Released: all pods of this run go to node node-a; no other can use it.",
        );
        lists.run(1, (60, 70, 3000), "node-b");
        lists.event(
            1,
            70,
            "Released",
            "Released: all pods of this run go to node node-a; no other can use it.",
        );
        lists.event(
            1,
            870,
            "MovedOff",
            "Moved off node node-a: pod build-1-task-1-pod does not fit there.",
        );
        lists.event(
            1,
            1000,
            "Moved",
            "The placeholder is on node node-b (before: node-a); its pods are there.",
        );
        lists
            .pods
            .retain(|pod| !pod["metadata"]["name"].as_str().unwrap().starts_with("build-1"));
        let held = json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": {
                "namespace": "ci", "name": "build-<2> & \"more\"", "uid": "uid-2", "creationTimestamp": time(3200),
                "labels": {"tekton.dev/custom-pod-affinity": "true"}, "annotations": {"pod-affinity.tekton.dev/hold": "true"},
            },
            "spec": {"status": "PipelineRunPending"}, "status": {},
        });
        lists.runs.push(held);
        lists.node("node-a", -9000);
        lists.node("node-b", 950);
        lists
    }

    /// Many runs, with names of many lengths, in an order that looks random and is always the same.
    fn many(number: i64, nodes: i64) -> Self {
        let mut lists = Self::default();
        let random = |seed: i64, most: i64| ((seed + 1) * 7_919 * 31).rem_euclid(104_729) % most;
        for index in 0..number {
            let created = random(index, 3000);
            let started = created + random(index + 501, 300);
            let ended = (started + 5 + random(index + 903, 900)).min(3590);
            let node = format!(
                "ip-10-0-{}.eu-central-1.compute.internal",
                random(index + 77, nodes)
            );
            lists.run(index, (created, started, ended), &node);
        }
        for node in 0..nodes {
            lists.node(
                &format!("ip-10-0-{node}.eu-central-1.compute.internal"),
                node * 150 - 1500,
            );
        }
        lists
    }
}

fn serve(lists: Lists) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let lists = Arc::new(lists);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let lists = Arc::clone(&lists);
            thread::spawn(move || reply(&lists, stream));
        }
    });
    port
}

fn reply(lists: &Lists, mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap())
        .lines()
        .map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
    let body = lists.answer(first.split(' ').nth(1).unwrap()).to_string();
    let now = jiff::Timestamp::from_second(NOW).unwrap();
    let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT");
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: {date}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // The client may have closed the connection.
    let _ = stream.write_all((head + &body).as_bytes());
}

fn printed(folder: &Path, lists: Lists, output: &str) -> String {
    let port = serve(lists);
    let config = folder.join("kubeconfig");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": "ci"}}],
        "clusters": [{"name": "x", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "users": [{"name": "x", "user": {}}],
    });
    fs::write(&config, text.to_string()).unwrap();
    let tool = Command::new(TOOL)
        .args(["timeline", "-o", output, "--kubeconfig"])
        .arg(config)
        .output()
        .unwrap();
    assert!(
        tool.status.success() && tool.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&tool.stderr)
    );
    String::from_utf8(tool.stdout).unwrap()
}

fn browser() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = env::split_paths(&path).collect();
    let files = BROWSERS
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files.into_iter().find(|file| file.is_file())
}

fn chromium(browser: &Path, folder: &Path, arguments: &[String]) -> (String, String) {
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--hide-scrollbars",
        ])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .args(arguments)
        .output()
        .unwrap();
    (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// A name, the number of runs, and their objects.
type Case = (&'static str, u64, fn() -> Lists);

/// The figures that the page reports.
fn measured(browser: &Path, folder: &Path, page: &str) -> Value {
    let probed = page.replacen("<title>", &format!("{PROBLEMS}<title>"), 1);
    let probed = probed.replacen("</body>", &format!("<script>{MEASURE}</script></body>"), 1);
    let file = folder.join("probed.html");
    fs::write(&file, probed).unwrap();
    let arguments = [
        "--dump-dom".to_owned(),
        "--window-size=1400,900".to_owned(),
        format!("file://{}", file.display()),
    ];
    let (document, log) = chromium(browser, folder, &arguments);
    assert!(!log.contains("CONSOLE"), "{log}");
    assert!(document.contains("data-measured="), "{log}");
    let (_, rest) = document.split_once("data-measured=\"").unwrap();
    let text = rest.split('"').next().unwrap();
    serde_json::from_str(&text.replace("&quot;", "\"").replace("&amp;", "&")).unwrap()
}

/// Keeps pages and pictures for a reader.
fn keep(browser: &Path, folder: &Path, name: &str, page: &str, svg: &str) {
    let Some(kept) = env::var_os("TIMELINE_PICTURES").map(PathBuf::from) else {
        return;
    };
    fs::create_dir_all(&kept).unwrap();
    let (html, picture) = (
        kept.join(format!("{name}.html")),
        kept.join(format!("{name}.svg")),
    );
    fs::write(&html, page).unwrap();
    fs::write(&picture, svg).unwrap();
    let dark = kept.join(format!("{name}-dark.html"));
    fs::write(&dark, page.replacen("<html ", "<html data-theme=\"dark\" ", 1)).unwrap();
    for file in [html, dark, picture] {
        let shot = format!(
            "--screenshot={}",
            file.with_extension(format!("{}.png", file.extension().unwrap().display()))
                .display()
        );
        chromium(
            browser,
            folder,
            &[
                shot,
                "--window-size=1400,900".to_owned(),
                format!("file://{}", file.display()),
            ],
        );
    }
}

fn is_sound(figures: &Value, runs: u64) {
    let zero = [
        "overlappingBars",
        "overlappingTasks",
        "overlappingTicks",
        "overlappingLegend",
        "outsideOfPicture",
        "namesBesideTheirBars",
        "laneNamesInThePicture",
        "emptyTitles",
        "resources",
    ];
    let mut wrong = String::new();
    for name in zero {
        if figures[name] != 0 {
            writeln!(wrong, "{name}: {}", figures[name]).unwrap();
        }
    }
    for name in [
        "home",
        "wentDown",
        "told",
        "filterFocused",
        "dimmed",
        "backFromFilter",
    ] {
        if figures[name] != true {
            writeln!(wrong, "{name}: {}", figures[name]).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}{figures:#}");
    assert_eq!(
        (&figures["runs"], &figures["errors"]),
        (&json!(runs), &json!([])),
        "{figures:#}"
    );
    assert_eq!(
        (&figures["themes"], &figures["tabStops"]),
        (&json!(2), &json!(1)),
        "{figures:#}"
    );
    assert!(figures["reachedByArrows"].as_u64() > Some(2), "{figures:#}");
    for theme in figures["contrast"].as_array().unwrap() {
        assert!(
            theme["text"].as_f64() >= Some(4.5) && theme["lines"].as_f64() >= Some(3.0),
            "{figures:#}"
        );
    }
}

#[test]
#[ignore = "needs a Chromium, and takes half a minute"]
fn the_page_renders_in_a_browser_and_nothing_overlaps() {
    let browser = browser().unwrap_or_else(|| panic!("none of {} is in PATH", BROWSERS.join(", ")));
    let folder = env::temp_dir().join(format!("pod-affinity-timeline-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let cases: [Case; 3] = [
        ("three", 3, Lists::three),
        ("two-hundred", 200, || Lists::many(200, 24)),
        ("two-hundred-nodes", 200, || Lists::many(200, 180)),
    ];
    for (name, runs, lists) in cases {
        let (page, svg) = (
            printed(&folder, lists(), "html"),
            printed(&folder, lists(), "svg"),
        );
        keep(&browser, &folder, name, &page, &svg);
        let figures = measured(&browser, &folder, &page);
        println!("{name}: {figures}");
        is_sound(&figures, runs);
    }
    fs::remove_dir_all(folder).unwrap();
}

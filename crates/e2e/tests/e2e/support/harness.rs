//! Runs the end-to-end tests: more tests at a time than there are cores, because tests mostly wait; the longest tests early.
//! At the end, the harness reports the slowest tests, their longest waits, and the tests that used the most CPU time.

use crate::support::level::{self, Level};
use crate::support::pool;
use crate::support::ship_program::compile_release_ahead;
use crate::support::usage::{self, Account, Waits};
use clap::Parser;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testbed::{Admission, Kubernetes, Versions};

/// Concurrent tests: each test needs about a quarter of a core. With fewer, the tests take longer, and use as much CPU time.
const SLOTS: usize = 8;
/// Bytes of memory of a concurrent test: its testbed, and as much for testbeds that wait for the next test.
const MEMORY: u64 = 2 << 30;
/// Number of other tests that start between two tests that are marked `first`: most of the marked tests keep a core busy,
/// and would starve each other.
const BETWEEN: usize = 4;
/// Number of tests, and of waits per test, in the report.
const SLOWEST: usize = 10;
const WAITS: usize = 3;
/// A test that takes longer fails, and the other tests continue. Its thread and its testbed end with the process.
const LONGEST: Duration = Duration::from_mins(30);
const LONGEST_NIGHTLY: Duration = Duration::from_hours(12);
/// How long the end of a test waits for its background tasks.
const LONGEST_END: Duration = Duration::from_secs(10);
const FIGURES: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/e2e-tests.tsv");

/// Set by CI, where a missing container runtime is an error.
const REAL_NODE_REQUIRED: &str = "POD_AFFINITY_REQUIRE_REAL_NODE";

/// Fewer slots on a machine with little free memory.
fn slots() -> usize {
    let fitting = testbed::usage::available_memory().map(|free| free / MEMORY);
    fitting
        .ok()
        .and_then(|fitting| usize::try_from(fitting).ok())
        .map_or(SLOTS, |fitting| fitting.clamp(1, SLOTS))
}

/// A registered test.
#[allow(clippy::struct_excessive_bools, reason = "each is an option of the attribute")]
pub(crate) struct Test {
    pub(crate) path: &'static str,
    pub(crate) first: bool,
    pub(crate) autoscaler: bool,
    pub(crate) real_node: bool,
    pub(crate) webhook: bool,
    pub(crate) policies: bool,
    pub(crate) level: Level,
    pub(crate) run: fn(),
}

inventory::collect!(Test);

impl Test {
    /// The name of the test as in libtest: without the name of the binary.
    fn name(&self) -> &'static str {
        self.path.split_once("::").map_or(self.path, |(_, name)| name)
    }

    fn ships(&self) -> bool {
        self.real_node || self.name().starts_with("ship::")
    }

    fn matches(&self, filters: &[String], exact: bool) -> bool {
        let name = self.name();
        let matches = |filter: &String| {
            if exact {
                name == filter
            } else {
                name.contains(filter)
            }
        };
        filters.is_empty() || filters.iter().any(matches)
    }
}

/// The reasons why tests cannot run here; `None` if they can.
struct Missing {
    real_node: Option<String>,
    webhook: Option<String>,
    policies: Option<String>,
}

impl Missing {
    fn found() -> testbed::Result<Self> {
        let (admission, versions) = (Admission::of_environment()?, Versions::of_environment()?);
        admission.require(versions.kubernetes)?;
        Ok(Self {
            real_node: no_kubelet(versions).or_else(testbed::real_node::lacking),
            webhook: no_webhook(admission),
            policies: no_policies(versions.kubernetes),
        })
    }

    /// Returns an error if CI requires a real node and no real node is possible.
    fn checked(self) -> Result<Self, String> {
        match &self.real_node {
            Some(why) if std::env::var_os(REAL_NODE_REQUIRED).is_some() => Err(format!(
                "{REAL_NODE_REQUIRED} is set, but tests cannot have a real node: {why}"
            )),
            Some(_) | None => Ok(self),
        }
    }

    /// The reason why this test cannot run here.
    fn for_test(&self, test: &Test) -> Option<String> {
        let needs = [
            (test.real_node, &self.real_node),
            (test.webhook, &self.webhook),
            (test.policies, &self.policies),
        ];
        let mut needed = needs.into_iter().filter(|(needed, _)| *needed);
        needed.find_map(|(_, why)| why.clone())
    }
}

fn no_kubelet(versions: Versions) -> Option<String> {
    (!versions.are_defaults()).then(|| format!("no real node is available for {versions}"))
}

fn no_webhook(admission: Admission) -> Option<String> {
    match admission {
        Admission::Webhook => None,
        Admission::Policies => Some("tests the webhook, which policies replace here".to_owned()),
    }
}

fn no_policies(kubernetes: Kubernetes) -> Option<String> {
    (!kubernetes.evaluates_policies())
        .then(|| format!("Kubernetes {kubernetes} has no MutatingAdmissionPolicy v1"))
}

/// The time and the waits of a test.
struct Figures {
    name: &'static str,
    all: Duration,
    account: Account,
}

static ALL_FIGURES: Mutex<Vec<Figures>> = Mutex::new(Vec::new());

/// libtest accepts several filters, and runs the tests that match any filter; libtest-mimic accepts one.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    arguments: Arguments,
    /// Further filters.
    more: Vec<String>,
}

impl Cli {
    fn filters(&mut self) -> Vec<String> {
        let first = self.arguments.filter.take();
        first.into_iter().chain(std::mem::take(&mut self.more)).collect()
    }
}

pub(crate) fn run() -> ExitCode {
    testbed::wait::observe(usage::waited_at_most);
    // Without a backtrace even if RUST_BACKTRACE is set: the frames of an async test hide the message.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let found = Missing::found().map_err(|error| error.to_string());
    let (missing, levels) = match found.and_then(|missing| Ok((missing.checked()?, level::wanted()?))) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut cli = Cli::parse();
    let filters = cli.filters();
    let mut arguments = cli.arguments;
    arguments.test_threads = arguments.test_threads.or_else(|| Some(slots()));
    let mut tests: Vec<_> = inventory::iter::<Test>.into_iter().collect();
    tests.retain(|test| test.matches(&filters, arguments.exact));
    tests.sort_by_key(|test| test.name());
    let tests = long_ones_early(tests);
    let will = |needs: fn(&Test) -> bool| {
        let is_run = |test: &Test| levels.contains(&test.level) && missing.for_test(test).is_none();
        !arguments.list && tests.iter().any(|test| needs(test) && is_run(test))
    };
    let ahead = [
        will(Test::ships).then(compile_release_ahead),
        will(|test| test.autoscaler).then(build_autoscalers_ahead),
    ];
    let requested = arguments.ignored || arguments.include_ignored;
    if levels == [Level::Nightly] && !tests.iter().any(|test| test.level == Level::Nightly) {
        eprintln!("no nightly test matches {filters:?}");
        return ExitCode::FAILURE;
    }
    let trials = tests
        .into_iter()
        .map(|test| trial(test, levels, missing.for_test(test), requested));
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    // A panic in these threads does not belong to a test.
    for thread in ahead.into_iter().flatten() {
        drop(thread.join());
    }
    pool::end();
    report();
    conclusion.exit_code()
}

/// Errors are ignored: the tests that need an autoscaler build it as well, and report the error.
fn build_autoscalers_ahead() -> JoinHandle<()> {
    std::thread::spawn(|| drop(Versions::of_environment().and_then(testbed::build_autoscalers)))
}

/// Tests that wait for the build of an autoscaler start last: they would block slots for other tests meanwhile.
fn long_ones_early(tests: Vec<&'static Test>) -> Vec<&'static Test> {
    let built = testbed::autoscalers_are_built().unwrap_or_default();
    let (last, tests): (Vec<_>, Vec<_>) = tests.into_iter().partition(|test| test.autoscaler && !built);
    let (first, others): (Vec<_>, Vec<_>) = tests.into_iter().partition(|test| test.first);
    let mut others = others.into_iter();
    let mut ordered = Vec::new();
    for test in first {
        ordered.push(test);
        ordered.extend(others.by_ref().take(BETWEEN));
    }
    ordered.extend(others);
    ordered.extend(last);
    ordered
}

/// A test that cannot run here is ignored. If it was requested by name, it fails.
fn trial(test: &'static Test, levels: &[Level], missing: Option<String>, requested: bool) -> Trial {
    let ignored = !levels.contains(&test.level) || (missing.is_some() && requested);
    let run = move || match missing {
        None => within_deadline(test).map(|()| Completion::Completed),
        Some(what) if requested => Err(what.into()),
        Some(what) => Ok(Completion::ignored_with(what)),
    };
    Trial::ignorable_test(test.name(), run).with_ignored_flag(ignored)
}

/// Runs a test with a deadline, in a thread of its own.
fn within_deadline(test: &'static Test) -> Result<(), Failed> {
    let deadline = match test.level {
        Level::First | Level::Second => LONGEST,
        Level::Nightly => LONGEST_NIGHTLY,
    };
    let (sender, outcome) = channel();
    std::thread::spawn(move || sender.send(timed(test)));
    let no_end = |_| Err(format!("the test did not end within {deadline:?}").into());
    outcome.recv_timeout(deadline).unwrap_or_else(no_end)
}

fn timed(test: &'static Test) -> Result<(), Failed> {
    let start = Instant::now();
    let outcome = catch_unwind(test.run);
    ALL_FIGURES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Figures {
            name: test.name(),
            all: start.elapsed(),
            account: usage::close(),
        });
    outcome.map_err(|panic| message(&*panic).into())
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it panicked".into())
}

/// Runs the future of a test, as `#[e2e_test]` does.
pub(crate) fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(test)));
    runtime.shutdown_timeout(LONGEST_END);
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
}

fn report() {
    let mut took = std::mem::take(&mut *ALL_FIGURES.lock().unwrap_or_else(PoisonError::into_inner));
    if took.len() <= SLOWEST {
        return;
    }
    took.sort_by_key(|test| std::cmp::Reverse(test.all));
    match write_figures(&took) {
        Ok(()) => println!("the figures of each test are in {FIGURES}"),
        Err(error) => eprintln!("writing {FIGURES}: {error}"),
    }
    println!("the {SLOWEST} slowest tests, and what they waited for:");
    for test in took.iter().take(SLOWEST) {
        println!("{:6.1} s  {}", test.all.as_secs_f32(), test.name);
        for (what, time) in longest(&test.account.waits) {
            println!("    {:6.1} s  {what}", time.as_secs_f32());
        }
    }
    report_closest(&took);
    took.sort_by_key(|test| std::cmp::Reverse(test.account.cpu_time));
    println!("the {SLOWEST} tests whose control planes used the most CPU time:");
    for test in took.iter().take(SLOWEST) {
        println!("{:6.1} s  {}", test.account.cpu_time.as_secs_f32(), test.name);
    }
    let (started, again) = pool::counts();
    println!("{started} testbeds were started for a test, and {again} times one was used again");
    usage::report();
    println!();
}

/// A wait that is close to its deadline fails on a slower machine.
fn report_closest(took: &[Figures]) {
    let mut closest: Vec<_> = took
        .iter()
        .filter_map(|test| Some((test.name, test.account.closest.as_ref()?)))
        .collect();
    closest.sort_by(|(_, one), (_, other)| other.percent().total_cmp(&one.percent()));
    println!("the {SLOWEST} tests with the waits closest to their deadlines:");
    for (name, wait) in closest.iter().take(SLOWEST) {
        println!("{:5.0} %  {name}", wait.percent());
        let (time, deadline) = (wait.time.as_secs_f32(), wait.deadline.as_secs_f32());
        println!("    {time:6.1} s of {deadline:.0} s  {}", wait.what);
    }
}

/// Writes one line for each test: seconds, CPU seconds of its testbeds, name.
fn write_figures(took: &[Figures]) -> std::io::Result<()> {
    let line = |test: &Figures| {
        let (all, cpu_time) = (test.all.as_secs_f32(), test.account.cpu_time.as_secs_f32());
        format!("{all:.1}\t{cpu_time:.1}\t{}\n", test.name)
    };
    std::fs::write(FIGURES, took.iter().map(line).collect::<String>())
}

fn longest(waits: &Waits) -> Vec<(&String, &Duration)> {
    let mut waits: Vec<_> = waits.iter().collect();
    waits.sort_by_key(|(_, time)| std::cmp::Reverse(**time));
    waits.truncate(WAITS);
    waits
}

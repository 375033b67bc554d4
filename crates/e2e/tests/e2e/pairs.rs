//! Compares pairs of runs that differ only in the label, in a cluster with features of real clusters: sandboxes, tainted
//! pools, quotas and limits, volumes of a zone or a node, pods that preempt or are preempted, affinity and anti-affinity to
//! databases, cordoned nodes, and nodes that die and sometimes return; with and without Tekton's assistants. A labelled run
//! ends in the same state as the run without the label. It may end later by the wait for its node and a few seconds; later
//! than this only if it reports that its own tasks cannot share a node. `verdict` has the exact rules.
//!
//! CI compares the pairs of `ci_pairs`, and those whose seeds are in seeds.txt. The nightly test draws pairs:
//! `POD_AFFINITY_PAIRS` is their number, and `POD_AFFINITY_PAIRS_SEED` repeats the pairs of an earlier night. The seed of a
//! pair that fails is added to seeds.txt.

mod ci_pairs;
mod cluster;
mod condition;
mod disruptions;
mod manifest;
mod pair;
pub(crate) mod place;
mod prepare;
mod result;
mod verdict;

use self::cluster::Cluster;
use self::condition::Condition;
use self::disruptions::{disrupt, end_preemption, take_nodes};
use self::pair::{Pair, Storage, Variant};
use self::prepare::{begin, own_nodes, prepare};
use self::result::{RunResult, until_ended};
use self::verdict::Circumstances;
use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::random;
use crate::support::random::number_of;
use crate::support::testbeds::shipped;
use fastrand::Rng;
use futures::future::join_all;
use kube::api::DeleteParams;
use std::collections::BTreeMap;
use std::time::Duration;
use testbed::runs::{self, RunSpec};
use testbed::{Part, Result, Testbed};

/// Number of pairs in the nightly test.
const MANY: usize = 500;
const SEEDS: &str = "pairs/seeds.txt";
/// Concurrent pairs: fewer than the nodes of any pool.
const AT_ONCE: usize = 8;
/// Timeout of runs without the label. A run that has not ended by then hangs independently of the label, and is not
/// compared.
const HANGS: Duration = SOON;
/// The hold deadline in seconds. Only runs whose placeholder is rejected are held as long.
const HOLD_DEADLINE: i64 = 20;

/// The results of the runs of one variant of a pair, or an error if a run hangs.
type Ends = Result<Vec<RunResult>>;

/// Creates one variant of a pair, applies the disruption of its condition, and waits for its end.
async fn run_variant(bed: &Testbed, pair: &Pair, variant: Variant) -> Ends {
    prepare(bed, pair, variant).await;
    let obstacle = match pair.condition {
        Condition::NodeTaken => Some(take_nodes(bed, pair, variant).await),
        _ => None,
    };
    let mut runs = manifest::runs(pair, variant);
    let create = runs.iter_mut().map(|run| begin(bed, pair, variant, run));
    let created = join_all(create).await;
    let patience = match variant {
        Variant::Plain => HANGS,
        Variant::Labelled => SOON * 2,
    };
    let ends = runs.iter().map(|run| end(bed, run, patience, obstacle.as_ref()));
    let disrupted = disrupt(bed, pair, variant, (&runs[0], &created[0]));
    let (ends, disrupted) = tokio::join!(join_all(ends), disrupted);
    clean_up(bed, pair, variant, &runs, obstacle.as_ref()).await;
    disrupted?;
    ends.into_iter().collect()
}

/// Waits for the end of a run, and deletes the run, because a run may keep its node until then.
async fn end(
    bed: &Testbed,
    run: &RunSpec,
    patience: Duration,
    obstacle: Option<&RunSpec>,
) -> Result<RunResult> {
    let ended = until_ended(bed, run, patience, obstacle).await;
    delete(bed, run).await;
    ended
}

async fn delete(bed: &Testbed, run: &RunSpec) {
    let api = runs::runs(&bed.client().await.unwrap(), run.namespace());
    let background = DeleteParams::background();
    api.delete(run.name(), &background).await.unwrap();
}

async fn clean_up(
    bed: &Testbed,
    pair: &Pair,
    variant: Variant,
    runs: &[RunSpec],
    obstacle: Option<&RunSpec>,
) {
    if pair.condition == Condition::Preempted {
        end_preemption(bed, &runs[0]).await;
    }
    if let Some(obstacle) = obstacle {
        delete(bed, obstacle).await;
    }
    bed.remove_nodes(&own_nodes(pair, variant)).await.unwrap();
}

/// The results of one variant of each pair, and the duration of a control run beside them in seconds.
struct VariantResults {
    ends: Vec<Ends>,
    control: i64,
}

/// Executes one variant of all pairs and the control run concurrently.
async fn run_all(bed: &Testbed, pairs: &[Pair], variant: Variant, control: &Pair) -> VariantResults {
    let (ends, control) = tokio::join!(
        join_all(pairs.iter().map(|pair| run_variant(bed, pair, variant))),
        run_variant(bed, control, Variant::Plain)
    );
    // Nothing but a slow machine keeps the control from its end.
    let control = control.inspect_err(|error| println!("the control does not end: {error}"));
    let control = control.map_or(HANGS.as_secs().cast_signed(), |control| control[0].total);
    VariantResults { ends, control }
}

/// Process ids, which change when a controller loses its lease, ends and is restarted.
fn controllers(bed: &Testbed) -> [Option<u32>; 2] {
    [0, 1].map(|replica| bed.pid(Part::Controller(replica)))
}

/// The findings so far.
#[derive(Default)]
struct Findings {
    complaints: Vec<(usize, String)>,
    drawn: BTreeMap<(Condition, place::Place, Vec<Storage>), u32>,
    /// The longest hold for each condition, in seconds.
    held: BTreeMap<Condition, i64>,
    later: BTreeMap<Condition, i64>,
    reported: BTreeMap<String, i64>,
    slowest_control: i64,
    stalls: usize,
    hang: usize,
}

impl Findings {
    /// Compares some pairs concurrently: first the variants without the label, then the labelled variants.
    async fn compare(&mut self, bed: &Testbed, pairs: &[Pair], controls: [Pair; 2]) {
        let led = controllers(bed);
        let before = run_all(bed, pairs, Variant::Plain, &controls[0]).await;
        let (mut compared, mut plain) = (Vec::new(), Vec::new());
        for (pair, ends) in pairs.iter().zip(before.ends) {
            match ends {
                Ok(ends) => {
                    compared.push(pair.clone());
                    plain.push(ends);
                }
                Err(error) => {
                    println!("without the label, it hangs: {pair:?}\n  {error}");
                    self.hang += 1;
                }
            }
        }
        let after = run_all(bed, &compared, Variant::Labelled, &controls[1]).await;
        let circumstances = Circumstances {
            controls: [before.control, after.control],
            lost_lease: controllers(bed) != led,
            kubernetes: bed.versions().kubernetes,
        };
        self.stalls += usize::from(!circumstances.are_calm());
        self.slowest_control = circumstances
            .controls
            .into_iter()
            .fold(self.slowest_control, i64::max);
        for (pair, (plain, labelled)) in compared.iter().zip(plain.iter().zip(&after.ends)) {
            let volumes = pair.volumes().map(|(_, storage)| storage).collect();
            let drawn = (pair.condition, pair.place, volumes);
            *self.drawn.entry(drawn).or_default() += 1;
            self.judge(circumstances, pair, plain, labelled);
        }
    }

    fn judge(&mut self, circumstances: Circumstances, pair: &Pair, plain: &[RunResult], labelled: &Ends) {
        let labelled = match labelled {
            Ok(labelled) => labelled,
            Err(error) => return self.complain(pair, &format!("it does not end: {error}")),
        };
        for (plain, labelled) in plain.iter().zip(labelled) {
            let later = circumstances.later(pair, plain, labelled);
            for (most, seconds) in [(&mut self.held, labelled.held), (&mut self.later, later)] {
                let most = most.entry(pair.condition).or_default();
                *most = seconds.max(*most);
            }
            for (reason, (count, _)) in &labelled.reported {
                *self.reported.entry(reason.clone()).or_default() += count;
            }
            if let Some(what) = circumstances.complaint(pair, plain, labelled) {
                let ends = format!("{circumstances:?}\n  without: {plain:?}\n  with: {labelled:?}");
                self.complain(pair, &format!("{what}; {ends}"));
            } else if circumstances.is_notable(pair, plain, labelled) {
                let (held, reasons) = (labelled.held, labelled.reported.keys());
                println!("{pair:?}: {later} s later, held for {held} s, because of {reasons:?}");
            }
        }
    }

    fn complain(&mut self, pair: &Pair, what: &str) {
        println!("{pair:?}: {what}");
        keep(pair);
        self.complaints.push((pair.number, what.to_owned()));
    }

    fn report(&self) {
        println!(
            "{} hang without the label; the slowest control took {} s, {} times the machine was too slow to tell; reported \
             {:?}; drawn {:?}; held for at most so many seconds {:?}; later by {:?}",
            self.hang, self.slowest_control, self.stalls, self.reported, self.drawn, self.held, self.later
        );
    }
}

/// Adds the seeds of pairs to seeds.txt if the test panics while they are compared.
struct KeepSeeds<'a>(&'a [Pair]);

impl Drop for KeepSeeds<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.iter().for_each(keep);
        }
    }
}

fn keep(pair: &Pair) {
    if let Some(seed) = pair.seed {
        random::keep_seed(SEEDS, &seed.to_string());
    }
}

/// Checks that the runs of each pair end alike, and that no two isolated runs share a node.
async fn end_alike(mut pairs: Vec<Pair>) {
    let bed = shipped(0).await;
    let deadline = format!("{HOLD_DEADLINE}s");
    bed.configure(&[("hold-deadline", Some(&deadline))])
        .await
        .unwrap();
    let cluster = Cluster::create(&bed).await;
    pairs.sort_by_key(|pair| !pair.assistants);
    let (mut findings, mut controls) = (Findings::default(), (pairs.len()..).map(Pair::control));
    for alike in pairs.chunk_by(|one, next| one.assistants == next.assistants) {
        if !alike[0].assistants {
            bed.feature_flags(&[("coschedule", "disabled")]).await.unwrap();
        }
        for at_once in alike.chunks(AT_ONCE) {
            let _kept = KeepSeeds(at_once);
            let auditor = Auditor::start(&bed).await;
            let two = [(); 2].map(|()| controls.next().unwrap());
            findings.compare(&bed, at_once, two).await;
            auditor.assert_no_violation_on_live_nodes();
        }
    }
    findings.report();
    assert_eq!(findings.complaints, []);
    // Pairs that are known to hang are never drawn.
    assert!(
        findings.hang * 16 <= pairs.len(),
        "too many hang without the label"
    );
    if pairs.iter().any(|pair| pair.storage == Storage::InZone) {
        cluster.assert_no_volume_attached_twice();
    }
}

#[e2e_test(first, second)]
async fn a_labelled_run_ends_as_the_same_run_without_the_label_does() {
    let scenes = ci_pairs::pairs();
    let kept = random::kept_seeds(SEEDS)
        .into_iter()
        .map(|seed| seed.parse().unwrap());
    let kept = kept
        .zip(scenes.len()..)
        .map(|(seed, number)| Pair::draw(seed, number));
    end_alike(scenes.iter().cloned().chain(kept).collect()).await;
}

#[e2e_test(nightly)]
async fn random_pairs_end_alike_with_and_without_the_label() {
    let all = number_of("POD_AFFINITY_PAIRS").map_or(MANY, |pairs| usize::try_from(pairs).unwrap());
    let seed = number_of("POD_AFFINITY_PAIRS_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("{all} pairs; repeat with POD_AFFINITY_PAIRS_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    end_alike((0..all).map(|number| Pair::draw(rng.u64(..), number)).collect()).await;
}

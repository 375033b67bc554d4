//! The lives of a few runs in a small model of a cluster. Only the requests of the plan change the placeholders.
//!
//! The model's scheduler knows sizes, cordons, pins and group affinity: the first pod of a group may be on any node,
//! the others follow, and no two groups share a node. The model has no quotas, no `LimitRange` and no volumes, no run
//! has an automatic reserve, and no user opts a run out.

use super::*;
use crate::requests::{Request, Verb};
use crate::tally::tally;
use life::Job;
use proptest::collection::vec;
use proptest::prelude::{Just, any, prop_oneof};
use proptest::sample::select;
use proptest::strategy::{BoxedStrategy, Strategy as Arbitrary};
use proptest::test_runner::Config as Cases;
use proptest::{prop_assert, prop_assert_eq, proptest};
use world::{Trouble, World};

mod api;
mod control;
mod life;
mod world;

/// The CPU of a large node. No task and no reserve requests more.
const BIG: i64 = 8_000;
/// The requests of a placeholder and of an affinity assistant.
const BESIDE: i64 = 100;
/// `move-after`, the longest pause between moves, and the time of the other tasks.
const LONGEST_WAIT: usize = 400;
/// Long enough for every task of every run to wait that long.
const LONGEST_LIFE: usize = 12 * LONGEST_WAIT;

fn job(cpu: i64, seconds: u32) -> Job {
    Job { cpu, seconds }
}

/// The steps of a run, one after the other, each with one or two parallel tasks.
fn steps(sizes: fn() -> BoxedStrategy<i64>) -> BoxedStrategy<Vec<Vec<Job>>> {
    let jobs = (sizes(), 1..25_u32).prop_map(|(cpu, seconds)| job(cpu, seconds));
    vec(vec(jobs, 1..3), 1..5).boxed()
}

fn any_size() -> BoxedStrategy<i64> {
    prop_oneof![100..1_500_i64, 1_500..BIG, Just(BIG)].boxed()
}

/// Any two of these tasks fit on a large node one after the other, but not always in parallel.
fn fitting_size() -> BoxedStrategy<i64> {
    (1_000..=BIG - 50).boxed()
}

fn reserve() -> BoxedStrategy<Option<String>> {
    let cpu = (100..=BIG - BESIDE).prop_map(|cpu| Some(format!("cpu={cpu}m")));
    prop_oneof![2 => Just(None), 2 => cpu, 1 => Just(Some("cpu=2,nvidia.com/gpu=1".to_owned()))].boxed()
}

fn troubles() -> BoxedStrategy<Vec<(usize, Trouble)>> {
    let of_node = [Trouble::Cordon, Trouble::Remove, Trouble::Evict];
    let trouble = prop_oneof![9 => select(of_node.to_vec()), 1 => Just(Trouble::Delete)];
    vec((prop_oneof![0..20_usize, 0..200_usize], trouble), 0..6).boxed()
}

/// Small nodes, and as many large nodes as runs: each run can have a node that fits.
fn cluster(runs: usize, seed: u64) -> World {
    let mut world = World::new(seed);
    for cpu in [1_000, 2_000, 4_000] {
        world.add_node(cpu);
    }
    (0..runs).for_each(|_| world.add_node(BIG));
    world
}

proptest! {
    #![proptest_config(Cases::with_cases(300))]

    #[test]
    fn each_run_ends_with_any_requests_of_its_tasks_and_any_failures_of_its_nodes(
        runs in vec((steps(any_size), reserve()), 1..4),
        troubles in troubles(),
        resize in any::<bool>(),
        hears_labels in any::<bool>(),
        deadline in prop_oneof![Just(Duration::MAX), (1..60_u64).prop_map(Duration::from_secs)],
        late in 0..90_usize,
        seed in any::<u64>(),
        met in tally(&[
            ("create_placeholder", 100), ("date_hold", 50), ("enrol", 30), ("requeue_statefulset", 100), ("release", 100), ("record_node", 50),
            ("move_off", 50), ("requeue_tasks", 50), ("return_placeholder", 50), ("shrink", 50), ("recreate_small", 50), ("unpin", 50),
            ("start_over", 1), ("adopt_pod", 30), ("keep_pod", 30), ("delete_placeholder", 50),
        ]),
    ) {
        let mut world = cluster(0, seed);
        world.config.hold_deadline = deadline;
        world.can_resize = resize;
        world.hears_labels = hears_labels;
        let count = runs.len();
        for (steps, reserve) in runs {
            world.add_run(steps, reserve);
        }
        for second in 0..LONGEST_LIFE {
            if second == late {
                (0..count).for_each(|_| world.add_node(BIG));
            }
            let due = troubles.iter().filter(|(at, _)| *at == second);
            due.for_each(|(_, trouble)| world.befall(*trouble));
            world.tick();
            prop_assert_eq!(world.broken_rule(), None, "{:?}", world);
            prop_assert!(world.longest_wait() <= LONGEST_WAIT, "{world:?}");
            if world.is_over() {
                for step in world.taken {
                    met.count(step);
                }
                return Ok(());
            }
        }
        prop_assert!(false, "not over: {world:?}");
    }

    #[test]
    fn no_run_moves_if_each_task_fits_on_each_node(
        runs in vec(steps(fitting_size), 1..4),
        seed in any::<u64>(),
    ) {
        let mut world = World::new(seed);
        (0..runs.len()).for_each(|_| world.add_node(BIG));
        for steps in runs {
            world.add_run(steps, None);
        }
        world.live(LONGEST_LIFE);
        prop_assert!(world.is_over() && world.moves() == 0, "{world:?}");
    }

    #[test]
    fn a_run_with_a_reserve_for_its_largest_task_never_moves(steps in steps(any_size), seed in any::<u64>(), resize in any::<bool>()) {
        let largest = steps.iter().flatten().map(|job| job.cpu).max().unwrap_or_default();
        let mut world = cluster(1, seed);
        world.nodes.iter_mut().for_each(|node| node.cpu += BESIDE);
        world.can_resize = resize;
        world.add_run(steps, Some(format!("cpu={largest}m")));
        world.live(LONGEST_LIFE);
        prop_assert!(world.is_over() && world.moves() == 0, "{world:?}");
    }
}

/// The placeholder is bound to the small node first, and the second task fits only on the large node.
fn too_small_at_first() -> World {
    let mut world = World::new(1);
    world.add_node(1_000);
    world.add_run(vec![vec![job(500, 3)], vec![job(6_000, 3)]], None);
    world.live(3);
    world.add_node(BIG);
    world
}

#[test]
fn a_task_too_large_for_its_node_runs_only_if_moves_are_enabled() {
    let mut off = too_small_at_first();
    off.config.move_after = None;
    off.live(LONGEST_LIFE);
    assert!(!off.is_over() && off.moves() == 0, "{off:?}");

    let mut on = too_small_at_first();
    on.live(40);
    assert!(on.is_over() && on.moves() == 1, "{on:?}");
}

#[test]
fn a_run_with_a_task_that_fits_no_node_moves_off_once_and_waits_for_a_new_node() {
    let mut world = World::new(1);
    world.add_node(1_000);
    world.add_run(vec![vec![job(6_000, 3)]], None);
    world.live(2_000);
    assert!(!world.is_over() && world.moves() == 1, "{world:?}");
    world.add_node(BIG);
    world.live(40);
    assert!(world.is_over() && world.moves() == 1, "{world:?}");
}

/// A case found by chance: the large task came first, and its node was cordoned while it ran. The scheduler then takes
/// the small task, which was requeued only for the end of the large task, and the small task waits only for a node of
/// its group.
#[test]
fn a_task_that_waits_for_a_task_on_a_cordoned_node_is_requeued_after_the_end_of_that_task() {
    for hears_labels in [true, false] {
        let mut world = cluster(2, 5_964_838_810_414_858_403);
        world.can_resize = false;
        world.hears_labels = hears_labels;
        world.add_run(vec![vec![job(100, 18)]], Some("cpu=100m".to_owned()));
        world.add_run(vec![vec![job(BIG, 1)], vec![job(BIG, 13), job(100, 1)]], None);
        world.live(21);
        world.befall(Trouble::Cordon);
        world.live(LONGEST_WAIT);
        assert!(world.is_over(), "{world:?}");
    }
}

//! The model of a cluster, run by the plan as it was; it keeps each observation that was decided.

use super::*;
use crate::requests::{Request, Verb};
use life::Job;
use proptest::collection::vec;
use proptest::prelude::{Just, any, prop_oneof};
use proptest::sample::select;
use proptest::strategy::{BoxedStrategy, Strategy as Arbitrary};
use serde_json::Value;
use world::{Trouble, World};

mod api;
mod control;
mod life;
mod world;

const BIG: i64 = 8_000;
const BESIDE: i64 = 100;

/// A life: what was observed at each decision, with the StatefulSet as the API server had it.
pub fn lives() -> BoxedStrategy<Vec<(Observation, Option<Value>)>> {
    let runs = vec((steps(any_size), reserve()), 1..4);
    (
        runs,
        troubles(),
        any::<bool>(),
        any::<bool>(),
        prop_oneof![Just(Duration::MAX), (1..60_u64).prop_map(Duration::from_secs)],
        0..90_usize,
        any::<u64>(),
    )
        .prop_map(|(runs, troubles, resize, hears_labels, deadline, late, seed)| {
            let mut world = cluster(0, seed);
            world.config.hold_deadline = deadline;
            world.can_resize = resize;
            world.hears_labels = hears_labels;
            let count = runs.len();
            for (steps, reserve) in runs {
                world.add_run(steps, reserve);
            }
            for second in 0..600 {
                if second == late {
                    (0..count).for_each(|_| world.add_node(BIG));
                }
                let due = troubles.iter().filter(|(at, _)| *at == second);
                due.for_each(|(_, trouble)| world.befall(*trouble));
                world.tick();
                if world.is_over() {
                    break;
                }
            }
            world.observed
        })
        .boxed()
}

fn job(cpu: i64, seconds: u32) -> Job {
    Job { cpu, seconds }
}

/// What a run does: steps one after the other, of one or two tasks at the same time.
fn steps(sizes: fn() -> BoxedStrategy<i64>) -> BoxedStrategy<Vec<Vec<Job>>> {
    let jobs = (sizes(), 1..25_u32).prop_map(|(cpu, seconds)| job(cpu, seconds));
    vec(vec(jobs, 1..3), 1..5).boxed()
}

fn any_size() -> BoxedStrategy<i64> {
    prop_oneof![100..1_500_i64, 1_500..BIG, Just(BIG)].boxed()
}

/// Any two of these fit on a big node one after the other, and not always together.
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

/// Small nodes and as many big ones as there are runs: whatever the others take, one that fits is left.
fn cluster(runs: usize, seed: u64) -> World {
    let mut world = World::new(seed);
    for cpu in [1_000, 2_000, 4_000] {
        world.add_node(cpu);
    }
    (0..runs).for_each(|_| world.add_node(BIG));
    world
}

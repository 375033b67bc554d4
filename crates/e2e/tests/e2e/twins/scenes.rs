//! The pairs that CI compares: each condition once, and each place, storage and strategy.

use super::pair::{Pair, STRATEGIES, Storage};
use super::place::Place::{self, Anywhere, Busy, Dedicated, Sandbox, Zone};
use super::twist::Twist;
use std::collections::{BTreeSet, HashSet};
use std::mem::discriminant;
use std::time::Duration;
use strum::EnumCount;

/// Whether Tekton creates assistants, and the properties of the pair.
type Scene = (bool, Twist, Place, Storage, &'static str);

const SCENES: [Scene; 30] = [
    (true, Twist::None, Zone, Storage::WithTheFirstPod, "true"),
    (
        true,
        Twist::QuotaOfPods(1),
        Anywhere,
        Storage::None,
        "colocateCompleted",
    ),
    (true, Twist::QuotaOfPods(2), Dedicated, Storage::None, "true"),
    (
        true,
        Twist::QuotaOfPods(4),
        Sandbox,
        Storage::None,
        "isolateAlways",
    ),
    (
        true,
        Twist::QuotaOfSets,
        Anywhere,
        Storage::WithTheFirstPod,
        "true",
    ),
    (true, Twist::Limits, Anywhere, Storage::None, "colocateAlways"),
    (true, Twist::LimitsAbove, Anywhere, Storage::None, "true"),
    (
        true,
        Twist::OwnAntiAffinity,
        Anywhere,
        Storage::InZone,
        "isolateAlways",
    ),
    (true, Twist::LabelledByPipeline, Zone, Storage::Immediate, "true"),
    (
        true,
        Twist::MadeByATrigger,
        Anywhere,
        Storage::OnOneNode,
        "colocateCompleted",
    ),
    (true, Twist::LargeTasks, Anywhere, Storage::None, "true"),
    (true, Twist::NodeTaken, Anywhere, Storage::None, "true"),
    (true, Twist::Cordoned, Anywhere, Storage::None, "true"),
    (true, Twist::NodeDies, Anywhere, Storage::None, "colocateAlways"),
    (true, Twist::FailsOnce, Busy, Storage::None, "isolateAlways"),
    (false, Twist::QuotaOfCpu, Anywhere, Storage::None, "true"),
    (false, Twist::Crowd, Anywhere, Storage::None, "true"),
    (false, Twist::OwnPreferredAffinity, Busy, Storage::None, "true"),
    (false, Twist::OwnNodeAffinity, Zone, Storage::InZone, "true"),
    (
        false,
        Twist::NoSuchAccount,
        Anywhere,
        Storage::None,
        "colocateAlways",
    ),
    (
        false,
        Twist::LabelledByNamespace,
        Sandbox,
        Storage::None,
        "isolateAlways",
    ),
    (
        false,
        Twist::LabelledTask,
        Anywhere,
        Storage::WithTheFirstPod,
        "true",
    ),
    (false, Twist::TaskElsewhere, Zone, Storage::None, "true"),
    (false, Twist::Preempted, Anywhere, Storage::None, "true"),
    (
        false,
        Twist::CordonedForASecond,
        Dedicated,
        Storage::None,
        "isolateAlways",
    ),
    (false, Twist::CordonedBetween, Anywhere, Storage::None, "true"),
    (false, Twist::NodeDiesBetween, Anywhere, Storage::None, "true"),
    (
        false,
        Twist::NodeReturns,
        Anywhere,
        Storage::None,
        "isolateAlways",
    ),
    (
        false,
        Twist::PlaceholderDeleted,
        Zone,
        Storage::Immediate,
        "colocateCompleted",
    ),
    (
        false,
        Twist::Fails,
        Sandbox,
        Storage::OnOneNode,
        "colocateCompleted",
    ),
];

/// Pairs with as few and as short tasks as their conditions allow.
pub(super) fn pairs() -> Vec<Pair> {
    SCENES.into_iter().enumerate().map(pair).collect()
}

fn pair((number, (assistants, twist, place, storage, strategy)): (usize, Scene)) -> Pair {
    Pair {
        number,
        seed: None,
        assistants,
        place,
        twist,
        storage,
        strategy,
        width: twist.widest().min(1),
        length: 1,
        lasting: twist.lasting(Duration::from_secs(1)),
        finally: twist == Twist::Fails,
        retries: 1,
    }
}

#[e2e_test]
fn the_pairs_in_ci_contain_every_twist_place_storage_and_strategy() {
    let twists: BTreeSet<_> = pairs().iter().map(|pair| pair.twist).collect();
    assert_eq!(twists, BTreeSet::from(Twist::ALL));
    let kinds: HashSet<_> = twists.iter().map(discriminant).collect();
    assert_eq!(kinds.len(), Twist::COUNT, "Twist::ALL lacks a twist");
    for place in Place::ALL {
        assert!(pairs().iter().any(|pair| pair.place == place), "{place:?}");
    }
    for storage in Storage::ALL {
        assert!(pairs().iter().any(|pair| pair.storage == storage), "{storage:?}");
    }
    for strategy in STRATEGIES {
        assert!(pairs().iter().any(|pair| pair.strategy == strategy), "{strategy}");
    }
}

#[e2e_test]
fn no_pair_in_ci_would_hang_without_the_label() {
    for pair in pairs() {
        assert_eq!(pair.place, pair.twist.place(pair.place), "{pair:?}");
        let storage = pair.storage.beside(pair.twist, pair.place, pair.assistants);
        assert_eq!(pair.storage, storage, "{pair:?}");
        assert!(pair.length >= pair.twist.shortest(), "{pair:?}");
    }
}

//! The pairs that CI compares: each condition once, and each place, storage and strategy.

use super::condition::Condition;
use super::pair::{Pair, STRATEGIES, Storage};
use super::place::Place::{self, Anywhere, Busy, Dedicated, Sandbox, Zone};
use std::collections::{BTreeSet, HashSet};
use std::mem::discriminant;
use std::time::Duration;
use strum::EnumCount;

/// Whether Tekton creates assistants, and the properties of the pair.
type Properties = (bool, Condition, Place, Storage, &'static str);

const CI_PAIRS: [Properties; 35] = [
    (true, Condition::None, Zone, Storage::WithTheFirstPod, "true"),
    (
        true,
        Condition::QuotaOfPods(1),
        Anywhere,
        Storage::None,
        "colocateCompleted",
    ),
    (true, Condition::QuotaOfPods(2), Dedicated, Storage::None, "true"),
    (
        true,
        Condition::QuotaOfPods(4),
        Sandbox,
        Storage::None,
        "isolateAlways",
    ),
    (
        true,
        Condition::QuotaOfSets,
        Anywhere,
        Storage::WithTheFirstPod,
        "true",
    ),
    (true, Condition::Limits, Anywhere, Storage::None, "colocateAlways"),
    (true, Condition::LimitsAbove, Anywhere, Storage::None, "true"),
    (
        true,
        Condition::OwnAntiAffinity,
        Anywhere,
        Storage::InZone,
        "isolateAlways",
    ),
    (
        true,
        Condition::LabelledByPipeline,
        Zone,
        Storage::Immediate,
        "true",
    ),
    (
        true,
        Condition::MadeByATrigger,
        Anywhere,
        Storage::OnOneNode,
        "colocateCompleted",
    ),
    (true, Condition::LargeTasks, Anywhere, Storage::None, "true"),
    (true, Condition::NodeTaken, Anywhere, Storage::None, "true"),
    (true, Condition::Cordoned, Anywhere, Storage::None, "true"),
    (
        true,
        Condition::NodeDies,
        Anywhere,
        Storage::None,
        "colocateAlways",
    ),
    (true, Condition::FailsOnce, Busy, Storage::None, "isolateAlways"),
    (false, Condition::QuotaOfCpu, Anywhere, Storage::None, "true"),
    (false, Condition::QuotaOfTerms, Anywhere, Storage::None, "true"),
    (false, Condition::Crowd, Anywhere, Storage::None, "true"),
    (
        false,
        Condition::OwnPreferredAffinity,
        Busy,
        Storage::None,
        "true",
    ),
    (false, Condition::OwnNodeAffinity, Zone, Storage::InZone, "true"),
    (
        false,
        Condition::NoSuchAccount,
        Anywhere,
        Storage::None,
        "colocateAlways",
    ),
    (
        false,
        Condition::LabelledByNamespace,
        Sandbox,
        Storage::None,
        "isolateAlways",
    ),
    (
        false,
        Condition::LabelledTask,
        Anywhere,
        Storage::WithTheFirstPod,
        "true",
    ),
    (
        false,
        Condition::AlternatingZones,
        Anywhere,
        Storage::None,
        "true",
    ),
    (false, Condition::InvalidTemplate, Anywhere, Storage::None, "true"),
    (false, Condition::CustomTask, Anywhere, Storage::None, "true"),
    (false, Condition::TimesOut, Anywhere, Storage::None, "true"),
    (false, Condition::TaskElsewhere, Zone, Storage::None, "true"),
    (false, Condition::Preempted, Anywhere, Storage::None, "true"),
    (
        false,
        Condition::CordonedForASecond,
        Dedicated,
        Storage::None,
        "isolateAlways",
    ),
    (false, Condition::CordonedBetween, Anywhere, Storage::None, "true"),
    (false, Condition::NodeDiesBetween, Anywhere, Storage::None, "true"),
    (
        false,
        Condition::NodeReturns,
        Anywhere,
        Storage::None,
        "isolateAlways",
    ),
    (
        false,
        Condition::PlaceholderDeleted,
        Zone,
        Storage::Immediate,
        "colocateCompleted",
    ),
    (
        false,
        Condition::Fails,
        Sandbox,
        Storage::OnOneNode,
        "colocateCompleted",
    ),
];

/// Pairs of runs with several volumes: the first volume, and the others.
const SEVERAL: [(bool, Storage, [Storage; 2]); 2] = [
    (true, Storage::InZone, [Storage::InOtherZone, Storage::OnOneNode]),
    (
        false,
        Storage::OnOneNode,
        [Storage::WithTheFirstPod, Storage::OnOneNode],
    ),
];

/// Pairs with as few and as short tasks as their conditions allow.
pub(super) fn pairs() -> Vec<Pair> {
    let several = SEVERAL.into_iter().map(|(assistants, storage, more)| Pair {
        length: 2,
        more: more.to_vec(),
        ..pair((assistants, Condition::None, Anywhere, storage, "true"))
    });
    let all = CI_PAIRS.into_iter().map(pair).chain(several);
    all.enumerate()
        .map(|(number, pair)| Pair { number, ..pair })
        .collect()
}

fn pair((assistants, condition, place, storage, strategy): Properties) -> Pair {
    Pair {
        number: 0,
        seed: None,
        assistants,
        place,
        condition,
        storage,
        more: Vec::new(),
        strategy,
        width: condition.widest().min(1),
        length: condition.shortest().max(1),
        lasting: condition.lasting(Duration::from_secs(1)),
        finally: condition == Condition::Fails,
        retries: 1,
    }
}

#[e2e_test]
fn the_pairs_in_ci_contain_every_condition_place_storage_and_strategy() {
    let conditions: BTreeSet<_> = pairs().iter().map(|pair| pair.condition).collect();
    assert_eq!(conditions, BTreeSet::from(Condition::ALL));
    let kinds: HashSet<_> = conditions.iter().map(discriminant).collect();
    assert_eq!(kinds.len(), Condition::COUNT, "Condition::ALL lacks a condition");
    for place in Place::ALL {
        assert!(pairs().iter().any(|pair| pair.place == place), "{place:?}");
    }
    for storage in Storage::ALL {
        let has_it = |pair: &Pair| pair.storage == storage || pair.more.contains(&storage);
        assert!(pairs().iter().any(has_it), "{storage:?}");
    }
    for strategy in STRATEGIES {
        assert!(pairs().iter().any(|pair| pair.strategy == strategy), "{strategy}");
    }
}

#[e2e_test]
fn no_pair_in_ci_would_hang_without_the_label() {
    for pair in pairs() {
        assert_eq!(pair.place, pair.condition.place(pair.place), "{pair:?}");
        let storage = pair.storage.beside(pair.condition, pair.place, pair.assistants);
        assert_eq!(pair.storage, storage, "{pair:?}");
        assert!(pair.length >= pair.condition.shortest(), "{pair:?}");
    }
}

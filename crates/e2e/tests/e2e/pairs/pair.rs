//! A pair of runs: the place of its pods, its volume, its special condition, and which of these can be combined.

use super::condition::Condition;
use super::place::Place;
use crate::support::fake_csi::DEFAULT_ZONE;
use crate::support::random::one_of;
use fastrand::Rng;
use std::time::Duration;

/// Most runs can be anywhere.
const PLACES: [Place; 8] = [
    Place::Anywhere,
    Place::Anywhere,
    Place::Anywhere,
    Place::Anywhere,
    Place::Sandbox,
    Place::Dedicated,
    Place::Busy,
    Place::Zone,
];

pub(super) const STRATEGIES: [&str; 4] = ["true", "colocateCompleted", "colocateAlways", "isolateAlways"];

/// A volume that tasks mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Storage {
    None,
    /// Exists before the run, and can be attached to nodes of one zone only.
    InZone,
    /// The same, of another zone.
    InOtherZone,
    /// Exists before the run, on a disk of one node.
    OnOneNode,
    /// Tekton creates the PVC, and the driver creates the volume at once in a zone of its choice.
    Immediate,
    /// Tekton creates the PVC, and the driver creates the volume in the zone of the first pod.
    WithTheFirstPod,
}

const STORAGES: [Storage; 8] = [
    Storage::None,
    Storage::None,
    Storage::None,
    Storage::None,
    Storage::InZone,
    Storage::OnOneNode,
    Storage::Immediate,
    Storage::WithTheFirstPod,
];

/// The second and the third volume of a run.
const MORE: [Storage; 5] = [
    Storage::InZone,
    Storage::InOtherZone,
    Storage::OnOneNode,
    Storage::Immediate,
    Storage::WithTheFirstPod,
];

impl Storage {
    pub(super) const ALL: [Self; 6] = [
        Self::None,
        Self::InZone,
        Self::InOtherZone,
        Self::OnOneNode,
        Self::Immediate,
        Self::WithTheFirstPod,
    ];

    /// This storage, or another that can be combined with the condition: a run that hangs without the label cannot be
    /// compared.
    pub(super) fn beside(self, condition: Condition, place: Place, assistants: bool) -> Self {
        match self {
            // Tekton's own assistant cannot be on the nodes of a RuntimeClass, and does not move off a node.
            _ if assistants && (place == Place::Sandbox || condition.moves()) => Self::None,
            // A namespace of the pair's own contains only the PVCs that Tekton creates.
            Self::InZone | Self::OnOneNode if condition == Condition::QuotaOfSets => Self::WithTheFirstPod,
            Self::InOtherZone if place != Place::Anywhere => Self::InZone,
            _ if !(condition.goes_with_volumes() || condition == Condition::QuotaOfSets) => Self::None,
            Self::OnOneNode if condition.moves() || condition.has_nodes() => Self::None,
            // The driver would choose another zone than the placeholder, and the run would have to move there.
            Self::Immediate if place.zone() != DEFAULT_ZONE => Self::WithTheFirstPod,
            fitting => fitting,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Plain,
    Labelled,
}

/// A pair, determined by its seed, except the number.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) number: usize,
    /// The seed from which the pair was drawn.
    pub(super) seed: Option<u64>,
    /// Whether Tekton creates assistants for runs with volumes.
    pub(super) assistants: bool,
    pub(super) place: Place,
    pub(super) condition: Condition,
    pub(super) storage: Storage,
    /// Further volumes. Each task mounts one volume.
    pub(super) more: Vec<Storage>,
    pub(super) strategy: &'static str,
    /// Number of tasks parallel to the second one. All of them follow the first task, and the third task follows the second.
    pub(super) width: usize,
    pub(super) length: usize,
    /// Duration of each task.
    pub(super) lasting: Duration,
    pub(super) finally: bool,
    pub(super) retries: u32,
}

impl Pair {
    pub(super) fn draw(seed: u64, number: usize) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let (assistants, condition) = (rng.bool(), one_of(rng, &Condition::ALL));
        let place = condition.place(one_of(rng, &PLACES));
        let storage = one_of(rng, &STORAGES).beside(condition, place, assistants);
        let more = (0..rng.usize(0..3)).map(|_| one_of(rng, &MORE).beside(condition, place, assistants));
        let more: Vec<_> = more.filter(|_| storage != Storage::None).collect();
        let more = if goes_with_several_volumes(condition, place) {
            more
        } else {
            Vec::new()
        };
        Self {
            number,
            seed: Some(seed),
            assistants,
            place,
            condition,
            storage,
            strategy: one_of(rng, &STRATEGIES),
            // Tasks with different volumes may need a move each.
            width: rng
                .usize(0..3)
                .min(if more.is_empty() { condition.widest() } else { 1 }),
            more,
            length: rng.usize(0..3).max(condition.shortest()),
            lasting: condition.lasting(one_of(rng, &[300, 1000, 3000].map(Duration::from_millis))),
            finally: rng.u32(0..4) == 0,
            retries: rng.u32(0..2),
        }
    }

    /// A pair without a special condition, as long as the longest pair. Its duration measures the current speed of the
    /// machine.
    pub(super) fn control(number: usize) -> Self {
        Self {
            number,
            seed: None,
            assistants: false,
            place: Place::Anywhere,
            condition: Condition::None,
            storage: Storage::None,
            more: Vec::new(),
            strategy: "true",
            width: 0,
            length: 2,
            lasting: Duration::from_secs(1),
            finally: true,
            retries: 0,
        }
    }

    pub(super) fn name(&self, variant: Variant) -> String {
        match variant {
            Variant::Plain => format!("plain-{}", self.number),
            Variant::Labelled => format!("labelled-{}", self.number),
        }
    }

    /// A pair needs its own namespace only for conditions of a whole namespace. Existing volumes are in the default
    /// namespace.
    pub(super) fn namespace(&self, variant: Variant) -> String {
        if self.condition.has_namespace() {
            self.name(variant)
        } else {
            "default".to_owned()
        }
    }

    /// Number of nodes that no other run uses, because the condition changes them.
    pub(super) fn own_nodes(&self) -> usize {
        if self.condition.has_nodes() {
            2
        } else {
            let disks = self
                .volumes()
                .filter(|(_, storage)| *storage == Storage::OnOneNode);
            disks.map(|(number, _)| number + 1).max().unwrap_or_default()
        }
    }

    /// The volumes with their numbers.
    pub(super) fn volumes(&self) -> impl Iterator<Item = (usize, Storage)> {
        let all = [self.storage].into_iter().chain(self.more.iter().copied());
        all.filter(|storage| *storage != Storage::None).enumerate()
    }

    /// The tasks cannot all be on one node, because of the pair's condition or because of its volumes.
    pub(super) fn is_apart(&self) -> bool {
        self.condition.is_apart() || !self.more.is_empty()
    }

    /// Most moves of the run. With several volumes or zones, each task may need a move.
    pub(super) fn most_moves(&self) -> i64 {
        let each = 1 + self.width + self.length;
        match self.condition {
            Condition::AlternatingZones => i64::try_from(each).unwrap(),
            _ if !self.more.is_empty() => i64::try_from(each).unwrap(),
            condition => condition.most_moves().max(self.is_recreated().into()),
        }
    }

    /// A placeholder that outlives its run is recreated without PVCs while the run is held. Another run can take the node
    /// meanwhile.
    pub(super) fn is_recreated(&self) -> bool {
        self.strategy.ends_with("Always") && self.storage != Storage::None
    }

    /// Number of tasks that run at the same time if their node has room.
    pub(super) fn at_once(&self) -> usize {
        (self.width + self.length.min(1)).max(1)
    }
}

/// Conditions and places that do not decide themselves on which nodes the tasks are.
fn goes_with_several_volumes(condition: Condition, place: Place) -> bool {
    let is_free = matches!(
        condition,
        Condition::None
            | Condition::OwnPreferredAffinity
            | Condition::LabelledTask
            | Condition::MadeByATrigger
            | Condition::FailsOnce
            | Condition::Fails
            | Condition::PlaceholderDeleted
    );
    is_free && matches!(place, Place::Anywhere | Place::Dedicated | Place::Zone)
}

#[e2e_test]
fn drawn_pairs_are_of_every_kind_and_none_would_hang_without_the_label() {
    let drawn = || (0..4000).map(|seed| Pair::draw(seed, 0));
    let words = || drawn().map(|pair| format!("{pair:?}")).collect::<Vec<_>>();
    assert_eq!(words(), words(), "a seed draws the same pair again");
    for condition in Condition::ALL {
        assert!(drawn().any(|pair| pair.condition == condition), "{condition:?}");
    }
    for storage in Storage::ALL {
        let has_it = |pair: &Pair| pair.storage == storage || pair.more.contains(&storage);
        assert!(drawn().any(|pair| has_it(&pair)), "{storage:?}");
        let in_a_sandbox =
            |pair: Pair| (pair.place, pair.storage, pair.assistants) == (Place::Sandbox, storage, true);
        assert_eq!(drawn().any(in_a_sandbox), storage == Storage::None, "{storage:?}");
    }
    let most = drawn().map(|pair| pair.volumes().count()).max();
    assert_eq!(most, Some(3));
    for pair in drawn().filter(|pair| pair.condition.has_nodes()) {
        assert!(pair.own_nodes() == 2 && pair.place != Place::Busy, "{pair:?}");
    }
}

//! A pair of runs: where they may be, what they mount, what else is special about them, and which of that goes together.

use super::place::Place;
use super::twist::Twist;
use crate::soak::one_of;
use crate::support::provisioner::ITS_ZONE;
use fastrand::Rng;
use std::time::Duration;

/// A run that may be anywhere is the usual one.
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

/// The volume that the tasks mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Storage {
    None,
    /// It is there before the run, and attached to nodes of one zone only.
    InZone,
    /// It is there before the run, on a disk of one node.
    OnOneNode,
    /// Tekton asks for it, and its driver makes it at once, where it likes.
    Immediate,
    /// Tekton asks for it, and its driver makes it where the first pod goes.
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

impl Storage {
    pub(super) const ALL: [Self; 5] = [
        Self::None,
        Self::InZone,
        Self::OnOneNode,
        Self::Immediate,
        Self::WithTheFirstPod,
    ];

    /// Itself or another that fits: a run that never starts or never ends without the label says nothing about the label.
    pub(super) fn beside(self, twist: Twist, place: Place, assistants: bool) -> Self {
        match self {
            // Tekton's own assistant is not on the nodes of a RuntimeClass, and does not leave a node.
            _ if assistants && (place == Place::Sandbox || twist.moves()) => Self::None,
            // Only Tekton's own claims are in the namespace of the run.
            Self::InZone | Self::OnOneNode if twist == Twist::QuotaOfSets => Self::WithTheFirstPod,
            _ if !(twist.goes_with_volumes() || twist == Twist::QuotaOfSets) => Self::None,
            Self::OnOneNode if twist.moves() || twist.has_nodes() => Self::None,
            // The driver would choose another zone than the placeholder did, and the run would have to move there.
            Self::Immediate if place.zone() != ITS_ZONE => Self::WithTheFirstPod,
            fitting => fitting,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Twin {
    Plain,
    Labelled,
}

/// Depends on nothing but the seed, apart from the number.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) number: usize,
    /// What the pair was drawn from.
    pub(super) seed: Option<u64>,
    /// Whether Tekton makes assistants for runs with volumes.
    pub(super) assistants: bool,
    pub(super) place: Place,
    pub(super) twist: Twist,
    pub(super) storage: Storage,
    pub(super) strategy: &'static str,
    /// Tasks beside the second one; all of them follow the first one, and a third the second.
    pub(super) width: usize,
    pub(super) length: usize,
    /// Each of its tasks.
    pub(super) lasting: Duration,
    pub(super) finally: bool,
    pub(super) retries: u32,
}

impl Pair {
    pub(super) fn draw(seed: u64, number: usize) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let (assistants, twist) = (rng.bool(), one_of(rng, &Twist::ALL));
        let place = twist.place(one_of(rng, &PLACES));
        Self {
            number,
            seed: Some(seed),
            assistants,
            place,
            twist,
            storage: one_of(rng, &STORAGES).beside(twist, place, assistants),
            strategy: one_of(rng, &STRATEGIES),
            width: rng.usize(0..3).min(twist.widest()),
            length: rng.usize(0..3).max(twist.shortest()),
            lasting: twist.lasting(one_of(rng, &[300, 1000, 3000].map(Duration::from_millis))),
            finally: rng.u32(0..4) == 0,
            retries: rng.u32(0..2),
        }
    }

    /// As long as the longest, and nothing special about it: how slow the machine is just now.
    pub(super) fn control(number: usize) -> Self {
        Self {
            number,
            seed: None,
            assistants: false,
            place: Place::Anywhere,
            twist: Twist::None,
            storage: Storage::None,
            strategy: "true",
            width: 0,
            length: 2,
            lasting: Duration::from_secs(1),
            finally: true,
            retries: 0,
        }
    }

    pub(super) fn name(&self, twin: Twin) -> String {
        match twin {
            Twin::Plain => format!("plain-{}", self.number),
            Twin::Labelled => format!("labelled-{}", self.number),
        }
    }

    /// Only what concerns a whole namespace needs one of its own; volumes are in the default one.
    pub(super) fn namespace(&self, twin: Twin) -> String {
        if self.twist.has_namespace() {
            self.name(twin)
        } else {
            "default".to_owned()
        }
    }

    /// Nodes that no other run uses, because something happens to them.
    pub(super) fn own_nodes(&self) -> usize {
        match self.storage {
            _ if self.twist.has_nodes() => 2,
            Storage::OnOneNode => 1,
            Storage::None | Storage::InZone | Storage::Immediate | Storage::WithTheFirstPod => 0,
        }
    }

    /// Tasks that run at the same time, if there is room for them.
    pub(super) fn at_once(&self) -> usize {
        (self.width + self.length.min(1)).max(1)
    }
}

#[e2e_test]
fn pairs_are_drawn_of_every_kind_and_none_that_would_hang_without_the_label() {
    let drawn = || (0..4000).map(|seed| Pair::draw(seed, 0));
    let words = || drawn().map(|pair| format!("{pair:?}")).collect::<Vec<_>>();
    assert_eq!(words(), words(), "a seed draws the same pair again");
    for twist in Twist::ALL {
        assert!(drawn().any(|pair| pair.twist == twist), "{twist:?}");
    }
    for storage in Storage::ALL {
        assert!(drawn().any(|pair| pair.storage == storage), "{storage:?}");
        let in_a_sandbox =
            |pair: Pair| (pair.place, pair.storage, pair.assistants) == (Place::Sandbox, storage, true);
        assert_eq!(drawn().any(in_a_sandbox), storage == Storage::None, "{storage:?}");
    }
    for pair in drawn().filter(|pair| pair.twist.has_nodes()) {
        assert!(pair.own_nodes() == 2 && pair.place != Place::Busy, "{pair:?}");
    }
}

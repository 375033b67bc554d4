//! The steps of a soak, the shapes of its runs, and the nodes and PVCs of these runs.

use super::{FIXED, NAMESPACE};
use crate::pairs::place::{Place, ZONE, only_where, runtime_class};
use crate::support::pvcs::{create_pvc_of, with_pvc};
use crate::support::random::one_of;
use fastrand::Rng;
use placement::keys;
use serde_json::json;
use std::collections::HashSet;
use std::mem::discriminant;
use strum::EnumCount;
use testbed::runs::RunSpec;
use testbed::{Testbed, apply};

/// Number of nodes in each of the two zones.
const NODES: usize = 30;
/// Number of nodes in each tainted pool: one run in sixteen uses such a pool.
const TAINTED: usize = 8;
/// A step refers to one of this many most recent runs.
const RECENT: usize = 25;
/// PVCs that any number of runs mount at the same time: the first can be used anywhere, the second in one zone.
const PVCS: [&str; 2] = ["anywhere", "zonal"];
const VALUES: [&str; 4] = ["true", "colocateAlways", "colocateCompleted", "isolateAlways"];
const CONFIGURATIONS: [(&str, Option<&str>); 8] = [
    ("default-strategy", Some("isolateAlways")),
    ("default-strategy", Some("colocateAlways")),
    ("default-strategy", Some("colocateCompleted")),
    ("default-strategy", Some("colocateSometimes")),
    ("release-when", Some("created")),
    ("release-when", None),
    ("placeholder-memory", Some("64Mi")),
    ("placeholder-memory", None),
];

/// The next step. A number refers to a run by how many runs were created after it.
#[derive(Debug, EnumCount)]
pub(super) enum Step {
    Create(RunSpec),
    Cancel(usize, &'static str),
    Delete(usize),
    MakeAnew(usize),
    Relabel(usize, Option<&'static str>),
    UserReleases(usize),
    Configure((&'static str, Option<&'static str>)),
    RestartTekton,
}

impl Step {
    /// The next step, determined by the random generator and the number of the next run.
    pub(super) fn next(rng: &mut Rng, number: usize) -> Self {
        let recent = rng.usize(0..RECENT);
        let cancellations = ["Cancelled", "CancelledRunFinally", "StoppedRunFinally"];
        let labels = [
            None,
            Some("false"),
            Some("true"),
            Some("isolateAlways"),
            Some("colocateAlways"),
        ];
        match rng.u32(0..200) {
            0..110 => Self::Create(shape(rng, &format!("run-{number}"))),
            110..128 => Self::Cancel(recent, one_of(rng, &cancellations)),
            128..144 => Self::Delete(recent),
            144..160 => Self::MakeAnew(recent),
            160..176 => Self::Relabel(recent, one_of(rng, &labels)),
            176..190 => Self::UserReleases(recent),
            190..198 => Self::Configure(one_of(rng, &CONFIGURATIONS)),
            _ => Self::RestartTekton,
        }
    }
}

/// Creates the nodes and PVCs of all runs.
pub(super) async fn create_nodes_and_pvcs(bed: &Testbed) {
    for (place, count) in [
        (Place::Anywhere, NODES),
        (Place::Zone, NODES),
        (Place::Sandbox, TAINTED),
        (Place::Dedicated, TAINTED),
    ] {
        bed.add_nodes(&place.nodes(place.pool(), count)).await.unwrap();
    }
    apply::apply(&bed.client().await.unwrap(), &runtime_class())
        .await
        .unwrap();
    let shared = json!({"hostPath": {"path": "/tmp"}, "accessModes": ["ReadWriteMany"]});
    let mut zonal = shared.clone();
    zonal["nodeAffinity"] = only_where(ZONE, Place::Zone.zone());
    for (pvc, volume) in PVCS.into_iter().zip([shared, zonal]) {
        create_pvc_of(bed, pvc, volume).await;
    }
}

fn shape(rng: &mut Rng, name: &str) -> RunSpec {
    let mut run = RunSpec::new(NAMESPACE, name).task("first", &[]);
    for task in ["left", "right"].iter().take(rng.usize(0..3)) {
        run = run.task(task, &["first"]);
    }
    if rng.u32(0..4) == 0 {
        run = run.finally("last");
    }
    if rng.u32(0..12) > 0 {
        run = run.opted_in(one_of(rng, &VALUES));
    }
    if rng.u32(0..12) == 0 {
        run = run.spec("status", json!(keys::PENDING));
    }
    if rng.u32(0..12) == 0 {
        run = run.annotation(keys::RESERVE, "cpu=2,memory=1Gi");
    }
    if rng.u32(0..12) == 0 {
        run = run.ending("fail");
    }
    let lasting = one_of(rng, &["300ms", "1s", "2s"]);
    placed(rng, run.lasting(lasting))
}

/// Sets the place of the run's pods, and the PVC that they mount.
fn placed(rng: &mut Rng, run: RunSpec) -> RunSpec {
    let place = match rng.u32(0..16) {
        0 => Place::Sandbox,
        1 => Place::Dedicated,
        2 => Place::Zone,
        _ => Place::Anywhere,
    };
    let pvc = PVCS.get(rng.usize(0..12)).copied();
    let template = json!({"podTemplate": place.template()});
    let run = run.spec("taskRunTemplate", template);
    match pvc {
        // Tekton's own assistant cannot be on the nodes of a RuntimeClass: without the label, such a run never starts.
        Some(pvc) if place != Place::Sandbox => with_pvc(run, pvc),
        _ => run,
    }
}

#[e2e_test]
fn the_same_seed_takes_the_same_steps() {
    let steps = |seed| {
        let mut rng = Rng::with_seed(seed);
        let steps = (0..500).map(|number| format!("{:?}", Step::next(&mut rng, number)));
        steps.collect::<Vec<_>>()
    };
    assert_eq!(steps(7), steps(7));
    assert_ne!(steps(7), steps(8));
}

#[e2e_test]
fn the_soak_in_ci_takes_steps_of_every_kind() {
    let (seed, runs) = FIXED;
    let (mut rng, mut number, mut kinds) = (Rng::with_seed(seed), 0, HashSet::new());
    while number < runs {
        let step = Step::next(&mut rng, number);
        number += usize::from(matches!(step, Step::Create(_) | Step::MakeAnew(_)));
        kinds.insert(discriminant(&step));
    }
    assert_eq!(kinds.len(), Step::COUNT);
}

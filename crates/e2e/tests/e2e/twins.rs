//! Runs in pairs that differ in the label alone, in a cluster with what clusters of others have: sandboxes, tainted pools,
//! quotas and limits, volumes that tie a run to a zone or a node, pods that have to be preempted, nodes that are cordoned, nodes
//! that die, and some of them return.
//! A labelled run ends, and as its twin does; later only by the wait for its node and a few seconds, unless it reports that
//! its own tasks cannot share a node.
//!
//! `POD_AFFINITY_TWINS` says how many pairs, `POD_AFFINITY_TWINS_SEED` repeats those of an earlier run.

use crate::auditor::Auditor;
use crate::beds::{SOON, create, fresh, quota, reasons};
use crate::claims::{claim_of, with_claim};
use crate::install_kubectl::kubectl;
use crate::moves::{cordon, uncordon};
use crate::soak::{number_of, one_of};
use fastrand::Rng;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject};
use placement::keys;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use testbed::runs::{self, OPT_IN, RunSpec, State};
use testbed::{Nodes, Testbed, apply};

/// In CI.
const FEW: usize = 16;
/// Pairs at a time: fewer than the nodes of any pool, so that nobody waits long for a node.
const AT_ONCE: usize = 8;
const POOL: usize = AT_ONCE + 2;
/// How much later a labelled run may end, its wait for a node aside. Times of runs are whole seconds.
const FEW_SECONDS: i64 = 10;
/// What a run reports whose tasks cannot all be on one node.
const REPORTS: [&str; 3] = ["MovedOff", "NodeUnfit", "MadeRoom"];
/// A run without the label that has not ended by then hangs for reasons of its own, and says nothing about its twin.
const HANGS: Duration = SOON;
const FILLERS: &str = "filler";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Where the pods of a run may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Anywhere,
    /// Tainted nodes that a RuntimeClass leads to.
    Sandbox,
    /// Tainted nodes that the run's template names and tolerates.
    Dedicated,
    /// Nodes full of pods that have to be preempted.
    Busy,
    Zone,
    /// Two nodes that no other run uses, since one of them dies.
    Own,
}

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

/// What else is special about a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Twist {
    None,
    QuotaOfPods(u32),
    Limits,
    VolumeInZone,
    VolumeOnNode,
    OwnAntiAffinity,
    OwnPreferredAffinity,
    LabelledByPipeline,
    LabelledTask,
    MadeByATrigger,
    LargeTasks,
    Cordoned,
    CordonedForASecond,
    NodeDies,
    NodeReturns,
    PlaceholderDeleted,
    FailsOnce,
    Fails,
}

const TWISTS: [Twist; 21] = [
    Twist::None,
    Twist::None,
    Twist::QuotaOfPods(2),
    Twist::QuotaOfPods(4),
    Twist::Limits,
    Twist::VolumeInZone,
    Twist::VolumeOnNode,
    Twist::OwnAntiAffinity,
    Twist::OwnPreferredAffinity,
    Twist::LabelledByPipeline,
    Twist::LabelledTask,
    Twist::MadeByATrigger,
    Twist::LargeTasks,
    Twist::Cordoned,
    Twist::Cordoned,
    Twist::CordonedForASecond,
    Twist::NodeDies,
    Twist::NodeReturns,
    Twist::PlaceholderDeleted,
    Twist::FailsOnce,
    Twist::Fails,
];

/// Depends on nothing but the generator.
#[derive(Clone, Debug)]
struct Pair {
    number: usize,
    place: Place,
    twist: Twist,
    strategy: &'static str,
    /// Tasks beside the first one, which they follow; more than two of them in a row.
    width: usize,
    length: usize,
    lasting: &'static str,
    finally: bool,
    retries: u32,
}

impl Pair {
    fn draw(rng: &mut Rng, number: usize) -> Self {
        let (place, twist) = (one_of(rng, &PLACES), one_of(rng, &TWISTS));
        Self {
            number,
            place: match (twist, place) {
                (Twist::NodeDies | Twist::NodeReturns, _) => Place::Own,
                // Tekton's own assistant is not on the nodes of a RuntimeClass: without the label, such a run never starts.
                (Twist::VolumeInZone | Twist::VolumeOnNode, Place::Sandbox) => Place::Dedicated,
                _ => place,
            },
            twist,
            strategy: one_of(rng, &["true", "colocateCompleted", "colocateAlways"]),
            width: rng.usize(0..3),
            length: rng.usize(0..3),
            lasting: one_of(rng, &["300ms", "1s", "3s"]),
            finally: rng.u32(0..4) == 0,
            retries: rng.u32(0..2),
        }
    }

    /// As long as the longest, and nothing special about it: how slow the machine is just now.
    fn control(number: usize) -> Self {
        Self {
            number,
            place: Place::Anywhere,
            twist: Twist::None,
            strategy: "true",
            width: 0,
            length: 2,
            lasting: "1s",
            finally: true,
            retries: 0,
        }
    }

    fn name(&self, twin: Twin) -> String {
        match twin {
            Twin::Plain => format!("plain-{}", self.number),
            Twin::Labelled => format!("labelled-{}", self.number),
        }
    }

    /// Only quotas and limits need a namespace of their own; volumes are in the default one.
    fn namespace(&self, twin: Twin) -> String {
        match self.twist {
            Twist::QuotaOfPods(_) | Twist::Limits => self.name(twin),
            _ => "default".to_owned(),
        }
    }

    fn run(&self, twin: Twin) -> RunSpec {
        let lasting = match self.place {
            // The node dies while they run.
            Place::Own => "3s",
            _ => self.lasting,
        };
        let mut run = RunSpec::new(&self.namespace(twin), &self.name(twin)).lasting(lasting);
        let size = match (self.twist, self.place) {
            (Twist::LargeTasks, _) => json!({"cpu": "5"}),
            (_, Place::Busy) => json!({"cpu": "2"}),
            _ => json!({}),
        };
        run = run.sized_task("first", &[], &size);
        if self.twist == Twist::NodeDies {
            run = run.task_field("retries", json!(self.retries));
        }
        if self.twist == Twist::MadeByATrigger {
            run = ["eventlistener", "trigger", "triggers-eventid"]
                .into_iter()
                .fold(run, |run, key| {
                    run.label(&format!("triggers.tekton.dev/{key}"), "some")
                });
        }
        for side in ["left", "middle", "right"].into_iter().take(self.width) {
            run = run.sized_task(side, &["first"], &size);
        }
        for (before, name) in [("first", "second"), ("second", "third")]
            .into_iter()
            .take(self.length)
        {
            run = run.sized_task(name, &[before], &size);
        }
        if self.twist == Twist::FailsOnce {
            run = run.ending("fail-once").task_field("retries", json!(self.retries));
        }
        if self.twist == Twist::Fails {
            run = run.ending("fail");
        }
        if self.finally {
            run = run.finally("last");
        }
        if let Twist::VolumeInZone | Twist::VolumeOnNode = self.twist {
            run = with_claim(run, &self.name(twin));
        }
        let run = run.spec("taskRunTemplate", json!({"podTemplate": self.template(twin)}));
        self.labelled(run, twin)
    }

    fn labelled(&self, mut run: RunSpec, twin: Twin) -> RunSpec {
        match (twin, self.twist) {
            // The label of a task says nothing: only its pods have it.
            (Twin::Labelled, Twist::LabelledTask) => {
                let metadata = json!({"labels": {OPT_IN: "true"}});
                run.manifest["spec"]["pipelineSpec"]["tasks"][0]["taskSpec"]["metadata"] = metadata;
                run
            }
            (Twin::Labelled, Twist::LabelledByPipeline) | (Twin::Plain, _) => run,
            (Twin::Labelled, _) => run.opted_in(self.strategy),
        }
    }

    fn template(&self, twin: Twin) -> Value {
        let mut template = match self.place {
            Place::Anywhere => json!({}),
            Place::Sandbox => json!({"runtimeClassName": "sandbox"}),
            Place::Dedicated => json!({
                "nodeSelector": {"pool": "dedicated"},
                "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "ci", "effect": "NoSchedule"}],
            }),
            Place::Busy => json!({"nodeSelector": {"pool": "busy"}, "priorityClassName": "urgent"}),
            Place::Zone => json!({"nodeSelector": {ZONE: "west"}}),
            Place::Own => json!({
                "nodeSelector": {"pool": self.name(twin)},
                "tolerations": [{"key": self.name(twin), "operator": "Exists", "effect": "NoSchedule"}],
            }),
        };
        let term =
            json!({"topologyKey": keys::HOSTNAME, "labelSelector": {"matchLabels": {"app": "database"}}});
        match self.twist {
            Twist::OwnAntiAffinity => {
                template["affinity"] =
                    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
            }
            Twist::OwnPreferredAffinity => {
                let weighted = json!({"weight": 100, "podAffinityTerm": term});
                template["affinity"] =
                    json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}});
            }
            _ => {}
        }
        template
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twin {
    Plain,
    Labelled,
}

/// What became of a run.
#[derive(Debug)]
struct Ended {
    state: State,
    /// From its creation to its end, and how much of it the run was Pending.
    total: i64,
    held: i64,
    reported: Vec<String>,
}

impl Ended {
    /// That its tasks cannot share a node.
    fn has_reported(&self) -> bool {
        let mut reported = self.reported.iter();
        reported.any(|reason| REPORTS.contains(&reason.as_str()))
    }
}

/// Where the plain nodes are, so that a volume can be on one of them that its run may use.
fn node_of(pair: &Pair) -> String {
    match pair.place {
        Place::Anywhere | Place::Own => format!("east-{}", pair.number % POOL),
        Place::Zone => format!("west-{}", pair.number % POOL),
        Place::Sandbox => format!("sandbox-{}", pair.number % POOL),
        Place::Dedicated => format!("dedicated-{}", pair.number % POOL),
        Place::Busy => format!("busy-{}", pair.number % POOL),
    }
}

fn tainted(name: &str, count: usize, value: Option<&str>) -> Nodes {
    let taint = Taint {
        key: name.into(),
        value: value.map(String::from),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    Nodes {
        taints: vec![taint],
        ..Nodes::new(name, count).label("pool", name).zone("west")
    }
}

async fn world(bed: &Testbed) {
    for zone in ["east", "west"] {
        bed.add_nodes(&Nodes::new(zone, POOL).zone(zone)).await.unwrap();
    }
    for nodes in [
        tainted("sandbox", POOL, None),
        tainted("dedicated", POOL, Some("ci")),
        Nodes::new("busy", POOL).label("pool", "busy").zone("west"),
        Nodes::new("out-of-use", 2).zone("east"),
    ] {
        bed.add_nodes(&nodes).await.unwrap();
    }
    for number in 0..2 {
        cordon(bed, &format!("out-of-use-{number}")).await;
    }
    let selector = json!({"matchLabels": {"app": FILLERS}});
    let apart = json!({"topologyKey": keys::HOSTNAME, "labelSelector": selector});
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}});
    let most =
        json!([{"name": "main", "image": "testbed.invalid/main", "resources": {"requests": {"cpu": "7"}}}]);
    let objects = [
        json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandbox"}, "handler": "sandbox",
            "scheduling": {
                "nodeSelector": {"pool": "sandbox"},
                "tolerations": [{"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"}],
            },
        }),
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000,
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "default", "name": FILLERS},
            "spec": {
                "replicas": POOL,
                "selector": selector,
                "template": {
                    "metadata": {"labels": {"app": FILLERS}},
                    "spec": {"nodeSelector": {"pool": "busy"}, "affinity": apart, "containers": most},
                },
            },
        }),
    ];
    apply::apply_all(&bed.client().await.unwrap(), &objects)
        .await
        .unwrap();
}

/// What a run needs to be there before it.
async fn prepare(bed: &Testbed, pair: &Pair, twin: Twin) {
    let name = pair.name(twin);
    match pair.twist {
        Twist::QuotaOfPods(most) => {
            bed.namespace(&name).await.unwrap();
            quota(bed, &name, "pods", &most.to_string()).await;
        }
        Twist::Limits => {
            bed.namespace(&name).await.unwrap();
            let limit = json!({
                "type": "Container",
                "min": {"cpu": "1m", "memory": "1Mi"},
                "defaultRequest": {"cpu": "500m", "memory": "128Mi"},
                "default": {"cpu": "1", "memory": "256Mi"},
            });
            let range = json!({
                "apiVersion": "v1", "kind": "LimitRange", "metadata": {"namespace": name, "name": "limits"},
                "spec": {"limits": [limit]},
            });
            apply::apply(&bed.client().await.unwrap(), &range).await.unwrap();
        }
        Twist::NodeDies | Twist::NodeReturns => {
            bed.add_nodes(&tainted(&name, 2, None)).await.unwrap();
        }
        Twist::VolumeInZone => claim_of(bed, &name, local(ZONE, zone_of(pair))).await,
        Twist::VolumeOnNode => claim_of(bed, &name, local(keys::HOSTNAME, &node_of(pair))).await,
        _ => {}
    }
}

fn zone_of(pair: &Pair) -> &'static str {
    match pair.place {
        Place::Anywhere | Place::Own => "east",
        Place::Zone | Place::Sandbox | Place::Dedicated | Place::Busy => "west",
    }
}

fn local(key: &str, value: &str) -> Value {
    let here = json!({"key": key, "operator": "In", "values": [value]});
    json!({
        "hostPath": {"path": "/tmp"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    })
}

/// Creates one of a pair, does to it what its twist says, and waits for its end. `None`: it hangs.
async fn one(bed: &Testbed, pair: &Pair, twin: Twin, spared: &BTreeSet<String>) -> Option<Ended> {
    prepare(bed, pair, twin).await;
    let mut run = pair.run(twin);
    if pair.twist == Twist::LabelledByPipeline {
        run = by_pipeline(bed, run, twin).await;
    }
    let created = create(bed, &run).await;
    let patience = match twin {
        Twin::Plain => HANGS,
        Twin::Labelled => SOON * 2,
    };
    let (ended, ()) = tokio::join!(
        until_ended(bed, &run, patience),
        disturb(bed, pair, twin, (&run, &created), spared)
    );
    let ended = match (twin, ended) {
        (_, Ok(ended)) => ended,
        (Twin::Plain, Err(_)) => return None,
        (Twin::Labelled, Err(error)) => panic!("{pair:?}: {error}"),
    };
    Some(Ended {
        reported: reasons(&bed.client().await.unwrap(), &run).await,
        ..ended
    })
}

/// Tekton copies the labels of a Pipeline to its runs.
async fn by_pipeline(bed: &Testbed, mut run: RunSpec, twin: Twin) -> RunSpec {
    let mut pipeline = json!({
        "apiVersion": "tekton.dev/v1", "kind": "Pipeline",
        "metadata": {"namespace": run.namespace(), "name": run.name(), "labels": {}},
        "spec": run.manifest["spec"]["pipelineSpec"].take(),
    });
    if twin == Twin::Labelled {
        pipeline["metadata"]["labels"][OPT_IN] = json!("true");
    }
    apply::apply(&bed.client().await.unwrap(), &pipeline)
        .await
        .unwrap();
    let spec = run.manifest["spec"].as_object_mut().unwrap();
    spec.remove("pipelineSpec");
    let name = run.name().to_owned();
    run.spec("pipelineRef", json!({"name": name}))
}

/// Nodes that others cannot do without are spared.
async fn disturb(
    bed: &Testbed,
    pair: &Pair,
    twin: Twin,
    (run, created): (&RunSpec, &DynamicObject),
    spared: &BTreeSet<String>,
) {
    match pair.twist {
        Twist::Cordoned | Twist::CordonedForASecond => {
            let node = first_node(bed, run).await;
            if spared.contains(&node) {
                return;
            }
            cordon(bed, &node).await;
            if pair.twist == Twist::CordonedForASecond {
                tokio::time::sleep(Duration::from_secs(1)).await;
                uncordon(bed, &node).await;
            }
        }
        // As NodeUnfit tells: else nobody knows whether its pods have ended.
        Twist::NodeDies => {
            let node = first_node(bed, run).await;
            bed.silence(&node).await.unwrap();
            let out_of_service = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
            kubectl(bed, &["taint", "node", &node, out_of_service]);
        }
        Twist::NodeReturns => {
            let node = first_node(bed, run).await;
            bed.silence(&node).await.unwrap();
            tokio::time::sleep(Duration::from_secs(2)).await;
            bed.revive(&node).await.unwrap();
        }
        Twist::PlaceholderDeleted if twin == Twin::Labelled => {
            first_node(bed, run).await;
            let pods = crate::beds::pods(&bed.client().await.unwrap(), run.namespace());
            let name = crate::beds::placeholder_name(created).pod();
            // It may be gone by itself, with a short run.
            let _ = pods.delete(&name, &DeleteParams::default()).await;
        }
        _ => {}
    }
}

/// Where the first of its pods is.
async fn first_node(bed: &Testbed, run: &RunSpec) -> String {
    let client = bed.client().await.unwrap();
    bed.until(format!("a pod of {} on a node", run.name()), SOON, async || {
        let pods = runs::pods(&client, run.namespace(), run.name()).await;
        let nodes = runs::nodes(&pods.map_err(|error| error.to_string())?);
        nodes.into_iter().next().ok_or_else(|| "none".to_owned())
    })
    .await
    .unwrap()
}

async fn until_ended(bed: &Testbed, run: &RunSpec, patience: Duration) -> testbed::Result<Ended> {
    let is_over = |run: &DynamicObject| matches!(runs::state(run), State::Succeeded | State::Failed(_));
    let over = bed.until_run(run, "to end", patience, is_over).await?;
    let at = |path: &str| -> Timestamp {
        over.data
            .pointer(path)
            .unwrap()
            .as_str()
            .unwrap()
            .parse()
            .unwrap()
    };
    let created = over.creation_timestamp().unwrap().0.as_second();
    Ok(Ended {
        state: runs::state(&over),
        total: at("/status/completionTime").as_second() - created,
        held: at("/status/startTime").as_second() - created,
        reported: Vec::new(),
    })
}

/// What became of one of each pair, and how long a control took beside them.
struct Half {
    ended: Vec<Option<Ended>>,
    control: i64,
}

/// All of these at once, and then everything as it was.
async fn half(bed: &Testbed, pairs: &[Pair], twin: Twin, control: &Pair) -> Half {
    let tied = pairs.iter().filter(|pair| pair.twist == Twist::VolumeOnNode);
    let spared = tied.map(node_of).collect();
    let (ended, control_ended) = tokio::join!(
        join_all(pairs.iter().map(|pair| one(bed, pair, twin, &spared))),
        one(bed, control, Twin::Plain, &spared)
    );
    let all = pairs.iter().map(|pair| (pair, twin));
    for (pair, twin) in all.chain([(control, Twin::Plain)]) {
        let name = pair.name(twin);
        let api = runs::runs(&bed.client().await.unwrap(), &pair.namespace(twin));
        api.delete(&name, &DeleteParams::background()).await.unwrap();
    }
    for pool in ["east", "west", "sandbox", "dedicated", "busy"] {
        for number in 0..POOL {
            uncordon(bed, &format!("{pool}-{number}")).await;
        }
    }
    Half {
        ended,
        control: control_ended
            .expect("nothing keeps the control from its end")
            .total,
    }
}

/// What is wrong with the labelled one, if anything is; the machine has become slower by so many seconds since its twin ran.
fn complaint(plain: &Ended, labelled: &Ended, slower: i64) -> Option<String> {
    if plain.state != labelled.state {
        return Some("it ended otherwise".to_owned());
    }
    let later = labelled.total - labelled.held - plain.total - slower.max(0);
    (later > FEW_SECONDS && !labelled.has_reported())
        .then(|| format!("it ended {later} s later, and reports no reason"))
}

#[e2e_test(first)]
async fn a_labelled_run_ends_as_the_same_run_without_the_label_does() {
    let pairs = number_of("POD_AFFINITY_TWINS").map_or(FEW, |pairs| usize::try_from(pairs).unwrap());
    let seed = number_of("POD_AFFINITY_TWINS_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("{pairs} pairs; repeat with POD_AFFINITY_TWINS_SEED={seed}");
    let bed = fresh(0).await;
    world(&bed).await;
    let auditor = Auditor::start(&bed).await;
    let mut rng = Rng::with_seed(seed);
    let pairs: Vec<_> = (0..pairs).map(|number| Pair::draw(&mut rng, number)).collect();
    let (mut complaints, mut drawn) = (Vec::new(), BTreeMap::<_, u32>::new());
    let (mut longest_hold, mut reported, mut hang) = (0, 0, 0);
    let mut controls = (pairs.len()..).map(Pair::control);
    for drawn_now in pairs.chunks(AT_ONCE) {
        let before = half(&bed, drawn_now, Twin::Plain, &controls.next().unwrap()).await;
        let ended = drawn_now.iter().cloned().zip(before.ended);
        let (pairs, plain): (Vec<_>, Vec<_>) = ended.filter_map(|(pair, plain)| Some((pair, plain?))).unzip();
        hang += drawn_now.len() - pairs.len();
        let after = half(&bed, &pairs, Twin::Labelled, &controls.next().unwrap()).await;
        let slower = after.control - before.control;
        for (pair, (plain, labelled)) in pairs.iter().zip(plain.iter().zip(after.ended.iter().flatten())) {
            *drawn.entry((pair.twist, pair.place)).or_default() += 1;
            longest_hold = longest_hold.max(labelled.held);
            reported += usize::from(labelled.has_reported());
            if let Some(what) = complaint(plain, labelled, slower) {
                println!("{what}: {pair:?}\n  without: {plain:?}\n  with: {labelled:?}");
                complaints.push((pair.number, what));
            }
        }
    }
    println!(
        "{hang} hang without the label; longest hold {longest_hold} s; {reported} reported that their tasks cannot share a \
         node; drawn {drawn:?}"
    );
    assert_eq!(complaints, []);
    auditor.found_no_meeting();
}

#[e2e_test]
fn a_labelled_run_may_end_later_by_its_hold_and_a_few_seconds_and_otherwise_says_why() {
    let ended = |state: &State, total, held, reason: &str| Ended {
        state: state.clone(),
        total,
        held,
        reported: vec![reason.to_owned()],
    };
    let (well, ill) = (State::Succeeded, State::Failed("Failed".into()));
    let plain = ended(&well, 5, 0, "");
    assert_eq!(complaint(&plain, &ended(&well, 45, 30, "Released"), 0), None);
    assert_eq!(complaint(&plain, &ended(&well, 45, 0, "Released"), 30), None);
    assert_eq!(complaint(&plain, &ended(&well, 45, 0, "MovedOff"), 0), None);
    assert!(complaint(&plain, &ended(&well, 45, 0, "Released"), 0).is_some());
    assert!(complaint(&plain, &ended(&well, 45, 0, "Released"), -30).is_some());
    assert!(complaint(&plain, &ended(&ill, 5, 0, "MovedOff"), 0).is_some());
}

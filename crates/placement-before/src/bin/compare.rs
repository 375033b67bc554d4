//! Compares the plan as it was with the plan as it is: for each scene, the documents after the requests, the deletions, the time of
//! the next reconciliation, the events, and the guards. `compare SCENES SEED`.
#![allow(warnings)]

use placement::placeholder::spec::Spec;
use placement::plan as after;
use placement_before::documents::{self, Documents, Sent, Verb, apply, documents, normal};
use placement_before::plan as before;
use placement_before::plan::fixtures::{NODE, amounts};
use placement_before::plan::scenes::anything;
use proptest::prelude::*;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A scene, what a read answers in it, and what only the new plan observes.
#[derive(Clone, Debug)]
struct World {
    seen: before::Observation,
    spec: Option<Spec>,
    known: bool,
}

fn toleration() -> k8s_openapi::api::core::v1::Toleration {
    k8s_openapi::api::core::v1::Toleration {
        key: Some("gpu".into()),
        operator: Some("Exists".into()),
        ..Default::default()
    }
}

fn worlds() -> impl Strategy<Value = World> {
    (anything(), anything(), any::<u32>()).prop_map(|(mut seen, other, bits)| {
        let bit = |at: u32| bits >> at & 1 == 1;
        seen.census = seen.census.or(other.census).or(Some(before::Census {
            live: usize::from(bit(0)),
            quiet_since: None,
        }));
        seen.refused =
            seen.refused
                .or(other.refused)
                .or(Some(if bit(1) { vec![] } else { vec!["build-test".into()] }));
        seen.claims = seen.claims.or(other.claims).or(Some(Default::default()));
        seen.copied_labels = seen
            .copied_labels
            .or(other.copied_labels)
            .or(Some(Default::default()));
        seen.need = seen.need.or(other.need).or(Some(Default::default()));
        if seen.short_of.is_none() {
            (seen.short_of, seen.in_the_way) = (other.short_of, other.in_the_way);
        }
        seen.short_of = seen.short_of.or(Some(Default::default()));
        seen.stints = seen.stints.or(other.stints).or(Some(Default::default()));
        if bit(2) && bit(3) {
            seen.stints = Some(vec![placement::need::Stint {
                node: NODE.into(),
                from: seen.now,
                to: seen.now,
                asks: amounts("cpu=3"),
            }]);
        }
        seen.assistants = seen.assistants.or(other.assistants).or(Some(Default::default()));
        seen.complaint = seen.complaint.or(other.complaint).or(Some(Default::default()));
        seen.autoscaler = seen.autoscaler.or(other.autoscaler).or(Some(Default::default()));
        if let Some(set) = &mut seen.set {
            set.left = set.left.take().filter(|node| !node.is_empty());
        }
        if seen.nodes.is_empty() && bit(4) {
            seen.nodes = other.nodes;
        }
        let spec = seen.set.as_ref().map(|set| Spec {
            replicas: set.replicas,
            size: amounts(if bit(5) {
                "cpu=50m,memory=100Mi"
            } else if bit(6) {
                "cpu=4,memory=100Mi"
            } else {
                "cpu=1"
            }),
            within_limits: set.within_limits,
            node: set.pinned.then(|| {
                if bit(7) {
                    NODE.to_owned()
                } else {
                    "node-2".to_owned()
                }
            }),
            left: set.left.clone().or(bit(8).then(String::new)),
            tolerations: if bit(9) {
                vec![]
            } else if bit(10) {
                vec![toleration()]
            } else {
                seen.run.template.tolerations.clone()
            },
            claims: if bit(11) { vec![] } else { vec!["source".into()] },
        });
        World {
            seen,
            spec,
            known: bit(12),
        }
    })
}

fn unread(world: &World) -> before::Observation {
    before::Observation {
        census: None,
        tied: None,
        refused: None,
        claims: None,
        copied_labels: None,
        need: None,
        short_of: None,
        in_the_way: None,
        stints: None,
        assistants: None,
        complaint: None,
        autoscaler: world.seen.autoscaler.clone().filter(|_| world.known),
        ..world.seen.clone()
    }
}

/// As the controller did: what is bound waits no more; a volume is looked for only where no task lives and the pod has a node.
fn tied(world: &World) -> Option<String> {
    let free = world.seen.census.is_some_and(|census| census.live == 0) && world.seen.node_name().is_some();
    world.seen.tied.clone().filter(|_| free)
}

fn plan_before(world: &World) -> (before::Observation, before::Plan) {
    use before::Question;
    let mut seen = unread(world);
    for _ in 0..12 {
        let plan = before::plan(&seen);
        let before::Decision::Count(question) = plan.decision else {
            return (seen, plan);
        };
        let of = world.seen.clone();
        match question {
            Question::Tasks => (seen.census, seen.tied) = (of.census, tied(world)),
            Question::Refused => {
                seen.refused = of.refused;
                if seen.refused.as_ref().is_some_and(Vec::is_empty) {
                    seen.refusal = None;
                }
            }
            Question::Claims => seen.claims = of.claims,
            Question::Labels => seen.copied_labels = of.copied_labels,
            Question::Need => seen.need = of.need,
            Question::Places => (seen.short_of, seen.in_the_way) = (of.short_of, of.in_the_way),
            Question::Stints => seen.stints = of.stints,
            Question::Assistants => seen.assistants = of.assistants,
            Question::Complaint => seen.complaint = of.complaint,
            Question::Autoscaler => seen.autoscaler = of.autoscaler,
        }
    }
    panic!("asks for ever: {world:?}")
}

fn unschedulable(it: &before::Unschedulable) -> after::Unschedulable {
    after::Unschedulable {
        message: it.message.clone(),
        since: it.since,
    }
}

fn repeated(it: before::Repeated) -> after::Repeated {
    after::Repeated {
        count: it.count,
        last: it.last,
    }
}

fn observation(world: &World) -> after::Observation {
    let seen = &world.seen;
    after::Observation {
        now: seen.now,
        config: seen.config.clone(),
        run: seen.run.clone(),
        set: seen.set.as_ref().map(|set| after::Placeholder {
            uid: set.uid.clone(),
            owned: set.owned,
            deleting: set.deleting,
            generation: set.generation,
            observed: set.taken_up,
            strategy: set.strategy,
            isolation: set.isolation,
            spec: world.spec.clone().unwrap(),
        }),
        pod: seen.pod.as_ref().map(|pod| after::PlaceholderPod {
            uid: pod.uid.clone(),
            node: pod.node.clone(),
            ending: pod.ending,
            unschedulable: pod.unschedulable.as_ref().map(unschedulable),
            tolerations: pod.tolerations.clone(),
            adopted: pod.adopted,
            shape: after::Shape {
                requests: pod.shape.requests.clone(),
                reserves: pod.shape.reserves,
                pinned: pod.shape.pinned,
                mounts: pod.shape.mounts,
                resize: match pod.shape.resize {
                    before::Resize::Possible => after::Resize::Possible,
                    before::Resize::Refused => after::Resize::Refused,
                },
            },
        }),
        node: seen.node,
        nodes: seen.nodes.clone(),
        waiting: seen
            .waiting
            .iter()
            .map(|pod| after::WaitingPod {
                name: pod.name.clone(),
                requests: pod.requests.clone(),
                unschedulable: pod.unschedulable.as_ref().map(unschedulable),
                tolerations: pod.tolerations.clone(),
                woken: pod.woken,
                relaxed: pod.relaxed,
            })
            .collect(),
        relaxed: seen.relaxed,
        moves: repeated(seen.moves),
        yields: repeated(seen.yields),
        retries: repeated(seen.retries),
        refusal: seen.refusal.clone(),
        nudge_in: seen.nudge_in,
    }
}

fn quota(seen: &before::Observation) -> after::Quota {
    after::Quota {
        short_of: seen.short_of.as_ref().and_then(|it| it.0.clone()),
        in_the_way: seen.in_the_way.clone(),
    }
}

fn plan_after(world: &World) -> (after::Observation, after::Plan, usize) {
    use after::Read;
    let seen = observation(world);
    let mut inputs = after::Inputs::default();
    let of = &world.seen;
    if world.known {
        inputs.autoscaler = of.autoscaler.clone().unwrap().0.into();
    }
    for reads in 0..12 {
        let plan = after::plan(&seen, &inputs);
        let after::Decision::Read(read) = plan.decision else {
            return (seen, plan, reads);
        };
        match read {
            Read::Creation => {
                let claims = of.claims.clone().unwrap();
                let automatic =
                    placement::placeholder::size::is_automatic(&of.run, &of.config) && of.run.is_held_by_us();
                inputs.creation = after::Creation {
                    volumes: if of.run.claims.is_empty() {
                        Default::default()
                    } else {
                        after::VolumeConstraints {
                            mountable: claims.mountable,
                            required: claims.required,
                        }
                    },
                    labels: if of.config.placeholder_copied_labels.is_empty() {
                        Default::default()
                    } else {
                        of.copied_labels.clone().unwrap()
                    },
                    need: if automatic { of.need.clone() } else { None },
                    quota: quota(of),
                }
                .into();
            }
            Read::Quota => inputs.quota = quota(of).into(),
            Read::Tasks => {
                let census = of.census.unwrap();
                inputs.tasks = after::Tasks {
                    census: after::Census {
                        live: census.live,
                        quiet_since: census.quiet_since,
                    },
                    tied: tied(world),
                }
                .into();
            }
            Read::Assistants => {
                inputs.assistants = of
                    .assistants
                    .iter()
                    .flatten()
                    .map(|it| after::AssistantPod {
                        name: it.name.clone(),
                        uid: it.uid.clone(),
                        node: it.node.clone(),
                    })
                    .collect::<Vec<_>>()
                    .into()
            }
            Read::RejectedTasks => inputs.rejected_tasks = of.refused.clone().unwrap().into(),
            Read::Usage => inputs.usage = of.stints.clone().unwrap().into(),
            Read::FailedCreate => inputs.failed_create = of.complaint.clone().unwrap().0.into(),
            Read::Autoscaler => inputs.autoscaler = of.autoscaler.clone().unwrap().0.into(),
        }
    }
    panic!("reads for ever: {world:?}")
}

fn sent_before(seen: &before::Observation, plan: &before::Plan) -> Vec<Sent> {
    match &plan.decision {
        before::Decision::Write(write) => write
            .requests(seen, "image")
            .iter()
            .map(documents::of_before)
            .collect(),
        _ => vec![],
    }
}

fn sent_after(seen: &after::Observation, plan: &after::Plan) -> Vec<Sent> {
    match &plan.decision {
        after::Decision::Act(step) => step
            .actions
            .iter()
            .flat_map(|it| it.requests(seen, "image"))
            .map(|it| documents::of_after(&it))
            .collect(),
        _ => vec![],
    }
}

/// Deletions, and what is requeued by a time stamp or a label, by object.
fn deletions(sent: &[Sent]) -> Vec<(String, String, bool)> {
    sent.iter()
        .filter_map(|it| match &it.verb {
            Verb::Delete { uid, at_once } => Some((it.object.clone(), uid.clone(), *at_once)),
            _ => None,
        })
        .collect()
}

fn kind_before(plan: &before::Plan) -> String {
    use before::{Decision, Wait};
    match &plan.decision {
        Decision::Leave(why) => format!("ignore {why:?}"),
        Decision::Wait(Wait::Steady) => "wait".into(),
        Decision::Wait(wait) => format!("wait {wait:?}"),
        Decision::Write(_) => "act".into(),
        Decision::Count(_) => unreachable!(),
    }
}

fn kind_after(plan: &after::Plan) -> String {
    use after::{Decision, Wait};
    match &plan.decision {
        Decision::Ignore(why) => format!("ignore {why:?}"),
        Decision::Wait(
            Wait::Settled
            | Wait::OldStatefulSet
            | Wait::PodEnd
            | Wait::Scheduler
            | Wait::Pause
            | Wait::Assistants,
        ) => "wait".into(),
        Decision::Wait(Wait::Node {
            unschedulable,
            largest,
            autoscaler: _,
        }) => format!("wait Node {{ unschedulable: {unschedulable:?}, largest: {largest:?} }}"),
        Decision::Wait(wait) => format!("wait {wait:?}"),
        Decision::Act(_) => "act".into(),
        Decision::Read(_) => unreachable!(),
    }
}

/// One field of one object changed meanwhile.
fn changes() -> Vec<(&'static str, Value)> {
    use placement::keys;
    vec![
        ("run", json!({"metadata": {"uid": "other"}})),
        ("run", json!({"spec": {"status": null}})),
        ("run", json!({"spec": {"status": "Cancelled"}})),
        ("run", json!({"spec": {"status": keys::PENDING}})),
        ("run", json!({"metadata": {"labels": {keys::OPT_IN: null}}})),
        ("run", json!({"metadata": {"labels": {keys::OPT_IN: "false"}}})),
        ("run", json!({"metadata": {"labels": {keys::GROUP: null}}})),
        ("run", json!({"metadata": {"labels": {keys::GROUP: "other"}}})),
        ("run", json!({"metadata": {"annotations": {keys::HOLD: null}}})),
        ("run", json!({"metadata": {"annotations": {keys::HOLD: "true"}}})),
        ("run", json!({"metadata": {"annotations": null}})),
        ("set", json!({"metadata": {"uid": "other"}})),
        ("set", json!({"spec": {"replicas": 7}})),
        (
            "set",
            json!({"spec": {"template": {"spec": {"containers": [{"name": "sidecar"}]}}}}),
        ),
        ("pod", json!({"metadata": {"uid": "other"}})),
        ("task-run/build-test", json!({"metadata": {"labels": null}})),
        ("other-pod/big", json!({"metadata": {"labels": null}})),
        (
            "other-pod/affinity-assistant-0",
            json!({"metadata": {"uid": "other"}}),
        ),
        ("other-set/another-set", json!({"metadata": {"uid": "other"}})),
    ]
}

fn compare(world: &World, met: &mut BTreeMap<String, u64>) -> Result<(), String> {
    let (seen_before, plan_before) = plan_before(world);
    let (seen_after, plan_after, _) = plan_after(world);
    let (kind, other) = (kind_before(&plan_before), kind_after(&plan_after));
    if kind != other {
        return Err(format!("kind: {kind} / {other}\n{plan_before:?}\n{plan_after:?}"));
    }
    if plan_before.again != plan_after.again {
        return Err(format!("again\n{plan_before:?}\n{plan_after:?}"));
    }
    if plan_before.note != plan_after.note {
        return Err("note".into());
    }
    let told: Vec<_> = placement_before::told::notes::notes(&seen_before, &plan_before)
        .into_iter()
        .map(|note| (note.reason.to_string(), note.text))
        .collect();
    let told_too = controller::texts(&seen_after, &plan_after);
    if told != told_too {
        return Err(format!("events: {told:?}\n{told_too:?}"));
    }
    for (reason, _) in told {
        *met.entry(format!("event {reason}")).or_default() += 1;
    }
    let (sent, also) = (
        sent_before(&seen_before, &plan_before),
        sent_after(&seen_after, &plan_after),
    );
    let name: &str = match &plan_before.decision {
        before::Decision::Write(write) => write.into(),
        before::Decision::Wait(wait) => wait.into(),
        _ => "leave",
    };
    *met.entry(name.to_owned()).or_default() += 1;
    if deletions(&sent) != deletions(&also) {
        return Err(format!("deletions: {sent:?}\n{also:?}"));
    }
    let start = documents(&world.seen, world.spec.as_ref(), &json!({}));
    let (mut one, mut two) = (start.clone(), start.clone());
    let (took, took_too) = (apply(&mut one, &sent), apply(&mut two, &also));
    if took.iter().all(|it| *it) != took_too.iter().all(|it| *it) {
        return Err(format!("one fails: {took:?} {took_too:?}\n{sent:?}\n{also:?}"));
    }
    if normal(&one) != normal(&two) {
        let differ: Vec<_> = one
            .iter()
            .filter(|(key, it)| two.get(*key) != Some(it))
            .map(|(key, it)| format!("{key}\n   {it}\n   {:?}", two.get(key).map(|it| it.to_string())))
            .collect();
        return Err(format!(
            "documents after {name}: {}\n{sent:?}\n{also:?}",
            differ.join("\n")
        ));
    }
    let after_before = one.clone();
    if !sent.is_empty() {
        for (object, change) in changes() {
            let mut changed = start.clone();
            let Some(document) = changed.get_mut(object) else {
                continue;
            };
            json_patch::merge(document, &change);
            let (mut one, mut two) = (changed.clone(), changed.clone());
            apply(&mut one, &sent);
            apply(&mut two, &also);
            for key in ["run", "set", "pod"] {
                let (kept, changed_too) =
                    (one.get(key) == changed.get(key), two.get(key) != changed.get(key));
                // A guard may go only together with the write that it guarded: what the old plan would have written was there already.
                let was_there = object == "set"
                    && key == "pod"
                    && normal(&start).get("set") == normal(&after_before).get("set");
                let sizes = |documents: &Documents| {
                    documents["set"]["spec"]["template"]["spec"]["containers"].clone()
                };
                let size_was_there = object == "set"
                    && change.pointer("/spec/template/spec/containers").is_some()
                    && after_before.contains_key("set")
                    && sizes(&start) == sizes(&after_before);
                if kept && changed_too && (was_there || size_was_there) {
                    *met.entry("(guard dropped with its write)".to_owned())
                        .or_default() += 1;
                } else if kept && changed_too {
                    return Err(format!(
                        "weaker guard: {name} when {object} {change} changes {key}\n{sent:?}\n{also:?}"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// What is observed of the documents; what they do not show is as before.
fn observe(documents: &Documents, seen: &after::Observation) -> after::Observation {
    use placement::keys;
    use placement::run::{HeldFrom, SpecStatus};
    let run = &documents["run"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let label = |key: &str| text(&run["metadata"]["labels"][key]);
    let annotation = |key: &str| text(&run["metadata"]["annotations"][key]);
    let hold = annotation(keys::HOLD);
    let mut next = seen.clone();
    next.run.status = SpecStatus::of(run["spec"]["status"].as_str());
    next.run.hold = hold.is_some();
    next.run.held_from = HeldFrom::of(hold.as_deref());
    next.run.group = label(keys::GROUP);
    next.run.strategy = label(keys::STRATEGY);
    next.run.isolation = label(keys::ISOLATION);
    next.run.node = annotation(keys::NODE);
    next.run.used = annotation(keys::USED);
    match (documents.get("set"), &mut next.set) {
        (Some(set), Some(seen)) => {
            let template = &set["spec"]["template"];
            let mark = |key: &str| text(&template["metadata"]["annotations"][key]);
            seen.spec.replicas = set["spec"]["replicas"].as_i64().unwrap() as i32;
            seen.spec.node = mark(keys::PINNED).filter(|it| !it.is_empty());
            seen.spec.left = mark(keys::LEFT);
            seen.spec.within_limits = mark(keys::WITHIN_LIMITS).is_some();
        }
        (Some(set), none) => {
            *none = Some(after::Placeholder {
                uid: "new".into(),
                owned: true,
                deleting: false,
                generation: 1,
                observed: false,
                strategy: None,
                isolation: None,
                spec: Spec {
                    replicas: set["spec"]["replicas"].as_i64().unwrap() as i32,
                    ..Spec::default()
                },
            })
        }
        (None, set) => *set = None,
    }
    let owners = documents
        .get("pod")
        .map(|pod| pod["metadata"]["ownerReferences"].to_string());
    next.pod = next
        .pod
        .filter(|_| owners.is_some())
        .filter(|pod| pod.adopted || next.set.is_some() || owners.as_ref().unwrap().contains("PipelineRun"));
    if let (Some(pod), Some(owners)) = (&mut next.pod, owners) {
        pod.adopted = pod.adopted || owners.contains("PipelineRun");
    }
    next
}

fn rows(world: &World, rows: &mut BTreeMap<(String, String, String), u64>) {
    let (seen, plan, _) = plan_after(world);
    let state: &str = after::State::of(&seen).into();
    let after::Decision::Act(step) = &plan.decision else {
        return;
    };
    let name = match &step.event {
        Some(event) => <&str>::from(event).to_owned(),
        None => step
            .actions
            .iter()
            .map(|it| <&str>::from(it))
            .collect::<Vec<_>>()
            .join("+"),
    };
    let mut docs = documents(&world.seen, world.spec.as_ref(), &json!({}));
    apply(&mut docs, &sent_after(&seen, &plan));
    let next: &str = after::State::of(&observe(&docs, &seen)).into();
    *rows.entry((state.to_owned(), name, next.to_owned())).or_default() += 1;
}

/// The StatefulSet is the model's own document.
fn of_simulation(mut seen: before::Observation, set: Option<Value>) -> World {
    let spec = set.map(|set| {
        let template = &set["spec"]["template"];
        let mark = |key: &str| {
            template["metadata"]["annotations"][key]
                .as_str()
                .map(str::to_owned)
        };
        let requests = &template["spec"]["containers"][0]["resources"]["requests"];
        let amounts: BTreeMap<String, String> = serde_json::from_value(requests.clone()).unwrap_or_default();
        Spec {
            replicas: set["spec"]["replicas"].as_i64().unwrap() as i32,
            size: placement::resources::Resources::of(&amounts),
            within_limits: false,
            node: mark(placement::keys::PINNED).filter(|it| !it.is_empty()),
            left: mark(placement::keys::LEFT),
            tolerations: serde_json::from_value(template["spec"]["tolerations"].clone()).unwrap_or_default(),
            claims: vec![],
        }
    });
    if let Some(set) = &mut seen.set {
        set.left = set.left.take().filter(|node| !node.is_empty());
    }
    seen.refused = seen.refused.or(Some(vec![]));
    World {
        seen,
        spec,
        known: true,
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let scenes: u64 = arguments.next().map_or(100_000, |it| it.parse().unwrap());
    let seed: u64 = arguments.next().map_or(1, |it| it.parse().unwrap());
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = worlds();
    let (mut met, mut differences) = (BTreeMap::new(), BTreeMap::<String, (u64, String)>::new());
    let mut table = BTreeMap::new();
    for _ in 0..scenes {
        let world = strategy.new_tree(&mut runner).unwrap().current();
        rows(&world, &mut table);
        if let Err(difference) = compare(&world, &mut met) {
            let kind: String = difference.chars().take(60).collect();
            let found = differences
                .entry(kind)
                .or_insert_with(|| (0, format!("{difference}\n   {world:?}")));
            found.0 += 1;
        }
    }
    let (lives, mut steps) = (placement_before::plan::simulation::lives(), 0);
    for _ in 0..scenes / 1000 {
        for (seen, set) in lives.new_tree(&mut runner).unwrap().current() {
            let world = of_simulation(seen, set);
            steps += 1;
            rows(&world, &mut table);
            if let Err(difference) = compare(&world, &mut met) {
                let kind: String = difference.chars().take(60).collect();
                let found = differences
                    .entry(format!("simulation: {kind}"))
                    .or_insert_with(|| (0, format!("{difference}\n   {world:?}")));
                found.0 += 1;
            }
        }
    }
    println!("{scenes} scenes and {steps} steps of the simulation; decisions met:");
    for (name, count) in met {
        println!("   {count:>8} {name}");
    }
    for ((state, step, next), count) in table {
        println!("   {count:>6} | {state} | {step} | {next}");
    }
    for (_, (count, difference)) in &differences {
        println!("{count} times: {difference}\n");
    }
    if !differences.is_empty() {
        std::process::exit(1);
    }
}

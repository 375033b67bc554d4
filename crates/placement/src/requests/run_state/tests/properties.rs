//! Any observed run, and each change that a plan wants.

use super::*;
use crate::tally::tally;
use proptest::option;
use proptest::prelude::{Just, any};
use proptest::sample::select;
use proptest::strategy::{BoxedStrategy, Strategy as Arbitrary};
use proptest::test_runner::Config as Cases;
use proptest::{prop_assert, prop_assert_eq, prop_assert_ne, prop_oneof, proptest};

fn at(second: i64) -> HeldFrom {
    HeldFrom::Release(Timestamp::from_second(second).unwrap())
}

fn texts(values: [&str; 2]) -> BoxedStrategy<Option<String>> {
    option::of(select(values.map(str::to_owned).to_vec())).boxed()
}

/// A held or running run, enrolled or not; a label of its group may be missing.
fn runs() -> BoxedStrategy<Run> {
    let holds = vec![HeldFrom::Creation, HeldFrom::UndatedRelease, at(100)];
    let marks = (any::<bool>(), option::of(select(holds)));
    let group = (
        any::<bool>(),
        texts(["colocateCompleted", "isolateAlways"]),
        texts(["cluster-all", "namespace-enrolled"]),
    );
    (marks, group, texts(["n1", "n2"]), texts(["cpu=1", "cpu=2"]))
        .prop_map(
            |((is_pending, hold), (is_enrolled, strategy, isolation), node, used)| Run {
                status: if is_pending {
                    SpecStatus::Pending
                } else {
                    SpecStatus::Unset
                },
                hold: hold.is_some(),
                held_from: hold.unwrap_or_default(),
                group: is_enrolled.then(|| "u1".to_owned()),
                strategy: strategy.filter(|_| is_enrolled),
                isolation: isolation.filter(|_| is_enrolled),
                node,
                used,
                ..run()
            },
        )
        .boxed()
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Nothing,
    Release { enrols: bool, records: bool },
    DateHold,
    Enrol,
    Withdraw,
    RecordNode,
    RecordUsage,
}

fn changes() -> BoxedStrategy<Change> {
    let release = (any::<bool>(), any::<bool>());
    prop_oneof![
        Just(Change::Nothing),
        release.prop_map(|(enrols, records)| Change::Release { enrols, records }),
        Just(Change::DateHold),
        Just(Change::Enrol),
        Just(Change::Withdraw),
        Just(Change::RecordNode),
        Just(Change::RecordUsage),
    ]
    .boxed()
}

impl Change {
    /// Only a held run can be released, and a hold is dated once.
    fn is_possible(self, run: &Run) -> bool {
        match self {
            Self::Release { .. } => run.is_held_by_us(),
            Self::DateHold => run.is_held_by_us() && run.held_from == HeldFrom::UndatedRelease,
            _ => true,
        }
    }

    fn wanted(self, run: &Run) -> RunState {
        let mut wanted = RunState::from_run(run);
        match self {
            Self::Nothing => {}
            Self::Release { enrols, records } => {
                wanted.hold = None;
                wanted.group = enrols.then(|| enrolment().into());
                if records {
                    wanted.node = Some("n1".to_owned());
                }
            }
            Self::DateHold => wanted.hold = Some(at(200)),
            Self::Enrol => wanted.group = Some(enrolment().into()),
            Self::Withdraw => wanted.group = None,
            Self::RecordNode => wanted.node = Some("n1".to_owned()),
            Self::RecordUsage => wanted.used = Some("cpu=1".to_owned()),
        }
        wanted
    }
}

/// The run as the API server stores it. A run without annotations has no member `annotations`.
fn document(run: &Run) -> Value {
    let mark = run.held_from.to_string();
    let mut document = json!({"metadata": {"uid": "u1", "labels": {"app": "x"}}, "spec": {}});
    let mut set = |map: &str, key: &str, value: Option<&str>| {
        if let Some(value) = value {
            document["metadata"][map][key] = json!(value);
        }
    };
    set("labels", keys::OPT_IN, run.opt_in.as_deref());
    set("labels", keys::GROUP, run.group.as_deref());
    set("labels", keys::STRATEGY, run.strategy.as_deref());
    set("labels", keys::ISOLATION, run.isolation.as_deref());
    set("annotations", keys::HOLD, run.hold.then_some(mark.as_str()));
    set("annotations", keys::NODE, run.node.as_deref());
    set("annotations", keys::USED, run.used.as_deref());
    if run.status == SpecStatus::Pending {
        document["spec"]["status"] = json!(keys::PENDING);
    }
    document
}

/// The state of the run in the document.
fn read(document: &Value) -> Run {
    let text = |map: &str, key: &str| document["metadata"][map][key].as_str().map(str::to_owned);
    let hold = text("annotations", keys::HOLD);
    Run {
        status: SpecStatus::parse(document["spec"]["status"].as_str()),
        hold: hold.is_some(),
        held_from: HeldFrom::parse(hold.as_deref()),
        group: text("labels", keys::GROUP),
        strategy: text("labels", keys::STRATEGY),
        isolation: text("labels", keys::ISOLATION),
        node: text("annotations", keys::NODE),
        used: text("annotations", keys::USED),
        ..run()
    }
}

fn sent(mut document: Value, request: &Request) -> Option<Value> {
    match &request.verb {
        Verb::Json(patch) => json_patch::patch(&mut document, patch).ok()?,
        Verb::Merge(patch) if patch["metadata"]["uid"] != document["metadata"]["uid"] => return None,
        Verb::Merge(patch) => json_patch::merge(&mut document, patch),
        other => panic!("{other:?}"),
    }
    Some(document)
}

proptest! {
    #![proptest_config(Cases::with_cases(1000))]

    #[test]
    fn a_request_is_sent_exactly_if_the_run_differs_from_the_wanted_state(
        run in runs(), change in changes(),
        met in tally(&[
            ("as wanted", 50), ("release", 10), ("date_hold", 1), ("enrol", 50), ("record_node", 20), ("record_use", 20),
        ]),
    ) {
        if !change.is_possible(&run) {
            return Ok(());
        }
        let wanted = change.wanted(&run);
        let before = document(&run);
        prop_assert_eq!(RunState::from_run(&read(&before)), RunState::from_run(&run));
        let Some(request) = request(&run, &wanted) else {
            met.count("as wanted");
            prop_assert_eq!(RunState::from_run(&run), wanted);
            return Ok(());
        };
        met.count(request.operation.into());
        prop_assert_ne!(RunState::from_run(&run), wanted.clone());
        let after = read(&sent(before.clone(), &request).unwrap());
        if wanted.group.is_none() {
            prop_assert_eq!((&after.group, &after.strategy, &after.isolation), (&None, &None, &None));
        }
        prop_assert_eq!(RunState::from_run(&after), wanted);
        let is_released = matches!(change, Change::Release { .. });
        let status = if is_released { SpecStatus::Unset } else { run.status };
        prop_assert_eq!(after.status, status);
        let mut other = before;
        other["metadata"]["uid"] = json!("u2");
        prop_assert!(sent(other, &request).is_none(), "{request:?}");
    }
}

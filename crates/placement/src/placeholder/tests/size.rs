//! The size of a new placeholder, and how a placeholder becomes small.

use super::*;
use crate::placeholder::size::{can_resize, invalid_reserve, reserved, usual};
use crate::placeholder::spec::LimitsMet;
use crate::plan::{Resize, Shape};
use crate::pod_rejection::LimitRangeBounds;
use crate::requests::resize_patch;
use crate::reserve;
use crate::resources::Resources;
use crate::strategy::Enrolment;
use crate::volume::restrict;
use std::collections::BTreeMap;

fn reserving(reserve: &str) -> Run {
    Run {
        reserve: Some(reserve.to_owned()),
        ..run()
    }
}

fn default_reserve(reserve: &str) -> Config {
    Config {
        default_reserve: reserve::parse_setting(reserve).unwrap(),
        ..Config::default()
    }
}

fn made(run: &Run, config: &Config) -> Value {
    let enrolment: Enrolment = enrolment(Strategy::ColocateCompleted);
    let mut set = serde_json::to_value(stateful_set(
        run,
        enrolment,
        &Strings::new(),
        &Images::default(),
        config,
        "i",
    ))
    .unwrap();
    set["metadata"]["uid"] = json!(SET);
    set
}

fn requests(set: &Value) -> Value {
    let resources = &set["spec"]["template"]["spec"]["containers"][0]["resources"];
    assert_eq!(resources["requests"], resources["limits"]);
    resources["requests"].clone()
}

/// The spec of a placeholder of the usual size.
fn shrink(spec: &mut Spec) {
    spec.size = usual(&Config::default()).requests();
}

/// The spec of a placeholder of the usual size, pinned to this node or to none.
fn recreate(node: Option<&str>) -> impl Fn(&mut Spec) {
    move |spec| {
        shrink(spec);
        pin(node)(spec);
    }
}

fn pin(node: Option<&str>) -> impl Fn(&mut Spec) {
    move |spec| spec.node = node.map(str::to_owned)
}

fn scale(replicas: i32) -> impl Fn(&mut Spec) {
    move |spec| spec.replicas = replicas
}

fn annotations(set: &Value) -> Value {
    set["spec"]["template"]["metadata"]["annotations"].clone()
}

fn patched(mut set: Value, patch: &Patch) -> Value {
    json_patch::patch(&mut set, patch).unwrap();
    let _: StatefulSet = serde_json::from_value(set.clone()).unwrap();
    set
}

#[test]
fn the_placeholder_of_a_held_run_requests_the_reserve_its_own_size_and_an_assistant() {
    let table = [
        ("cpu=4,memory=8Gi", json!({"cpu": "4100m", "memory": "8392Mi"})),
        ("memory=8Gi", json!({"cpu": "50m", "memory": "8392Mi"})),
        ("cpu=10m,memory=1Gi", json!({"cpu": "110m", "memory": "1224Mi"})),
        (
            "nvidia.com/gpu=1",
            json!({"cpu": "50m", "memory": "100Mi", "nvidia.com/gpu": "1"}),
        ),
    ];
    for (reserve, expected) in table {
        let set = made(&reserving(reserve), &Config::default());
        assert_eq!(requests(&set), expected, "{reserve}");
        assert!(annotations(&set).get(keys::RESERVE).is_some(), "{reserve}");
    }
}

#[test]
fn a_placeholder_with_an_empty_reserve_has_the_usual_size() {
    assert_eq!(
        made(&reserving(""), &Config::default()),
        made(&run(), &Config::default())
    );
    assert!(!reserved(&reserving(""), &Config::default()).reserves());
}

#[test]
fn a_new_placeholder_of_a_running_or_queued_run_has_the_usual_size() {
    let usual = json!({"cpu": "50m", "memory": "100Mi"});
    let mut running = reserving("cpu=4");
    running.status = crate::run::SpecStatus::Unset;
    let mut queued = reserving("cpu=4");
    queued.queued_by_kueue = true;
    for run in [running, queued] {
        assert_eq!(requests(&made(&run, &Config::default())), usual);
    }
}

#[test]
fn a_valid_reserve_of_the_run_overrides_the_default_reserve() {
    let cpu = |run: &Run| requests(&made(run, &default_reserve("cpu=2")))["cpu"].clone();
    assert_eq!(cpu(&run()), "2100m");
    assert_eq!(cpu(&reserving("cpu=1")), "1100m");
    assert_eq!(cpu(&reserving("")), "50m");
    assert_eq!(cpu(&reserving("cpu=lots")), "2100m");
}

#[test]
fn only_an_invalid_reserve_annotation_is_reported() {
    assert!(invalid_reserve(&reserving("cpu=lots")).is_some());
    assert!(invalid_reserve(&reserving("cpu=0")).is_some());
    assert_eq!(invalid_reserve(&reserving("cpu=4")), None);
    assert_eq!(invalid_reserve(&run()), None);
}

#[test]
fn only_cpu_and_memory_can_be_resized() {
    let usual = usual(&Config::default()).requests();
    let amounts = |text: &str| Resources::from_texts(&reserve::parse(text).unwrap());
    assert!(can_resize(&amounts("cpu=4,memory=8Gi"), &usual));
    assert!(!can_resize(&amounts("cpu=4,nvidia.com/gpu=1"), &usual));
    assert!(!can_resize(&amounts("ephemeral-storage=1Gi"), &usual));
}

#[test]
fn a_scale_patch_changes_only_the_replicas_and_fails_if_they_have_changed() {
    let set = made(&run(), &Config::default());
    let leave = change(&set, scale(0));
    let down = patched(set.clone(), &leave);
    let mut expected = set.clone();
    expected["spec"]["replicas"] = json!(0);
    assert_eq!(down, expected);
    let come_back = change(&down, scale(1));
    assert_eq!(patched(down.clone(), &come_back), set);
    let mut other = down.clone();
    other["metadata"]["uid"] = json!("other");
    for (mut set, patch) in [(down, leave), (other, come_back)] {
        assert!(json_patch::patch(&mut set, &patch).is_err(), "{patch:?}");
    }
}

#[test]
fn shrinking_changes_only_the_resources_of_the_template() {
    let big = made(&reserving("cpu=4,nvidia.com/gpu=1"), &Config::default());
    let patch = change(&big, shrink);
    let small = patched(big.clone(), &patch);
    assert_eq!(requests(&small), json!({"cpu": "50m", "memory": "100Mi"}));
    let mut expected = big;
    expected["spec"]["template"]["spec"]["containers"] =
        small["spec"]["template"]["spec"]["containers"].clone();
    assert_eq!(small, expected);
    assert_eq!(patched(small.clone(), &patch), small);
    assert!(change(&small, shrink).is_empty());
}

#[test]
fn each_limit_range_changes_an_amount_in_the_same_direction_or_contradicts_an_earlier_one() {
    let size = |cpu: &str| {
        let amounts =
            [("cpu", cpu), ("memory", "100Mi")].map(|(name, amount)| (name.to_owned(), amount.to_owned()));
        Resources::from_texts(&BTreeMap::from(amounts))
    };
    for (cpu, within_limits, message, expected) in [
        (
            "50m",
            false,
            "minimum cpu usage per Container is 200m, but request is 50m",
            LimitsMet::With(size("200m")),
        ),
        (
            "200m",
            true,
            "minimum cpu usage per Container is 200m, but request is 50m",
            LimitsMet::Now,
        ),
        (
            "200m",
            true,
            "minimum cpu usage per Container is 400m, but request is 200m",
            LimitsMet::With(size("400m")),
        ),
        (
            "200m",
            true,
            "maximum cpu usage per Container is 100m, but limit is 200m",
            LimitsMet::Never,
        ),
        (
            "30m",
            true,
            "maximum cpu usage per Container is 20m, but limit is 30m",
            LimitsMet::With(size("20m")),
        ),
        (
            "30m",
            true,
            "minimum cpu usage per Container is 40m, but request is 30m",
            LimitsMet::Never,
        ),
    ] {
        let spec = Spec {
            size: size(cpu),
            within_limits,
            ..Spec::default()
        };
        let bounds = LimitRangeBounds::parse(message).unwrap();
        assert_eq!(
            spec.meet_limits(&bounds, &Config::default()),
            expected,
            "{cpu}: {message}"
        );
    }
}

#[test]
fn a_template_within_a_limit_range_requests_the_allowed_amounts_without_the_reserve() {
    let big = made(&reserving("cpu=4"), &Config::default());
    let message = "minimum cpu usage per Container is 200m, but request is 50m";
    let bounds = LimitRangeBounds::parse(message).unwrap();
    let LimitsMet::With(size) = Spec::default().meet_limits(&bounds, &Config::default()) else {
        panic!("no size meets {bounds:?}");
    };
    let patch = change(&big, |spec| {
        (spec.size, spec.within_limits) = (size, true);
    });
    let within = patched(big, &patch);
    assert_eq!(requests(&within), json!({"cpu": "200m", "memory": "100Mi"}));
    let marks = serde_json::from_value(annotations(&within)).unwrap();
    let shape = Shape::from_annotations(&marks, Resources::default(), Resize::Possible);
    assert!(!shape.reserves && marks.contains_key(keys::WITHIN_LIMITS));
    let pinned = patched(within.clone(), &change(&within, pin(Some("n1"))));
    assert_eq!(requests(&pinned), requests(&within));
}

#[test]
fn a_resize_names_the_uid_of_the_pod_and_sets_equal_requests_and_limits() {
    let size = json!({"cpu": "50m", "memory": "100Mi"});
    assert_eq!(
        resize_patch("pod-uid", &Config::default()),
        json!({
            "metadata": {"uid": "pod-uid"},
            "spec": {"containers": [
                {"name": "placeholder", "resources": {"requests": size, "limits": size}},
            ]},
        })
    );
}

fn node_affinity(set: &Value) -> Value {
    set["spec"]["template"]["spec"]["affinity"]["nodeAffinity"].clone()
}

#[test]
fn a_pinned_template_is_small_and_requires_one_node_until_it_is_unpinned() {
    let set = made(&reserving("cpu=4"), &Config::default());
    let pinned = patched(set.clone(), &change(&set, recreate(Some("n1"))));
    assert_eq!(requests(&pinned)["cpu"], "50m");
    assert_eq!(annotations(&pinned)[keys::PINNED], "n1");
    assert_eq!(
        node_affinity(&pinned),
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        ]}})
    );
    let group = |set: &Value| set["spec"]["template"]["spec"]["affinity"]["podAffinity"].clone();
    assert_eq!(group(&pinned), group(&set));
    for patch in [change(&pinned, pin(None)), change(&pinned, recreate(None))] {
        let free = patched(pinned.clone(), &patch);
        assert_eq!(
            (node_affinity(&free), &annotations(&free)[keys::PINNED]),
            (json!({}), &json!(""))
        );
        assert_eq!(requests(&free)["cpu"], "50m");
        assert_eq!(
            patched(free.clone(), &patch),
            free,
            "a second time changes nothing"
        );
    }
}

#[test]
fn a_pin_is_added_to_the_node_affinity_of_run_and_volumes_and_is_removed_alone() {
    let mut run = demanding_run();
    let west = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["west"]}]});
    let volume = serde_json::from_value(json!({"nodeSelectorTerms": [west]})).unwrap();
    let affinity = run.template.affinity.get_or_insert_default();
    restrict(affinity.node_affinity.get_or_insert_default(), &volume);
    let set = made(&run, &Config::default());
    let pinned = patched(set.clone(), &change(&set, recreate(Some("n1"))));
    let term =
        &node_affinity(&pinned)["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0];
    assert_eq!(term["matchExpressions"][0]["key"], "gpu");
    assert_eq!(term["matchExpressions"][1]["key"], "zone");
    assert_eq!(term["matchFields"][0]["values"], json!(["n1"]));
    let free = patched(pinned.clone(), &change(&pinned, pin(None)));
    assert_eq!(node_affinity(&free), node_affinity(&set));
}

#[test]
fn each_patch_fails_on_another_statefulset_of_the_same_name() {
    let set = made(&reserving("cpu=4"), &Config::default());
    let patches = [
        change(&set, scale(0)),
        change(&set, shrink),
        change(&set, recreate(Some("n1"))),
        change(&set, pin(Some("n1"))),
    ];
    for patch in patches {
        let mut other = set.clone();
        other["metadata"]["uid"] = json!("other");
        assert!(json_patch::patch(&mut other, &patch).is_err(), "{patch:?}");
    }
}

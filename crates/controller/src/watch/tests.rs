//! Decoding of deeply nested objects, and the events after which the memory of a run is dropped.

use super::*;
use crate::fixture::{done, view};
use crate::foreign_events::EventView;
use crate::nodes::WatchedNode;
use crate::placeholders::WatchedStatefulSet;
use crate::pods::PodView;
use crate::quotas::WatchedQuota;
use kube::ResourceExt;
use serde_json::json;

/// The names in a list of two objects. The first object has more levels than the 128 that `serde_json` decodes: a user can write
/// such `managedFields`.
fn names_in_list<K: Resource<DynamicType = ()> + DeserializeOwned>() -> [String; 2] {
    let nested = format!("{}{{}}{}", "{\"f:a\":".repeat(300), "}".repeat(300));
    let text = format!(
        r#"[{{"metadata": {{"name": "nested", "managedFields": [{{"fieldsV1": {nested}}}], "unknown": {nested}}},
             "unknown": {nested}}},
            {{"metadata": {{"name": "usual"}}}}]"#
    );
    let objects: [K; 2] = serde_json::from_str(&text).unwrap();
    objects.map(|object| object.name_any())
}

#[test]
fn a_deeply_nested_object_of_any_watched_kind_does_not_stop_the_watch() {
    let names = [
        names_in_list::<PipelineRun>(),
        names_in_list::<WatchedStatefulSet>(),
        names_in_list::<PodView>(),
        names_in_list::<WatchedNode>(),
        names_in_list::<WatchedQuota>(),
        names_in_list::<EventView>(),
    ];
    for found in names {
        assert_eq!(found, ["nested", "usual"]);
    }
}

#[test]
fn a_run_that_is_deleted_and_each_complete_list_are_reasons_to_forget() {
    let run = || view("build", "u1", &json!({}));
    assert_eq!(deleted_by(&Event::Delete(run())), Some(Deleted::One("u1".into())));
    assert_eq!(deleted_by(&Event::InitDone), Some(Deleted::Unlisted));
    let finished = view("build", "u1", &done());
    for event in [Event::Apply(finished), Event::Init, Event::InitApply(run())] {
        assert_eq!(deleted_by(&event), None);
    }
}

#[test]
fn the_runs_of_a_list_are_reconciled_after_the_list_is_complete() {
    let (stored, mut writer) = reflector::store();
    let mut changed = |event: Event<PipelineRun>| {
        writer.apply_watcher_event(&event);
        let changed = changed_by(event, &stored);
        assert!(changed.iter().all(|run| stored.state().contains(run)));
        changed.len()
    };
    let run = |name| view(name, name, &json!({}));
    for list in 1..3 {
        assert_eq!(changed(Event::Init), 0);
        for number in 0..list {
            assert_eq!(changed(Event::InitApply(run(["first", "second"][number]))), 0);
        }
        assert_eq!(changed(Event::InitDone), list);
    }
    assert_eq!(changed(Event::Apply(run("third"))), 1);
    assert_eq!(changed(Event::Delete(run("third"))), 0);
}

//! The segments, places, marks and gaps of runs, from the objects that were read.

use super::fixture::*;
use super::model::{Bar, Enrollment, Lane, MarkKind, Phase, Place, Segment, Timeline};
use super::*;
use crate::fixture::{at, done, forbidden, merged, placeholder, released, run, told, unschedulable};
use crate::state::State;
use placement::config::Config;
use placement::keys;
use serde_json::json;

fn node(name: &str) -> Place {
    Place::Node(name.to_owned())
}

fn lane<'a>(timeline: &'a Timeline, place: &Place) -> &'a Lane {
    timeline.lanes.iter().find(|lane| lane.place == *place).unwrap()
}

fn bar<'a>(timeline: &'a Timeline, place: &Place) -> &'a Bar {
    let [bar] = lane(timeline, place).bars.as_slice() else {
        panic!("{place:?}: {timeline:#?}")
    };
    bar
}

/// The phases, each with its first and last second.
fn phases(bar: &Bar) -> Vec<(Phase, i64, i64)> {
    let second = |time: Timestamp| time.as_second() - at(0).as_second();
    let segments = bar.segments.iter();
    segments
        .map(|Segment { phase, span }| (*phase, second(span.from), second(span.to)))
        .collect()
}

fn places(timeline: &Timeline) -> Vec<&str> {
    timeline.lanes.iter().map(|lane| lane.place.title()).collect()
}

#[test]
fn a_run_is_held_waits_and_runs() {
    let history = History {
        runs: vec![run(&done())],
        events: Ok(life_on("node-1")),
        ..nothing()
    };
    let timeline = drawn(&history);
    let nowhere = bar(&timeline, &Place::Nowhere);
    assert_eq!(phases(nowhere), [(Phase::Held, 0, 5), (Phase::Waiting, 5, 20)]);
    let there = bar(&timeline, &node("node-1"));
    assert_eq!(phases(there), [(Phase::Running, 20, 60)]);
    assert_eq!(
        (there.run.enrollment, there.run.succeeded),
        (Enrollment::Labelled, Some(true))
    );
    assert!(there.notes.is_empty() && there.marks.is_empty());
}

#[test]
fn a_run_that_prefers_warm_nodes_has_a_note_on_its_start() {
    let text = "Released: all pods of this run go to node node-1; no other can use it; a warm start: an earlier run used this node";
    let history = History {
        runs: vec![run(&done())],
        events: Ok(vec![told(20, "Released", text)]),
        ..nothing()
    };
    let timeline = drawn(&history);
    let notes = &bar(&timeline, &node("node-1")).notes;
    assert_eq!(notes, &["a warm start: an earlier run used this node"]);
}

#[test]
fn a_run_that_is_held_now_has_no_node() {
    let waits = placeholder("build", "u1", None, &unschedulable("no node"));
    let history = History {
        runs: vec![run(&json!({}))],
        pods: Ok(vec![waits]),
        ..nothing()
    };
    let timeline = drawn(&history);
    assert_eq!(places(&timeline), ["without a node"]);
    let bar = bar(&timeline, &Place::Nowhere);
    assert_eq!(bar.run.state, State::WaitingForNode);
    assert_eq!(
        phases(bar),
        [(Phase::Held, 0, 120)],
        "nothing says since when it waits"
    );
}

#[test]
fn the_placeholders_pod_says_since_when_a_run_waits() {
    let mut waits = placeholder("build", "u1", None, &unschedulable("no node"));
    let conditions = waits.status.as_mut().unwrap().conditions.as_mut().unwrap();
    conditions[0].last_transition_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(3)));
    let history = History {
        runs: vec![run(&json!({}))],
        pods: Ok(vec![waits]),
        ..nothing()
    };
    let timeline = drawn(&history);
    let bar = bar(&timeline, &Place::Nowhere);
    assert_eq!(phases(bar), [(Phase::Held, 0, 3), (Phase::Waiting, 3, 120)]);
}

#[test]
fn a_finished_run_keeps_its_node_while_its_placeholder_is_there() {
    let adopted = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "build", "uid": "u1"},
    ]}});
    let history = History {
        runs: vec![run(&done())],
        events: Ok(life_on("node-1")),
        pods: Ok(vec![placeholder("build", "u1", Some("node-1"), &adopted)]),
        ..nothing()
    };
    let timeline = drawn(&history);
    let there = bar(&timeline, &node("node-1"));
    let all = phases(there);
    assert_eq!(
        all[all.len() - 2..],
        [(Phase::Running, 20, 60), (Phase::Reserved, 60, 120)]
    );
}

#[test]
fn a_node_that_is_kept_after_a_run_is_part_of_the_bar() {
    let drawn = |recorded: &str| {
        let recorded = json!({"metadata": {"annotations": {keys::KEPT_UNTIL: recorded}}});
        let config = Config {
            keep_node_for: Duration::from_secs(30),
            ..Config::default()
        };
        let timeline = drawn(&History {
            runs: vec![run(&merged(done(), &recorded))],
            events: Ok(life_on("node-1")),
            config: Ok(config),
            ..nothing()
        });
        bar(&timeline, &node("node-1")).clone()
    };
    let kept = drawn(&at(85).to_string());
    assert_eq!(phases(&kept), [(Phase::Running, 20, 60), (Phase::Kept, 60, 85)]);
    assert!(kept.notes.is_empty(), "{:?}", kept.notes);
    let forged = drawn("later");
    assert_eq!(phases(&forged), [(Phase::Running, 20, 60)]);
    assert_eq!(
        forged.notes,
        ["how long its node was kept after its end is unknown"]
    );
}

#[test]
fn a_run_without_a_node_keeps_none() {
    let recorded = json!({"metadata": {"annotations": {keys::KEPT_UNTIL: at(90).to_string()}}});
    let left = told(30, "MovedOff", "Moved off node node-1: it is cordoned.");
    let history = History {
        runs: vec![run(&merged(done(), &recorded))],
        events: Ok(life_on("node-1").into_iter().chain([left]).collect()),
        config: Ok(Config {
            keep_node_for: Duration::from_mins(1),
            ..Config::default()
        }),
        ..nothing()
    };
    let timeline = drawn(&history);
    let last = lane(&timeline, &Place::Nowhere).bars.last().unwrap();
    assert_eq!(phases(last), [(Phase::Waiting, 30, 60)]);
}

#[test]
fn without_events_and_pods_the_annotation_names_the_node() {
    let history = History {
        runs: vec![run(&done())],
        ..nothing()
    };
    let timeline = drawn(&history);
    assert_eq!(phases(bar(&timeline, &Place::Nowhere)), [(Phase::Held, 0, 20)]);
    let there = bar(&timeline, &node("node-1"));
    assert_eq!(phases(there), [(Phase::Running, 20, 60)]);
    assert!(there.notes[0].contains("is unknown"), "{:?}", there.notes);
}

#[test]
fn a_run_whose_node_is_unknown_is_in_the_lane_of_unknown_nodes() {
    let forgotten = merged(done(), &json!({"metadata": {"annotations": null}}));
    let plain = merged(unlabelled(), &named("plain", "u3"));
    let history = History {
        runs: vec![run(&forgotten), run(&plain)],
        task_runs: Ok(vec![task_run("u3", "only", 22, Some(58))]),
        ..nothing()
    };
    let timeline = drawn(&history);
    let unknown = lane(&timeline, &Place::Unknown);
    let names: Vec<_> = unknown.bars.iter().map(|bar| bar.run.label.as_str()).collect();
    assert_eq!(names, ["build", "plain"]);
}

#[test]
fn a_run_that_moved_is_on_both_nodes_with_marks_and_waits_in_between() {
    let timeline = drawn(&three());
    let first = &lane(&timeline, &node("node-1")).bars[0];
    let second = &lane(&timeline, &node("node-2")).bars[0];
    assert_eq!(phases(first), [(Phase::Running, 20, 40)]);
    assert_eq!(phases(second), [(Phase::Running, 50, 120)]);
    let kinds = |bar: &Bar| bar.marks.iter().map(|mark| mark.kind).collect::<Vec<_>>();
    assert_eq!(
        (kinds(first), kinds(second)),
        (vec![MarkKind::Left], vec![MarkKind::Arrived])
    );
    assert!(first.marks[0].text.contains("it is cordoned"));
    let nowhere = &lane(&timeline, &Place::Nowhere).bars;
    let between = nowhere.iter().find(|bar| bar.span.from == at(40)).unwrap();
    assert_eq!(phases(between), [(Phase::Waiting, 40, 50)]);
    let tasks = |bar: &Bar| bar.tasks.iter().map(|task| task.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (tasks(first), tasks(second)),
        (vec!["clone".to_owned()], vec!["build".to_owned()])
    );
}

#[test]
fn pods_alone_show_a_move_too() {
    let history = History {
        events: Ok(Vec::new()),
        ..three()
    };
    let timeline = drawn(&history);
    let first = &lane(&timeline, &node("node-1")).bars[0];
    assert_eq!(phases(first), [(Phase::Running, 20, 51)]);
    assert_eq!(first.marks[0].text, "Moved to node node-2.");
}

#[test]
fn an_unlabelled_run_is_on_each_node_of_its_tasks_at_a_time() {
    let history = History {
        runs: vec![run(&merged(unlabelled(), &named("plain", "u3")))],
        task_runs: Ok(vec![
            task_run("u3", "one", 22, Some(58)),
            task_run("u3", "two", 25, Some(40)),
        ]),
        pods: Ok(vec![
            pod_of("plain", "u3", "one", Some("node-1"), 22),
            pod_of("plain", "u3", "two", Some("node-2"), 25),
        ]),
        ..nothing()
    };
    let timeline = drawn(&history);
    assert_eq!(places(&timeline), ["node-1", "node-2"]);
    assert_eq!(
        phases(bar(&timeline, &node("node-2"))),
        [(Phase::Running, 25, 40)]
    );
    assert_eq!(
        bar(&timeline, &node("node-1")).run.enrollment,
        Enrollment::Unlabelled
    );
}

#[test]
fn a_task_that_opted_out_is_apart_from_its_run() {
    let mut apart = pod_of("build", "u1", "apart", Some("node-2"), 30);
    apart
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert(keys::OPT_IN.into(), "false".into());
    let history = History {
        runs: vec![run(&done())],
        events: Ok(life_on("node-1")),
        task_runs: Ok(vec![task_run("u1", "apart", 30, Some(50))]),
        pods: Ok(vec![apart]),
        ..nothing()
    };
    let timeline = drawn(&history);
    assert_eq!(
        phases(bar(&timeline, &node("node-1"))),
        [(Phase::Running, 20, 60)]
    );
    assert!(bar(&timeline, &node("node-2")).notes[0].contains("opted out"));
}

#[test]
fn bars_that_are_older_than_the_window_are_clipped_or_left_out() {
    let old = merged(done(), &named("old", "u9"));
    let old = merged(old, &json!({"metadata": {"labels": {keys::GROUP: "u9"}}}));
    let history = History {
        now: at(200),
        runs: vec![run(&released()), run(&old)],
        ..nothing()
    };
    let timeline = timeline(&history, CI, TimeRange::Last(Duration::from_secs(100)));
    assert_eq!(timeline.window, Span::new(at(100), at(200)));
    let bar = bar(&timeline, &node("node-1"));
    assert_eq!(phases(bar), [(Phase::Running, 100, 200)]);
    assert!(bar.notes.iter().any(|note| note.contains("began before")));
}

#[test]
fn the_window_of_all_runs_ends_now_and_that_of_one_run_with_the_run() {
    let history = History {
        runs: vec![run(&done())],
        ..nothing()
    };
    assert_eq!(
        timeline(&history, CI, TimeRange::All).window,
        Span::new(at(0), at(120))
    );
    assert_eq!(
        timeline(&history, CI, TimeRange::Whole).window,
        Span::new(at(0), at(60))
    );
}

#[test]
fn nodes_that_were_added_and_removed_are_marked() {
    let history = History {
        nodes: Ok(vec![
            since("node-1", 10),
            since("node-10", 30),
            since("node-2", 40),
        ]),
        node_ends: Ok(vec![end("node-4", 70)]),
        ..three()
    };
    let timeline = drawn(&history);
    let names = [
        "without a node",
        "node-1",
        "node-2",
        "node-3",
        "node-4",
        "node-10",
    ];
    assert_eq!(places(&timeline), names);
    let of = |name: &str| lane(&timeline, &node(name));
    assert_eq!(of("node-10").marks[0].kind, MarkKind::NodeAdded);
    assert_eq!(of("node-10").life, Span::new(at(30), at(120)));
    assert_eq!(
        (of("node-4").marks[0].kind, of("node-4").remark),
        (MarkKind::NodeRemoved, Some("removed"))
    );
    assert_eq!(of("node-3").remark, Some("removed, time unknown"));
}

#[test]
fn lists_that_cannot_be_read_are_named_and_no_node_counts_as_removed() {
    let history = History {
        nodes: Err(forbidden("list", "nodes")),
        events: Err(forbidden("list", "events")),
        ..three()
    };
    let timeline = drawn(&history);
    assert_eq!(timeline.missing.len(), 2);
    assert!(timeline.lanes.iter().all(|lane| lane.remark.is_none()));
}

#[test]
fn the_end_of_a_reservation_is_noted_only_if_pods_can_be_read() {
    let isolated = merged(
        done(),
        &json!({"metadata": {"labels": {keys::STRATEGY: "isolateAlways"}}}),
    );
    let notes = |pods| {
        let history = History {
            runs: vec![run(&isolated)],
            events: Ok(life_on("node-1")),
            pods,
            ..nothing()
        };
        bar(&drawn(&history), &node("node-1")).notes.clone()
    };
    assert!(notes(Ok(Vec::new()))[0].contains("no longer reserved"));
    assert!(notes(Err(forbidden("list", "pods"))).is_empty());
}

#[test]
fn an_event_that_was_repeated_counts_from_its_first_time() {
    let mut waits = told(60, "WaitingForNode", "No node for this run yet.");
    waits.since = at(2);
    let history = History {
        runs: vec![run(&json!({}))],
        events: Ok(vec![waits]),
        ..nothing()
    };
    let timeline = drawn(&history);
    assert_eq!(
        phases(bar(&timeline, &Place::Nowhere)),
        [(Phase::Held, 0, 2), (Phase::Waiting, 2, 120)]
    );
}

#[test]
fn the_bars_of_a_run_that_pod_affinity_places_never_overlap_in_time() {
    for seed in 0..8 {
        let history = many(60, 7, seed);
        let timeline = timeline(&history, CI, TimeRange::Last(Duration::from_hours(1)));
        let labelled = timeline
            .bars()
            .filter(|bar| bar.run.enrollment == Enrollment::Labelled);
        let mut labelled: Vec<_> = labelled.collect();
        labelled.sort_by_key(|bar| (bar.run.name.clone(), bar.span.from));
        for pair in labelled
            .windows(2)
            .filter(|pair| pair[0].run.name == pair[1].run.name)
        {
            assert!(pair[0].span.to <= pair[1].span.from, "{pair:#?}");
        }
        for bar in timeline.bars() {
            assert!(timeline.window.has(bar.span.from) && timeline.window.has(bar.span.to));
            assert!(
                bar.segments
                    .iter()
                    .all(|it| it.span.within(bar.span) == Some(it.span))
            );
            assert!(
                bar.tasks
                    .iter()
                    .all(|it| it.span.within(bar.span) == Some(it.span))
            );
        }
    }
}

#[test]
fn the_text_of_three_runs() {
    insta::assert_snapshot!(text(&drawn(&three()), 100, |_, text| text.to_owned()));
}

#[test]
fn the_documentation_shows_that_text() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md")).unwrap();
    let drawn = text(&drawn(&three()), 100, |_, text| text.to_owned());
    assert!(page.contains(&drawn), "{drawn}");
}

#[test]
fn the_text_of_a_run_has_its_tasks_and_fits_a_narrow_terminal() {
    let history = three();
    let history = History {
        runs: history.runs[..1].to_vec(),
        ..history
    };
    let selection = Selection {
        run: Some("build"),
        ..CI
    };
    let drawn = text(&timeline(&history, selection, TimeRange::Whole), 60, |_, text| {
        text.to_owned()
    });
    insta::assert_snapshot!(drawn);
}

#[test]
fn no_line_of_the_picture_is_wider_than_the_terminal() {
    let timeline = timeline(&many(200, 20, 3), CI, TimeRange::Last(Duration::from_hours(1)));
    for width in [40, 80, 200] {
        let drawn = text(&timeline, width, |_, text| text.to_owned());
        assert!(drawn.lines().all(|line| line.chars().count() <= width), "{drawn}");
    }
}

#[test]
fn the_page_has_no_address_and_names_cannot_leave_their_places() {
    let evil = merged(done(), &named("<script>alert(1)</script>{{script}}", "u1"));
    let history = History {
        runs: vec![run(&evil)],
        ..nothing()
    };
    let page = html(&drawn(&history));
    assert_eq!(page.matches("<script>").count(), 1);
    assert_eq!(page.matches("\"use strict\"").count(), 1);
    assert!(
        !page.contains("http://") && !page.contains("https://") && !page.contains("src="),
        "{page}"
    );
    assert!(page.contains("&lt;script&gt;alert(1)"));
    assert!(!svg(&drawn(&history)).contains("<script"));
}

#[test]
fn a_page_without_runs_says_so() {
    let page = html(&drawn(&nothing()));
    assert!(page.contains("No PipelineRuns in this time"));
}

//! When each alert fires, and when not: promtool evaluates the rules on the series of config/components/monitoring/tests.

use crate::metrics_queries::{alerts, overlay, text, yaml};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// Whether an alert is said to fire, once for each time that it is asked for.
fn expectations(cases: &Value, alert: &str) -> Vec<bool> {
    let asked = format!("alertname=\"{alert}\"");
    let cases = cases["tests"].as_array().unwrap().iter();
    let checks = cases.flat_map(|case| case["promql_expr_test"].as_array().unwrap());
    checks
        .filter(|check| text(check, "/expr").contains(&asked))
        .map(|check| check.get("exp_samples").is_some())
        .collect()
}

// On request: promtool takes two minutes to build.
#[e2e_test(nightly)]
async fn each_alert_fires_when_its_case_says_so_and_only_then() {
    let promtool = testbed::promtool().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let groups = yaml("rules.yaml")["spec"].to_string();
    fs::write(folder.path().join("groups.yaml"), groups).unwrap();
    fs::write(folder.path().join("rules.yaml"), overlay("tests/rules.yaml")).unwrap();
    let mut command = Command::new(promtool);
    let tested = command
        .args(["test", "rules", "rules.yaml"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let printed = [tested.stdout, tested.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(tested.status.success(), "{}", printed.concat());
}

#[e2e_test]
fn each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() {
    let cases = yaml("tests/rules.yaml");
    for alert in alerts() {
        let name = text(&alert, "/alert");
        let expected = expectations(&cases, name);
        assert!(
            expected.contains(&true) && expected.contains(&false),
            "{name}: {expected:?}"
        );
    }
}

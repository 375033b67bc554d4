//! Settings of Tekton that get in the way, or would help.

use super::{Finding, Platform};

pub(super) fn findings(platform: &Platform) -> Vec<Finding> {
    const CHECK: &str = "tekton flags";
    let flags = match &platform.flags {
        Err(gap) => return vec![Finding::unseen(CHECK, gap)],
        Ok(flags) => flags
            .as_ref()
            .and_then(|map| map.data.clone())
            .unwrap_or_default(),
    };
    let value = |name: &str| flags.get(name).map(String::as_str);
    vec![
        coschedule(platform, value("coschedule").unwrap_or("workspaces")),
        backoff(platform, value("enable-wait-exponential-backoff")),
    ]
}

fn coschedule(platform: &Platform, mode: &str) -> Finding {
    const CHECK: &str = "tekton flags";
    match mode {
        "pipelineruns" | "isolate-pipelinerun" => Finding::bad(
            CHECK,
            format!(
                "coschedule is {mode}: Tekton pins every run of the cluster to a node by itself, labelled or not, and \
                 its assistant and our placeholder may end up on different nodes."
            ),
            set(platform, "coschedule", "workspaces"),
        ),
        mode => Finding::ok(
            CHECK,
            format!("coschedule is {mode}, which goes well with pod-affinity."),
        ),
    }
}

fn backoff(platform: &Platform, value: Option<&str>) -> Finding {
    const CHECK: &str = "tekton flags";
    if value == Some("true") {
        return Finding::ok(CHECK, "enable-wait-exponential-backoff is on.");
    }
    Finding::ok(
        CHECK,
        "enable-wait-exponential-backoff is off: a task whose pod cannot be created at once, because some webhook does \
         not answer in time, fails for good.",
    )
    .hint(set(platform, "enable-wait-exponential-backoff", "true"))
}

fn set(platform: &Platform, key: &str, value: &str) -> String {
    format!(
        "`kubectl patch configmap -n {} feature-flags --type=merge -p '{{\"data\":{{\"{key}\":\"{value}\"}}}}'`",
        platform.tekton_namespace
    )
}

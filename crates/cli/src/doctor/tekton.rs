//! Settings of Tekton that get in the way, or would help.

use super::{Exam, Finding};

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    const CHECK: &str = "tekton flags";
    let flags = match &exam.flags {
        Err(gap) => return vec![Finding::unseen(CHECK, gap)],
        Ok(flags) => flags
            .as_ref()
            .and_then(|map| map.data.clone())
            .unwrap_or_default(),
    };
    let value = |name: &str| flags.get(name).map(String::as_str);
    vec![
        coschedule(exam, value("coschedule").unwrap_or("workspaces")),
        backoff(exam, value("enable-wait-exponential-backoff")),
    ]
}

fn coschedule(exam: &Exam, mode: &str) -> Finding {
    const CHECK: &str = "tekton flags";
    match mode {
        "pipelineruns" | "isolate-pipelinerun" => Finding::bad(
            CHECK,
            format!(
                "coschedule is {mode}: Tekton pins every run of the cluster to a node by itself, labelled or not, and \
                 its assistant and our placeholder may end up on different nodes."
            ),
            set(exam, "coschedule", "workspaces"),
        ),
        mode => Finding::ok(
            CHECK,
            format!("coschedule is {mode}, which goes well with pod-affinity."),
        ),
    }
}

fn backoff(exam: &Exam, value: Option<&str>) -> Finding {
    const CHECK: &str = "tekton flags";
    if value == Some("true") {
        return Finding::ok(CHECK, "enable-wait-exponential-backoff is on.");
    }
    Finding::ok(
        CHECK,
        "enable-wait-exponential-backoff is off: a task whose pod cannot be created at once, because some webhook does \
         not answer in time, fails for good.",
    )
    .hint(set(exam, "enable-wait-exponential-backoff", "true"))
}

fn set(exam: &Exam, key: &str, value: &str) -> String {
    format!(
        "`kubectl patch configmap -n {} feature-flags --type=merge -p '{{\"data\":{{\"{key}\":\"{value}\"}}}}'`",
        exam.scope.tekton
    )
}

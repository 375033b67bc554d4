//! `doctor`: is the installation healthy? What was seen goes in, findings come out: each topic a file. Pure, but for
//! [`gather`].

mod certificate;
mod configuration;
pub(crate) mod gather;
mod leader;
mod limits;
pub(crate) mod manifests;
mod namespaces;
mod policies;
mod pre;
mod processes;
mod quotas;
mod rights;
mod runs;
mod suspects;
mod tekton;
mod tenants;
mod trial;
mod versions;
mod webhooks;

pub(crate) use pre::{Pre, findings as pre_findings};
pub(crate) use suspects::Suspects;

use crate::admission::Admission;
use crate::ask::{Gap, Seen};
use crate::view::PipelineRun;
use crate::way::Way;
use crate::words::{WIDTH, count, wrap};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, Namespace, Pod, ResourceQuota, Secret};
use serde::Serialize;
use std::fmt::Write;

/// Columns before a sentence.
const INDENT: usize = 9;

/// Everything that the findings are made from.
#[derive(Clone, Debug)]
pub(crate) struct Exam {
    pub(crate) now: Timestamp,
    pub(crate) scope: Scope,
    pub(crate) platform: Platform,
    pub(crate) namespace: Seen<Option<Namespace>>,
    pub(crate) deployments: Seen<Vec<Deployment>>,
    pub(crate) lease: Seen<Option<Lease>>,
    /// Looked at a second time, the Lease had been renewed.
    pub(crate) renewed: bool,
    pub(crate) admission: Admission,
    pub(crate) secret: Seen<Option<Secret>>,
    pub(crate) config: Seen<Option<ConfigMap>>,
    pub(crate) trial_run: Seen<PipelineRun>,
    pub(crate) trial_pod: Seen<Pod>,
    /// What else changes pods, if pod-affinity changed the trial pod and its affinity is another in the end.
    pub(crate) suspects: Option<Suspects>,
    pub(crate) rights: Seen<Vec<rights::Answer>>,
    pub(crate) runs: Seen<Vec<PipelineRun>>,
    pub(crate) sets: Seen<Vec<StatefulSet>>,
    pub(crate) pods: Seen<Vec<Pod>>,
    /// Pods of enrolled runs that wait.
    pub(crate) waiting: Seen<Vec<Pod>>,
    pub(crate) quotas: Seen<Vec<ResourceQuota>>,
    pub(crate) limits: Seen<Vec<LimitRange>>,
    /// Those with the opt-in label.
    pub(crate) namespaces: Seen<Vec<Namespace>>,
}

impl Exam {
    /// Where neither webhook nor policies are there, the webhook is expected.
    fn way(&self) -> Way {
        self.admission.way().unwrap_or(Way::Webhook)
    }
}

/// What pod-affinity is installed on.
#[derive(Clone, Debug)]
pub(crate) struct Platform {
    pub(crate) kubernetes: Seen<String>,
    /// The API server knows PipelineRuns.
    pub(crate) serves_runs: Seen<()>,
    /// And mutating admission policies.
    pub(crate) serves_policies: Seen<()>,
    pub(crate) tekton_namespace: String,
    pub(crate) tekton: Seen<Option<ConfigMap>>,
    pub(crate) flags: Seen<Option<ConfigMap>>,
}

/// Where to look.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// Of the installation.
    pub(crate) namespace: String,
    /// Where the dry runs are made.
    pub(crate) trial: String,
}

/// How bad it is, the least bad first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Ok,
    Warning,
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    pub(crate) sentence: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, sentence: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Ok,
            sentence: sentence.into(),
            remedy: None,
        }
    }

    pub(crate) fn warning(
        check: &'static str,
        sentence: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Warning,
            ..Self::ok(check, sentence).hint(remedy)
        }
    }

    pub(crate) fn bad(check: &'static str, sentence: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            level: Level::Bad,
            ..Self::ok(check, sentence).hint(remedy)
        }
    }

    /// Something was not seen, so nothing is known.
    pub(crate) fn unseen(check: &'static str, gap: &Gap) -> Self {
        let remedy = match gap {
            Gap::Forbidden(_) => "Ask a user with more permissions, or for this permission.",
            Gap::Late(..) => "Try again, with a longer --request-timeout.",
            Gap::NotServed(_) | Gap::Changed(_) | Gap::Failed(..) | Gap::Unreadable(_) => {
                "Try again; if the error persists, check the API server."
            }
        };
        Self::warning(check, format!("Not checked: {gap}."), remedy)
    }

    pub(crate) fn hint(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }
}

/// Everything that there is to say, topic by topic.
pub(crate) fn findings(exam: &Exam) -> Vec<Finding> {
    let platform = versions::findings(&exam.platform);
    let topics = [
        processes::findings,
        leader::findings,
        configuration::findings,
        policies::findings,
        webhooks::findings,
        certificate::findings,
        trial::findings,
        rights::findings,
        |exam: &Exam| tekton::findings(&exam.platform),
        namespaces::findings,
        quotas::findings,
        limits::findings,
        runs::findings,
    ];
    let found = topics.iter().flat_map(|topic| topic(exam));
    platform.into_iter().chain(found).collect()
}

/// The findings as text; `mark` colours the level.
pub(crate) fn text(findings: &[Finding], mark: impl Fn(Level, &str) -> String) -> String {
    let mut text = String::new();
    for finding in findings {
        let label = match finding.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Bad => "BAD",
        };
        let gap = " ".repeat(INDENT - label.len());
        let sentence = format!("{}: {}", finding.check, finding.sentence);
        write_lines(
            &mut text,
            &format!("{}{gap}", mark(finding.level, label)),
            &sentence,
        );
        if let Some(remedy) = &finding.remedy {
            write_lines(&mut text, &format!("{}-> ", " ".repeat(INDENT)), remedy);
        }
    }
    let _ = writeln!(text, "\n{}", summary(findings));
    text
}

fn write_lines(text: &mut String, head: &str, sentence: &str) {
    let indent = if head.trim_start().starts_with("->") {
        INDENT + 3
    } else {
        INDENT
    };
    for (index, line) in wrap(sentence, WIDTH - indent).iter().enumerate() {
        let lead = if index == 0 {
            head.to_owned()
        } else {
            " ".repeat(indent)
        };
        let _ = writeln!(text, "{lead}{line}");
    }
}

fn summary(findings: &[Finding]) -> String {
    let number = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (bad, warnings) = (number(Level::Bad), number(Level::Warning));
    match (bad, warnings) {
        (0, 0) => "All is well.".to_owned(),
        (0, warnings) => format!("Nothing is bad; {}.", count(warnings, "warning")),
        (bad, warnings) => format!("{bad} bad, {}.", count(warnings, "warning")),
    }
}

/// Whether something is as bad as this, or worse.
pub(crate) fn is_at_least(findings: &[Finding], level: Level) -> bool {
    findings.iter().any(|finding| finding.level >= level)
}

#[cfg(test)]
mod tests;

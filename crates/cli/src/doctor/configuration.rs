//! Is the ConfigMap one that the controller takes?

use super::{Exam, Finding};
use placement::config::Config;
use process::install;

const CHECK: &str = "configuration";

pub(super) fn findings(exam: &Exam) -> Vec<Finding> {
    let data = match &exam.config {
        Err(gap) => return vec![Finding::unseen(CHECK, gap)],
        Ok(None) => {
            return vec![Finding::ok(
                CHECK,
                "There is no ConfigMap: all settings have their defaults.",
            )];
        }
        Ok(Some(map)) => map.data.clone().unwrap_or_default(),
    };
    match Config::parse(&data) {
        Ok(config) => vec![Finding::ok(
            CHECK,
            format!(
                "ConfigMap {} is valid; the default strategy is {}.",
                install::CONFIG_MAP,
                config.default_strategy
            ),
        )],
        Err(errors) => errors
            .0
            .iter()
            .map(|error| mistake(exam, &error.to_string()))
            .collect(),
    }
}

fn mistake(exam: &Exam, error: &str) -> Finding {
    Finding::bad(
        CHECK,
        format!(
            "ConfigMap {}: {error}. The last valid configuration stays active, and a controller that starts now does \
             not become ready.",
            install::CONFIG_MAP
        ),
        format!(
            "`kubectl edit configmap -n {} {}`",
            exam.scope.namespace,
            install::CONFIG_MAP
        ),
    )
}

//! What the tests of this crate share.

use crate::names::RunKey;
use crate::run::{HeldFrom, PodTemplate, Run, SpecStatus};

/// A run that is held by us and has nothing yet.
pub fn run() -> Run {
    Run {
        key: RunKey {
            namespace: "ns".to_owned(),
            name: "build".to_owned(),
            uid: "u1".to_owned(),
        },
        created: None,
        started: None,
        deleting: false,
        done: false,
        succeeded: false,
        status: SpecStatus::Pending,
        managed_elsewhere: false,
        child: false,
        queued_by_kueue: false,
        opt_in: Some("true".to_owned()),
        group: None,
        strategy: None,
        isolation: None,
        hold: true,
        held_from: HeldFrom::Creation,
        node: None,
        reserve: None,
        used: None,
        pipeline: None,
        template: PodTemplate::default(),
        claims: Vec::new(),
        templates: 0,
    }
}

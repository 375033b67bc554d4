//! Events, reduced to reporter, reason, text and time. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use placement::messages;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunEvent {
    /// When it was emitted last.
    pub(crate) at: Timestamp,
    /// When it was emitted first.
    pub(crate) since: Timestamp,
    /// UID of the object.
    pub(crate) about: String,
    pub(crate) by: String,
    pub(crate) reason: String,
    pub(crate) text: String,
    pub(crate) warning: bool,
}

impl RunEvent {
    /// Reads an event of either API group.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        let by = event.reporting_component.clone().filter(|name| !name.is_empty());
        let source = || event.source.as_ref().and_then(|source| source.component.clone());
        let at = last(event)?;
        Some(Self {
            at,
            since: first(event).unwrap_or(at),
            about: event.involved_object.uid.clone()?,
            by: by.or_else(source).unwrap_or_default(),
            reason: event.reason.clone().unwrap_or_default(),
            text: event.message.clone().unwrap_or_default(),
            warning: event.type_.as_deref() == Some("Warning"),
        })
    }

    /// An autoscaler emitted the event.
    pub(crate) fn is_of_autoscaler(&self) -> bool {
        messages::is_of_autoscaler(&self.by, &self.reason)
    }

    /// pod-affinity emitted the event.
    pub(crate) fn is_ours(&self) -> bool {
        self.by.starts_with(placement::keys::OWN_PREFIX)
    }
}

fn last(event: &Event) -> Option<Timestamp> {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    let micro = series.or(event.event_time.as_ref()).map(|time| time.0);
    let whole = event.last_timestamp.as_ref().map(|time| time.0);
    micro
        .max(whole)
        .or_else(|| event.creation_timestamp().map(|time| time.0))
}

fn first(event: &Event) -> Option<Timestamp> {
    let micro = event.event_time.as_ref().map(|time| time.0);
    let whole = event.first_timestamp.as_ref().map(|time| time.0);
    micro
        .or(whole)
        .or_else(|| event.creation_timestamp().map(|time| time.0))
}

/// The last event with this reason about an object.
pub(crate) fn latest<'a>(told: &'a [RunEvent], about: &str, reason: &str) -> Option<&'a RunEvent> {
    told.iter()
        .filter(|event| event.about == about && event.reason == reason)
        .max_by_key(|event| event.at)
}

//! Events on a run.

use super::SOON;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use testbed::Testbed;
use testbed::runs::RunSpec;

/// The events on the objects with this name.
pub(crate) async fn events(
    client: &Client,
    namespace: &str,
    name: &str,
) -> impl Iterator<Item = Event> + use<> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let of_object = ListParams::default().fields(&format!("regarding.name={name}"));
    events.list(&of_object).await.unwrap().items.into_iter()
}

async fn of_run(client: &Client, run: &RunSpec) -> impl Iterator<Item = Event> + use<> {
    events(client, run.namespace(), run.name()).await
}

/// When the first event with this reason on a run was sent.
pub(crate) async fn time_of(client: &Client, run: &RunSpec, reason: &str) -> Timestamp {
    let of_reason = |event: Event| (event.reason.as_deref() == Some(reason)).then_some(event.event_time?.0);
    let times = of_run(client, run).await.filter_map(of_reason);
    times.min().expect("the event was sent")
}

/// Reasons and notes of the events on a run.
pub(crate) async fn notes(client: &Client, run: &RunSpec) -> Vec<(String, String)> {
    of_run(client, run)
        .await
        .map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default()))
        .collect()
}

/// Reasons of the events on a run.
pub(crate) async fn reasons(client: &Client, run: &RunSpec) -> Vec<String> {
    let notes = notes(client, run).await;
    notes.into_iter().map(|(reason, _)| reason).collect()
}

/// Waits for an event with this reason on a run, and returns its note.
pub(crate) async fn until_event(bed: &Testbed, run: &RunSpec, reason: &str) -> String {
    let client = bed.client().await.unwrap();
    bed.until(format!("an event {reason} on {}", run.name()), SOON, async || {
        let notes = notes(&client, run).await;
        notes
            .iter()
            .find(|(found, _)| found == reason)
            .map(|(_, note)| note.clone())
            .ok_or(notes)
    })
    .await
    .unwrap()
}

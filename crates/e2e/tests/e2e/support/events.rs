//! Events on a run.

use super::SOON;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use testbed::Testbed;
use testbed::runs::RunSpec;

/// Reasons and notes of the events on a run.
pub(crate) async fn notes(client: &Client, run: &RunSpec) -> Vec<(String, String)> {
    let events: Api<Event> = Api::namespaced(client.clone(), run.namespace());
    let of_run = ListParams::default().fields(&format!("regarding.name={}", run.name()));
    let listed = events.list(&of_run).await.unwrap().items.into_iter();
    listed
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

//! Reports a refused ConfigMap as an event on the ConfigMap, where its author looks. Only the leader reports.

use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use placement::keys;
use process::{api, config_watch::Rejection};
use tokio::sync::watch;

/// The API server rejects events with longer notes.
const NOTE_AT_MOST: usize = 1024;

/// Publishes each rejection, also the current rejection at the start. Never returns.
pub(crate) async fn report(
    client: Client,
    instance: String,
    mut rejections: watch::Receiver<Option<Rejection>>,
) {
    let reporter = Reporter {
        controller: keys::FIELD_MANAGER.to_owned(),
        instance: Some(instance),
    };
    loop {
        let latest = rejections.borrow_and_update().clone();
        if let Some(rejection) = latest {
            // Each rejection has its own message. One shared recorder would count later rejections as repeats of the first.
            let recorder = Recorder::new(client.clone(), reporter.clone());
            publish(&recorder, &rejection).await;
        }
        if rejections.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn publish(recorder: &Recorder, rejection: &Rejection) {
    if let Err(error) = recorder
        .publish(&event(&rejection.message), &rejection.config_map)
        .await
    {
        tracing::warn!(
            error = api::error_text(&error),
            "the event about the refused ConfigMap could not be written"
        );
    }
}

fn event(message: &str) -> Event {
    Event {
        type_: EventType::Warning,
        reason: "ConfigurationRefused".to_owned(),
        note: Some(shortened(&format!(
            "This ConfigMap is invalid and has no effect: {message}"
        ))),
        action: "Configure".to_owned(),
        secondary: None,
    }
}

fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(NOTE_AT_MOST)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let note = event(&"\u{e9}".repeat(2000)).note.unwrap();
        assert!(
            note.len() <= NOTE_AT_MOST
                && note.starts_with("This ConfigMap is invalid and has no effect: \u{e9}")
        );
    }
}

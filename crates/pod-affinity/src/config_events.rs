//! Reports the faults of the ConfigMap as events on the ConfigMap, where its author looks. Only the leader reports.

use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use placement::{keys, text::shortened};
use runtime::{api, config_watch::ConfigFaults};
use tokio::sync::watch;

/// The API server rejects events with longer notes.
const NOTE_AT_MOST: usize = 1024;

/// Publishes the faults of each version, also of the current version at the start. Never returns.
pub(crate) async fn report(
    client: Client,
    instance: String,
    mut faults: watch::Receiver<Option<ConfigFaults>>,
) {
    let reporter = Reporter {
        controller: keys::FIELD_MANAGER.to_owned(),
        instance: Some(instance),
    };
    loop {
        let latest = faults.borrow_and_update().clone();
        if let Some(latest) = latest {
            // Each version has its own message. One shared recorder would count later messages as repeats of the first.
            let recorder = Recorder::new(client.clone(), reporter.clone());
            publish(&recorder, &latest).await;
        }
        if faults.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn publish(recorder: &Recorder, faults: &ConfigFaults) {
    if let Err(error) = recorder.publish(&event(faults), &faults.config_map).await {
        tracing::warn!(
            error = api::error_text(&error),
            "the event about the ConfigMap could not be written"
        );
    }
}

fn event(faults: &ConfigFaults) -> Event {
    let (reason, start) = if faults.is_refused {
        (
            "ConfigurationRefused",
            "This ConfigMap is invalid and has no effect: ",
        )
    } else {
        (
            "ConfigurationKeyIgnored",
            "Keys of this ConfigMap have no effect: ",
        )
    };
    Event {
        type_: EventType::Warning,
        reason: reason.to_owned(),
        note: Some(shortened(&format!("{start}{}", faults.message), NOTE_AT_MOST).into_owned()),
        action: "Configure".to_owned(),
        secondary: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let faults = ConfigFaults {
            is_refused: true,
            message: "\u{e9}".repeat(2000),
            ..ConfigFaults::default()
        };
        let note = event(&faults).note.unwrap();
        assert!(
            note.len() <= NOTE_AT_MOST
                && note.starts_with("This ConfigMap is invalid and has no effect: \u{e9}")
        );
    }
}

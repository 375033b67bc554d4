//! Tekton's assistants in the namespace `default`.

use super::SOON;
use super::placeholders::pods;
use kube::api::ListParams;
use placement::keys;
use std::collections::BTreeSet;
use testbed::{Testbed, runs};

/// The nodes of all assistants.
pub(crate) async fn assistant_nodes(bed: &Testbed) -> Result<BTreeSet<String>, String> {
    let client = bed.client().await.map_err(|error| error.to_string())?;
    let assistants = ListParams::default().labels(&format!("{}={}", keys::COMPONENT, keys::ASSISTANT));
    let found = pods(&client, "default").list(&assistants).await;
    Ok(runs::nodes(&found.map_err(|error| error.to_string())?.items))
}

/// Waits until these nodes have an assistant, and no other node has one.
pub(crate) async fn until_assistants_on(bed: &Testbed, expected: &BTreeSet<String>) {
    bed.until(
        format!("Tekton's assistants to be on {expected:?}"),
        SOON,
        async || {
            let nodes = assistant_nodes(bed).await?;
            if nodes == *expected {
                Ok(())
            } else {
                Err(format!("{nodes:?}"))
            }
        },
    )
    .await
    .unwrap();
}

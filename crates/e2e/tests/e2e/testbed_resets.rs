//! A reset of a testbed deletes all objects, also for the processes that watch them.

use crate::support::SOON;
use crate::support::pool;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use std::collections::BTreeSet;

const MANY: usize = 20;

/// A watch that reconnects continues after the last change that it received.
#[e2e_test]
async fn a_watch_that_reconnects_during_a_reset_misses_no_deletion() {
    let bed = pool::bare().await;
    let mut new = bed.baseline().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(bed.client().await.unwrap(), "default");
    let names: BTreeSet<_> = (0..MANY).map(|number| format!("gone-{number}")).collect();
    for name in &names {
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let listed = maps.list(&ListParams::default()).await.unwrap();
    let before = listed.metadata.resource_version.unwrap();
    let watch = WatchParams::default();
    let mut first = maps.watch(&watch, &before).await.unwrap().boxed();

    bed.reset(&mut new).await.unwrap();

    let mut gone = BTreeSet::new();
    let all = async {
        let (name, seen) = next_deletion(&mut first).await;
        gone.insert(name);
        let mut second = maps.watch(&watch, &seen).await.unwrap().boxed();
        while gone != names {
            gone.insert(next_deletion(&mut second).await.0);
        }
    };
    let heard = tokio::time::timeout(SOON, all).await;
    assert!(heard.is_ok(), "of {MANY} deletions it heard of {gone:?}");
}

/// The name of the deleted object, and the revision of the deletion.
async fn next_deletion(
    events: &mut (impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin),
) -> (String, String) {
    loop {
        if let WatchEvent::Deleted(map) = events.next().await.expect("the watch continues").unwrap() {
            return (map.name_any(), map.resource_version().unwrap());
        }
    }
}

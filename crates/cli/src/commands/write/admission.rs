//! Switches what the API server does to new runs and pods: by the webhook, by policies, or by both.

use super::{TRIES, tell};
use crate::admission::Admission;
use crate::ask::writes::Pen;
use crate::ask::{Gap, Place, Seen};
use crate::commands::notes;
use crate::doctor::gather::{admission, policy_kind};
use crate::switch::{self, Switch};
use crate::way::Way;
use json_patch::PatchOperation;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Changes all that is installed; false if a part of it is not there.
pub(super) async fn switch(pen: Pen<'_>, namespace: &str, switch: &Switch, done: &str) -> Seen<bool> {
    let found = admission(pen.server, namespace).await;
    let way = match (found.way(), found.gaps().next()) {
        (Some(way), _) => way,
        (None, Some(gap)) => return Err(gap.clone()),
        (None, None) => Way::Webhook,
    };
    // Whether the other way is installed as well may not be known.
    notes(found.gaps().take(1));
    let mut are_there = true;
    if way != Way::Policies {
        are_there &= webhooks(pen, &found, switch, done).await?;
    }
    if way != Way::Webhook {
        are_there &= policies(pen, &found, switch, done).await?;
    }
    Ok(are_there)
}

async fn webhooks(pen: Pen<'_>, found: &Admission, switch: &Switch, done: &str) -> Seen<bool> {
    let place = pen.server.cluster::<MutatingWebhookConfiguration>();
    let patch = |found: &MutatingWebhookConfiguration| switch::configuration(found, switch);
    let mut are_there = true;
    for (name, _) in &found.webhooks {
        let is_there = switched(pen, &place, name, patch).await?;
        let done = if is_there { done } else { "is not there" };
        report(pen, "MutatingWebhookConfiguration", name, done);
        are_there &= is_there;
    }
    Ok(are_there)
}

/// Bindings stay as they are, but without its binding a policy does nothing.
async fn policies(pen: Pen<'_>, found: &Admission, switch: &Switch, done: &str) -> Seen<bool> {
    let patch = |found: &DynamicObject| switch::policy(&found.data["spec"], switch);
    let mut are_there = true;
    for release in found.policies.iter().map(|it| &it.release) {
        let (kind, name) = (&release.kind, &release.metadata.name);
        let place = pen.server.cluster_of(&policy_kind(kind));
        let is_there = if release.is_binding() {
            place.get(name).await?.is_some()
        } else {
            switched(pen, &place, name, patch).await?
        };
        if !is_there {
            report(pen, kind, name, "is not there");
        } else if !release.is_binding() {
            report(pen, kind, name, done);
        }
        are_there &= is_there;
    }
    Ok(are_there)
}

/// Patches an object, and reads it again if it was changed meanwhile; false if it is not there.
async fn switched<K>(
    pen: Pen<'_>,
    place: &Place<K>,
    name: &str,
    patch: impl Fn(&K) -> Vec<PatchOperation>,
) -> Seen<bool>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut tries = TRIES;
    loop {
        tries -= 1;
        let Some(found) = place.get(name).await? else {
            return Ok(false);
        };
        match pen.patch(place, name, patch(&found)).await {
            Err(Gap::Changed(_)) if tries > 0 => {}
            other => return other.map(|()| true),
        }
    }
}

fn report(pen: Pen<'_>, kind: &str, name: &str, done: &str) {
    let kind = kind.to_lowercase();
    tell(pen, &format!("{kind}.admissionregistration.k8s.io/{name} {done}"));
}

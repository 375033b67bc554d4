//! Switches the webhook, the policies, or both, whichever is installed.

use super::{TRIES, tell};
use crate::admission::Mechanism;
use crate::commands::notes;
use crate::doctor::read::{admission, admission_kind};
use crate::requests::writes::Writer;
use crate::requests::{RequestError, RequestResult};
use crate::switch::{Switch, is_off, patch};

/// What a switch achieved for an object, or at worst for all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Done,
    /// A namespace was included, but the object applies to no namespace.
    StillOff,
    /// The object does not exist.
    Missing,
}

/// Switches all objects of the installed mechanism.
pub(super) async fn switch(
    writer: Writer<'_>,
    namespace: &str,
    switch: &Switch,
    done: &str,
) -> RequestResult<Outcome> {
    let found = admission(writer.server, namespace).await;
    let mechanism = match (found.mechanism(), found.errors().next()) {
        (Some(mechanism), _) => mechanism,
        (None, Some(error)) => return Err(error.clone()),
        (None, None) => Mechanism::Webhook,
    };
    // Whether the other mechanism is installed as well may not be known.
    notes(found.errors().take(1));
    let webhooks = found
        .webhooks
        .iter()
        .map(|(name, _)| ("MutatingWebhookConfiguration", *name, false));
    let policies = found.policies.iter().map(|it| &it.release);
    let policies = policies.map(|it| (it.kind.as_str(), it.metadata.name.as_str(), it.is_binding()));
    let webhooks = webhooks.filter(|_| mechanism != Mechanism::Policies);
    let policies = policies.filter(|_| mechanism != Mechanism::Webhook);
    let mut worst = Outcome::Done;
    for (kind, name, is_binding) in webhooks.chain(policies) {
        // The command does not change bindings, but a policy has no effect without its binding.
        let switch = (!is_binding).then_some(switch);
        worst = worst.max(switch_object(writer, kind, name, switch, done).await?);
    }
    Ok(worst)
}

/// Patches an object, and reads the object again if it was changed in the meantime. Without a switch, the object is only read.
async fn switch_object(
    writer: Writer<'_>,
    kind: &str,
    name: &str,
    switch: Option<&Switch>,
    done: &str,
) -> RequestResult<Outcome> {
    let place = writer.server.cluster_of(&admission_kind(kind));
    let object = format!("{}.admissionregistration.k8s.io/{name}", kind.to_lowercase());
    let mut tries = TRIES;
    loop {
        tries -= 1;
        let Some(found) = place.get(name).await? else {
            tell(writer, &format!("{object} is not there"));
            return Ok(Outcome::Missing);
        };
        let Some(switch) = switch else {
            return Ok(Outcome::Done);
        };
        match writer.patch(&place, name, patch(&found.data, switch)).await {
            Err(RequestError::Changed(_)) if tries > 0 => {}
            patched => {
                patched?;
                tell(writer, &format!("{object} {done}"));
                let is_still_off = matches!(switch, Switch::Include(_)) && is_off(&found.data);
                return Ok(if is_still_off {
                    Outcome::StillOff
                } else {
                    Outcome::Done
                });
            }
        }
    }
}

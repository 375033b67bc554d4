//! The findings before an installation, in a cluster that is ready and in clusters that are not.

use super::*;
use crate::doctor::tests::{OURS, deployment, healthy, map, no_policies};
use crate::doctor::{Level, manifests, text};
use crate::fixture::{at, forbidden, not_served, object as made};
use runtime::install;
use serde_json::json;

#[expect(clippy::unnecessary_wraps, reason = "what was seen is always a Result")]
fn reviews(
    allowed: impl Fn(&manifests::Right) -> bool,
    rights: Vec<manifests::Right>,
) -> RequestResult<Vec<Review>> {
    let review = |right: manifests::Right| Review {
        allowed: allowed(&right),
        right,
    };
    Ok(rights.into_iter().map(review).collect())
}

fn untouched() -> PreSnapshot {
    let webhooks = [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK].map(|name| (name, Ok(None)));
    PreSnapshot {
        installation: Installation {
            found: Ok(None),
            deployments: Ok(vec![]),
            admission: Admission {
                webhooks: webhooks.into(),
                policies: no_policies(),
            },
            ..healthy().installation
        },
        creates: reviews(|_| true, manifests::installing(Mechanism::Policies)),
        grants: Ok(vec![]),
        placeholder: placeholder::tests::trial(|_| {}),
    }
}

fn printed(pre: &PreSnapshot) -> String {
    text(&findings(pre), |_, label| label.to_owned())
}

fn says(pre: &PreSnapshot, words: &str) -> bool {
    findings(pre).iter().any(|it| it.sentence.contains(words))
}

#[test]
fn a_cluster_that_is_ready_for_an_installation_has_nothing_but_good_findings() {
    insta::assert_snapshot!(printed(&untouched()));
}

#[test]
fn obstacles_to_an_installation_are_bad() {
    let mut pre = untouched();
    let gone = json!({"metadata": {"name": OURS, "deletionTimestamp": at(1).to_string()}});
    pre.installation.found = Ok(Some(made(gone, &json!({}))));
    pre.installation.platform.flags = map(&json!({"coschedule": "pipelineruns"}));
    let mut webhook = manifests::webhooks().remove(0);
    for it in webhook.webhooks.iter_mut().flatten() {
        it.client_config.service.as_mut().unwrap().namespace = "other".into();
    }
    pre.installation.admission.webhooks[0].1 = Ok(Some(webhook));
    pre.creates = reviews(
        |right| right.namespaced,
        manifests::installing(Mechanism::Webhook),
    );
    pre.grants = reviews(|right| right.resource != "secrets", manifests::rights());
    insta::assert_snapshot!(printed(&pre));
}

#[test]
fn an_existing_installation_is_upgraded() {
    let mut pre = untouched();
    pre.installation.deployments = Ok(vec![deployment("pod-affinity-webhook", 2, 2)]);
    let webhooks = manifests::webhooks().into_iter();
    pre.installation.admission.webhooks = [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK]
        .into_iter()
        .zip(webhooks.map(|it| Ok(Some(it))))
        .collect();
    assert!(findings(&pre).iter().all(|it| it.level == Level::Ok));
    assert!(says(&pre, "upgrades what is installed") && says(&pre, "The webhook is installed."));
}

#[test]
fn an_installation_by_policies_is_upgraded_but_not_taken_from_another_namespace() {
    let mut pre = untouched();
    for it in &mut pre.installation.admission.policies {
        it.found = Ok(Some(json!({"spec": it.release.spec})));
    }
    assert!(findings(&pre).iter().all(|it| it.level == Level::Ok));
    assert!(says(&pre, "Admission policies are installed."));
    pre.installation.namespace = "other".into();
    let bad: Vec<_> = findings(&pre)
        .into_iter()
        .filter(|it| it.level == Level::Bad)
        .collect();
    assert_eq!(
        bad.len(),
        5,
        "for each binding that names the namespace: {bad:#?}"
    );
    assert!(
        bad[0]
            .sentence
            .contains("belongs to namespace tekton-pod-affinity"),
        "{bad:#?}"
    );
}

#[test]
fn the_webhook_is_recommended_where_policies_are_not_evaluated() {
    let mut pre = untouched();
    pre.installation.platform.kubernetes = Ok("v1.35.2".into());
    assert_eq!(
        platform::recommended(&pre.installation.platform),
        Mechanism::Webhook
    );
    assert!(says(
        &pre,
        "Install the webhook: Kubernetes v1.35.2 is older than 1.36"
    ));
    pre.installation.platform = healthy().installation.platform;
    assert_eq!(
        platform::recommended(&pre.installation.platform),
        Mechanism::Policies
    );
    pre.installation.platform.serves_policies = Err(not_served("mutatingadmissionpolicies"));
    assert_eq!(
        platform::recommended(&pre.installation.platform),
        Mechanism::Webhook
    );
    assert!(says(&pre, "Install the webhook: this cluster does not know"));
}

#[test]
fn objects_that_the_user_may_not_read_are_warnings() {
    let mut pre = untouched();
    pre.installation.found = Err(forbidden("get", "namespaces"));
    pre.installation.admission.webhooks[0].1 = Err(forbidden("get", "mutatingwebhookconfigurations"));
    let found = findings(&pre);
    let unseen = found
        .iter()
        .filter(|it| it.sentence.contains("you lack the right"))
        .count();
    assert_eq!(unseen, 2);
    assert!(found.iter().all(|it| it.level != Level::Bad));
}

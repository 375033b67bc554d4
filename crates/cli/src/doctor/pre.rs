//! Before an installation: is the platform one that pod-affinity was made for, and may the user install it there? Pure.

use super::rights::{Answer, object};
use super::{Finding, Platform, policies, tekton, versions};
use crate::admission::Admission;
use crate::ask::Seen;
use crate::way::Way;
use crate::words::list;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use std::collections::BTreeMap;

const INSTALLATION: &str = "installation";
const RIGHTS: &str = "your rights";
const NAMED: usize = 6;

/// What there is before an installation.
#[derive(Clone, Debug)]
pub(crate) struct Pre {
    pub(crate) platform: Platform,
    /// Where it is to be installed.
    pub(crate) namespace: String,
    pub(crate) found: Seen<Option<Namespace>>,
    pub(crate) deployments: Seen<Vec<Deployment>>,
    pub(crate) admission: Admission,
    /// Rights to the objects of the manifests, of the way that is installed, or else of the better one.
    pub(crate) creates: Seen<Vec<Answer>>,
    /// Rights that the manifests give to others.
    pub(crate) grants: Seen<Vec<Answer>>,
}

/// Everything that there is to say before an installation.
pub(crate) fn findings(pre: &Pre) -> Vec<Finding> {
    let mut found = versions::findings(&pre.platform);
    found.extend(tekton::findings(&pre.platform));
    found.extend(pre.admission.gaps().map(|gap| Finding::unseen(INSTALLATION, gap)));
    found.extend(elsewhere(pre));
    found.push(place(pre));
    found.push(way(pre));
    found.extend([creates(pre), grants(pre)]);
    found
}

/// Which way to choose. What is there already is upgraded.
fn way(pre: &Pre) -> Finding {
    match pre.admission.way() {
        None => policies::advice(&pre.platform),
        Some(Way::Webhook | Way::Both) => Finding::ok(INSTALLATION, "The webhook is installed."),
        Some(Way::Policies) => Finding::ok(INSTALLATION, "Admission policies are installed."),
    }
}

/// What is there already.
fn place(pre: &Pre) -> Finding {
    match (&pre.found, &pre.deployments) {
        (Err(gap), _) | (_, Err(gap)) => Finding::unseen(INSTALLATION, gap),
        (Ok(Some(namespace)), _) if namespace.metadata.deletion_timestamp.is_some() => deleted(pre),
        (Ok(_), Ok(deployments)) if deployments.is_empty() => Finding::ok(
            INSTALLATION,
            format!("No Deployment is in namespace {} yet.", pre.namespace),
        ),
        (Ok(_), Ok(_)) => Finding::ok(
            INSTALLATION,
            format!(
                "There are Deployments in namespace {}: applying the manifests upgrades what is installed.",
                pre.namespace
            ),
        ),
    }
}

/// Configurations and policies have one name in the cluster, so a second installation would take them from the first.
fn elsewhere(pre: &Pre) -> Vec<Finding> {
    let Admission { webhooks, policies } = &pre.admission;
    let webhooks = webhooks.iter().filter_map(|(name, seen)| {
        let found = seen.as_ref().ok()?.as_ref()?;
        Some((*name, service_namespace(found)?))
    });
    let policies = policies.iter().filter_map(|it| {
        let found = it.found.as_ref().ok()?.as_ref()?;
        Some((
            it.release.metadata.name.as_str(),
            found["paramRef"]["namespace"].as_str()?,
        ))
    });
    let others = webhooks
        .chain(policies)
        .filter(|(_, namespace)| *namespace != pre.namespace);
    others.map(|(name, namespace)| taken(name, namespace)).collect()
}

fn service_namespace(found: &MutatingWebhookConfiguration) -> Option<&str> {
    let mut webhooks = found.webhooks.iter().flatten();
    let service = webhooks.find_map(|it| it.client_config.service.as_ref())?;
    Some(&service.namespace)
}

fn taken(name: &str, namespace: &str) -> Finding {
    Finding::bad(
        INSTALLATION,
        format!(
            "{name} belongs to namespace {namespace}: pod-affinity is installed there, and a cluster can have it only once."
        ),
        "Upgrade that installation, or uninstall it first.",
    )
}

fn deleted(pre: &Pre) -> Finding {
    Finding::bad(
        INSTALLATION,
        format!(
            "Namespace {} is being deleted: the API server creates nothing in it.",
            pre.namespace
        ),
        format!(
            "Wait for it: `kubectl wait --for=delete namespace/{}`.",
            pre.namespace
        ),
    )
}

fn creates(pre: &Pre) -> Finding {
    judged(
        &pre.creates,
        "You may create and update all objects of the manifests.",
        |rights| format!("You may not {rights}, which `kubectl apply` of the manifests needs."),
    )
}

fn grants(pre: &Pre) -> Finding {
    judged(
        &pre.grants,
        "You may give pod-affinity's ServiceAccounts their rights.",
        |rights| {
            format!(
                "You may not {rights}, and Kubernetes does not let you grant rights that you do not have."
            )
        },
    )
}

fn judged(answers: &Seen<Vec<Answer>>, well: &str, ill: impl FnOnce(String) -> String) -> Finding {
    let answers = match answers {
        Err(gap) => return Finding::unseen(RIGHTS, gap),
        Ok(answers) => answers,
    };
    let missing = missing(answers);
    if missing.is_empty() {
        return Finding::ok(RIGHTS, well);
    }
    Finding::bad(
        RIGHTS,
        ill(list(&missing, NAMED)),
        "Have a cluster administrator install pod-affinity.",
    )
}

fn missing(answers: &[Answer]) -> Vec<String> {
    let mut missing: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for Answer { right, allowed: _ } in answers.iter().filter(|answer| !answer.allowed) {
        let verbs = missing.entry(object(right)).or_default();
        if !verbs.contains(&right.verb.as_str()) {
            verbs.push(&right.verb);
        }
    }
    let rights = missing
        .iter()
        .map(|(object, verbs)| format!("{} {object}", verbs.join("/")));
    rights.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{OURS, deployment, map, no_policies, platform};
    use crate::doctor::{Level, manifests, text};
    use crate::fixture::{at, forbidden, not_served, object as made};
    use process::install;
    use serde_json::json;

    #[expect(clippy::unnecessary_wraps, reason = "what was seen is always a Result")]
    fn answers(
        allowed: impl Fn(&manifests::Right) -> bool,
        rights: Vec<manifests::Right>,
    ) -> Seen<Vec<Answer>> {
        let answer = |right: manifests::Right| Answer {
            allowed: allowed(&right),
            right,
        };
        Ok(rights.into_iter().map(answer).collect())
    }

    fn untouched() -> Pre {
        Pre {
            platform: platform(),
            namespace: OURS.into(),
            found: Ok(None),
            deployments: Ok(vec![]),
            admission: Admission {
                webhooks: vec![
                    (install::PIPELINE_RUN_WEBHOOK, Ok(None)),
                    (install::POD_WEBHOOK, Ok(None)),
                ],
                policies: no_policies(),
            },
            creates: answers(|_| true, manifests::installing(Way::Policies)),
            grants: Ok(vec![]),
        }
    }

    fn told(pre: &Pre) -> String {
        text(&findings(pre), |_, label| label.to_owned())
    }

    fn says(pre: &Pre, words: &str) -> bool {
        findings(pre).iter().any(|it| it.sentence.contains(words))
    }

    #[test]
    fn a_cluster_that_is_ready_for_an_installation_has_nothing_but_good_findings() {
        insta::assert_snapshot!(told(&untouched()));
    }

    #[test]
    fn what_would_make_an_installation_fail_is_bad() {
        let mut pre = untouched();
        let gone = json!({"metadata": {"name": OURS, "deletionTimestamp": at(1).to_string()}});
        pre.found = Ok(Some(made(gone, &json!({}))));
        pre.platform.flags = map(&json!({"coschedule": "pipelineruns"}));
        let mut webhook = manifests::webhooks().remove(0);
        for it in webhook.webhooks.iter_mut().flatten() {
            it.client_config.service.as_mut().unwrap().namespace = "other".into();
        }
        pre.admission.webhooks[0].1 = Ok(Some(webhook));
        pre.creates = answers(|right| right.namespaced, manifests::installing(Way::Webhook));
        pre.grants = answers(|right| right.resource != "secrets", manifests::rights());
        insta::assert_snapshot!(told(&pre));
    }

    #[test]
    fn an_installation_that_is_there_is_upgraded() {
        let mut pre = untouched();
        pre.deployments = Ok(vec![deployment("pod-affinity-webhook", 2, 2)]);
        let webhooks = manifests::webhooks().into_iter();
        pre.admission.webhooks = [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK]
            .into_iter()
            .zip(webhooks.map(|it| Ok(Some(it))))
            .collect();
        assert!(findings(&pre).iter().all(|it| it.level == Level::Ok));
        assert!(says(&pre, "upgrades what is installed") && says(&pre, "The webhook is installed."));
    }

    #[test]
    fn an_installation_by_policies_is_upgraded_but_not_taken_from_another_namespace() {
        let mut pre = untouched();
        for it in &mut pre.admission.policies {
            it.found = Ok(Some(it.release.spec.clone()));
        }
        assert!(findings(&pre).iter().all(|it| it.level == Level::Ok));
        assert!(says(&pre, "Admission policies are installed."));
        pre.namespace = "other".into();
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
        pre.platform.kubernetes = Ok("v1.35.2".into());
        assert_eq!(policies::choice(&pre.platform), Way::Webhook);
        assert!(says(
            &pre,
            "Install the webhook: Kubernetes v1.35.2 is older than 1.36"
        ));
        pre.platform = platform();
        assert_eq!(policies::choice(&pre.platform), Way::Policies);
        pre.platform.serves_policies = Err(not_served("mutatingadmissionpolicies"));
        assert_eq!(policies::choice(&pre.platform), Way::Webhook);
        assert!(says(&pre, "Install the webhook: this cluster does not know"));
    }

    #[test]
    fn what_the_user_may_not_see_is_told_and_not_bad() {
        let mut pre = untouched();
        pre.found = Err(forbidden("get", "namespaces"));
        pre.admission.webhooks[0].1 = Err(forbidden("get", "mutatingwebhookconfigurations"));
        let found = findings(&pre);
        let unseen = found
            .iter()
            .filter(|it| it.sentence.contains("you lack the right"))
            .count();
        assert_eq!(unseen, 2);
        assert!(found.iter().all(|it| it.level != Level::Bad));
    }
}

//! What our accounts may do, as the API server tells it: what the roles in config/ say, SECURITY.md too, and nothing beyond.

use crate::install_rights::{Grant, grants, grants_of};
use crate::support::kubectl::workspace;
use crate::support::testbeds::installed;
use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use runtime::install;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use testbed::product::NAMESPACE;
use testbed::runs;

const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];
/// What Kubernetes lets every account do: ask who it is and what it may, and, since 1.37, read the CAs of the cluster.
const EVERYBODY: [(&str, &str, &[&str]); 4] = [
    ("authentication.k8s.io", "selfsubjectreviews", &["create"]),
    ("authorization.k8s.io", "selfsubjectaccessreviews", &["create"]),
    ("authorization.k8s.io", "selfsubjectrulesreviews", &["create"]),
    (
        "certificates.k8s.io",
        "clustertrustbundles",
        &["get", "list", "watch"],
    ),
];

/// All that an account may do in a namespace, as the API server itself tells it.
async fn allowed(client: &Client, account: &str, namespace: &str) -> BTreeSet<Grant> {
    let review = json!({"spec": {"namespace": namespace}});
    let reviews: Api<SelfSubjectRulesReview> = Api::all(client.clone());
    let answer = reviews
        .create(&PostParams::default(), &serde_json::from_value(review).unwrap())
        .await;
    let status = answer.unwrap().status.unwrap();
    assert!(status.non_resource_rules.iter().all(|rule| rule.verbs == ["get"]));
    let role = json!({"rules": status.resource_rules});
    let own = grants_of(&role, account)
        .into_iter()
        .filter(|grant| !is_everybodys(grant));
    own.collect()
}

fn is_everybodys(grant: &Grant) -> bool {
    EVERYBODY.iter().any(|(group, resource, verbs)| {
        grant.group == *group && grant.resource == *resource && verbs.contains(&grant.verb.as_str())
    })
}

/// What the roles in config/ allow an account in a namespace.
fn granted(account: &str, namespace: &str) -> BTreeSet<Grant> {
    let own = grants()
        .into_iter()
        .filter(|grant| grant.account == account && (!grant.namespaced || namespace == NAMESPACE));
    own.map(|grant| Grant {
        namespaced: false,
        ..grant
    })
    .collect()
}

#[e2e_test(webhook)]
async fn each_account_may_do_what_its_roles_say_and_nothing_else() {
    let bed = &installed().await;
    // The last accounts are those of placeholders and of other pods in both namespaces.
    for (home, account) in [
        (NAMESPACE, "pod-affinity-webhook"),
        (NAMESPACE, "pod-affinity-controller"),
        (NAMESPACE, "default"),
        ("default", "default"),
    ] {
        let client = bed.client_of(home, account).await.unwrap();
        for namespace in [NAMESPACE, "default"] {
            let found = allowed(&client, account, namespace).await;
            assert_eq!(
                found,
                granted(account, namespace),
                "{account} of {home}, in {namespace}"
            );
        }
    }
}

fn is_forbidden<T>(answer: Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Api(status)) if status.code == 403)
}

#[e2e_test(webhook)]
async fn requests_beyond_a_role_are_refused() {
    let bed = &installed().await;
    let webhook = bed.client_of(NAMESPACE, "pod-affinity-webhook").await.unwrap();
    let controller = bed.client_of(NAMESPACE, "pod-affinity-controller").await.unwrap();
    let all = ListParams::default();
    assert!(is_forbidden(runs::runs(&webhook, "default").list(&all).await));
    assert!(is_forbidden(
        Api::<Pod>::namespaced(webhook.clone(), "default")
            .list(&all)
            .await
    ));
    let secrets = |client: &Client, namespace| Api::<Secret>::namespaced(client.clone(), namespace);
    assert!(is_forbidden(secrets(&webhook, NAMESPACE).get("another").await));
    assert!(is_forbidden(secrets(&webhook, NAMESPACE).list(&all).await));
    let change = Patch::Merge(json!({"data": null}));
    let params = PatchParams::default();
    assert!(is_forbidden(
        secrets(&webhook, NAMESPACE)
            .patch(install::CERTIFICATE_SECRET, &params, &change)
            .await
    ));
    assert!(is_forbidden(secrets(&controller, "default").list(&all).await));
    assert!(is_forbidden(
        secrets(&controller, NAMESPACE)
            .delete(install::CERTIFICATE_SECRET, &DeleteParams::default())
            .await
    ));
    assert!(is_forbidden(
        Api::<Node>::all(controller.clone())
            .patch("east-0", &params, &change)
            .await
    ));
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pod = serde_json::from_value(pod).unwrap();
    assert!(is_forbidden(
        Api::<Pod>::namespaced(controller.clone(), "default")
            .create(&PostParams::default(), &pod)
            .await
    ));
    let done = Patch::Merge(json!({"status": {"conditions": []}}));
    assert!(is_forbidden(
        runs::runs(&controller, "default")
            .patch_status("any", &params, &done)
            .await
    ));
}

/// The name of a resource in the second column of SECURITY.md, which has no API group.
fn documented(resource: &str) -> &str {
    match resource {
        "mutatingwebhookconfigurations" => "webhook configuration",
        "pods/resize" => resource,
        plural => plural.strip_suffix('s').unwrap_or(plural),
    }
}

/// The rows of the table of rights: process and place, resource, verbs.
fn table() -> BTreeSet<(String, String, BTreeSet<String>)> {
    let text = std::fs::read_to_string(workspace().join("SECURITY.md")).unwrap();
    let (_, rights) = text.split_once("## What the rights are for").unwrap();
    let lines = rights.lines().take_while(|line| !line.starts_with("## "));
    let rows = lines.filter_map(|line| line.strip_prefix("| "));
    let rows: Vec<Vec<_>> = rows
        .map(|row| row.split('|').map(|cell| cell.trim().to_lowercase()).collect())
        .collect();
    let rows = rows
        .iter()
        .skip(1)
        .filter(|row| !row[0].starts_with("---") && !row[0].starts_with("placeholder"));
    let known: BTreeSet<_> = grants().into_iter().map(|grant| grant.resource).collect();
    let (mut process, mut found) = (String::new(), BTreeSet::new());
    for row in rows {
        if !row[0].is_empty() {
            process.clone_from(&row[0]);
        }
        let words: BTreeSet<_> = row[1].split(|it: char| !it.is_alphanumeric()).collect();
        let verbs = VERBS
            .iter()
            .filter(|verb| words.contains(**verb))
            .map(|verb| (*verb).to_owned())
            .collect();
        let resource = known
            .iter()
            .filter(|resource| row[1].contains(documented(resource)))
            .max_by_key(|resource| documented(resource).len());
        let resource = resource.unwrap_or_else(|| panic!("no role has the right of the row {row:?}"));
        found.insert((process.clone(), resource.clone(), verbs));
    }
    found
}

#[e2e_test]
fn the_table_in_security_md_is_what_the_roles_say() {
    let mut granted: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for Grant {
        account,
        resource,
        verb,
        namespaced,
        ..
    } in grants()
    {
        let process = match (account.as_str(), namespaced) {
            ("pod-affinity-webhook", true) => "webhook",
            ("pod-affinity-controller", false) => "controller, in all namespaces",
            ("pod-affinity-controller", true) => "controller, in its own namespace",
            other => panic!("SECURITY.md knows no {other:?}"),
        };
        granted
            .entry((process.to_owned(), resource))
            .or_default()
            .insert(verb);
    }
    let granted: BTreeSet<_> = granted
        .into_iter()
        .map(|((process, resource), verbs)| (process, resource, verbs))
        .collect();
    assert_eq!(table(), granted);
}

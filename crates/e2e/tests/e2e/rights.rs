//! What our accounts may do, asked of the API server for everything it serves: what the roles in config/ say, SECURITY.md
//! too, and nothing beyond.

use crate::beds::installed;
use crate::install_kubectl::workspace;
use crate::install_rights::{Grant, grants};
use futures::{StreamExt, stream};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use placement::keys;
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
/// Rights that go by verbs of their own, on resources that are partly not served.
const PECULIAR: [(&str, &str, &str); 8] = [
    ("", "users", "impersonate"),
    ("", "groups", "impersonate"),
    ("", "serviceaccounts", "impersonate"),
    ("rbac.authorization.k8s.io", "roles", "escalate"),
    ("rbac.authorization.k8s.io", "clusterroles", "bind"),
    ("certificates.k8s.io", "signers", "approve"),
    ("certificates.k8s.io", "signers", "sign"),
    ("*", "*", "*"),
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
const AT_ONCE: usize = 16;

/// Something that one may be allowed or not, in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Deed {
    namespace: &'static str,
    group: String,
    resource: String,
    verb: String,
    name: Option<String>,
}

impl Deed {
    fn is_allowed_by(&self, grant: &Grant) -> bool {
        (&grant.group, &grant.resource, &grant.verb) == (&self.group, &self.resource, &self.verb)
            && (grant.name.is_none() || grant.name == self.name)
            && (!grant.namespaced || self.namespace == NAMESPACE)
    }

    fn is_everybodys(&self) -> bool {
        EVERYBODY.iter().any(|(group, resource, verbs)| {
            self.group == *group && self.resource == *resource && verbs.contains(&self.verb.as_str())
        })
    }

    async fn is_allowed(&self, client: &Client) -> bool {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let attributes = json!({
            "namespace": self.namespace, "group": self.group, "resource": resource, "subresource": subresource,
            "verb": self.verb, "name": self.name,
        });
        let review = json!({"spec": {"resourceAttributes": attributes}});
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        let answer = reviews
            .create(&PostParams::default(), &serde_json::from_value(review).unwrap())
            .await;
        answer.unwrap().status.unwrap().allowed
    }
}

/// Groups and resources, subresources too, of all that is served.
async fn served(client: &Client) -> BTreeSet<(String, String)> {
    let mut served = of("", client.list_core_api_resources("v1").await.unwrap());
    for group in client.list_api_groups().await.unwrap().groups {
        for version in &group.versions {
            let list = client
                .list_api_group_resources(&version.group_version)
                .await
                .unwrap();
            served.extend(of(&group.name, list));
        }
    }
    served
}

fn of(group: &str, list: APIResourceList) -> BTreeSet<(String, String)> {
    list.resources
        .into_iter()
        .map(|resource| (group.to_owned(), resource.name))
        .collect()
}

/// Everything in our namespace and in another, with names where a role has some.
fn deeds(served: &BTreeSet<(String, String)>, grants: &BTreeSet<Grant>) -> Vec<Deed> {
    let usual = served
        .iter()
        .flat_map(|(group, resource)| VERBS.map(|verb| (group.as_str(), resource.as_str(), verb)));
    let what = usual.chain(PECULIAR);
    what.flat_map(|(group, resource, verb)| {
        let one = move |namespace, name| Deed {
            namespace,
            group: group.into(),
            resource: resource.into(),
            verb: verb.into(),
            name,
        };
        let named = grants
            .iter()
            .filter(move |grant| (grant.group.as_str(), grant.resource.as_str()) == (group, resource));
        let mut names: BTreeSet<_> = named.filter_map(|grant| grant.name.clone()).collect();
        if !names.is_empty() {
            names.insert("another".into());
        }
        let names: Vec<_> = names.into_iter().map(Some).chain([None]).collect();
        [NAMESPACE, "default"]
            .into_iter()
            .flat_map(move |namespace| names.clone().into_iter().map(move |name| one(namespace, name)))
    })
    .collect()
}

async fn allowed(client: &Client, deeds: &[Deed]) -> BTreeSet<Deed> {
    let asked = stream::iter(
        deeds
            .iter()
            .map(async |deed| deed.is_allowed(client).await.then(|| deed.clone())),
    );
    asked
        .buffer_unordered(AT_ONCE)
        .filter_map(async |deed| deed)
        .collect()
        .await
}

#[e2e_test(webhook)]
async fn each_account_may_do_what_its_roles_say_and_nothing_else_that_is_served() {
    let bed = &installed().await;
    let (served, grants) = (served(&bed.client().await.unwrap()).await, grants());
    assert!(
        served.len() > 100 && served.contains(&("tekton.dev".into(), "pipelineruns".into())),
        "{served:?}"
    );
    let deeds = deeds(&served, &grants);
    // The last are those of placeholders, and of whatever else runs in either namespace.
    for (namespace, account) in [
        (NAMESPACE, "pod-affinity-webhook"),
        (NAMESPACE, "pod-affinity-controller"),
        (NAMESPACE, "default"),
        ("default", "default"),
    ] {
        let client = bed.client_of(namespace, account).await.unwrap();
        let own: Vec<_> = grants
            .iter()
            .filter(|grant| namespace == NAMESPACE && grant.account == account)
            .collect();
        let expected = deeds
            .iter()
            .filter(|deed| deed.is_everybodys() || own.iter().any(|grant| deed.is_allowed_by(grant)));
        let (expected, found) = (
            expected.cloned().collect::<BTreeSet<_>>(),
            allowed(&client, &deeds).await,
        );
        let (beyond, lacking): (Vec<_>, Vec<_>) = (
            found.difference(&expected).collect(),
            expected.difference(&found).collect(),
        );
        assert!(
            beyond.is_empty() && lacking.is_empty(),
            "{account} of {namespace}: beyond {beyond:#?}, lacking {lacking:#?}"
        );
        assert!(
            own.iter()
                .all(|grant| expected.iter().any(|deed| deed.is_allowed_by(grant))),
            "a right that was not asked for"
        );
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
            .patch(keys::CERTIFICATE_SECRET, &params, &change)
            .await
    ));
    assert!(is_forbidden(secrets(&controller, "default").list(&all).await));
    assert!(is_forbidden(
        secrets(&controller, NAMESPACE)
            .delete(keys::CERTIFICATE_SECRET, &DeleteParams::default())
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

/// As the second column of SECURITY.md names a resource; whose group it is of matters to nobody there.
fn told(resource: &str) -> &str {
    match resource {
        "mutatingwebhookconfigurations" => "webhook configuration",
        "pods/resize" => resource,
        plural => plural.strip_suffix('s').unwrap_or(plural),
    }
}

/// The rows of the table of rights: process and place, resource, verbs.
fn table() -> BTreeSet<(String, String, BTreeSet<String>)> {
    let text = std::fs::read_to_string(workspace().join("SECURITY.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
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
            .filter(|resource| row[1].contains(told(resource)))
            .max_by_key(|resource| told(resource).len());
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

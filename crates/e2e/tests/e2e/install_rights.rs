//! The roles in config/ against the API server's own record of what our processes asked for: each request is allowed,
//! and each rule is used.

use crate::auto_reserve;
use crate::kept_nodes::kept_nodes;
use crate::support::SOON;
use crate::support::events::until_event;
use crate::support::kubectl::{parsed, workspace};
use crate::support::objects::{lose_certificates, quota};
use crate::support::placeholders::{sets, until_no_placeholder};
use crate::support::pool;
use crate::support::pvcs::{create_pvc, with_pvc};
use crate::support::runs::{create, held_for_good, labelled_by_its_pipeline, set_status, until_released};
use crate::support::testbeds::{start_controllers, stop_controllers};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use placement::keys;
use runtime::install;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use testbed::product::NAMESPACE;
use testbed::runs::{self, RunSpec};
use testbed::{Audit, Nodes, Options, Testbed};

/// The smallest piece of a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grant {
    pub(crate) account: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) verb: String,
    pub(crate) name: Option<String>,
    pub(crate) namespaced: bool,
}

/// Every grant of the roles in config/, for the account in the binding of the role.
pub(crate) fn grants() -> BTreeSet<Grant> {
    let files = ["201-rbac-webhook.yaml", "202-rbac-controller.yaml"];
    let objects = files.map(|file| std::fs::read_to_string(workspace().join("config").join(file)).unwrap());
    let objects: Vec<_> = objects.iter().flat_map(|text| parsed(text)).collect();
    let bindings = objects.iter().filter(|object| object["roleRef"].is_object());
    let grants = bindings.flat_map(|binding| {
        let is_bound = |role: &&Value| {
            let (kind, name) = (&binding["roleRef"]["kind"], &binding["roleRef"]["name"]);
            role["kind"] == *kind && role["metadata"]["name"] == *name
        };
        let role = objects.iter().find(is_bound).unwrap();
        grants_of(role, binding["subjects"][0]["name"].as_str().unwrap())
    });
    grants.collect()
}

pub(crate) fn grants_of(role: &Value, account: &str) -> Vec<Grant> {
    let mut grants = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let names = texts(&rule["resourceNames"]).into_iter().map(Some);
        let names: Vec<_> = if rule["resourceNames"].is_null() {
            vec![None]
        } else {
            names.collect()
        };
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    grants.extend(names.iter().map(|name| Grant {
                        account: account.to_owned(),
                        group: group.clone(),
                        resource: resource.clone(),
                        verb: verb.clone(),
                        name: name.clone(),
                        namespaced: role["kind"] == "Role",
                    }));
                }
            }
        }
    }
    grants
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// A request on record.
struct Asked<'a>(&'a Value);

impl Asked<'_> {
    fn text(&self, pointer: &str) -> &str {
        self.0
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn is_forbidden(&self) -> bool {
        self.0["annotations"]["authorization.k8s.io/decision"] == "forbid"
    }

    fn resource(&self) -> String {
        let subresource = self.text("/objectRef/subresource");
        let resource = self.text("/objectRef/resource");
        if subresource.is_empty() {
            resource.to_owned()
        } else {
            format!("{resource}/{subresource}")
        }
    }

    /// An apply that makes the object is on record as one patch, and needs the right to create besides.
    /// OpenShift requires the right to delete an object of a client that changes the owner of the object.
    /// A streaming list is a watch. API servers before 1.34 have no streaming lists, and receive the verb list instead.
    fn has_verb(&self, verb: &str) -> bool {
        let used = self.text("/verb");
        let created = self.0.pointer("/responseStatus/code") == Some(&json!(201));
        let is_streaming_list = self.text("/requestURI").contains("sendInitialEvents=true");
        used == verb
            || (verb == "create" && used == "patch" && created)
            || (verb == "delete" && used == "patch" && self.resource() == "mutatingwebhookconfigurations")
            || (verb == "list" && used == "watch" && is_streaming_list)
    }

    fn uses(&self, grant: &Grant) -> bool {
        let account = format!("system:serviceaccount:{NAMESPACE}:{}", grant.account);
        self.text("/user/username") == account
            && self.text("/objectRef/apiGroup") == grant.group
            && self.resource() == grant.resource
            && self.has_verb(&grant.verb)
            && grant
                .name
                .as_deref()
                .is_none_or(|name| self.text("/objectRef/name") == name)
            && (!grant.namespaced || self.text("/objectRef/namespace") == NAMESPACE)
    }
}

/// Everything that makes our processes ask for something: each of these is told in one of the other files.
async fn live(bed: &Testbed, client: &Client) {
    every_strategy(bed, client).await;
    a_claim(bed).await;
    a_task_too_big_and_a_reserve(bed).await;
    an_automatic_reserve(bed).await;
    a_quota(bed).await;
    a_kept_node(bed).await;
    a_held_run_that_is_cancelled_and_a_new_leader(bed, client).await;
    a_held_run_that_loses_its_label(bed, client).await;
    labelled_by_its_pipeline(bed, RunSpec::diamond("default", "late")).await;
    a_bad_configuration_and_a_good_one(bed, client).await;
    a_lost_certificate(bed, client).await;
}

async fn every_strategy(bed: &Testbed, client: &Client) {
    for strategy in ["colocateAlways", "colocateCompleted", "isolateAlways"] {
        let run = RunSpec::diamond("default", &strategy.to_lowercase()).opted_in(strategy);
        create(bed, &run).await;
        bed.until_succeeded(&run, SOON).await.unwrap();
        until_no_set(bed, client).await;
        runs::runs(client, "default")
            .delete(run.name(), &DeleteParams::default())
            .await
            .unwrap();
    }
    until_no_placeholder(bed, "default").await;
}

async fn until_no_set(bed: &Testbed, client: &Client) {
    let sets = sets(client, "default");
    bed.until("the placeholder's set to be gone", SOON, async || {
        let listed = sets.list(&ListParams::default()).await;
        let left = listed.map_err(|error| error.to_string())?.items.len();
        if left == 0 { Ok(()) } else { Err(left.to_string()) }
    })
    .await
    .unwrap();
}

async fn an_automatic_reserve(bed: &Testbed) {
    let run = auto_reserve::run(bed, "automatic", "500m").await;
    let run = run.annotation(keys::RESERVE, "auto");
    create(bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
}

async fn a_claim(bed: &Testbed) {
    create_pvc(bed, "cache", None).await;
    let run = RunSpec::new("default", "claim").task("only", &[]);
    let run = with_pvc(run.opted_in("true"), "cache");
    create(bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
}

/// On KWOK's nodes a resize is refused, so the placeholder is recreated small as well.
async fn a_task_too_big_and_a_reserve(bed: &Testbed) {
    let run = RunSpec::new("default", "moves")
        .task("small", &[])
        .sized_task("large", &["small"], &json!({"cpu": "4"}))
        .opted_in("true");
    let run = with_pvc(run, "cache");
    create(bed, &run).await;
    until_event(bed, &run, "MovedOff").await;
    bed.add_nodes(&Nodes::new("large", 1).size("8", "32Gi"))
        .await
        .unwrap();
    bed.until_succeeded(&run, SOON).await.unwrap();
    let run = RunSpec::diamond("default", "reserves")
        .opted_in("true")
        .annotation(keys::RESERVE, "cpu=4");
    create(bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
}

async fn a_kept_node(bed: &Testbed) {
    bed.configure(&[("keep-node-for-maximum", Some("1m"))])
        .await
        .unwrap();
    let run = RunSpec::new("default", "keeps").task("only", &[]);
    let run = run.opted_in("true").annotation(keys::KEEP_NODE_FOR, "1m");
    create(bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    bed.until("the node to be kept", SOON, async || {
        let kept = kept_nodes(bed).await;
        if kept.is_empty() {
            Err("none".to_owned())
        } else {
            Ok(())
        }
    })
    .await
    .unwrap();
}

async fn a_quota(bed: &Testbed) {
    let namespace = bed.namespace("quota").await.unwrap();
    quota(bed, &namespace, "pods", "0").await;
    let run = RunSpec::new(&namespace, "run").task("only", &[]).opted_in("true");
    create(bed, &run).await;
    until_event(bed, &run, "PlaceholderRefused").await;
    let namespace = bed.namespace("quota-of-one").await.unwrap();
    quota(bed, &namespace, "pods", "1").await;
    let run = RunSpec::new(&namespace, "run").task("only", &[]).opted_in("true");
    create(bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
}

/// The new leader tells again what is still so, and the event that is there counts it.
async fn a_held_run_that_is_cancelled_and_a_new_leader(bed: &Testbed, client: &Client) {
    let run = held_for_good(bed, "default", "held").await;
    stop_controllers(bed);
    start_controllers(bed).await;
    until_counted(bed, client).await;
    set_status(bed, &run, "Cancelled").await;
    bed.until_run(&run, "to be cancelled", SOON, |run| {
        matches!(runs::state(run), runs::State::Failed(_))
    })
    .await
    .unwrap();
}

async fn a_held_run_that_loses_its_label(bed: &Testbed, client: &Client) {
    let run = held_for_good(bed, "default", "unlabelled").await;
    let unlabelled = Patch::Merge(json!({"metadata": {"labels": {keys::OPT_IN: null}}}));
    runs::runs(client, "default")
        .patch(run.name(), &PatchParams::default(), &unlabelled)
        .await
        .unwrap();
    until_released(bed, &run).await;
}

async fn until_counted(bed: &Testbed, client: &Client) {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    bed.until("a repeated event", SOON, async || {
        let listed = events
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let repeated = listed.items.into_iter().any(|event| {
            event.series.is_some()
                && event
                    .reporting_controller
                    .is_some_and(|who| who.starts_with(keys::OWN_PREFIX))
        });
        if repeated { Ok(()) } else { Err("none".to_owned()) }
    })
    .await
    .unwrap();
}

async fn a_bad_configuration_and_a_good_one(bed: &Testbed, client: &Client) {
    bed.configure(&[("default-strategy", Some("colocateSometimes"))])
        .await
        .unwrap();
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    bed.until("the refusal to be told", SOON, async || {
        let listed = events
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let mut reasons = listed.items.iter().map(|event| event.reason.clone());
        let told = reasons.any(|reason| reason.as_deref() == Some("ConfigurationRefused"));
        if told { Ok(()) } else { Err("not told".to_owned()) }
    })
    .await
    .unwrap();
    bed.configure(&[("default-strategy", None)]).await.unwrap();
}

async fn a_lost_certificate(bed: &Testbed, client: &Client) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    lose_certificates(client).await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    bed.until("a new authority to be trusted and used", SOON, async || {
        let secret = secrets
            .get(install::CERTIFICATE_SECRET)
            .await
            .map_err(|error| error.to_string())?;
        let data = secret.data.unwrap_or_default();
        let bundle = data.get("ca-bundle.crt").cloned().unwrap_or_default();
        for name in [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK] {
            let found = configurations
                .get(name)
                .await
                .map_err(|error| error.to_string())?;
            if !trusts(&found, &bundle) {
                return Err(format!("{} does not trust it", found.name_any()));
            }
        }
        data.get("tls.crt").map(drop).ok_or("no certificate".to_owned())
    })
    .await
    .unwrap();
}

fn trusts(configuration: &MutatingWebhookConfiguration, bundle: &ByteString) -> bool {
    let mut webhooks = configuration.webhooks.iter().flatten();
    !bundle.0.is_empty() && webhooks.all(|webhook| webhook.client_config.ca_bundle.as_ref() == Some(bundle))
}

#[e2e_test(webhook)]
async fn every_right_is_used_and_none_is_lacking() {
    let options = Options {
        audit: Audit::PodAffinity,
        ..Options::default()
    };
    let bed = pool::start(options).await;
    bed.add_nodes(&Nodes::new("small", 3).size("2", "8Gi"))
        .await
        .unwrap();
    bed.install_pod_affinity().await.unwrap();
    let client = bed.client().await.unwrap();
    live(&bed, &client).await;

    let record = bed.audit().unwrap();
    let record: Vec<_> = record.iter().map(Asked).collect();
    let forbidden: Vec<_> = record.iter().filter(|asked| asked.is_forbidden()).collect();
    assert!(
        forbidden.is_empty(),
        "{:?}",
        forbidden
            .iter()
            .map(|asked| asked.0.to_string())
            .collect::<Vec<_>>()
    );
    let grants = grants();
    assert!(grants.len() > 30, "{grants:?}");
    let idle: Vec<_> = grants
        .iter()
        .filter(|grant| !record.iter().any(|asked| asked.uses(grant)))
        .collect();
    assert!(idle.is_empty(), "nothing uses {idle:#?}");
}

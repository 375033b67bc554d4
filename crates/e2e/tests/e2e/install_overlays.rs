//! The overlays and the components that are applied alone: the API server accepts each, and another tool issues the certificates where
//! an overlay says so.

use crate::support::SOON;
use crate::support::cert_manager::{CertManager, configurations, secrets};
use crate::support::cli::{plain, tool};
use crate::support::events::until_event;
use crate::support::install::{overlay, own_ca, until_owned};
use crate::support::kubectl::{call, file, kubectl, printed, rendered, workspace};
use crate::support::pool;
use crate::support::runs::{held_for_good, let_end_once_bound, nodes_after};
use crate::support::testbeds::{kill_webhooks, start_controllers, stop_controllers};
use kube::api::{DeleteParams, PostParams};
use kube::{Client, ResourceExt};
use placement::keys;
use rcgen::date_time_ymd;
use runtime::install;
use serde_json::Value;
use testbed::product::{Installed, NAMESPACE};
use testbed::runs::RunSpec;
use testbed::{Definitions, Nodes, Options, Testbed};

/// The names of all overlays.
fn overlays() -> Vec<String> {
    let entries = std::fs::read_dir(workspace().join("overlays")).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[e2e_test(policies)]
async fn the_api_server_accepts_the_base_and_every_overlay() {
    let bed = pool::start(Options {
        tekton: false,
        ..Options::default()
    });
    let bed = bed.await;
    bed.define(Definitions::CertManager).await.unwrap();
    bed.define(Definitions::PrometheusOperator).await.unwrap();
    // Nothing can be tried in a namespace that is not there.
    kubectl(&bed, &["apply", "-f", "config/100-namespace.yaml"]);
    let names = overlays();
    assert_eq!(names, ["cert-manager", "fail-open", "own-ca", "policies"]);
    let authority = CertManager::start(&bed).await.ca();
    let own_ca = own_ca(bed.folder(), &authority);
    let overlays = names.iter().map(|name| own_ca.with_file_name(name));
    let alone = [
        "config",
        "config/components/monitoring",
        "config/components/warm-nodes",
    ];
    for folder in overlays.chain(alone.map(|folder| workspace().join(folder))) {
        let objects = rendered(&folder);
        let file = file(&bed, "rendered", &objects);
        // Server-side apply refuses fields that the definitions do not know.
        let tried = kubectl(&bed, &["apply", "--server-side", "--dry-run=server", "-f", &file]);
        let accepted = tried.lines().filter(|line| line.ends_with(" (server dry run)"));
        assert_eq!(accepted.count(), objects.len(), "{}: {tried}", folder.display());
    }
}

#[e2e_test]
fn nothing_of_the_webhook_is_left_in_the_overlay_of_policies() {
    let mut objects = rendered(&overlay("policies"));
    // Its comments are about placeholders, which may have pull secrets.
    objects.retain(|object| object["kind"] != "ConfigMap");
    let text = serde_json::to_string(&objects).unwrap();
    for word in ["webhook", "secrets", "certs", "namespaces\"]"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    let count = |kind: &str| objects.iter().filter(|object| object["kind"] == kind).count();
    let kinds = ["Deployment", "ServiceAccount", "ClusterRole", "Role"];
    assert_eq!(kinds.map(count), [1; 4], "{text}");
    assert!(text.contains(r#"["controller","--certificates=none"]"#), "{text}");
}

#[e2e_test(webhook)]
async fn fail_open_lets_labelled_runs_pass_when_no_webhook_answers() {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 4)).await.unwrap();
    install(&bed, rendered(&overlay("fail-open"))).await;
    kill_webhooks(&bed);
    let run = RunSpec::diamond("default", "run").opted_in("true").ending("hang");
    let made = crate::support::runs::create(&bed, &run).await;
    assert!(made.data["spec"].get("status").is_none(), "the run is not held");
    until_event(&bed, &run, "LabelledTooLate").await;
    let_end_once_bound(&bed, [&run], &["fetch"]).await;
    let done = bed.until_succeeded(&run, SOON).await.unwrap();
    assert!(
        !done.labels().contains_key(keys::GROUP),
        "some of its pods would have terms, and others none"
    );
}

async fn install(bed: &Testbed, objects: Vec<Value>) -> Installed {
    bed.install(objects, &[], async |objects| {
        apply(bed, objects);
        Ok(())
    })
    .await
    .unwrap()
}

/// Applies the objects as a user does, except the Deployments: the testbed runs the processes itself.
fn apply(bed: &Testbed, mut objects: Vec<Value>) {
    objects.retain(|object| object["kind"] != "Deployment");
    let file = file(bed, "objects", &objects);
    printed(&call(bed, "kubectl", &["apply", "-f", &file]));
}

/// All that the controller must not touch, by what changes with every write.
async fn versions(client: &Client) -> Vec<String> {
    let secret = secrets(client).get(install::CERTIFICATE_SECRET).await.unwrap();
    let mut versions = vec![secret.resource_version().unwrap()];
    for name in [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK] {
        versions.push(
            configurations(client)
                .get(name)
                .await
                .unwrap()
                .resource_version()
                .unwrap(),
        );
    }
    versions
}

async fn until_served_until(bed: &Testbed, installed: &Installed, year: i32) {
    let seconds = date_time_ymd(year, 1, 1).unix_timestamp();
    for admin in &installed.webhook_admin {
        bed.until(format!("a certificate that ends {year}"), SOON, async || {
            let metrics = testbed::probe::get(*admin, "/metrics").await?;
            let expiry = metrics
                .lines()
                .find_map(|line| line.strip_prefix("pod_affinity_certificate_expiry_timestamp_seconds "))
                .ok_or(metrics.clone())?;
            let expiry: f64 = expiry.parse().map_err(|_| expiry.to_owned())?;
            #[allow(clippy::cast_precision_loss, reason = "seconds of this century fit")]
            let served = (expiry - seconds as f64).abs() < 1.0;
            if served { Ok(()) } else { Err(expiry.to_string()) }
        })
        .await
        .unwrap();
    }
}

/// A labelled run of this name ends with all its pods on one node.
async fn has_one_node(bed: &Testbed, name: &str) {
    let run = RunSpec::diamond("default", name).opted_in("true");
    assert_eq!(nodes_after(bed, &run).await.len(), 1);
}

#[e2e_test(webhook)]
async fn with_cert_managers_overlay_its_certificates_serve_and_the_controller_leaves_them_alone() {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 6)).await.unwrap();
    bed.define(Definitions::CertManager).await.unwrap();
    let played = CertManager::start(&bed).await;
    // Neither replica gets ready before it has a certificate.
    let objects = rendered(&overlay("cert-manager"));
    let (installed, ()) = tokio::join!(install(&bed, objects), async {
        played.issue(2100).await;
        played.inject().await;
    });
    let client = bed.client().await.unwrap();
    until_served_until(&bed, &installed, 2100).await;
    until_owned(&bed, &client).await;
    let before = versions(&client).await;
    has_one_node(&bed, "first").await;

    played.issue(2101).await;
    until_served_until(&bed, &installed, 2101).await;
    let renewed = versions(&client).await;
    assert_eq!(before[1..], renewed[1..], "the authority is the same");
    has_one_node(&bed, "second").await;

    // A leader looks at what it cares for as soon as it leads.
    stop_controllers(&bed);
    start_controllers(&bed).await;
    has_one_node(&bed, "third").await;
    assert_eq!(versions(&client).await, renewed);
}

#[e2e_test(webhook)]
async fn with_a_ca_of_ones_own_its_certificates_serve_and_the_controller_leaves_them_alone() {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 4)).await.unwrap();
    let user = CertManager::start(&bed).await;
    let write = async |last_year| {
        let names = runtime::certs::service_names(NAMESPACE);
        user.write(install::CERTIFICATE_SECRET, names, last_year).await;
    };
    // The steps of certs/README.md.
    kubectl(&bed, &["apply", "-f", "config/100-namespace.yaml"]);
    write(2100).await;
    let objects = rendered(&own_ca(bed.folder(), &user.ca()));
    let mut deployments = objects.clone();
    let installed = install(&bed, objects).await;
    let client = bed.client().await.unwrap();
    until_served_until(&bed, &installed, 2100).await;
    until_owned(&bed, &client).await;
    let before = versions(&client).await;
    has_one_node(&bed, "first").await;
    // The testbed runs the processes without their Deployments, in which doctor reads who issues the certificates.
    deployments.retain(|object| object["kind"] == "Deployment");
    for deployment in &mut deployments {
        deployment["spec"]["replicas"] = 0.into();
    }
    kubectl(&bed, &["apply", "-f", &file(&bed, "deployments", &deployments)]);
    let doctor = plain(&tool(&bed, "doctor").await.out);
    let faults = doctor.lines().filter(|line| line.starts_with("BAD"));
    let mut faults = faults.filter(|line| line.contains("rights") || line.contains("certificate"));
    assert_eq!(faults.next(), None, "{doctor}");

    write(2101).await;
    until_served_until(&bed, &installed, 2101).await;
    has_one_node(&bed, "second").await;
    assert_eq!(
        before[1..],
        versions(&client).await[1..],
        "only the keeper of the certificates writes caBundle"
    );
}

#[e2e_test(webhook, second)]
async fn an_installation_with_certificates_of_its_own_changes_over_to_those_of_a_users_ca() {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 6)).await.unwrap();
    let installed = install(&bed, rendered(&workspace().join("config"))).await;
    has_one_node(&bed, "first").await;
    let client = bed.client().await.unwrap();
    let user = CertManager::start(&bed).await;
    let names = runtime::certs::service_names(NAMESPACE);
    user.write("issued", names, 2100).await;

    // The steps of certs/README.md.
    let own = secrets(&client);
    let mut managed = own.get(install::CERTIFICATE_SECRET).await.unwrap();
    let bundle = managed
        .data
        .take()
        .unwrap()
        .remove(runtime::certs::CA_BUNDLE)
        .unwrap();
    let both = user.ca() + str::from_utf8(&bundle.0).unwrap();
    let right = [
        "-n",
        NAMESPACE,
        "delete",
        "rolebinding,role",
        "pod-affinity-controller-certificates",
    ];
    kubectl(&bed, &right);
    let apply_with = async |authorities: &str| {
        let objects = rendered(&own_ca(bed.folder(), authorities));
        let change_over = bed.roll_out(&installed, objects, async |objects| {
            apply(&bed, objects);
            Ok(())
        });
        change_over.await.unwrap();
    };
    apply_with(&both).await;
    has_one_node(&bed, "second").await;
    managed.metadata.resource_version = None;
    managed.data = own.get("issued").await.unwrap().data;
    let params = PostParams::default();
    let replaced = own.replace(install::CERTIFICATE_SECRET, &params, &managed);
    replaced.await.unwrap();
    until_served_until(&bed, &installed, 2100).await;
    has_one_node(&bed, "third").await;
    apply_with(&user.ca()).await;
    has_one_node(&bed, "fourth").await;
    let kept = own.get(install::CERTIFICATE_SECRET).await.unwrap();
    assert_eq!(
        kept.data, managed.data,
        "the controller does not write the Secret"
    );
}

#[e2e_test(webhook)]
async fn an_installation_with_certificates_of_its_own_changes_over_to_cert_managers() {
    let bed = pool::bare().await;
    bed.define(Definitions::CertManager).await.unwrap();
    let installed = install(&bed, rendered(&workspace().join("config"))).await;
    let client = bed.client().await.unwrap();
    let held = held_for_good(&bed, "default", "held").await;

    // The steps of certs/README.md.
    let own = secrets(&client);
    own.delete(install::CERTIFICATE_SECRET, &DeleteParams::default())
        .await
        .unwrap();
    let played = CertManager::start(&bed).await;
    let objects = rendered(&overlay("cert-manager"));
    let change_over = bed.roll_out(&installed, objects, async |objects| {
        apply(&bed, objects);
        Ok(())
    });
    let (changed_over, ()) = tokio::join!(change_over, async {
        played.issue(2100).await;
        played.inject().await;
    });
    changed_over.unwrap();
    until_served_until(&bed, &installed, 2100).await;

    let theirs = versions(&client).await;
    bed.add_nodes(&Nodes::new("node", 3)).await.unwrap();
    has_one_node(&bed, "first").await;
    bed.add_nodes(&Nodes::new("nowhere", 1).label("nowhere", "true"))
        .await
        .unwrap();
    bed.until_succeeded(&held, SOON).await.unwrap();
    assert_eq!(versions(&client).await, theirs);
}

//! The testbed survives the deletion of pod-affinity's namespace, and pod-affinity can be installed again.

use crate::cli_doctor::until_healthy;
use crate::support::SOON;
use crate::support::runs::{create, nodes_after};
use crate::support::testbeds::whole;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use runtime::install;
use testbed::product::NAMESPACE;
use testbed::runs::RunSpec;
use testbed::{Part, Testbed};

const PROCESSES: [Part; 4] = [
    Part::Webhook(0),
    Part::Webhook(1),
    Part::Controller(0),
    Part::Controller(1),
];

#[e2e_test(webhook, second)]
async fn the_namespace_of_pod_affinity_can_be_deleted_and_installed_again() {
    let bed = whole(3).await;
    assert!(PROCESSES.iter().all(|part| bed.pid(*part).is_some()));

    bed.remove_namespace(NAMESPACE).await.unwrap();
    until_gone(&bed).await;
    bed.until("our processes to end", SOON, async || {
        let left: Vec<_> = PROCESSES
            .iter()
            .filter(|part| bed.pid(**part).is_some())
            .collect();
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await
    .unwrap();
    until_webhooks_are_removed(&bed).await;
    for run in [
        RunSpec::diamond("default", "unlabelled"),
        RunSpec::diamond("default", "late").opted_in("true"),
    ] {
        create(&bed, &run).await;
        bed.until_succeeded(&run, SOON).await.unwrap();
    }

    bed.install_pod_affinity().await.unwrap();
    until_healthy(&bed).await;
    let labelled = RunSpec::diamond("default", "labelled").opted_in("true");
    assert_eq!(nodes_after(&bed, &labelled).await.len(), 1);
}

/// Waits until the webhook configurations are deleted: without their webhooks, they would reject each labelled run.
async fn until_webhooks_are_removed(bed: &Testbed) {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(bed.client().await.unwrap());
    bed.until("our webhook configurations to be gone", SOON, async || {
        for name in [install::PIPELINE_RUN_WEBHOOK, install::POD_WEBHOOK] {
            match configurations.get_opt(name).await {
                Ok(None) => {}
                Ok(Some(_)) => return Err(format!("{name} exists")),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

async fn until_gone(bed: &Testbed) {
    let namespaces: Api<Namespace> = Api::all(bed.client().await.unwrap());
    bed.until("our namespace to be gone", SOON, async || {
        match namespaces.get_opt(NAMESPACE).await {
            Ok(None) => Ok(()),
            Ok(Some(namespace)) => Err(format!("{:?}", namespace.status)),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
    .unwrap();
}

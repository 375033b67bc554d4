//! Tools that apply on the server find no difference after the controller has written its fields: the data of the Secret, caBundle
//! and the owner of the webhook configurations, which Argo CD would not delete with an owner. Argo CD itself is not run. Of Flux, the
//! library is run with which its controllers apply.

use crate::support::helm::chart;
use crate::support::install::until_owned;
use crate::support::kubectl::{call, file, kubectl, printed};
use crate::support::pool;
use crate::support::ship_program::released;
use serde_json::{Value, json};
use testbed::product::NAMESPACE;
use testbed::{Helm, Testbed};

/// The objects of the chart with the webhook, without hooks.
async fn objects() -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let chart = chart(Helm::V3, &released(folder.path(), "v1.0.0"), "1.0.0").await;
    chart.objects(&json!({"admission": "webhook"}))
}

/// Installs the objects with `apply`, which gets a file, and returns the file when the controller has written `caBundle`.
async fn installed(bed: &Testbed, objects: Vec<Value>, apply: impl Fn(&str)) -> String {
    kubectl(bed, &["create", "namespace", NAMESPACE]);
    let mut list = String::new();
    let install = bed.install(objects, &[], async |objects| {
        list = file(bed, "objects", &objects);
        apply(&list);
        Ok(())
    });
    install.await.unwrap();
    list
}

#[e2e_test(nightly, webhook)]
async fn the_server_side_diff_of_argo_cd_is_empty_with_a_tracking_annotation_and_label() {
    let tracked = [
        (
            "annotations",
            "argocd.argoproj.io/tracking-id",
            "pod-affinity:apps/Deployment:x/y",
        ),
        ("labels", "app.kubernetes.io/instance", "pod-affinity"),
    ];
    for (field, key, value) in tracked {
        let bed = pool::bare().await;
        let mut objects = objects().await;
        for object in &mut objects {
            object["metadata"][field][key] = json!(value);
        }
        let arguments = ["--server-side", "--field-manager=argocd-controller", "--filename"];
        let list = installed(&bed, objects, |list| {
            let apply = [&["apply"], &arguments[..], &[list]].concat();
            kubectl(&bed, &apply);
        });
        let list = list.await;
        if field == "labels" {
            until_owned(&bed, &bed.client().await.unwrap()).await;
        }
        let diff = [&["diff"], &arguments[..], &[list.as_str()]].concat();
        assert_eq!(kubectl(&bed, &diff), "", "{key}");
        let owners = "--output=jsonpath={.items[*].metadata.ownerReferences}";
        let owners = kubectl(&bed, &["get", "mutatingwebhookconfigurations", owners]);
        assert_eq!(owners.contains(NAMESPACE), field == "labels", "{owners}");
    }
}

#[e2e_test(nightly, webhook)]
async fn a_second_apply_by_flux_changes_nothing() {
    let bed = pool::bare().await;
    let flux = testbed::flux().await.unwrap();
    let flux = |list: &str| printed(&call(&bed, flux.to_str().unwrap(), &[list]));
    let objects = objects().await;
    let count = objects.len();
    let all = |printed: &str, action: &str| printed.lines().filter(|line| line.starts_with(action)).count();
    let list = installed(&bed, objects, |list| {
        assert_eq!(all(&flux(list), "created "), count);
    });
    let list = list.await;
    until_owned(&bed, &bed.client().await.unwrap()).await;
    let again = flux(&list);
    assert_eq!(all(&again, "unchanged "), count, "{again}");
}

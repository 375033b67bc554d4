//! Prepares a run: a namespace with its limits, nodes of its own, a volume; and creates the run.

use super::cluster::LISTENER;
use super::condition::Condition;
use super::manifest::{OWNER, pvc};
use super::pair::{Pair, Storage, Variant};
use super::place::{Place, ZONE, only_where, tainted};
use crate::support::SOON;
use crate::support::fake_csi::DRIVER;
use crate::support::fake_csi::add_attaching_nodes;
use crate::support::objects::{forbid_cross_namespace_terms, quota};
use crate::support::pvcs::create_pvc_of;
use crate::support::runs::create;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use placement::keys;
use serde_json::{Value, json};
use testbed::runs::{self, OPT_IN, RunSpec, State};
use testbed::{Testbed, apply};

pub(super) async fn prepare(bed: &Testbed, pair: &Pair, variant: Variant) {
    if pair.condition.has_namespace() {
        let namespace = bed.namespace(&pair.namespace(variant)).await.unwrap();
        limit(bed, pair, &namespace).await;
    }
    if pair.own_nodes() > 0 {
        add_nodes(bed, pair, &pair.name(variant)).await;
    }
    if pair.condition == Condition::MadeByATrigger {
        let account = listener(&pair.name(variant));
        let client = bed.client().await.unwrap();
        apply::apply_all(&client, &account).await.unwrap();
    }
    for (number, storage) in pair.volumes() {
        add_pvc(bed, pair, storage, (&pair.name(variant), number)).await;
    }
}

async fn limit(bed: &Testbed, pair: &Pair, namespace: &str) {
    match pair.condition {
        Condition::QuotaOfPods(most) => drop(quota(bed, namespace, "pods", &most.to_string()).await),
        Condition::Crowd => drop(quota(bed, namespace, "pods", &pair.condition.crowd().to_string()).await),
        Condition::QuotaOfSets => {
            let most = if pair.storage == Storage::None {
                1
            } else {
                pair.condition.crowd()
            };
            quota(bed, namespace, "count/statefulsets.apps", &most.to_string()).await;
        }
        Condition::QuotaOfTerms => forbid_cross_namespace_terms(bed, namespace).await,
        // With this quota each container needs a request. The quota has room for two tasks, or for one task and a
        // placeholder.
        Condition::QuotaOfCpu => {
            limit_range(bed, namespace, json!({"defaultRequest": {"cpu": "100m"}})).await;
            quota(bed, namespace, "requests.cpu", "240m").await;
        }
        Condition::Limits => {
            let limit = json!({
                "min": {"cpu": "1m", "memory": "1Mi"},
                "defaultRequest": {"cpu": "500m", "memory": "128Mi"},
                "default": {"cpu": "1", "memory": "256Mi"},
            });
            limit_range(bed, namespace, limit).await;
        }
        Condition::LimitsAbove => {
            let limit = json!({
                "min": {"cpu": "200m", "memory": "200Mi"},
                "defaultRequest": {"cpu": "250m", "memory": "256Mi"},
                "default": {"cpu": "1", "memory": "512Mi"},
            });
            limit_range(bed, namespace, limit).await;
        }
        _ => {}
    }
}

async fn limit_range(bed: &Testbed, namespace: &str, mut limit: Value) {
    limit["type"] = json!("Container");
    let range = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"namespace": namespace, "name": "limits"},
        "spec": {"limits": [limit]},
    });
    apply::apply(&bed.client().await.unwrap(), &range).await.unwrap();
}

/// Adds nodes like those of the pair's place, with a taint that only the pair tolerates.
async fn add_nodes(bed: &Testbed, pair: &Pair, name: &str) {
    let nodes = pair.place.nodes(name, pair.own_nodes()).label(OWNER, name);
    add_attaching_nodes(bed, &tainted(nodes, name, None)).await;
}

pub(super) fn own_nodes(pair: &Pair, variant: Variant) -> Vec<String> {
    let all = 0..pair.own_nodes();
    all.map(|number| format!("{}-{number}", pair.name(variant)))
        .collect()
}

fn listener(name: &str) -> [Value; 2] {
    let metadata = json!({"namespace": "default", "name": name});
    let account = json!({"kind": "ServiceAccount", "namespace": "default", "name": name});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": LISTENER});
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "subjects": [account], "roleRef": role,
        }),
    ]
}

async fn add_pvc(bed: &Testbed, pair: &Pair, storage: Storage, (run, number): (&str, usize)) {
    let name = pvc(run, number);
    let in_zone = |zone| json!({"csi": {"driver": DRIVER, "volumeHandle": name}, "nodeAffinity": only_where(ZONE, zone)});
    let volume = match storage {
        Storage::InZone => in_zone(pair.place.zone()),
        Storage::InOtherZone => in_zone(Place::Zone.zone()),
        Storage::OnOneNode => json!({
            "local": {"path": "/tmp"},
            "nodeAffinity": only_where(keys::HOSTNAME, &format!("{run}-{number}")),
        }),
        Storage::None | Storage::Immediate | Storage::WithTheFirstPod => return,
    };
    create_pvc_of(bed, &name, volume).await;
}

/// Creates the run as the pair requires: directly, by a trigger, or from a Pipeline.
pub(super) async fn begin(bed: &Testbed, pair: &Pair, variant: Variant, run: &mut RunSpec) -> DynamicObject {
    match pair.condition {
        Condition::MadeByATrigger => by_trigger(bed, &pair.name(variant), run).await,
        Condition::LabelledByPipeline => {
            by_pipeline(bed, run, variant).await;
            create(bed, run).await
        }
        Condition::LabelledByNamespace if variant == Variant::Labelled => {
            label_namespace(bed, pair.strategy, run).await;
            create(bed, run).await
        }
        _ => create(bed, run).await,
    }
}

async fn by_trigger(bed: &Testbed, account: &str, run: &mut RunSpec) -> DynamicObject {
    let prefix = format!("{}-", run.name());
    let metadata = run.manifest["metadata"].as_object_mut().unwrap();
    metadata.remove("name");
    metadata.insert("generateName".to_owned(), json!(prefix));
    let client = bed.client_of("default", account).await.unwrap();
    // The API server applies new rights of the account after a moment.
    let created = bed.until("an EventListener to create a run", SOON, async || {
        run.create(&client).await.map_err(|error| error.to_string())
    });
    let created = created.await.unwrap();
    run.manifest["metadata"]["name"] = json!(created.name_any());
    created
}

/// Tekton copies the labels of a Pipeline to its runs.
async fn by_pipeline(bed: &Testbed, run: &mut RunSpec, variant: Variant) {
    let mut pipeline = json!({
        "apiVersion": "tekton.dev/v1", "kind": "Pipeline",
        "metadata": {"namespace": run.namespace(), "name": run.name(), "labels": {}},
        "spec": run.manifest["spec"]["pipelineSpec"].take(),
    });
    if variant == Variant::Labelled {
        pipeline["metadata"]["labels"][OPT_IN] = json!("true");
    }
    apply::apply(&bed.client().await.unwrap(), &pipeline)
        .await
        .unwrap();
    let name = json!({"name": run.name()});
    let spec = run.manifest["spec"].as_object_mut().unwrap();
    spec.remove("pipelineSpec");
    spec.insert("pipelineRef".to_owned(), name);
}

/// Labels the namespace, and waits until API servers apply the label.
async fn label_namespace(bed: &Testbed, value: &str, run: &RunSpec) {
    let client = bed.client().await.unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let label = Patch::Merge(json!({"metadata": {"labels": {OPT_IN: value}}}));
    namespaces
        .patch(run.namespace(), &PatchParams::default(), &label)
        .await
        .unwrap();
    let trial = serde_json::from_value(run.manifest.clone()).unwrap();
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    bed.until("the label of a Namespace to apply", SOON, async || {
        let tried = runs::runs(&client, run.namespace())
            .create(&dry_run, &trial)
            .await;
        match tried.map_err(|error| error.to_string())? {
            run if runs::state(&run) == State::Pending => Ok(()),
            run => Err(format!("{:?}", run.labels())),
        }
    })
    .await
    .unwrap();
}

//! An attacker who may only create PipelineRuns in one namespace, and the effects on a run in another namespace. SECURITY.md
//! lists every effect that is possible here.

use crate::support::SOON;
use crate::support::events::{notes, until_event};
use crate::support::placeholders::{bound_placeholder, is_unschedulable};
use crate::support::runs::{create, nodes_of};
use crate::support::testbeds::SharedTestbed;
use crate::support::testbeds::installed;
use kube::api::{DeleteParams, DynamicObject};
use kube::{Client, ResourceExt};
use placement::keys;
use serde_json::{Value, json};
use std::collections::BTreeSet;

use testbed::Testbed;
use testbed::apply;
use testbed::runs::{self, RunSpec, State};

/// Much longer than any of these tests, which delete their runs.
const LONG: &str = "10m";

/// A client that may create and read PipelineRuns in this namespace only.
async fn forger(bed: &Testbed, namespace: &str) -> Client {
    let admin = bed.client().await.unwrap();
    let metadata = json!({"name": "forger", "namespace": namespace});
    let rules =
        json!([{"apiGroups": ["tekton.dev"], "resources": ["pipelineruns"], "verbs": ["create", "get"]}]);
    let rbac = "rbac.authorization.k8s.io";
    let objects = [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "forger"},
            "subjects": [{"kind": "ServiceAccount", "name": "forger", "namespace": namespace}],
        }),
    ];
    for object in &objects {
        apply::apply(&admin, object).await.unwrap();
    }
    bed.client_of(namespace, "forger").await.unwrap()
}

/// A run with a node, and an attacker who knows all details of the run.
struct Scene {
    bed: SharedTestbed,
    client: Client,
    run: RunSpec,
    uid: String,
    node: String,
    forger: Client,
    elsewhere: String,
}

impl Scene {
    async fn begin(name: &str, run: impl FnOnce(RunSpec) -> RunSpec) -> Self {
        let bed = installed().await;
        let namespace = bed.namespace(&format!("{name}-victim")).await.unwrap();
        let elsewhere = bed.namespace(&format!("{name}-forger")).await.unwrap();
        let run = run(RunSpec::new(&namespace, "victim")
            .task("only", &[])
            .opted_in("true")
            .lasting(LONG));
        let created = create(&bed, &run).await;
        let placeholder = bound_placeholder(&bed, &created).await;
        let scene = Self {
            client: bed.client().await.unwrap(),
            uid: created.uid().unwrap(),
            node: runs::node(&placeholder).unwrap().to_owned(),
            forger: forger(&bed, &elsewhere).await,
            bed,
            run,
            elsewhere,
        };
        scene.until_pods(&scene.run, true).await;
        scene
    }

    fn forged(&self, name: &str) -> RunSpec {
        RunSpec::new(&self.elsewhere, name)
            .task("only", &[])
            .lasting(LONG)
    }

    /// Adds the labels and annotations of the victim's run.
    fn marked(&self, run: RunSpec) -> RunSpec {
        run.label(keys::GROUP, &self.uid)
            .label(keys::STRATEGY, "colocateAlways")
            .label(keys::ISOLATION, "namespace-enrolled")
            .annotation(keys::NODE, &self.node)
    }

    fn node_template(&self) -> Value {
        json!({"podTemplate": {"nodeSelector": {keys::HOSTNAME: self.node}}})
    }

    async fn create(&self, run: &RunSpec) -> DynamicObject {
        run.create(&self.forger).await.unwrap()
    }

    /// Waits until the pod of a run's only task is bound, or is waiting for a node.
    async fn until_pods(&self, run: &RunSpec, bound: bool) -> BTreeSet<String> {
        self.bed
            .until(
                format!("the pod of {}, bound: {bound}", run.name()),
                SOON,
                async || {
                    let pods = runs::pods(&self.client, run.namespace(), run.name())
                        .await
                        .map_err(|error| error.to_string())?;
                    let arrived = |pod| {
                        if bound {
                            runs::node(pod).is_some()
                        } else {
                            is_unschedulable(pod)
                        }
                    };
                    if pods.iter().any(arrived) {
                        Ok(runs::nodes(&pods))
                    } else {
                        Err(format!("{} pods", pods.len()))
                    }
                },
            )
            .await
            .unwrap()
    }

    /// Checks that the victim's run is running on the same node, without events after its start.
    async fn is_undisturbed(&self) {
        let run = runs::runs(&self.client, self.run.namespace())
            .get(self.run.name())
            .await
            .unwrap();
        assert_eq!(runs::state(&run), State::Running);
        assert_eq!(run.annotations().get(keys::NODE), Some(&self.node));
        assert_eq!(
            nodes_of(&self.bed, &self.run).await,
            BTreeSet::from([self.node.clone()])
        );
        let reported: BTreeSet<_> = notes(&self.client, &self.run)
            .await
            .into_iter()
            .map(|(reason, _)| reason)
            .collect();
        assert!(
            !reported.contains("MovedOff") && !reported.contains("Preempted"),
            "{reported:?}"
        );
    }

    async fn end(self) {
        for namespace in [self.run.namespace(), &self.elsewhere] {
            let runs = runs::runs(&self.client, namespace);
            runs.delete_collection(&DeleteParams::default(), &kube::api::ListParams::default())
                .await
                .unwrap();
        }
    }
}

/// Sets labels and a pod template for the only task.
fn of_the_task(run: RunSpec, labels: &Value, template: &Value) -> RunSpec {
    let spec = json!([{"pipelineTaskName": "only", "metadata": {"labels": labels}, "podTemplate": template}]);
    run.spec("taskRunSpecs", spec)
}

#[e2e_test]
async fn a_run_with_the_labels_and_annotations_of_another_run_shares_neither_its_node_nor_its_hold() {
    let scene = Scene::begin("marks", |run| run).await;
    let labelled = scene.marked(scene.forged("labelled").opted_in("true"));
    let stray = scene.marked(scene.forged("stray"));
    let held = scene
        .marked(
            scene
                .forged("held")
                .opted_in("true")
                .annotation(keys::HOLD, "true"),
        )
        .spec("status", json!(keys::PENDING));
    for run in [&labelled, &stray, &held] {
        let created = scene.create(run).await;
        assert_eq!(created.labels().get(keys::GROUP), None, "{}", run.name());
        assert!(
            !scene.until_pods(run, true).await.contains(&scene.node),
            "{}",
            run.name()
        );
    }
    let elsewhere = scene
        .marked(scene.forged("managed").opted_in("true"))
        .spec("managedBy", json!("example.com/other"));
    assert_eq!(scene.create(&elsewhere).await.labels().get(keys::GROUP), None);
    scene.is_undisturbed().await;
    scene.end().await;
}

#[e2e_test]
async fn a_run_that_requests_the_node_of_another_run_waits_and_so_does_one_that_requests_too_much() {
    let scene = Scene::begin("asks", |run| run).await;
    let unlabelled = scene
        .forged("unlabelled")
        .spec("taskRunTemplate", scene.node_template());
    let labelled = scene
        .forged("labelled")
        .opted_in("true")
        .spec("taskRunTemplate", scene.node_template());
    let greedy = scene
        .forged("greedy")
        .opted_in("isolateAlways")
        .annotation(keys::RESERVE, "cpu=900");
    for run in [&unlabelled, &labelled, &greedy] {
        scene.create(run).await;
    }
    scene.until_pods(&unlabelled, false).await;
    for run in [&labelled, &greedy] {
        until_event(&scene.bed, run, "WaitingForNode").await;
        assert!(nodes_of(&scene.bed, run).await.is_empty());
    }
    scene.is_undisturbed().await;
    scene.end().await;
}

/// The limit of the isolation, which depends on labels of pods: Tekton copies the labels of a task to its pod, and no webhook
/// for runs sees them.
#[e2e_test]
async fn a_user_who_knows_the_uid_and_node_of_a_run_can_place_a_task_there_from_another_namespace() {
    let scene = Scene::begin("task-labels", |run| run).await;
    let labels = json!({keys::GROUP: scene.uid, keys::STRATEGY: "colocateAlways"});
    let beside = of_the_task(
        scene.forged("beside"),
        &labels,
        &scene.node_template()["podTemplate"],
    );
    scene.create(&beside).await;
    assert_eq!(
        scene.until_pods(&beside, true).await,
        BTreeSet::from([scene.node.clone()])
    );
    scene.is_undisturbed().await;
    scene.end().await;
}

/// The run's own task opted out, so only the placeholder keeps the run on its node.
#[e2e_test]
async fn a_run_leaves_its_node_for_forged_pods_of_its_own_namespace_and_not_of_another() {
    let idle = |run| of_the_task(run, &json!({keys::OPT_IN: "false"}), &json!({}));
    let scene = Scene::begin("lets-go", idle).await;
    let (labels, nowhere) = (
        json!({keys::GROUP: scene.uid}),
        json!({"nodeSelector": {"no": "where"}}),
    );
    let outsider = of_the_task(scene.forged("outsider"), &labels, &nowhere);
    scene.create(&outsider).await;
    scene.until_pods(&outsider, false).await;
    let insider = RunSpec::new(scene.run.namespace(), "insider").task("only", &[]);
    create(&scene.bed, &of_the_task(insider, &labels, &nowhere)).await;
    // The outsider waits longer: if pods of other namespaces counted, the run would move because of the outsider.
    let note = until_event(&scene.bed, &scene.run, "MovedOff").await;
    assert!(
        note.contains("insider-only-pod") && !note.contains("outsider"),
        "{note}"
    );
    scene.end().await;
}

/// At creation, no component can verify the owner of a nested run. The garbage collector deletes a run whose owner is in
/// another namespace.
#[e2e_test]
async fn a_forged_child_of_a_run_in_another_namespace_keeps_the_group_and_is_collected_at_once() {
    let scene = Scene::begin("child", |run| run).await;
    let mut child = scene.marked(scene.forged("child").opted_in("true"));
    child.manifest["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "victim", "uid": scene.uid, "controller": true,
    }]);
    assert_eq!(
        scene.create(&child).await.labels().get(keys::GROUP),
        Some(&scene.uid)
    );
    let runs = runs::runs(&scene.client, &scene.elsewhere);
    scene
        .bed
        .until("the forged child to be gone", SOON, async || {
            match runs.get_opt("child").await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
    scene.is_undisturbed().await;
    scene.end().await;
}

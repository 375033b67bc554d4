//! Whether the cluster accepts a placeholder, by a dry run. A platform or an admission policy can reject the placeholder, or change its
//! pod so that the pods of a run cannot share its node.

use super::finding::{Check, Finding};
use super::trial::{NAME, required_terms};
use crate::requests::{RequestError, RequestResult, Server};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use placement::config::Config;
use placement::image_pull::Images;
use placement::resources::Resources;
use placement::strategy::{Enrolment, Isolation, Strategy};
use placement::{keys, placeholder};
use serde_json::json;
use std::collections::BTreeMap;
use tokio::join;

const PLACEHOLDER: Check = Check("placeholder");
/// The beginning of the names of the policies of the component reserved-label.
const RESERVED_LABEL: &str = "reserved-label-of-";
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The answers to the dry runs of a placeholder.
#[derive(Clone, Debug)]
pub(crate) struct PlaceholderTrial {
    pub(crate) namespace: String,
    pub(crate) statefulset: RequestResult<StatefulSet>,
    /// The pod as pod-affinity specifies the pod.
    pub(crate) wanted: Pod,
    /// The pod as the API server would store the pod.
    pub(crate) pod: RequestResult<Pod>,
}

/// Creates a placeholder with this configuration as a dry run.
pub(super) async fn read(server: &Server, namespace: String, config: &Config) -> PlaceholderTrial {
    let (wanted, statefulset) = specified(&namespace, config);
    let (sets, pods) = (server.within(&namespace), server.within(&namespace));
    let (statefulset, pod) = join!(sets.dry_create(&statefulset), pods.dry_create(&wanted));
    PlaceholderTrial {
        namespace,
        statefulset,
        wanted,
        pod,
    }
}

/// The placeholder of a labelled run, and its pod as the StatefulSet controller creates the pod.
fn specified(namespace: &str, config: &Config) -> (Pod, StatefulSet) {
    let run = json!({
        "metadata": {"name": NAME, "namespace": namespace, "uid": NAME, "labels": {keys::OPT_IN: "true"}},
        "spec": {}, "status": {},
    });
    let run = serde_json::from_value::<tekton::PipelineRun>(run).ok();
    let enrolment = Enrolment {
        strategy: Strategy::default(),
        isolation: Isolation::default(),
    };
    let image = "pod-affinity.invalid/placeholder";
    let run = run.and_then(|run| run.run());
    let (labels, images) = (BTreeMap::new(), Images::default());
    let set = run.map(|run| placeholder::stateful_set(&run, enrolment, &labels, &images, config, image));
    let set = set.unwrap_or_default();
    let template = set.spec.clone().unwrap_or_default().template;
    let metadata = ObjectMeta {
        generate_name: Some(format!("{NAME}-")),
        ..template.metadata.unwrap_or_default()
    };
    let pod = Pod {
        metadata,
        spec: template.spec,
        status: None,
    };
    (pod, set)
}

/// The findings on a placeholder.
pub(super) fn findings(trial: &PlaceholderTrial) -> Vec<Finding> {
    let namespace = &trial.namespace;
    let stored = trial.statefulset.as_ref().and(trial.pod.as_ref());
    let changes = match stored {
        Ok(pod) => changes(&trial.wanted, pod),
        Err(RequestError::Failed(_, message)) if message.contains(RESERVED_LABEL) => {
            vec![PLACEHOLDER.ok("Not checked: the component reserved-label allows placeholders only to the controller.")]
        }
        Err(RequestError::Failed(_, message)) => vec![PLACEHOLDER.bad(
            format!("The API server rejects a placeholder (dry run in namespace {namespace}): {message}"),
            format!(
                "Exempt the StatefulSets that the account {}:pod-affinity-controller creates, and their pods, from the policy that the \
                 message names. The dry run is of your account: if only your account may not create the placeholder, ignore this.",
                keys::NAMESPACE
            ),
        )],
        Err(error) => vec![PLACEHOLDER.unread(error)],
    };
    let well = format!("The API server accepts a placeholder as it is (dry run in namespace {namespace}).");
    PLACEHOLDER.or_ok(changes, well)
}

/// The changes of the pod that have a consequence for runs.
fn changes(wanted: &Pod, stored: &Pod) -> Vec<Finding> {
    let [want, have] = [wanted, stored].map(|pod| pod.spec.clone().unwrap_or_default());
    let changes = [
        scheduler(&want, &have),
        terms(&want, &have),
        requests(&want, &have),
        annotations(wanted, stored),
    ];
    changes.into_iter().flatten().collect()
}

/// On Fargate, an admission webhook sets the scheduler, and each pod gets a node of its own.
fn scheduler(wanted: &PodSpec, stored: &PodSpec) -> Option<Finding> {
    let named = |spec: &PodSpec| {
        spec.scheduler_name
            .clone()
            .unwrap_or_else(|| DEFAULT_SCHEDULER.to_owned())
    };
    let (wanted, stored) = (named(wanted), named(stored));
    (wanted != stored).then(|| {
        PLACEHOLDER.bad(
            format!("Admission changes the scheduler of a placeholder from {wanted} to {stored}."),
            "Use pod-affinity in namespaces whose pods the default scheduler binds: on Fargate, each pod has a node of its own.",
        )
    })
}

fn terms(wanted: &PodSpec, stored: &PodSpec) -> Option<Finding> {
    let [wanted, stored] = [wanted, stored].map(|spec| required_terms(Some(spec)));
    let is_kept = |(wanted, stored): (&Vec<_>, &Vec<_>)| wanted.iter().all(|term| stored.contains(term));
    let is_kept = wanted.iter().zip(&stored).all(is_kept);
    (!is_kept).then(|| {
        PLACEHOLDER.bad(
            "Admission removes or changes the required affinity terms of a placeholder, so that other runs can use its node.",
            format!("Exempt pods with the label {} from the policy.", keys::GROUP),
        )
    })
}

fn requests(wanted: &PodSpec, stored: &PodSpec) -> Option<Finding> {
    let (wanted, stored) = (Resources::from_pod_spec(wanted), Resources::from_pod_spec(stored));
    stored.beyond(&wanted).next()?;
    Some(PLACEHOLDER.warning(
        format!("Admission raises the requests of a placeholder from {wanted} to {stored}: each labelled run costs as much."),
        "Exempt placeholders from the policy, or accept the cost. GKE Autopilot has such minimum requests.",
    ))
}

fn annotations(wanted: &Pod, stored: &Pod) -> Option<Finding> {
    let is_lost = |key: &&String| !stored.annotations().contains_key(*key);
    let lost = wanted.annotations().keys().find(is_lost)?;
    Some(PLACEHOLDER.warning(
        format!("Admission removes the annotation {lost} of a placeholder: an autoscaler can remove the node of a run."),
        "Exempt placeholders from the policy.",
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::doctor::Level;
    use crate::doctor::tests::failed;
    use crate::fixture::forbidden;

    pub(in crate::doctor) fn trial(change: impl Fn(&mut Pod)) -> PlaceholderTrial {
        let (wanted, statefulset) = specified("default", &Config::default());
        let mut pod = wanted.clone();
        pod.spec.as_mut().unwrap().scheduler_name = Some(DEFAULT_SCHEDULER.into());
        change(&mut pod);
        PlaceholderTrial {
            namespace: "default".into(),
            statefulset: Ok(statefulset),
            wanted,
            pod: Ok(pod),
        }
    }

    fn only(trial: &PlaceholderTrial) -> (Level, String) {
        let [finding] = <[_; 1]>::try_from(findings(trial)).unwrap();
        (finding.level, finding.sentence)
    }

    #[test]
    fn the_placeholder_is_of_the_namespace_of_the_dry_run() {
        let (pod, set) = specified("ci", &Config::default());
        assert_eq!((set.namespace().as_deref(), pod.namespace()), (Some("ci"), None));
    }

    #[test]
    fn an_unchanged_placeholder_is_good() {
        let (level, sentence) = only(&trial(|_| {}));
        assert_eq!(level, Level::Ok);
        assert!(sentence.contains("accepts a placeholder as it is"), "{sentence}");
    }

    #[test]
    fn another_scheduler_and_lost_terms_are_bad() {
        let (level, sentence) = only(&trial(|pod| {
            pod.spec.as_mut().unwrap().scheduler_name = Some("fargate-scheduler".into());
        }));
        assert_eq!(level, Level::Bad);
        assert!(
            sentence.contains("from default-scheduler to fargate-scheduler"),
            "{sentence}"
        );
        let (level, sentence) = only(&trial(|pod| {
            let affinity = pod.spec.as_mut().unwrap().affinity.as_mut().unwrap();
            affinity.pod_anti_affinity = None;
        }));
        assert_eq!(level, Level::Bad);
        assert!(sentence.contains("required affinity terms"), "{sentence}");
    }

    #[test]
    fn raised_requests_and_lost_annotations_are_warnings() {
        let (level, sentence) = only(&trial(|pod| {
            let container = &mut pod.spec.as_mut().unwrap().containers[0];
            let requests = container.resources.as_mut().unwrap().requests.as_mut().unwrap();
            requests.get_mut("cpu").unwrap().0 = "500m".into();
        }));
        assert_eq!(level, Level::Warning);
        assert!(
            sentence.contains("cpu=50m, memory=100Mi to cpu=500m, memory=100Mi"),
            "{sentence}"
        );
        let (level, sentence) = only(&trial(|pod| {
            pod.annotations_mut().remove(keys::SAFE_TO_EVICT);
        }));
        assert_eq!(level, Level::Warning);
        assert!(sentence.contains(keys::SAFE_TO_EVICT), "{sentence}");
    }

    #[test]
    fn the_component_reserved_label_rejects_only_the_dry_run() {
        let denial = "ValidatingAdmissionPolicy 'reserved-label-of-pods.pod-affinity.tekton.dev' with binding ... denied request";
        let (level, sentence) = only(&PlaceholderTrial {
            pod: Err(failed(denial)),
            ..trial(|_| {})
        });
        assert_eq!(level, Level::Ok);
        assert!(sentence.starts_with("Not checked"), "{sentence}");
    }

    #[test]
    fn a_rejected_statefulset_or_pod_is_bad_and_a_missing_right_is_not() {
        let rejected = || failed("denied by autopilot");
        let sets = PlaceholderTrial {
            statefulset: Err(rejected()),
            ..trial(|_| {})
        };
        let pods = PlaceholderTrial {
            pod: Err(rejected()),
            ..trial(|_| {})
        };
        for (level, sentence) in [only(&sets), only(&pods)] {
            assert_eq!(level, Level::Bad);
            assert!(sentence.ends_with("denied by autopilot"), "{sentence}");
        }
        let unknown = PlaceholderTrial {
            pod: Err(forbidden("create", "pods")),
            ..trial(|_| {})
        };
        assert_eq!(only(&unknown).0, Level::Warning);
    }
}

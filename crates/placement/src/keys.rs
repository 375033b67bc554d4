//! Every label, annotation and object name that pod-affinity writes or reads: their one home.

/// Opt-in label on a PipelineRun; with the value `false` on a TaskRun or pod, the opt-out of one task. On a Namespace, the
/// label that its PipelineRuns get when they are created without one.
pub const OPT_IN: &str = "tekton.dev/custom-pod-affinity";

/// Prefix of the keys that only pod-affinity writes.
pub const OWN_PREFIX: &str = "pod-affinity.tekton.dev/";
/// Label: UID of the run whose node this object belongs to. On the run, its TaskRuns, pods and placeholder.
pub const GROUP: &str = "pod-affinity.tekton.dev/group";
/// Label: the resolved strategy of an enrolled run.
pub const STRATEGY: &str = "pod-affinity.tekton.dev/strategy";
/// Label: whom an enrolled run keeps away from, so that its pods tell it without a look at any configuration.
pub const ISOLATION: &str = "pod-affinity.tekton.dev/isolation";
/// Annotation: the Pending of this run is ours, so we may clear it.
pub const HOLD: &str = "pod-affinity.tekton.dev/hold";
/// Annotation on a run that did not come with the opt-in label: where it got the label.
pub const OPTED_IN_BY: &str = "pod-affinity.tekton.dev/opted-in-by";
/// Value of [`OPTED_IN_BY`].
pub const BY_NAMESPACE: &str = "namespace";
/// Annotation: the node where the run is.
pub const NODE: &str = "pod-affinity.tekton.dev/node";
/// Annotation, written by the user on a run: what its node must have room for when it is chosen. On a placeholder's
/// pod, written by us: it was made that big.
pub const RESERVE: &str = "pod-affinity.tekton.dev/reserve";
/// Annotation on a run that succeeded: the most that its tasks asked for at the same time on a node.
pub const USED: &str = "pod-affinity.tekton.dev/used";
/// Annotation on a placeholder's pod, and in its StatefulSet's template: the node that it is bound to come back to;
/// empty: none.
pub const PINNED: &str = "pod-affinity.tekton.dev/pinned";
/// Annotation on a placeholder's pod, and in its StatefulSet's template: it asks for what a `LimitRange` lets in.
pub const WITHIN_LIMITS: &str = "pod-affinity.tekton.dev/within-limits";
/// Annotation in the template of a placeholder's StatefulSet: the node that its run gave up last.
pub const LEFT: &str = "pod-affinity.tekton.dev/left";
/// Annotation on a placeholder's StatefulSet: when its controller was last asked to try again.
pub const NUDGED: &str = "pod-affinity.tekton.dev/nudged";
/// Label on a TaskRun whose pod a quota refused: the refusal after which room was made, so that Tekton tries again.
pub const RETRIED: &str = "pod-affinity.tekton.dev/retried";
/// Label on a placeholder's pod, and in its StatefulSet's selector, for as long as that is to look after the pod.
pub const KEPT_BY: &str = "pod-affinity.tekton.dev/kept-by";
/// Value of [`KEPT_BY`].
pub const STATEFUL_SET: &str = "statefulset";
/// Label on a task's pod that waited while its run had no placeholder: what it was last brought to the scheduler's notice for.
pub const WOKEN: &str = "pod-affinity.tekton.dev/woken";

/// Annotation on a task's pod: it came with a required podAffinity of others, which the webhook made preferred.
pub const RELAXED: &str = "pod-affinity.tekton.dev/relaxed";

/// Label that Tekton puts on every pod of a run; the value is the run's name.
pub const TEKTON_PIPELINE_RUN: &str = "tekton.dev/pipelineRun";
/// On pods of a run: its UID.
pub const TEKTON_PIPELINE_RUN_UID: &str = "tekton.dev/pipelineRunUID";
/// Label of a run that Kueue queues: its hold is Kueue's to clear.
pub const KUEUE_QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// `spec.managedBy` of a run that Tekton itself runs.
pub const TEKTON_MANAGER: &str = "tekton.dev/pipeline";
/// `spec.status` of a run that waits.
pub const PENDING: &str = "PipelineRunPending";

/// Topology key of both terms.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Well-known label that tells a placeholder from its run's other pods.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// Value of [`COMPONENT`] on placeholders.
pub const PLACEHOLDER: &str = "placeholder";
/// Value of [`COMPONENT`] on the pods that Tekton makes to keep the tasks of a run with a claim on one node.
pub const ASSISTANT: &str = "affinity-assistant";
/// Well-known label that names the application.
pub const APP: &str = "app.kubernetes.io/name";
/// Value of [`APP`] on everything of ours.
pub const APP_NAME: &str = "pod-affinity";
/// Well-known label that names who manages an object; also our field manager.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Annotation that keeps the cluster autoscaler from draining a pod.
pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// Annotation that keeps Karpenter from disrupting a pod's node.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// Field manager of every write.
pub const FIELD_MANAGER: &str = "pod-affinity";
/// Namespace of the installation.
pub const NAMESPACE: &str = "tekton-pod-affinity";
/// Namespaces in which the label means nothing: no webhook is asked there, so that one which is away keeps neither itself
/// nor the cluster from coming back.
pub const LEFT_OUT: [&str; 2] = ["kube-system", NAMESPACE];
/// Name of the ConfigMap.
pub const CONFIG_MAP: &str = "config-pod-affinity";
/// Name of the PipelineRun webhook and its configuration.
pub const PIPELINE_RUN_WEBHOOK: &str = "pipelinerun.mutation.webhook.pod-affinity.tekton.dev";
/// Name of the pod webhook and its configuration.
pub const POD_WEBHOOK: &str = "pod.mutation.webhook.pod-affinity.tekton.dev";
/// Path that serves the PipelineRun webhook.
pub const PIPELINE_RUN_PATH: &str = "/mutate/pipelineruns";
/// What the paths begin with that serve the PipelineRun webhook for runs that get the label of their Namespace. They end in
/// its value, in lower case.
pub const BY_NAMESPACE_PATH: &str = "/mutate/pipelineruns/by-namespace";
/// Path that serves the pod webhook.
pub const POD_PATH: &str = "/mutate/pods";
/// Service in front of the webhook replicas.
pub const WEBHOOK_SERVICE: &str = "pod-affinity-webhook";
/// Secret with the CA and the webhook's serving certificate.
pub const CERTIFICATE_SECRET: &str = "pod-affinity-webhook-certs";
/// Lease of the controller's leader.
pub const CONTROLLER_LEASE: &str = "pod-affinity-controller";

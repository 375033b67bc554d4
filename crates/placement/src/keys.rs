//! Every label and annotation that pod-affinity reads or writes, and the object names that the rules use.

/// Opt-in label on a PipelineRun. With the value `false` on a TaskRun or pod, it opts one task out. On a Namespace, it
/// is the label that PipelineRuns get if they are created without one.
pub const OPT_IN: &str = "tekton.dev/custom-pod-affinity";

/// Prefix of the keys that only pod-affinity writes.
pub const OWN_PREFIX: &str = "pod-affinity.tekton.dev/";
/// Label: UID of the run whose node this object belongs to. On the run, its TaskRuns, pods and placeholder.
pub const GROUP: &str = "pod-affinity.tekton.dev/group";
/// Label: the resolved strategy of an enrolled run.
pub const STRATEGY: &str = "pod-affinity.tekton.dev/strategy";
/// Label: which other runs an enrolled run keeps off its node. The pod webhook reads this label instead of the
/// configuration.
pub const ISOLATION: &str = "pod-affinity.tekton.dev/isolation";
/// Annotation: pod-affinity set the run Pending, so the controller may start the run.
pub const HOLD: &str = "pod-affinity.tekton.dev/hold";
/// Annotation on a run that got the opt-in label from pod-affinity: the source of the label.
pub const OPTED_IN_BY: &str = "pod-affinity.tekton.dev/opted-in-by";
/// Value of [`OPTED_IN_BY`].
pub const BY_NAMESPACE: &str = "namespace";
/// Annotation on a run: the node of its placeholder.
pub const NODE: &str = "pod-affinity.tekton.dev/node";
/// Annotation that a user writes on a run: the resources that the run's node must have free when it is chosen. On a
/// placeholder's pod: the size with which the pod was created, because of a reserve.
pub const RESERVE: &str = "pod-affinity.tekton.dev/reserve";
/// Annotation on a run that succeeded: the largest amounts that its tasks requested at the same time on one node.
pub const USED: &str = "pod-affinity.tekton.dev/used";
/// Annotation that a user writes on a run: whether the run prefers nodes of earlier runs of the same Pipeline.
pub const WARM: &str = "pod-affinity.tekton.dev/warm";
/// Annotation on a placeholder that prefers nodes of earlier runs: the names of the nodes.
pub const WARM_NODES: &str = "pod-affinity.tekton.dev/warm-nodes";
/// Annotation that a user writes on a run: how long its node is kept after its end.
pub const KEEP_NODE_FOR: &str = "pod-affinity.tekton.dev/keep-node-for";
/// Annotation on the pod that keeps the node of a run that has ended, and on this run: until when.
pub const KEPT_UNTIL: &str = "pod-affinity.tekton.dev/kept-until";
/// Annotation on the pod that keeps a node: namespace and name of the run that has ended.
pub const KEPT_AFTER: &str = "pod-affinity.tekton.dev/kept-after";
/// Annotation on the pod that keeps a node: UID of the run that has ended.
pub const KEPT_AFTER_UID: &str = "pod-affinity.tekton.dev/kept-after-uid";
/// Annotation that a user writes on a run: whether the node of the run pulls the images of the tasks ahead.
pub const PULL_IMAGES: &str = "pod-affinity.tekton.dev/pull-images";
/// Annotation on a placeholder's pod, and in its StatefulSet's template: the only node where the pod may be scheduled;
/// empty if any node is allowed.
pub const PINNED: &str = "pod-affinity.tekton.dev/pinned";
/// Annotation on a placeholder's pod, and in its StatefulSet's template: a `LimitRange` decided the size.
pub const WITHIN_LIMITS: &str = "pod-affinity.tekton.dev/within-limits";
/// Annotation in the template of a placeholder's StatefulSet: the node that the run gave up last.
pub const LEFT: &str = "pod-affinity.tekton.dev/left";
/// Annotation on a placeholder's StatefulSet: the time of the last write that only requeues the StatefulSet at its
/// controller.
pub const NUDGED: &str = "pod-affinity.tekton.dev/nudged";
/// Label on a TaskRun whose pod a ResourceQuota rejected: the rejection after which the placeholder made room. The
/// write requeues the TaskRun at Tekton.
pub const RETRIED: &str = "pod-affinity.tekton.dev/retried";
/// Label on a placeholder's pod, and in its StatefulSet's selector. The label is removed when the run adopts the pod.
pub const KEPT_BY: &str = "pod-affinity.tekton.dev/kept-by";
/// Value of [`KEPT_BY`].
pub const STATEFUL_SET: &str = "statefulset";
/// Label on a task's pod that waited while the run had no placeholder: for which change the scheduler last requeued the
/// pod.
pub const WOKEN: &str = "pod-affinity.tekton.dev/woken";

/// Annotation on a task's pod: the pod was created with a required podAffinity to other pods, and the webhook made the
/// podAffinity preferred.
pub const RELAXED: &str = "pod-affinity.tekton.dev/relaxed";

/// Label that Tekton puts on every pod of a run; the value is the run's name.
pub const TEKTON_PIPELINE_RUN: &str = "tekton.dev/pipelineRun";
/// Label that Tekton puts on every pod of a run; the value is the run's UID.
pub const TEKTON_PIPELINE_RUN_UID: &str = "tekton.dev/pipelineRunUID";
/// Label that Tekton puts on the pod of a task; the value is the name of the TaskRun.
pub const TEKTON_TASK_RUN: &str = "tekton.dev/taskRun";
/// Label of a run that Kueue queues. Kueue, and not pod-affinity, starts such a run.
pub const KUEUE_QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// `spec.managedBy` of a run that belongs to Tekton.
pub const TEKTON_MANAGER: &str = "tekton.dev/pipeline";
/// `spec.status` of a run that Tekton must not start yet.
pub const PENDING: &str = "PipelineRunPending";

/// Topology key of the affinity and of the anti-affinity term.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Well-known label that distinguishes the placeholder from the other pods of its run.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// Value of [`COMPONENT`] on placeholders.
pub const PLACEHOLDER: &str = "placeholder";
/// Value of [`COMPONENT`] on the pods that keep the nodes of runs that have ended.
pub const KEPT_NODE: &str = "kept-node";
/// Value of [`COMPONENT`] on Tekton's affinity assistants, which keep the tasks that share a PVC on one node.
pub const ASSISTANT: &str = "affinity-assistant";
/// Well-known label that names the application.
pub const APP: &str = "app.kubernetes.io/name";
/// Value of [`APP`] on every object of pod-affinity.
pub const APP_NAME: &str = "pod-affinity";
/// Well-known label that names the manager of an object; also the field manager of pod-affinity.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Annotation that keeps the cluster autoscaler from draining a pod.
pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// Annotation that keeps Karpenter from disrupting a pod's node.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// Field manager of every write.
pub const FIELD_MANAGER: &str = "pod-affinity";
/// Namespace of the installation. The rules leave its runs out.
pub const NAMESPACE: &str = "tekton-pod-affinity";
/// Namespaces in which the opt-in label has no effect. The webhooks leave these namespaces out, because an unavailable
/// webhook must not stop the pods of pod-affinity or of the cluster from being recreated.
pub const EXCLUDED_NAMESPACES: [&str; 2] = ["kube-system", NAMESPACE];
/// Path that serves the PipelineRun webhook.
pub const PIPELINE_RUN_PATH: &str = "/mutate/pipelineruns";
/// Prefix of the paths for runs that get the opt-in label of their Namespace. The last part of such a path is the value
/// of the label, in lower case.
pub const BY_NAMESPACE_PATH: &str = "/mutate/pipelineruns/by-namespace";
/// Path that serves the pod webhook.
pub const POD_PATH: &str = "/mutate/pods";

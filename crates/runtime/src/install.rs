//! Names of the objects in config/ that processes read, write or serve.

/// ConfigMap with the configuration.
pub const CONFIG_MAP: &str = "config-pod-affinity";
/// Webhook for PipelineRuns, and its configuration.
pub const PIPELINE_RUN_WEBHOOK: &str = "pipelinerun.mutation.webhook.pod-affinity.tekton.dev";
/// Webhook for pods, and its configuration.
pub const POD_WEBHOOK: &str = "pod.mutation.webhook.pod-affinity.tekton.dev";
/// Service in front of the webhook replicas.
pub const WEBHOOK_SERVICE: &str = "pod-affinity-webhook";
/// Secret with the CA and the webhook's serving certificate.
pub const CERTIFICATE_SECRET: &str = "pod-affinity-webhook-certs";
/// Lease of the controller's leader.
pub const CONTROLLER_LEASE: &str = "pod-affinity-controller";

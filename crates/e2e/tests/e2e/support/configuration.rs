//! Changes the configuration of pod-affinity in a test.

use super::pool::Lent;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use process::install;
use std::time::Duration;
use testbed::probe;
use testbed::product::NAMESPACE;

/// How long the controllers may take to read a changed ConfigMap. They read the ConfigMap by a watch.
const READ: Duration = Duration::from_secs(10);

/// Changes the configuration, and waits until it is active in both controllers. Runs that are created later use the new
/// configuration, because the controllers watch the ConfigMap and the runs separately.
pub(crate) async fn configure(bed: &Lent, data: &[(&str, Option<&str>)]) {
    bed.configure(data).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(bed.client().await.unwrap(), NAMESPACE);
    let version = maps
        .get(install::CONFIG_MAP)
        .await
        .unwrap()
        .metadata
        .resource_version;
    let active = format!("pod_affinity_configuration_generation {}", version.unwrap());
    bed.until("the configuration to be active", READ, async || {
        for admin in &bed.installed().controller_admin {
            let metrics = probe::get(*admin, "/metrics").await?;
            if !metrics.lines().any(|line| line == active) {
                return Err(format!("not {active} at {admin}"));
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

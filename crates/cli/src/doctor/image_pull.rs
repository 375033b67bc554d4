//! Whether the cluster pulls images ahead, if the configuration has `pull-images`.

use super::Snapshot;
use super::finding::{Check, CheckResult, Finding, Level};
use crate::words::count;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use placement::image_pull::OLDEST;
use placement::supported::numbers;

const IMAGE_PULL: Check = Check("image pull");

pub(super) fn image_pull(snapshot: &Snapshot) -> CheckResult {
    let Some(nodes) = &snapshot.nodes else {
        return Ok(Vec::new());
    };
    let nodes = IMAGE_PULL.read(nodes)?;
    let kubernetes = IMAGE_PULL.read(&snapshot.installation.platform.kubernetes)?;
    let findings = [api_server(kubernetes), kubelets(nodes)];
    // No container mounts the images, so that only the API server and the kubelet need image volumes.
    let well = format!(
        "pull-images is on, and {} can pull images ahead, with any container runtime.",
        count(nodes.len(), "node")
    );
    Ok(IMAGE_PULL.or_ok(findings.into_iter().flatten(), well))
}

fn api_server(version: &str) -> Option<Finding> {
    is_old(version).then(|| {
        IMAGE_PULL.warning(
            format!(
                "pull-images is on, but Kubernetes {version} is older than 1.{OLDEST}: its API server may remove image volumes, and \
                 runs start without images that are pulled ahead."
            ),
            format!("Upgrade Kubernetes to 1.{OLDEST} or newer. Older versions need the feature gate ImageVolume."),
        )
    })
}

fn kubelets(nodes: &[Node]) -> Option<Finding> {
    let old = nodes.iter().filter_map(|node| {
        let version = &node.status.as_ref()?.node_info.as_ref()?.kubelet_version;
        is_old(version).then(|| format!("{} ({version})", node.name_any()))
    });
    IMAGE_PULL.about(
        Level::Warning,
        &format!("pull-images is on, but kubelets older than 1.{OLDEST} may pull no images ahead"),
        &old.collect::<Vec<_>>(),
        "Upgrade these nodes, or enable the feature gate ImageVolume in their kubelets.",
    )
}

fn is_old(version: &str) -> bool {
    numbers(version).is_some_and(|version| version < (1, OLDEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::healthy;
    use crate::fixture::{forbidden, object};
    use serde_json::json;

    fn node(name: &str, kubelet: &str) -> Node {
        object(
            json!({"metadata": {"name": name}, "status": {"nodeInfo": {"kubeletVersion": kubelet}}}),
            &json!({}),
        )
    }

    fn found(kubernetes: &str, kubelets: &[&str]) -> Vec<(Level, String)> {
        let nodes = kubelets.iter().enumerate();
        let nodes = nodes.map(|(index, version)| node(&format!("n{index}"), version));
        let mut snapshot = healthy();
        snapshot.nodes = Some(Ok(nodes.collect()));
        snapshot.installation.platform.kubernetes = Ok(kubernetes.to_owned());
        let findings = image_pull(&snapshot).unwrap().into_iter();
        findings
            .map(|finding| (finding.level, finding.sentence))
            .collect()
    }

    #[test]
    fn without_the_key_nothing_is_checked() {
        assert_eq!(image_pull(&healthy()), Ok(Vec::new()));
    }

    #[test]
    fn an_api_server_and_kubelets_with_image_volumes_are_good_with_any_runtime() {
        let [(level, sentence)] = &found("v1.36.0", &["v1.37.2", "v1.36.3-gke.1"])[..] else {
            panic!("one finding");
        };
        assert_eq!(*level, Level::Ok);
        assert!(
            sentence.contains("2 nodes can pull images ahead, with any"),
            "{sentence}"
        );
    }

    #[test]
    fn older_api_servers_and_kubelets_are_warnings_that_name_them() {
        let found = found("v1.35.4", &["v1.36.0", "v1.35.4"]);
        let levels: Vec<_> = found.iter().map(|(level, _)| *level).collect();
        assert_eq!(levels, [Level::Warning, Level::Warning]);
        assert!(
            found[0].1.contains("v1.35.4 is older than 1.36"),
            "{}",
            found[0].1
        );
        assert!(found[1].1.ends_with(": n1 (v1.35.4)."), "{}", found[1].1);
    }

    #[test]
    fn nodes_that_cannot_be_read_are_a_warning() {
        let mut snapshot = healthy();
        snapshot.nodes = Some(Err(forbidden("list", "nodes")));
        assert_eq!(image_pull(&snapshot).unwrap_err().level, Level::Warning);
    }
}

//! Applies the manifests of this checkout with `cargo ship` to a real API server, and runs the pulled binary there with only
//! the files of its image.

use crate::ship::pulled::pull;
use crate::ship::world::{World, printed, world};
use crate::support::pages::{block, blocks};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use placement::keys;
use process::install;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testbed::Definitions;

const SOON: Duration = Duration::from_mins(1);

fn kubectl(world: &World, arguments: &[&str]) -> String {
    let output = Command::new("kubectl")
        .args(arguments)
        .env("KUBECONFIG", world.bed.kubeconfig())
        .output();
    printed(&output.unwrap())
}

fn apply(world: &World, more: &[&str]) -> String {
    world
        .ship(&[&["apply", "--sbom=none", "-f", "config", "--"], more].concat())
        .prints()
}

/// The generation of each object, which counts changes of its spec.
fn generations(world: &World) -> String {
    let each =
        "--output=jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation}{\"\\n\"}{end}";
    let kinds = "deployments,poddisruptionbudgets,mutatingwebhookconfigurations";
    kubectl(world, &["get", kinds, "--all-namespaces", each])
}

/// One test, because there is one cluster and each step needs the previous step.
#[e2e_test(first, policies, second)]
async fn the_manifests_are_resolved_applied_twice_and_deleted_and_so_is_a_release() {
    let world = world().await;
    resolving_names_the_pushed_digest(world);
    a_dry_run_on_the_server_finds_no_fault(world);
    an_overlay_is_rendered_and_resolved(world);
    applying_twice_changes_nothing(world);
    the_image_alone_reaches_the_api_server(world).await;
    deleting_leaves_nothing(world);
    the_commands_of_the_pages_are_followed(world).await;
    a_release_needs_kubectl_only(world);
}

fn resolving_names_the_pushed_digest(world: &World) {
    let pushed = world.ship(&["build", "--sbom=none"]).prints();
    let resolved = world.ship(&["resolve", "--sbom=none", "-f", "config"]).prints();
    assert!(
        resolved.contains(&format!("image: {pushed}")) && !resolved.contains(": ko://"),
        "{resolved}"
    );
}

fn a_dry_run_on_the_server_finds_no_fault(world: &World) {
    // A dry run fails in a namespace that does not exist.
    world.ship(&["apply", "-f", "config/100-namespace.yaml"]).prints();
    let tried = apply(world, &["--dry-run=server"]);
    assert!(
        tried.lines().count() > 10 && tried.contains("deployment.apps/"),
        "{tried}"
    );
}

fn an_overlay_is_rendered_and_resolved(world: &World) {
    let overlay = |verb: &str, name: &str, more: &[&str]| {
        let folder = format!("overlays/{name}");
        let arguments = [&[verb, "--sbom=none", "-k", &folder], more].concat();
        world.ship(&arguments).prints()
    };
    let resolved = overlay("resolve", "cert-manager", &[]);
    let image = format!("image: {}", world.reference);
    assert!(
        resolved.contains(&image) && resolved.contains("name: POD_AFFINITY_CERTIFICATES"),
        "{resolved}"
    );
    for name in ["fail-open", "policies"] {
        let tried = overlay("apply", name, &["--", "--dry-run=server"]);
        assert!(tried.lines().count() > 10, "{tried}");
    }
}

fn applying_twice_changes_nothing(world: &World) {
    apply(world, &[]);
    let images = kubectl(
        world,
        &[
            "get",
            "deployments",
            "--all-namespaces",
            "--output=jsonpath={..image}",
        ],
    );
    assert!(!images.is_empty() && images.split(' ').all(is_pinned), "{images}");
    let before = generations(world);
    let again = apply(world, &[]);
    // The patch strategy of a PodDisruptionBudget's selector is `replace`, so kubectl always sends the selector and reports
    // a change.
    let unchanged =
        |line: &str| line.ends_with(" unchanged") || line.starts_with("poddisruptionbudget.policy/");
    assert!(again.lines().all(unchanged), "{again}");
    assert_eq!(generations(world), before);
}

fn is_pinned(image: &str) -> bool {
    image.contains("/pod-affinity@sha256:")
}

fn deleting_leaves_nothing(world: &World) {
    world.ship(&["delete", "-f", "config"]).prints();
    nothing_is_left(world);
    let twice = world.ship(&["delete", "-f", "config"]).prints();
    assert_eq!(twice, "");
}

fn nothing_is_left(world: &World) {
    let ours = "--selector=app.kubernetes.io/part-of=pod-affinity";
    let kinds = "namespaces,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,\
        mutatingadmissionpolicies,mutatingadmissionpolicybindings,\
        validatingadmissionpolicies,validatingadmissionpolicybindings";
    assert_eq!(kubectl(world, &["get", kinds, ours, "--output=name"]), "");
}

async fn the_commands_of_the_pages_are_followed(world: &World) {
    let [_, from_a_clone] = blocks("README.md", "## Install").try_into().unwrap();
    assert_eq!(from_a_clone, block("docs/install.md", "## From a clone"));
    world.follow(&from_a_clone);
    world.bed.define(Definitions::CertManager).await.unwrap();
    world.bed.define(Definitions::PrometheusOperator).await.unwrap();
    // KO_DOCKER_REPO is set by this test.
    world.follow(&block("docs/install.md", "## Variants"));
    world.follow(&block("certs/README.md", "## cert-manager"));
    let page = "overlays/policies/README.md";
    let [policies, _] = blocks(page, "# Admission policies instead of the webhook")
        .try_into()
        .unwrap();
    world.follow(&policies);
    // No node runs the pods for which the first command waits.
    let [_, remove] = blocks(page, "### From the webhook to policies")
        .try_into()
        .unwrap();
    world.follow(&remove);
    let left = kubectl(world, &["get", "mutatingwebhookconfigurations", "--output=name"]);
    assert_eq!(left, "", "the last of them replaces the webhook by policies");
    for folder in ["overlays/cert-manager", "overlays/policies"] {
        world.ship(&["delete", "-k", folder]).prints();
    }
    nothing_is_left(world);
}

fn a_release_needs_kubectl_only(world: &World) {
    let folder = world.folder("release");
    let release = [
        "release",
        "v9.8.7",
        "--allow-dirty",
        "--out",
        folder.to_str().unwrap(),
    ];
    let reference = world.ship(&release).prints();
    let check = Command::new("sha256sum")
        .args(["--check", "--strict", "checksums.txt"])
        .current_dir(&folder)
        .output();
    assert_eq!(printed(&check.unwrap()).lines().count(), 4);
    assert_eq!(
        std::fs::read_to_string(folder.join("image.txt")).unwrap(),
        reference
    );
    for file in ["release.yaml", "release-policies.yaml"] {
        is_applied_and_deleted(world, folder.join(file).to_str().unwrap());
    }
}

fn is_applied_and_deleted(world: &World, file: &str) {
    let applied = kubectl(world, &["apply", "-f", file]);
    assert!(
        applied.lines().all(|line| line.ends_with(" created")),
        "{applied}"
    );
    let version = "--output=jsonpath={.items[*].metadata.labels.app\\.kubernetes\\.io/version}";
    let versions = kubectl(world, &["get", "-f", file, version]);
    assert_eq!(versions.split(' ').count(), applied.lines().count());
    assert!(
        versions.split(' ').all(|version| version == "v9.8.7"),
        "{versions}"
    );
    kubectl(world, &["delete", "-f", file]);
    nothing_is_left(world);
}

/// Runs the controller as in a pod: only the binary and the mounted service account, the user nobody, and the API server's
/// address in the environment. This proves that the image needs no name lookup, no root CAs and no temporary folder.
async fn the_image_alone_reaches_the_api_server(world: &World) {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root may change the root folder of a process");
        return;
    }
    let root = pull(&world.reference).unpacked(&world.folder("alone"));
    mount_service_account(world, &root);
    let controller = Stopped(controller(world, &root));
    let leases: Api<Lease> = Api::namespaced(world.bed.client().await.unwrap(), keys::NAMESPACE);
    let reached = world.bed.until(
        "the image's controller to hold its Lease",
        SOON,
        async || match leases.get_opt(install::CONTROLLER_LEASE).await {
            Ok(Some(lease)) => lease
                .spec
                .and_then(|spec| spec.holder_identity)
                .ok_or("no holder".to_owned()),
            other => Err(format!("{other:?}")),
        },
    );
    let log = world.folder("alone").join("log");
    let held = reached.await;
    drop(controller);
    assert!(
        held.is_ok(),
        "{held:?}: {}",
        std::fs::read_to_string(log).unwrap()
    );
}

fn controller(world: &World, root: &Path) -> Child {
    let log = std::fs::File::create(world.folder("alone").join("log")).unwrap();
    let port = kubectl(
        world,
        &[
            "config",
            "view",
            "--output=jsonpath={.clusters[0].cluster.server}",
        ],
    );
    Command::new("chroot")
        .args(["--userspec=65532:65532", "--groups="])
        .arg(root)
        .args([
            "/pod-affinity",
            "controller",
            "--admin-listen=127.0.0.1:0",
            "--placeholder-image=x",
        ])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        .env("KUBERNETES_SERVICE_PORT", port.rsplit(':').next().unwrap())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Writes the files that the kubelet mounts into each pod.
fn mount_service_account(world: &World, root: &Path) {
    let folder = root.join("var/run/secrets/kubernetes.io/serviceaccount");
    std::fs::create_dir_all(&folder).unwrap();
    let token = kubectl(
        world,
        &[
            "create",
            "token",
            "--namespace",
            keys::NAMESPACE,
            "pod-affinity-controller",
        ],
    );
    let authority = "--output=jsonpath={.clusters[0].cluster.certificate-authority}";
    let authority = std::fs::read_to_string(kubectl(world, &["config", "view", authority])).unwrap();
    for (name, content) in [
        ("token", token.trim()),
        ("ca.crt", &authority),
        ("namespace", keys::NAMESPACE),
    ] {
        let file = folder.join(name);
        std::fs::write(&file, content).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
}

/// A child process that is killed when it is dropped.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

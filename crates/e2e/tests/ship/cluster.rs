//! The manifests of this checkout, by way of `cargo ship`, on a real API server; and the pulled binary, alone in its
//! image's file system, at work there.

use crate::pulled::Pulled;
use crate::world::{World, printed, world};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use placement::keys;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

fn kubectl(world: &World, arguments: &[&str]) -> String {
    let output = Command::new("kubectl").args(arguments).env("KUBECONFIG", world.bed.kubeconfig()).output();
    printed(&output.unwrap())
}

fn apply(world: &World, more: &[&str]) -> String {
    world.ship(&[&["apply", "--sbom=none", "-f", "config", "--"], more].concat()).prints()
}

/// One test, since there is one cluster and each step needs the one before.
#[tokio::test(flavor = "multi_thread")]
async fn the_manifests_are_resolved_applied_without_change_the_second_time_and_deleted() {
    let world = world().await;
    let pushed = world.ship(&["build", "--sbom=none"]).prints();
    let resolved = world.ship(&["resolve", "--sbom=none", "-f", "config"]).prints();
    assert!(resolved.contains(pushed.trim()) && !resolved.contains(": ko://"), "{resolved}");

    world.ship(&["apply", "-f", "config/100-namespace.yaml"]).prints();
    let tried = apply(world, &["--dry-run=server"]);
    assert!(tried.lines().count() > 10 && tried.contains("deployment.apps/"), "{tried}");

    apply(world, &[]);
    let image = kubectl(world, &["get", "deployments", "--all-namespaces", "--output=jsonpath={..image}"]);
    assert!(!image.is_empty() && image.split(' ').all(|image| image == pushed.trim()), "{image}");
    let again = apply(world, &[]);
    assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");

    the_image_alone_reaches_the_api_server(world).await;

    world.ship(&["delete", "-f", "config"]).prints();
    let left = "--selector=app.kubernetes.io/part-of=pod-affinity";
    let kinds = "namespaces,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations";
    assert_eq!(kubectl(world, &["get", kinds, left, "--output=name"]), "");
    let twice = world.ship(&["delete", "-f", "config"]).prints();
    assert_eq!(twice, "");
}

/// As in a pod: nothing but the binary and the mounted service account, as nobody, the API server by the addresses in the
/// environment. So neither name lookup nor roots of authorities nor a folder for temporary files is missing.
async fn the_image_alone_reaches_the_api_server(world: &World) {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root may change the root folder of a process");
        return;
    }
    let root = Pulled::of(world).unpacked(&world.folder("alone"));
    mount_service_account(world, &root);
    let controller = Stopped(controller(world, &root));
    let leases: Api<Lease> = Api::namespaced(world.bed.client().await.unwrap(), keys::NAMESPACE);
    let reached = world.bed.until("the image's controller to hold its Lease", SOON, async || {
        match leases.get_opt(keys::CONTROLLER_LEASE).await {
            Ok(Some(lease)) => lease.spec.and_then(|spec| spec.holder_identity).ok_or("no holder".to_owned()),
            other => Err(format!("{other:?}")),
        }
    });
    let log = world.folder("alone").join("log");
    let held = reached.await;
    drop(controller);
    assert!(held.is_ok(), "{held:?}: {}", std::fs::read_to_string(log).unwrap());
}

fn controller(world: &World, root: &Path) -> Child {
    let log = std::fs::File::create(world.folder("alone").join("log")).unwrap();
    let port = kubectl(world, &["config", "view", "--output=jsonpath={.clusters[0].cluster.server}"]);
    Command::new("chroot")
        .args(["--userspec=65532:65532", "--groups="])
        .arg(root)
        .args(["/pod-affinity", "controller", "--admin-listen=127.0.0.1:0", "--placeholder-image=x"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        .env("KUBERNETES_SERVICE_PORT", port.rsplit(':').next().unwrap())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// What the kubelet mounts into each pod.
fn mount_service_account(world: &World, root: &Path) {
    let folder = root.join("var/run/secrets/kubernetes.io/serviceaccount");
    std::fs::create_dir_all(&folder).unwrap();
    let token = kubectl(world, &["create", "token", "--namespace", keys::NAMESPACE, "pod-affinity-controller"]);
    let authority = ["config", "view", "--raw", "--output=jsonpath={.clusters[0].cluster.certificate-authority-data}"];
    let decode = Command::new("base64").arg("--decode").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut decode = decode.unwrap();
    std::io::Write::write_all(&mut decode.stdin.take().unwrap(), kubectl(world, &authority).as_bytes()).unwrap();
    let authority = printed(&decode.wait_with_output().unwrap());
    for (name, content) in [("token", token.trim()), ("ca.crt", &authority), ("namespace", keys::NAMESPACE)] {
        let file = folder.join(name);
        std::fs::write(&file, content).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
}

/// A child that does not outlive its test.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

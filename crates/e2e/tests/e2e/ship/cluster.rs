//! Applies the manifests of this checkout with `cargo ship` to a real API server, and runs the pulled binary there with only
//! the files of its image.

use crate::ship::pulled::pull;
use crate::ship::setup::{ShipSetup, printed, setup};
use crate::support::cli::tool;
use crate::support::pages::{CREATE_CA, block, blocks};
use crate::support::ship_program::{ADDRESSES, BINARIES, ON_THIS_PROCESSOR, binaries};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use placement::keys;
use runtime::install;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testbed::Definitions;

const SOON: Duration = Duration::from_mins(1);

fn kubectl(setup: &ShipSetup, arguments: &[&str]) -> String {
    let output = Command::new("kubectl")
        .args(arguments)
        .env("KUBECONFIG", setup.bed.kubeconfig())
        .output();
    printed(&output.unwrap())
}

fn apply(setup: &ShipSetup, more: &[&str]) -> String {
    setup
        .ship(&[&["apply", "-f", "config", "--"], more].concat())
        .prints()
}

/// The generation of each object, which counts changes of its spec.
fn generations(setup: &ShipSetup) -> String {
    let each =
        "--output=jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation}{\"\\n\"}{end}";
    let kinds = "deployments,poddisruptionbudgets,mutatingwebhookconfigurations";
    kubectl(setup, &["get", kinds, "--all-namespaces", each])
}

/// One test, because there is one cluster and each step needs the previous step.
#[e2e_test(first, policies, second)]
async fn the_manifests_are_resolved_applied_twice_and_deleted_and_so_is_a_release() {
    let setup = setup().await;
    resolving_names_the_pushed_digest(setup);
    a_dry_run_on_the_server_finds_no_fault(setup);
    an_overlay_is_rendered_and_resolved(setup);
    applying_twice_changes_nothing(setup);
    the_image_alone_reaches_the_api_server(setup).await;
    deleting_leaves_nothing(setup);
    the_commands_of_the_pages_are_followed(setup).await;
    a_users_ca_signs_the_certificate(setup);
    a_release_needs_kubectl_only(setup).await;
}

fn resolving_names_the_pushed_digest(setup: &ShipSetup) {
    let pushed = setup.ship(&["build"]).prints();
    let resolved = setup.ship(&["resolve", "-f", "config"]).prints();
    assert!(
        resolved.contains(&format!("image: {pushed}")) && !resolved.contains(": ko://"),
        "{resolved}"
    );
}

fn a_dry_run_on_the_server_finds_no_fault(setup: &ShipSetup) {
    // A dry run fails in a namespace that does not exist.
    setup.ship(&["apply", "-f", "config/100-namespace.yaml"]).prints();
    let tried = apply(setup, &["--dry-run=server"]);
    assert!(
        tried.lines().count() > 10 && tried.contains("deployment.apps/"),
        "{tried}"
    );
}

fn an_overlay_is_rendered_and_resolved(setup: &ShipSetup) {
    let overlay = |verb: &str, name: &str, more: &[&str]| {
        let folder = format!("overlays/{name}");
        let arguments = [&[verb, "-k", &folder], more].concat();
        setup.ship(&arguments).prints()
    };
    let resolved = overlay("resolve", "cert-manager", &[]);
    let image = format!("image: {}", setup.reference);
    assert!(
        resolved.contains(&image) && resolved.contains("name: POD_AFFINITY_CERTIFICATES"),
        "{resolved}"
    );
    for name in ["fail-open", "policies"] {
        let tried = overlay("apply", name, &["--", "--dry-run=server"]);
        assert!(tried.lines().count() > 10, "{tried}");
    }
}

fn applying_twice_changes_nothing(setup: &ShipSetup) {
    apply(setup, &[]);
    let images = kubectl(
        setup,
        &[
            "get",
            "deployments",
            "--all-namespaces",
            "--output=jsonpath={..image}",
        ],
    );
    assert!(!images.is_empty() && images.split(' ').all(is_pinned), "{images}");
    let before = generations(setup);
    let again = apply(setup, &[]);
    // The patch strategy of a PodDisruptionBudget's selector is `replace`, so kubectl always sends the selector and reports
    // a change.
    let unchanged =
        |line: &str| line.ends_with(" unchanged") || line.starts_with("poddisruptionbudget.policy/");
    assert!(again.lines().all(unchanged), "{again}");
    assert_eq!(generations(setup), before);
}

fn is_pinned(image: &str) -> bool {
    image.contains("/pod-affinity@sha256:")
}

fn deleting_leaves_nothing(setup: &ShipSetup) {
    setup.ship(&["delete", "-f", "config"]).prints();
    nothing_is_left(setup);
    let twice = setup.ship(&["delete", "-f", "config"]).prints();
    assert_eq!(twice, "");
}

fn nothing_is_left(setup: &ShipSetup) {
    let ours = "--selector=app.kubernetes.io/part-of=pod-affinity";
    let kinds = "namespaces,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,\
        mutatingadmissionpolicies,mutatingadmissionpolicybindings,\
        validatingadmissionpolicies,validatingadmissionpolicybindings";
    assert_eq!(kubectl(setup, &["get", kinds, ours, "--output=name"]), "");
}

async fn the_commands_of_the_pages_are_followed(setup: &ShipSetup) {
    let [_, from_a_clone] = blocks("README.md", "## Install").try_into().unwrap();
    assert_eq!(from_a_clone, block("docs/install.md", "## From a clone"));
    setup.follow(&from_a_clone);
    setup.bed.define(Definitions::CertManager).await.unwrap();
    setup.bed.define(Definitions::PrometheusOperator).await.unwrap();
    // KO_DOCKER_REPO is set by this test.
    setup.follow(&block("docs/install.md", "## Variants"));
    setup.follow(&block("config/components/warm-nodes/README.md", "# Warm nodes"));
    setup.follow(&block("certs/README.md", "## cert-manager"));
    let page = "overlays/policies/README.md";
    setup.follow(&block(page, "# Admission policies instead of the webhook"));
    // No node runs the pods for which the first command waits.
    let [_, remove] = blocks(page, "### From the webhook to policies")
        .try_into()
        .unwrap();
    setup.follow(&remove);
    let left = kubectl(setup, &["get", "mutatingwebhookconfigurations", "--output=name"]);
    assert_eq!(left, "", "the last of them replaces the webhook by policies");
    for folder in [
        "config/components/warm-nodes",
        "certs/cert-manager",
        "overlays/policies",
    ] {
        setup.ship(&["delete", "-k", folder]).prints();
    }
    nothing_is_left(setup);
}

/// Follows the page in a copy of the manifests, because the page puts the CA into the clone.
fn a_users_ca_signs_the_certificate(setup: &ShipSetup) {
    let [certificate, install, migrate] = blocks("certs/README.md", "## Your own CA").try_into().unwrap();
    let copy = "clone=$PWD; cd \"$COPY\"; ln -s \"$clone\"/* .\n\
        rm config certs overlays; cp -r \"$clone\"/{config,certs,overlays} .";
    let check = "kubectl get mutatingwebhookconfigurations \
        --output=jsonpath='{.items[*].webhooks[*].clientConfig.caBundle}' | xargs -n1 | sort -u >found\n\
        base64 --wrap=0 ca.crt | diff - <(tr -d '\\n' <found)";
    let delete = "cargo ship delete -k overlays/own-ca";
    // No leader runs here, so the test fills the Secret.
    let managed = "cargo ship apply -f config/\n\
        kubectl -n tekton-pod-affinity patch secret pod-affinity-webhook-certs --type=merge \
        --patch=\"{\\\"data\\\": {\\\"ca-bundle.crt\\\": \\\"$(base64 --wrap=0 ca.crt)\\\"}}\"";
    let served = "kubectl -n tekton-pod-affinity get secret pod-affinity-webhook-certs \
        --output='jsonpath={.data.tls\\.crt}' | base64 --decode | diff - tls.crt";
    let commands = [
        copy,
        CREATE_CA,
        &certificate,
        &install,
        check,
        delete,
        managed,
        &migrate,
        check,
        served,
        delete,
    ];
    let commands = commands.join("\n");
    let folder = setup.folder("own-ca");
    setup.follow(&commands.replace("$COPY", folder.to_str().unwrap()));
    nothing_is_left(setup);
}

async fn a_release_needs_kubectl_only(setup: &ShipSetup) {
    let folder = setup.folder("release");
    let release = ["release", "v9.8.7", "--push", "--out", folder.to_str().unwrap()];
    let release = setup.ship(&[&release[..], &ADDRESSES, &ON_THIS_PROCESSOR].concat());
    let binaries = binaries(setup.folder("binaries"), &setup.binary);
    let reference = release.env(BINARIES, binaries).prints();
    setup
        .ship(&["verify", "--registry", folder.to_str().unwrap()])
        .prints();
    let check = Command::new("sha256sum")
        .args(["--check", "--strict", "checksums.txt"])
        .current_dir(&folder)
        .output();
    let checked = printed(&check.unwrap()).lines().count();
    let files = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(checked, files - 1, "all files except the checksums");
    assert_eq!(
        std::fs::read_to_string(folder.join("image.txt")).unwrap(),
        reference
    );
    for (file, mechanism) in [("release.yaml", "webhook"), ("release-policies.yaml", "policies")] {
        is_applied_and_deleted(setup, folder.join(file).to_str().unwrap(), mechanism).await;
    }
}

async fn is_applied_and_deleted(setup: &ShipSetup, file: &str, mechanism: &str) {
    let applied = kubectl(setup, &["apply", "-f", file]);
    assert!(
        applied.lines().all(|line| line.ends_with(" created")),
        "{applied}"
    );
    let version = "--output=jsonpath={.items[*].metadata.labels.app\\.kubernetes\\.io/version}";
    let versions = kubectl(setup, &["get", "-f", file, version]);
    assert_eq!(versions.split(' ').count(), applied.lines().count());
    assert!(
        versions.split(' ').all(|version| version == "v9.8.7"),
        "{versions}"
    );
    let printed = tool(&setup.bed, "version").await.out;
    let expected = format!("\nController   v9.8.7\nAdmission    v9.8.7 ({mechanism})\n");
    assert!(printed.ends_with(&expected), "{printed}");
    kubectl(setup, &["delete", "-f", file]);
    nothing_is_left(setup);
}

/// Runs the controller as in a pod: only the binary and the mounted service account, the user nobody, and the API server's
/// address in the environment. This proves that the image needs no name lookup, no root CAs and no temporary folder.
async fn the_image_alone_reaches_the_api_server(setup: &ShipSetup) {
    assert!(
        rustix::process::getuid().is_root(),
        "run this test as root: only root may change the root folder of a process"
    );
    let root = pull(&setup.reference).unpacked(&setup.folder("alone"));
    mount_service_account(setup, &root);
    let controller = Stopped(controller(setup, &root));
    let leases: Api<Lease> = Api::namespaced(setup.bed.client().await.unwrap(), keys::NAMESPACE);
    let reached = setup.bed.until(
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
    let log = setup.folder("alone").join("log");
    let held = reached.await;
    drop(controller);
    assert!(
        held.is_ok(),
        "{held:?}: {}",
        std::fs::read_to_string(log).unwrap()
    );
}

fn controller(setup: &ShipSetup, root: &Path) -> Child {
    let log = std::fs::File::create(setup.folder("alone").join("log")).unwrap();
    let port = kubectl(
        setup,
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
fn mount_service_account(setup: &ShipSetup, root: &Path) {
    let folder = root.join("var/run/secrets/kubernetes.io/serviceaccount");
    std::fs::create_dir_all(&folder).unwrap();
    let token = kubectl(
        setup,
        &[
            "create",
            "token",
            "--namespace",
            keys::NAMESPACE,
            "pod-affinity-controller",
        ],
    );
    let authority = "--output=jsonpath={.clusters[0].cluster.certificate-authority}";
    let authority = std::fs::read_to_string(kubectl(setup, &["config", "view", authority])).unwrap();
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

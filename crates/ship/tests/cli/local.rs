//! Commands that need no registry.

use crate::fixture::{TestFolder, names};
use serde::Deserialize;
use serde_json::{Value, json};

const STAY: [&str; 1] = ["--push=false"];

fn build(home: &TestFolder, more: &[&str]) -> String {
    home.ship(&[&["build"], &STAY[..], more].concat()).prints()
}

#[test]
fn a_build_prints_the_reference_by_digest_and_nothing_else() {
    let printed = build(&TestFolder::new(), &[]);
    let digest = printed
        .strip_prefix("ko.local/pod-affinity@sha256:")
        .unwrap()
        .strip_suffix('\n')
        .unwrap();
    assert!(
        digest.len() == 64 && digest.chars().all(|c| c.is_ascii_hexdigit()),
        "{printed}"
    );
}

#[test]
fn two_builds_of_the_same_source_agree_to_the_byte() {
    let (one, two) = (TestFolder::new(), TestFolder::new());
    let archive = |home: &TestFolder| {
        let path = home.path("image.tar");
        let printed = build(home, &["--tarball", path.to_str().unwrap()]);
        (printed, std::fs::read(path).unwrap())
    };
    assert_eq!(archive(&one), archive(&two));
}

#[test]
fn the_archive_is_a_layout_with_the_manifest_of_the_digest_under_each_tag() {
    let home = TestFolder::new();
    let (archive, layout) = (home.path("image.tar"), home.path("layout"));
    let arguments = ["--tag=v1", "--tag=stable", "--tarball", archive.to_str().unwrap()];
    let printed = build(&home, &arguments);
    let (_, digest) = printed.trim().rsplit_once(':').unwrap();
    let mut unpack = tar::Archive::new(std::fs::File::open(archive).unwrap());
    unpack.unpack(&layout).unwrap();
    let json = |name: &str| -> Value { serde_json::from_str(&home.text(&format!("layout/{name}"))).unwrap() };
    let manifest = json(&format!("blobs/sha256/{digest}"));
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    let title = &manifest["annotations"]["org.opencontainers.image.title"];
    assert_eq!(title, "pod-affinity");
    let blob = |descriptor: &Value| descriptor["digest"].as_str().unwrap().replace(':', "/");
    let config = json(&format!("blobs/{}", blob(&manifest["config"])));
    assert_eq!(config["config"]["Entrypoint"], json!(["/pod-affinity"]));
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(
        config["config"]["Labels"]["org.opencontainers.image.title"],
        "pod-affinity"
    );
    assert_eq!(
        (&config["os"], &config["architecture"]),
        (&json!("linux"), &json!("amd64"))
    );
    let index = json("index.json");
    for (number, tag) in ["v1", "stable"].iter().enumerate() {
        let image = &index["manifests"][number];
        assert_eq!(image["digest"], format!("sha256:{digest}"));
        let name = &image["annotations"]["io.containerd.image.name"];
        assert_eq!(name, &format!("ko.local/pod-affinity:{tag}"));
    }
}

#[test]
fn resolving_replaces_the_reference_and_keeps_the_comments_and_the_order() {
    let home = TestFolder::new();
    let manifest = home.path("pod.yaml");
    let arguments = [&["resolve", "-f", manifest.to_str().unwrap()], &STAY[..]].concat();
    let expected = home
        .text("pod.yaml")
        .replace("ko://pod-affinity", build(&home, &[]).trim());
    assert_eq!(home.ship(&arguments).prints(), expected);
}

#[test]
fn manifests_without_a_reference_are_printed_without_a_build() {
    let home = TestFolder::new();
    let plain = "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n";
    home.write("plain.yaml", plain.as_bytes());
    let manifest = home.path("plain.yaml");
    let resolve = home
        .ship(&["resolve", "-f", manifest.to_str().unwrap()])
        .env("POD_AFFINITY_SHIP_BINARY", "/nowhere");
    assert_eq!(resolve.prints(), plain);
}

/// Uses the kubectl of this machine, as every release does.
#[test]
fn a_release_of_this_checkout_has_the_webhook_in_one_file_and_policies_in_the_other() {
    let home = TestFolder::new();
    home.release(&["--without-plugin"]);
    let image = format!("image: {}", home.text("out/image.txt").trim());
    let [webhook, policies] =
        ["release.yaml", "release-policies.yaml"].map(|file| home.text(&format!("out/{file}")));
    for (manifests, deployments) in [(&webhook, 2), (&policies, 1)] {
        assert_eq!(manifests.matches(&image).count(), deployments);
        assert!(!manifests.contains(": ko://"), "{manifests}");
    }
    let kinds = [
        "\nkind: MutatingWebhookConfiguration",
        "\nkind: MutatingAdmissionPolicy\n",
    ];
    assert_eq!(kinds.map(|kind| webhook.contains(kind)), [true, false]);
    assert_eq!(kinds.map(|kind| policies.contains(kind)), [false, true]);
    for manifests in [&webhook, &policies] {
        have_the_version_in_their_labels_and_not_in_selectors(manifests);
    }
}

fn have_the_version_in_their_labels_and_not_in_selectors(manifests: &str) {
    let version = |labels: &serde_yaml::Value| labels["app.kubernetes.io/version"].clone();
    for document in serde_yaml::Deserializer::from_str(manifests) {
        let object = serde_yaml::Value::deserialize(document).unwrap();
        assert_eq!(version(&object["metadata"]["labels"]), "v1.2.3", "{object:?}");
        if object["kind"] == "Deployment" {
            let spec = &object["spec"];
            assert_eq!(version(&spec["template"]["metadata"]["labels"]), "v1.2.3");
            assert!(version(&spec["selector"]["matchLabels"]).is_null());
        }
    }
}

/// A bill of materials lists what is linked in, and not what tests use.
fn has_the_linked_crates(bill: &str) {
    let bill: Value = serde_json::from_str(bill).unwrap();
    let packages = bill["packages"].as_array().unwrap().iter();
    let names: Vec<_> = packages
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    for linked in ["pod-affinity", "placement", "kube", "aws-lc-sys", "rust-std"] {
        assert!(names.contains(&linked), "{linked} in {names:?}");
    }
    for not_linked in ["oci-client", "proptest", "testbed", "serde_derive", "cc"] {
        assert!(!names.contains(&not_linked), "{not_linked} in {names:?}");
    }
}

#[test]
fn a_release_is_complete_and_the_same_each_time() {
    let (one, two) = (TestFolder::new(), TestFolder::new());
    for home in [&one, &two] {
        home.release(&[]);
    }
    let files = [
        "SECURITY-INSIGHTS.yml",
        "checksums.txt",
        "image.txt",
        "krew.yaml",
        "kubectl-pod_affinity-completions.tar.gz",
        "kubectl-pod_affinity-linux-amd64.spdx.json",
        "kubectl-pod_affinity-linux-amd64.tar.gz",
        "kubectl-pod_affinity-linux-arm64.spdx.json",
        "kubectl-pod_affinity-linux-arm64.tar.gz",
        "pod-affinity-1.2.3.tgz",
        "pod-affinity-image-linux-amd64.spdx.json",
        "pod-affinity-image-linux-arm64.spdx.json",
        "pod-affinity-image.tar",
        "provenance.intoto.json",
        "release-notes.md",
        "release-policies.yaml",
        "release.yaml",
    ];
    assert_eq!(names(&one.path("out")), files);
    for file in files {
        let read = |home: &TestFolder| std::fs::read(home.path("out").join(file)).unwrap();
        assert!(read(&one) == read(&two), "{file}");
    }
    has_the_linked_crates(&one.text("out/pod-affinity-image-linux-amd64.spdx.json"));
}

#[test]
fn the_manifest_for_krew_has_the_archive_of_each_platform() {
    let home = TestFolder::new();
    let of_macos = home.path("binaries/kubectl-pod_affinity-arm64");
    home.release(&[&format!("--plugin=darwin/arm64={}", of_macos.display())]);
    let krew: serde_yaml::Value = serde_yaml::from_str(&home.text("out/krew.yaml")).unwrap();
    let (checksums, platforms) = (home.text("out/checksums.txt"), &krew["spec"]["platforms"]);
    let all = [("linux", "amd64"), ("linux", "arm64"), ("darwin", "arm64")];
    for (number, (system, processor)) in all.into_iter().enumerate() {
        let platform = &platforms[number];
        let labels = &platform["selector"]["matchLabels"];
        assert_eq!(
            (&labels["os"], &labels["arch"]),
            (&system.into(), &processor.into())
        );
        let file = format!("kubectl-pod_affinity-{system}-{processor}.tar.gz");
        assert_eq!(platform["uri"], format!("https://example.com/downloads/{file}"));
        let sha256 = platform["sha256"].as_str().unwrap();
        assert!(checksums.contains(&format!("{sha256}  {file}\n")), "{checksums}");
    }
    assert!(!home.text("out/krew.yaml").contains("${"));
}

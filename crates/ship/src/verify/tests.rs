use super::*;

const REFERENCE: &str = "ghcr.io/me/pod-affinity@sha256:0123";

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

fn line(name: &str, content: &str) -> String {
    format!("{}  {name}\n", hex(content.as_bytes()))
}

#[test]
fn a_changed_file_and_an_added_file_are_errors() {
    let folder = folder(&[("a", "1"), (CHECKSUMS, "")]);
    let good = line("a", "1");
    assert_eq!(all_files_are_listed(folder.path(), &good).unwrap(), 1);
    let changed = all_files_are_listed(folder.path(), &line("a", "2")).unwrap_err();
    assert!(matches!(changed, Error::Checksum(name) if name == "a"));
    std::fs::write(folder.path().join("b"), "").unwrap();
    let added = all_files_are_listed(folder.path(), &good).unwrap_err();
    assert!(matches!(added, Error::Unlisted(name) if name == "b"));
}

#[test]
fn manifests_may_use_only_the_image_of_the_release() {
    let good = format!("image: {REFERENCE}\n");
    let other = format!("{good}image: ghcr.io/me/other@sha256:4567\n");
    let both = |content: &str| folder(&[(MANIFESTS, content), (POLICIES, &good)]);
    assert!(manifests_use(both(&good).path(), REFERENCE).is_ok());
    for bad in ["image: x\n", other.as_str()] {
        let error = manifests_use(both(bad).path(), REFERENCE).unwrap_err();
        assert!(matches!(error, Error::Manifests(MANIFESTS)), "{error}");
    }
}

#[test]
fn the_provenance_must_describe_each_file() {
    let digest = hex(b"1");
    let statement = format!(r#"{{"subject": [{{"digest": {{"sha256": "{digest}"}}}}]}}"#);
    let folder = folder(&[(PROVENANCE, &statement)]);
    let listed = line("a", "1") + &line(PROVENANCE, &statement);
    assert!(provenance_describes(folder.path(), &listed).is_ok());
    let error = provenance_describes(folder.path(), &line("b", "2")).unwrap_err();
    assert!(matches!(error, Error::Provenance(name) if name == "b"));
}

#[test]
fn another_digest_is_another_image() {
    assert!(is_image("sha256:0123\n".to_owned(), REFERENCE).is_ok());
    assert!(is_image("sha256:4567".to_owned(), REFERENCE).is_err());
}

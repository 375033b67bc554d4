use super::*;

const IMAGE: &str = "ghcr.io/me/pod-affinity@sha256:0123";

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

#[test]
fn a_changed_file_and_an_added_file_are_errors() {
    let folder = folder(&[("a", "1"), (CHECKSUMS, "")]);
    let check = |content: &str| {
        let checksums = format!("{}  a\n", sha256(content.as_bytes()));
        all_files_are_listed(folder.path(), &digests(&checksums)).map_err(|error| error.to_string())
    };
    assert_eq!(check("1"), Ok(()));
    assert!(
        check("2")
            .unwrap_err()
            .starts_with("a is not the file of the release")
    );
    std::fs::write(folder.path().join("b"), "").unwrap();
    assert!(check("1").unwrap_err().starts_with("b is missing"));
}

#[test]
fn another_digest_is_another_image() {
    assert!(is_image("", "sha256:0123", IMAGE).is_ok());
    assert!(is_image("", "sha256:4567", IMAGE).is_err());
}

//! Real registries that reject pushes. The cluster stays unchanged.

use crate::ship::setup::{ShipSetup, setup};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testbed::{Part, Testbed};

/// An htpasswd file: the password of `me` is `secret`.
const USERS: &str = "me:$2b$12$jHP.j5vEZ9s0qo2VxZLnQuyW/23nahCTwJzQyZiJ52uvXx0xAy8fe\n";
const ME: &str = "bWU6c2VjcmV0";
/// The header in which each registry returns its name.
const NAME: &str = "X-Registry";
/// Timeout of waits for a registry; only a failing test waits this long.
const SOON: Duration = Duration::from_secs(90);

/// A second registry of the same program as the testbed's. It ends with the test.
struct Registry {
    child: Child,
    address: String,
}

impl Registry {
    fn start(setup: &ShipSetup, name: &str, more: &Value) -> Self {
        let folder = setup.folder(name);
        let address = format!("127.0.0.1:{}", setup.bed.port().unwrap());
        let mut config = json!({
            "version": "0.1",
            "storage": {"filesystem": {"rootdirectory": folder.join("data")}},
            "http": {"addr": address, "headers": {NAME: [name]}},
        });
        for (key, value) in more.as_object().unwrap() {
            match (config.get_mut(key), value) {
                (Some(Value::Object(into)), Value::Object(from)) => into.extend(from.clone()),
                _ => config[key] = value.clone(),
            }
        }
        std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
        let child = Command::new(program(&setup.bed))
            .arg("serve")
            .arg(folder.join("config.json"))
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut registry = Self { child, address };
        registry.until_it_answers(name);
        registry
    }

    /// Waits until the registry answers with its name: another process may listen at the address.
    fn until_it_answers(&mut self, name: &str) {
        let begun = Instant::now();
        let itself = format!("{NAME}: {name}\r\n");
        loop {
            let said = answer(&self.address);
            if said.as_ref().is_ok_and(|said| said.contains(&itself)) {
                return;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && begun.elapsed() < SOON,
                "the registry does not answer ({ended:?}); last seen: {said:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The head of the response to a request without credentials.
fn answer(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(SOON))?;
    write!(
        stream,
        "GET /v2/ HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(bed: &Testbed) -> PathBuf {
    let pid = bed.pid(Part::Registry).expect("the testbed's registry");
    std::fs::read_link(format!("/proc/{pid}/exe")).unwrap()
}

fn with_users(setup: &ShipSetup, name: &str) -> Registry {
    let users = setup.folder(name).join("users");
    std::fs::write(&users, USERS).unwrap();
    Registry::start(
        setup,
        name,
        &json!({"auth": {"htpasswd": {"realm": "here", "path": users}}}),
    )
}

/// Applies config/ with this registry, and expects an error before kubectl is called.
fn refusal(setup: &ShipSetup, registry: &str, docker: &str) -> String {
    let apply = setup.ship(&["apply", "-f", "config", "--", "--dry-run=client"]);
    let said = apply
        .env("KO_DOCKER_REPO", registry)
        .env("DOCKER_CONFIG", setup.folder(docker))
        .refuses();
    assert!(!said.contains("kubectl"), "{said}");
    said
}

fn logged_in(setup: &ShipSetup, docker: &str, registry: &str, auth: &str) {
    let config = json!({"auths": {registry: {"auth": auth}}});
    std::fs::write(setup.folder(docker).join("config.json"), config.to_string()).unwrap();
}

#[e2e_test(second)]
async fn a_registry_with_users_accepts_only_valid_credentials() {
    let setup = setup().await;
    let registry = with_users(setup, "users");
    let stranger = refusal(setup, &registry.address, "nobody");
    assert!(
        stranger.contains(&format!("run `docker login {}`", registry.address)),
        "{stranger}"
    );

    logged_in(setup, "stale", &registry.address, "bWU6b2xk");
    let stale = refusal(setup, &registry.address, "stale");
    assert!(stale.contains("does not accept the credentials"), "{stale}");

    logged_in(setup, "me", &registry.address, ME);
    let build = setup.ship(&["build"]).env("KO_DOCKER_REPO", &registry.address);
    let pushed = build.env("DOCKER_CONFIG", setup.folder("me")).prints();
    assert!(pushed.starts_with(&registry.address), "{pushed}");
}

#[e2e_test(second)]
async fn a_read_only_registry_accepts_no_push() {
    let setup = setup().await;
    let read_only = json!({"storage": {"maintenance": {"readonly": {"enabled": true}}}});
    let registry = Registry::start(setup, "read-only", &read_only);
    let said = refusal(setup, &registry.address, "nobody");
    assert!(
        said.contains("accepts no pushes") && said.contains("405"),
        "{said}"
    );
}

#[e2e_test(second)]
async fn a_wrong_registry_or_a_file_with_invalid_yaml_leaves_the_cluster_unchanged() {
    let setup = setup().await;
    let wrong = refusal(setup, "127.0.0.1:1", "nobody");
    assert!(
        wrong.contains("the registry 127.0.0.1:1 cannot be reached"),
        "{wrong}"
    );

    let folder = setup.folder("manifests");
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: half-applied}\n";
    std::fs::write(folder.join("1.yaml"), namespace).unwrap();
    std::fs::write(folder.join("2.yaml"), "# Notes\n\nNot YAML: at: all\n").unwrap();
    let said = setup.ship(&["apply", "-f", folder.to_str().unwrap()]).refuses();
    assert!(
        said.contains("2.yaml is not valid YAML") && said.contains("line 3"),
        "{said}"
    );
    let namespaces: Api<Namespace> = Api::all(setup.bed.client().await.unwrap());
    assert!(namespaces.get_opt("half-applied").await.unwrap().is_none());
}

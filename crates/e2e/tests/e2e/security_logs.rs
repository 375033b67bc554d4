//! The logs contain no secrets, even at the most verbose level.

use crate::support::SOON;
use crate::support::objects::lose_certificates;
use crate::support::pool;
use crate::support::runs::create;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::Api;
use runtime::install;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use testbed::product::NAMESPACE;
use testbed::runs::RunSpec;
use testbed::{Nodes, Part, Testbed};

const PROCESSES: [Part; 4] = [
    Part::Webhook(0),
    Part::Webhook(1),
    Part::Controller(0),
    Part::Controller(1),
];
/// Long enough to exclude a coincidence, short enough to be found in a truncated line.
const PIECE: usize = 40;

/// The name of a secret, and texts that each reveal it.
type Traces = (String, Vec<String>);

/// The secret as PEM, as base64 of PEM or DER, as a list of bytes and in hexadecimal.
fn traces_of(name: &str, value: &[u8]) -> Traces {
    let text = std::str::from_utf8(value).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("-----")).collect();
    let body: ByteString = serde_json::from_value(json!(lines.concat())).unwrap();
    let mut traces: Vec<_> = lines
        .iter()
        .filter(|line| line.len() >= PIECE)
        .map(|line| (*line).to_owned())
        .collect();
    assert!(!traces.is_empty(), "{name} is no PEM");
    for bytes in [value, &body.0] {
        let base64 = json!(ByteString(bytes.to_vec())).as_str().unwrap().to_owned();
        let end = &bytes[bytes.len() - PIECE..];
        traces.push(base64[PIECE..2 * PIECE].to_owned());
        traces.push(format!("{end:?}").trim_matches(['[', ']']).to_owned());
        traces.push(end.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    (name.to_owned(), traces)
}

fn is_in(line: &str, traces: &[String]) -> bool {
    traces.iter().any(|trace| line.contains(trace))
}

async fn certificates(client: &Client) -> BTreeMap<String, ByteString> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    secrets
        .get(install::CERTIFICATE_SECRET)
        .await
        .unwrap()
        .data
        .unwrap_or_default()
}

async fn traces_of_certificates(client: &Client) -> Vec<Traces> {
    let data = certificates(client).await;
    let keys: Vec<_> = data.iter().filter(|(name, _)| name.contains(".key")).collect();
    assert_eq!(keys.len(), 2, "{:?}", data.keys());
    keys.into_iter()
        .map(|(name, value)| traces_of(name, &value.0))
        .collect()
}

/// The secret part of a token is its signature.
fn trace_of_token(bed: &Testbed, account: &str) -> Traces {
    let path = bed.folder().join(format!("{NAMESPACE}-{account}.kubeconfig"));
    let config: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let token = config["users"][0]["user"]["token"].as_str().unwrap();
    let (_, signature) = token.rsplit_once('.').unwrap();
    (
        format!("the token of {account}"),
        vec![signature.chars().take(PIECE).collect()],
    )
}

/// Lets the leader issue all certificates again.
async fn renewed(bed: &Testbed, client: &Client) {
    lose_certificates(client).await;
    bed.until("new certificates", SOON, async || {
        let data = certificates(client).await;
        data.get("tls.key")
            .map(drop)
            .ok_or_else(|| format!("{:?}", data.keys()))
    })
    .await
    .unwrap();
}

#[e2e_test]
fn a_key_is_found_in_every_encoding() {
    let key = rcgen::KeyPair::generate().unwrap();
    let (pem, der) = (key.serialize_pem(), key.serialize_der());
    let (_, traces) = traces_of("key", pem.as_bytes());
    let stored = ByteString(pem.clone().into_bytes());
    for reported in [
        json!({"key": pem}).to_string(),
        format!("{pem:?}"),
        json!({"data": {"tls.key": stored}}).to_string(),
        format!("{stored:?}"),
        json!(ByteString(der.clone())).to_string(),
        format!("{der:?}"),
        der.iter().map(|byte| format!("{byte:02x}")).collect(),
    ] {
        assert!(is_in(&reported, &traces), "{reported}");
    }
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    assert!(!is_in(&format!("{other:?}"), &traces));
}

#[e2e_test(webhook)]
async fn neither_a_private_key_nor_a_token_is_ever_logged() {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 3)).await.unwrap();
    bed.install_pod_affinity_with(&[("RUST_LOG", "trace")])
        .await
        .unwrap();
    let client = bed.client().await.unwrap();
    let mut secrets = traces_of_certificates(&client).await;
    renewed(&bed, &client).await;
    secrets.extend(traces_of_certificates(&client).await);
    let run = RunSpec::diamond("default", "run").opted_in("true");
    create(&bed, &run).await;
    bed.until_succeeded(&run, SOON).await.unwrap();
    bed.stop_pod_affinity();
    secrets.extend(
        ["pod-affinity-webhook", "pod-affinity-controller"].map(|account| trace_of_token(&bed, account)),
    );

    for process in PROCESSES {
        let log = std::fs::read_to_string(bed.log_file(process)).unwrap();
        for library in ["hyper_util", "kube_client", "tower"] {
            let target = format!("\"target\":\"{library}");
            let is_told = |level| {
                log.lines()
                    .any(|line| line.contains(level) && line.contains(&target))
            };
            assert!(
                is_told("\"TRACE\"") || is_told("\"DEBUG\""),
                "{process} tells nothing of {library}"
            );
        }
        for (name, traces) in &secrets {
            let reported = log.lines().find(|line| is_in(line, traces));
            assert_eq!(reported, None, "{process} tells {name}");
        }
    }
}

//! A killed part restarts with all data, and etcd rejects clients without a certificate.

use crate::support::SOON;
use crate::support::pool;
use crate::support::testbeds::plain;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use testbed::runs::RunSpec;
use testbed::{Nodes, Part};

#[e2e_test(second)]
async fn a_killed_api_server_restarts_with_all_data_and_runs_continue() {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 3)).await.unwrap();
    let client = bed.client().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let map = json!({"metadata": {"name": "kept"}, "data": {"word": "still here"}});
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap())
        .await
        .unwrap();
    let run = RunSpec::diamond("default", "through-the-outage").lasting("3s");
    run.create(&client).await.unwrap();

    bed.kill(Part::ApiServer).unwrap();
    maps.get("kept")
        .await
        .expect_err("requests fail while the API server is down");
    bed.start_again(Part::ApiServer).await.unwrap();

    let kept = maps.get("kept").await.unwrap();
    assert_eq!(kept.data.unwrap()["word"], "still here");
    bed.until_succeeded(&run, SOON).await.unwrap();
}

/// A client that may write to etcd could execute any program as root on a real node.
#[e2e_test]
async fn etcd_rejects_clients_without_a_certificate_of_the_testbed() {
    let bed = plain().await;
    let file = bed.folder().join("etcd.kubeconfig");
    let file = Kubeconfig::read_from(file).unwrap();
    let with = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .unwrap();
    let mut without = with.clone();
    without.auth_info = AuthInfo::default();
    let range = async |config: Config| {
        let everything = json!({"key": "AA==", "range_end": "AA==", "count_only": true}).to_string();
        let request = axum::http::Request::post("/v3/kv/range").body(everything.into_bytes());
        Client::try_from(config)
            .unwrap()
            .request_text(request.unwrap())
            .await
    };
    assert!(range(with).await.unwrap().contains("count"));
    let refused = range(without).await.unwrap_err();
    assert!(!matches!(refused, kube::Error::Api(_)), "{refused}");
}

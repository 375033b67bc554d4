//! A part that is killed comes back, and nothing is forgotten.

use crate::beds::SOON;
use crate::pool;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::json;
use testbed::runs::RunSpec;
use testbed::{Nodes, Part};

#[e2e_test]
async fn a_killed_api_server_comes_back_with_all_data_and_runs_go_on() {
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
        .expect_err("nobody answers while the API server is down");
    bed.start_again(Part::ApiServer).await.unwrap();

    let kept = maps.get("kept").await.unwrap();
    assert_eq!(kept.data.unwrap()["word"], "still here");
    bed.until_succeeded(&run, SOON).await.unwrap();
}

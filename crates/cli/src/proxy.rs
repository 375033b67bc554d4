//! Whether a proxy of the environment is used for an API server, with the rules of kubectl.
//!
//! kube reads `HTTPS_PROXY`, but compares `NO_PROXY` with the proxy instead of the server.

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::env;
use std::net::IpAddr;

/// Whether the kubeconfig names a proxy for the cluster.
pub(crate) fn is_in(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> bool {
    let context = options.context.as_ref().or(kubeconfig.current_context.as_ref());
    let context = kubeconfig.contexts.iter().find(|it| Some(&it.name) == context);
    let of_context = context.and_then(|it| it.context.as_ref()).map(|it| &it.cluster);
    let cluster = options.cluster.as_ref().or(of_context);
    let cluster = kubeconfig.clusters.iter().find(|it| Some(&it.name) == cluster);
    let proxy = cluster.and_then(|it| it.cluster.as_ref()?.proxy_url.as_ref());
    proxy.is_some_and(|proxy| !proxy.is_empty())
}

/// Whether requests to this server bypass the proxy of the environment.
pub(crate) fn is_bypassed_by(server: &Uri) -> bool {
    let no_proxy = ["NO_PROXY", "no_proxy"]
        .into_iter()
        .find_map(|name| env::var(name).ok());
    bypasses(server, &no_proxy.unwrap_or_default())
}

fn bypasses(server: &Uri, no_proxy: &str) -> bool {
    let host = server.host().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    let is_here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    let any = Matcher::builder()
        .all("http://proxy.invalid")
        .no(no_proxy)
        .build();
    is_here || any.intercept(server).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_server_on_this_machine_and_the_servers_in_no_proxy_are_reached_without_a_proxy() {
        let is_bypassed = |server: &str| bypasses(&server.parse().unwrap(), "corp.example,10.0.0.0/8");
        for server in [
            "https://127.0.0.1:6443",
            "https://localhost:6443",
            "https://[::1]:6443",
            "https://10.1.2.3",
            "https://api.corp.example:6443",
        ] {
            assert!(is_bypassed(server), "{server}");
        }
        for server in ["https://192.0.2.1", "https://api.example"] {
            assert!(!is_bypassed(server), "{server}");
        }
    }

    #[test]
    fn the_proxy_of_the_chosen_cluster_counts() {
        let config = json!({
            "current-context": "direct",
            "contexts": [
                {"name": "direct", "context": {"cluster": "one"}},
                {"name": "proxied", "context": {"cluster": "two"}},
            ],
            "clusters": [
                {"name": "one", "cluster": {"server": "https://one.example", "proxy-url": ""}},
                {"name": "two", "cluster": {"server": "https://two.example", "proxy-url": "http://proxy.example"}},
            ],
        });
        let kubeconfig: Kubeconfig = serde_json::from_value(config).unwrap();
        let is_in = |context: Option<&str>, cluster: Option<&str>| {
            let options = KubeConfigOptions {
                context: context.map(String::from),
                cluster: cluster.map(String::from),
                user: None,
            };
            is_in(&kubeconfig, &options)
        };
        assert!(!is_in(None, None) && !is_in(Some("proxied"), Some("one")));
        assert!(is_in(Some("proxied"), None) && is_in(None, Some("two")));
    }
}

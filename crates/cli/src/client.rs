//! The client for the cluster: kubeconfig, context and namespace, with the rules of kubectl.

use crate::args::ClusterArgs;
use crate::proxy;
use crate::requests::{Server, chain};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use runtime::api::without_silence;
use std::ffi::OsStr;
use std::io::ErrorKind;
use thiserror::Error;

/// The error of a client that cannot be created.
#[derive(Debug, Error)]
pub(crate) enum Unusable {
    /// The kubeconfig is missing or invalid.
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(String),
    /// The kubeconfig is valid, but no client can be created from it.
    #[error("no client can be made from the kubeconfig: {0}")]
    Client(String),
}

/// The API server, and the namespace of the command.
pub(crate) struct Cluster {
    pub(crate) server: Server,
    pub(crate) namespace: String,
    pub(crate) url: String,
}

/// Creates the client. Sends no request.
pub(crate) async fn cluster(args: &ClusterArgs) -> Result<Cluster, Unusable> {
    // Fails only if another provider is installed, which does not happen in this program.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = config(args).await?;
    let namespace = args
        .namespace
        .clone()
        .unwrap_or_else(|| config.default_namespace.clone());
    let url = config.cluster_url.to_string();
    let client = Client::try_from(config).map_err(|error| Unusable::Client(chain(&error)))?;
    let server = Server {
        client,
        limit: args.request_timeout.0,
    };
    Ok(Cluster {
        server,
        namespace,
        url,
    })
}

async fn config(args: &ClusterArgs) -> Result<Config, Unusable> {
    let options = KubeConfigOptions {
        context: args.context.clone(),
        cluster: args.cluster.clone(),
        user: args.user.clone(),
    };
    let config = match kubeconfig(args) {
        Ok(kubeconfig) => chosen(kubeconfig, &options).await?,
        Err(error) if may_be_in_a_pod(args, &error) => {
            Config::incluster().map_err(|_| Unusable::Kubeconfig(chain(&error)))?
        }
        Err(error) => return Err(Unusable::Kubeconfig(chain(&error))),
    };
    let mut config = without_silence(config);
    // An error is reported at once, and the user decides whether to try again.
    config.default_retry = false;
    impersonate(&mut config, args);
    Ok(config)
}

fn kubeconfig(args: &ClusterArgs) -> Result<Kubeconfig, KubeconfigError> {
    if let Some(path) = &args.kubeconfig {
        return Kubeconfig::read_from(path);
    }
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    // The error of a list without an existing file names the first file.
    merged(&listed)?.map_or_else(Kubeconfig::read, Ok)
}

/// The files of a list that exist. kubectl ignores the others as well.
fn merged(list: &OsStr) -> Result<Option<Kubeconfig>, KubeconfigError> {
    let files = std::env::split_paths(list).filter(|file| !file.as_os_str().is_empty());
    let mut read = files
        .map(Kubeconfig::read_from)
        .filter(|read| !read.as_ref().is_err_and(is_missing));
    let Some(first) = read.next() else {
        return Ok(None);
    };
    read.try_fold(first?, |merged, next| merged.merge(next?))
        .map(Some)
}

fn is_missing(error: &KubeconfigError) -> bool {
    matches!(error, KubeconfigError::ReadConfig(source, _) if source.kind() == ErrorKind::NotFound)
}

/// A pod has no kubeconfig, but a service account. If the caller named a kubeconfig or a part of it, the cluster of the pod would
/// be another cluster than the caller's.
fn may_be_in_a_pod(args: &ClusterArgs, error: &KubeconfigError) -> bool {
    let named = [&args.context, &args.cluster, &args.user];
    let names_none = args.kubeconfig.is_none() && named.iter().all(|name| name.is_none());
    names_none && (is_missing(error) || matches!(error, KubeconfigError::FindPath))
}

/// A user that is missing in the kubeconfig is an error: the client would send requests without credentials.
async fn chosen(kubeconfig: Kubeconfig, options: &KubeConfigOptions) -> Result<Config, Unusable> {
    let is_there = |user: &String| kubeconfig.auth_infos.iter().any(|it| it.name == *user);
    if let Some(user) = options.user.as_ref().filter(|user| !is_there(user)) {
        return Err(Unusable::Kubeconfig(format!("it has no user {user}")));
    }
    let has_proxy = proxy::is_in(&kubeconfig, options);
    let config = Config::from_custom_kubeconfig(kubeconfig, options).await;
    let mut config = config.map_err(|error| Unusable::Kubeconfig(chain(&error)))?;
    if !has_proxy && proxy::is_bypassed_by(&config.cluster_url) {
        config.proxy_url = None;
    }
    Ok(config)
}

fn impersonate(config: &mut Config, args: &ClusterArgs) {
    let Some(user) = &args.impersonate else { return };
    config.auth_info.impersonate = Some(user.clone());
    config.auth_info.impersonate_groups = Some(args.impersonate_groups.clone());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::PathBuf;

    fn kubeconfig() -> Kubeconfig {
        let config = json!({
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "one", "user": "me", "namespace": "ci"}}],
            "clusters": [
                {"name": "one", "cluster": {"server": "https://one.example"}},
                {"name": "two", "cluster": {"server": "https://two.example", "proxy-url": "http://proxy.example"}},
            ],
            "users": [{"name": "me", "user": {}}, {"name": "you", "user": {"token": "t"}}],
        });
        serde_json::from_value(config).unwrap()
    }

    async fn connected(cluster: Option<&str>, user: Option<&str>) -> Result<Config, Unusable> {
        let options = KubeConfigOptions {
            context: None,
            cluster: cluster.map(String::from),
            user: user.map(String::from),
        };
        chosen(kubeconfig(), &options).await
    }

    #[tokio::test]
    async fn the_client_uses_the_proxy_of_the_kubeconfig() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = connected(Some("two"), None).await.unwrap();
        let proxy = config.proxy_url.as_ref().and_then(|proxy| proxy.host());
        assert_eq!(proxy, Some("proxy.example"));
        Client::try_from(config).unwrap();
    }

    #[test]
    fn files_of_the_list_that_do_not_exist_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let [missing, one, other, broken] =
            ["missing", "one", "other", "broken"].map(|name| folder.path().join(name));
        for (file, name) in [(&one, "a"), (&other, "b")] {
            std::fs::write(
                file,
                format!("{{\"current-context\": {name}, \"users\": [{{\"name\": {name}}}]}}"),
            )
            .unwrap();
        }
        std::fs::write(&broken, "users: 7").unwrap();
        let merged = |files: &[&PathBuf]| super::merged(&std::env::join_paths(files).unwrap());
        let found = merged(&[&missing, &one, &other]).unwrap().unwrap();
        let users: Vec<_> = found.auth_infos.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(
            (found.current_context.as_deref(), users),
            (Some("a"), vec!["a", "b"])
        );
        assert!(merged(&[&missing]).unwrap().is_none());
        assert!(super::merged(OsStr::new("")).unwrap().is_none());
        assert!(merged(&[&one, &broken]).is_err());
    }

    #[tokio::test]
    async fn cluster_and_user_may_be_others_than_those_of_the_context() {
        let config = connected(Some("two"), Some("you")).await.unwrap();
        assert_eq!(config.cluster_url.host(), Some("two.example"));
        assert!(config.auth_info.token.is_some());
        assert_eq!(config.default_namespace, "ci");
    }

    #[tokio::test]
    async fn a_cluster_or_user_that_is_not_there_is_refused() {
        let refused = [
            connected(Some("none"), None).await,
            connected(None, Some("none")).await,
        ];
        for result in refused {
            let error = result.err().unwrap().to_string();
            assert!(
                error.contains("the kubeconfig cannot be used") && error.contains("none"),
                "{error}"
            );
        }
    }

    #[test]
    fn only_a_caller_who_names_no_kubeconfig_and_has_none_may_be_in_a_pod() {
        let args = |line: &[&str]| {
            let line = ["x", "nodes"].iter().chain(line).map(Into::into);
            crate::args::parse(crate::args::Caller::of("x"), line)
                .unwrap()
                .cluster
        };
        let unread = |kind: ErrorKind| KubeconfigError::ReadConfig(kind.into(), "config".into());
        let missing = unread(ErrorKind::NotFound);
        assert!(may_be_in_a_pod(&args(&[]), &missing));
        assert!(may_be_in_a_pod(&args(&["-n", "ci"]), &KubeconfigError::FindPath));
        for named in [
            "--kubeconfig=config",
            "--context=prod",
            "--cluster=prod",
            "--user=me",
        ] {
            assert!(!may_be_in_a_pod(&args(&[named]), &missing), "{named}");
        }
        for unusable in [unread(ErrorKind::PermissionDenied), KubeconfigError::KindMismatch] {
            assert!(!may_be_in_a_pod(&args(&[]), &unusable), "{unusable}");
        }
    }

    #[tokio::test]
    async fn who_is_impersonated_is_told_to_the_api_server() {
        let line = ["x", "--as=jane", "--as-group=dev", "--as-group=ops", "nodes"];
        let args = crate::args::parse(crate::args::Caller::of("x"), line.map(Into::into)).unwrap();
        let mut config = connected(None, None).await.unwrap();
        impersonate(&mut config, &args.cluster);
        assert_eq!(config.auth_info.impersonate.as_deref(), Some("jane"));
        let groups = config.auth_info.impersonate_groups.unwrap();
        assert_eq!(groups, ["dev", "ops"]);
    }
}

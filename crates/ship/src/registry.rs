//! Pushes an image to a registry: first the missing blobs, then the manifest under each tag. A failed push leaves untagged
//! blobs, and never a tag without its blobs.

use crate::credentials;
use crate::destination::Destination;
use crate::image::{Blob, Image, megabytes};
use crate::push_error::{self, PushContext};
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout between two reads of a response.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Settings for connections to registries.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// The folder in which `docker login` stores credentials.
    pub(crate) docker_config: PathBuf,
    /// Use plain HTTP also for registries on other machines.
    pub(crate) insecure: bool,
}

/// The image was not pushed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Credentials(#[from] credentials::Error),
    #[error(transparent)]
    Push(#[from] push_error::Error),
    #[error("no runtime for the push: {0}")]
    Runtime(#[from] std::io::Error),
}

/// A registry that has accepted a connection and the credentials.
pub(crate) struct Registry {
    runtime: Runtime,
    client: Client,
    context: PushContext,
}

impl Registry {
    /// Connects to the registry and authenticates.
    pub(crate) fn connect(destination: &Destination, access: Access) -> Result<Self, Error> {
        let auth = credentials::look_up(&access.docker_config, destination.registry())?;
        let scheme = scheme(destination, &access);
        if let Some(warning) = plain_password_warning(destination, &scheme, &auth) {
            status!("{warning}");
        }
        let context = PushContext {
            registry: destination.registry().to_owned(),
            plain: scheme == ClientProtocol::Http,
            docker_config: access.docker_config,
            anonymous: auth == RegistryAuth::Anonymous,
        };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connected = runtime.block_on(authenticated(scheme, destination, &auth));
        let client = connected.map_err(|error| push_error::explain(error, context.clone()))?;
        Ok(Self {
            runtime,
            client,
            context,
        })
    }

    /// Pushes the image, and waits for the result.
    pub(crate) fn push(&self, image: &Image, to: &Destination, tags: &[String]) -> Result<(), Error> {
        let pushed = self.runtime.block_on(upload(&self.client, image, to, tags));
        pushed.map_err(|error| push_error::explain(error, self.context.clone()).into())
    }
}

fn scheme(to: &Destination, access: &Access) -> ClientProtocol {
    if to.is_loopback() || access.insecure {
        ClientProtocol::Http
    } else {
        ClientProtocol::Https
    }
}

/// A warning if a password is sent without TLS to another machine.
fn plain_password_warning(to: &Destination, scheme: &ClientProtocol, auth: &RegistryAuth) -> Option<String> {
    let warns = *auth != RegistryAuth::Anonymous && *scheme == ClientProtocol::Http && !to.is_loopback();
    let registry = to.registry();
    warns.then(|| {
        format!(
            "warning: your password for {registry} is sent over plain HTTP (--insecure-registry), so others on the network can \
             read it; give the registry a certificate, or log out with `docker logout {registry}` if it needs none"
        )
    })
}

async fn authenticated(
    scheme: ClientProtocol,
    destination: &Destination,
    auth: &RegistryAuth,
) -> Result<Client, OciDistributionError> {
    let client = client(scheme)?;
    let image = destination.tagged("latest");
    client.auth(&image, auth, RegistryOperation::Push).await?;
    Ok(client)
}

fn client(protocol: ClientProtocol) -> Result<Client, OciDistributionError> {
    Client::try_from(ClientConfig {
        protocol,
        connect_timeout: Some(CONNECT_TIMEOUT),
        read_timeout: Some(READ_TIMEOUT),
        user_agent: concat!("cargo-ship/", env!("CARGO_PKG_VERSION")),
        ..ClientConfig::default()
    })
}

async fn upload(
    client: &Client,
    image: &Image,
    to: &Destination,
    tags: &[String],
) -> Result<(), OciDistributionError> {
    let pinned = to.pinned(image.digest());
    let [layer, config, manifest] = image.blobs();
    for blob in [layer, config] {
        upload_blob(client, &pinned, blob).await?;
    }
    for tag in tags {
        upload_manifest(client, &to.tagged(tag), manifest).await?;
    }
    Ok(())
}

async fn upload_blob(client: &Client, to: &Reference, blob: &Blob) -> Result<(), OciDistributionError> {
    // The blob is pushed again if the registry does not answer whether it exists.
    if client.blob_exists(to, &blob.digest).await.unwrap_or_default() {
        status!("{} already exists", blob.digest);
        return Ok(());
    }
    status!("pushing {} ({:.1} MB)", blob.digest, megabytes(blob.size()));
    client
        .push_blob(to, blob.bytes.clone(), &blob.digest)
        .await
        .map(drop)
}

async fn upload_manifest(
    client: &Client,
    to: &Reference,
    manifest: &Blob,
) -> Result<(), OciDistributionError> {
    let media_type = manifest.media_type.to_string();
    let media_type = media_type
        .parse()
        .map_err(|_| OciDistributionError::UnsupportedMediaTypeError(media_type))?;
    client
        .push_manifest_raw(to, manifest.bytes.clone(), media_type)
        .await?;
    status!("pushed {to}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(repository: &str, insecure: bool, auth: &RegistryAuth) -> Option<String> {
        let destination = Destination::parse(Some(repository)).unwrap();
        let access = Access {
            docker_config: PathBuf::new(),
            insecure,
        };
        plain_password_warning(&destination, &scheme(&destination, &access), auth)
    }

    #[test]
    fn a_password_without_tls_to_another_machine_is_a_warning() {
        let me = RegistryAuth::Basic("me".into(), "hunter2".into());
        let text = warning("registry.example:5000/team", true, &me).unwrap();
        assert!(
            text.contains("registry.example:5000") && !text.contains("hunter2"),
            "{text}"
        );
        assert_eq!(warning("registry.example:5000/team", false, &me), None);
        assert_eq!(warning("127.0.0.1:5000/team", true, &me), None);
        assert_eq!(
            warning("registry.example:5000/team", true, &RegistryAuth::Anonymous),
            None
        );
    }
}

//! The CA of a testbed and its certificates, which exist only as long as the testbed.

use crate::error::{Error, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose,
};
use std::fs;
use std::path::{Path, PathBuf};

/// The CA, with its certificate on disk.
#[derive(Debug)]
pub(crate) struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

/// A certificate and its key on disk.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Ca {
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).map_err(Error::io("creating", folder))?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name("pod-affinity-testbed", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let ca = Self {
            issuer,
            folder: folder.to_owned(),
        };
        write(&ca.certificate(), &ca.issuer.pem())?;
        Ok(ca)
    }

    /// Path of the CA certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// A certificate for the API server on loopback.
    pub(crate) fn server(&self, file: &str) -> Result<Identity> {
        let names = [
            "127.0.0.1",
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "10.96.0.1",
        ];
        let mut params = CertificateParams::new(names.map(String::from))?;
        params.distinguished_name = name("kube-apiserver", None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params, file)
    }

    /// A certificate for etcd and its clients. etcd's gateway is a client with the server's certificate.
    pub(crate) fn etcd(&self) -> Result<Identity> {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()])?;
        params.distinguished_name = name("etcd", None);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        self.sign(params, "etcd")
    }

    /// A client certificate. Kubernetes reads the user and the group from its subject.
    pub(crate) fn client(&self, file: &str, user: &str, group: Option<&str>) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, file)
    }

    fn sign(&self, mut params: CertificateParams, file: &str) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let identity = Identity {
            certificate: self.folder.join(format!("{file}.crt")),
            key: self.folder.join(format!("{file}.key")),
        };
        write(&identity.certificate, &certificate.pem())?;
        write(&identity.key, &key.serialize_pem())?;
        Ok(identity)
    }
}

/// Key pair that signs the tokens of ServiceAccounts.
#[derive(Debug)]
pub(crate) struct TokenKeys {
    pub(crate) private: PathBuf,
    pub(crate) public: PathBuf,
}

pub(crate) fn token_keys(folder: &Path) -> Result<TokenKeys> {
    let pair = KeyPair::generate()?;
    let keys = TokenKeys {
        private: folder.join("tokens.key"),
        public: folder.join("tokens.pub"),
    };
    write(&keys.private, &pair.serialize_pem())?;
    write(&keys.public, &pair.public_key_pem())?;
    Ok(keys)
}

fn name(user: &str, group: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, user);
    if let Some(group) = group {
        name.push(DnType::OrganizationName, group);
    }
    name
}

fn write(path: &Path, content: &str) -> Result<()> {
    fs::write(path, content).map_err(Error::io("writing", path))
}

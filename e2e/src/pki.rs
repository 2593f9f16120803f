//! Throw-away certificates: one authority per cluster, and what it signs.
//!
//! ECDSA P-256 throughout, because RSA keys take seconds to make. Files are PEM, as Kubernetes wants them.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// A certificate and its key, both as PEM text.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl Identity {
    /// Writes `<name>.crt` and `<name>.key`, and returns their paths.
    pub fn write(&self, folder: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
        let (certificate, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
        fs::write(&certificate, &self.certificate)?;
        fs::write(&key, &self.key)?;
        Ok((certificate, key))
    }
}

/// A certificate authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// A new authority.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// The authority's certificate and key.
    pub fn identity(&self) -> Identity {
        Identity { certificate: self.issuer.pem(), key: self.issuer.key().serialize_pem() }
    }

    /// A serving certificate for these host names and addresses.
    pub fn server(&self, name: &str, hosts: &[&str]) -> Result<Identity> {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// A client certificate: `user` and `group` are what Kubernetes takes them to be.
    pub fn client(&self, user: &str, group: &str) -> Result<Identity> {
        self.client_for(user, group, None)
    }

    /// The same, good for this long only.
    pub fn client_for(&self, user: &str, group: &str, lifetime: Option<Duration>) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if let Some(lifetime) = lifetime {
            params.not_after = (SystemTime::now() + lifetime).into();
        }
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// A bare private key, for signing ServiceAccount tokens.
pub fn signing_key() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

//! Certificates for tests: an authority, what it signs, and kubeconfigs that hold them.

use std::sync::LazyLock;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kmetal_crds::foreign::capi;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType, date_time_ymd,
};
use serde_json::{Value, json};

/// A key in PEM and what was signed for it.
pub(super) struct Identity {
    pub(super) certificate: Certificate,
    pub(super) key: KeyPair,
}

/// Signs.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// One authority and one client for all tests that need just any.
pub(super) static PKI: LazyLock<(Authority, Identity)> = LazyLock::new(|| {
    let authority = Authority::new("tenant");
    let client = authority.client();
    (authority, client)
});

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    /// For a server at 127.0.0.1; its certificate has run out in the year 2000 if `expired`.
    pub(super) fn server(&self, expired: bool) -> Identity {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![
            SanType::IpAddress("127.0.0.1".parse().unwrap()),
            SanType::DnsName("localhost".try_into().unwrap()),
        ];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        if expired {
            params.not_before = date_time_ymd(1999, 1, 1);
            params.not_after = date_time_ymd(2000, 1, 1);
        }
        self.sign(&params)
    }

    fn client(&self) -> Identity {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name.push(DnType::CommonName, "kubernetes-admin");
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        Identity { certificate: params.signed_by(&key, &self.0).unwrap(), key }
    }
}

pub(super) fn base64(text: &str) -> Value {
    serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap()
}

/// A kubeconfig as Cluster API's providers write it.
pub(super) fn kubeconfig(server: &str, authority: &Authority) -> Value {
    let (_, client) = &*PKI;
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": "admin@blue",
        "clusters": [{
            "name": "blue",
            "cluster": { "server": server, "certificate-authority-data": base64(&authority.pem()) },
        }],
        "users": [{
            "name": "admin",
            "user": {
                "client-certificate-data": base64(&client.certificate.pem()),
                "client-key-data": base64(&client.key.serialize_pem()),
            },
        }],
        "contexts": [{ "name": "admin@blue", "context": { "cluster": "blue", "user": "admin" } }],
    })
}

/// The Secret of the Cluster `acme/<cluster>` that holds `bytes`.
pub(super) fn secret(cluster: &str, bytes: &[u8]) -> Secret {
    serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": capi::SECRET_TYPE,
        "metadata": {
            "namespace": "acme",
            "name": capi::kubeconfig_secret(cluster),
            "labels": { capi::CLUSTER_NAME: cluster },
        },
        "data": { capi::KUBECONFIG_KEY: ByteString(bytes.to_vec()) },
    }))
    .unwrap()
}

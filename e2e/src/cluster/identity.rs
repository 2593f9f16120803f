//! Kubeconfigs: the administrator's and a person's.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use super::Cluster;
use crate::pki::Identity;

/// Reads a kubeconfig the way every client does.
pub async fn config(kubeconfig: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// Writes a kubeconfig of a client certificate.
pub(super) fn write_certificate(
    path: &Path,
    url: &str,
    authority: &Path,
    identity: (&Path, &Path),
) -> Result<()> {
    write(path, url, authority, &json!({"client-certificate": identity.0, "client-key": identity.1}))
}

pub(super) fn user_kubeconfig(cluster: &Cluster, user: &str, group: &str) -> Result<PathBuf> {
    let identity: Identity = cluster.authority.client(user, group)?;
    let name = format!("user-{}", user.replace([':', '/'], "-"));
    let (certificate, key) = identity.write(&cluster.folder, &name)?;
    let path = cluster.folder.join(format!("{name}.kubeconfig"));
    write_certificate(&path, &cluster.url(), &cluster.folder.join("ca.crt"), (&certificate, &key))?;
    Ok(path)
}

/// The text of a kubeconfig with everything in it.
pub(super) fn inline(url: &str, authority: &str, client: &Identity) -> String {
    let data = |pem: &str| ByteString(pem.into());
    let cluster = json!({"server": url, "certificate-authority-data": data(authority)});
    let user = json!({
        "client-certificate-data": data(&client.certificate),
        "client-key-data": data(&client.key),
    });
    kubeconfig(&cluster, &user).to_string()
}

/// The text of a kubeconfig with a token.
pub fn token_kubeconfig(url: &str, authority: &str, token: &str) -> String {
    let cluster = json!({"server": url, "certificate-authority-data": ByteString(authority.into())});
    kubeconfig(&cluster, &json!({"token": token})).to_string()
}

pub(super) fn write(path: &Path, url: &str, authority: &Path, user: &Value) -> Result<()> {
    let cluster = json!({"server": url, "certificate-authority": authority});
    fs::write(path, serde_json::to_string_pretty(&kubeconfig(&cluster, user))?)
        .with_context(|| format!("write {}", path.display()))
}

/// A kubeconfig with one context. JSON is YAML.
fn kubeconfig(cluster: &Value, user: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "kit",
        "clusters": [{"name": "kit", "cluster": cluster}],
        "users": [{"name": "kit", "user": user}],
        "contexts": [{"name": "kit", "context": {"cluster": "kit", "user": "kit"}}],
    })
}

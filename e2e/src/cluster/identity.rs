//! Kubeconfigs: the administrator's, a person's, a ServiceAccount's.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::ServiceAccount,
    },
};
use kube::{
    Api, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use super::Cluster;
use crate::pki::Identity;

/// Longer than any test and any evening with the demo.
const TOKEN_LIVES: i64 = 24 * 60 * 60;

static TOKENS: AtomicU32 = AtomicU32::new(0);

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

pub(super) async fn service_account_kubeconfig(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
) -> Result<PathBuf> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client().await?, namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_LIVES), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .with_context(|| format!("token of ServiceAccount {namespace}/{name}"))?;
    let token = answer.status.context("a TokenRequest was answered without a token")?.token;
    // A file for each token: a replica that is restarted stays who it was.
    let number = TOKENS.fetch_add(1, Ordering::Relaxed);
    let path = cluster.folder.join(format!("serviceaccount-{namespace}-{name}-{number}.kubeconfig"));
    write(&path, &cluster.url(), &cluster.folder.join("ca.crt"), &json!({"token": token}))?;
    Ok(path)
}

/// How the audit log calls the token in a kubeconfig of the kit: by its id.
pub(crate) fn credential(kubeconfig: &Path) -> Result<String> {
    let content: Value = serde_json::from_slice(&fs::read(kubeconfig)?)?;
    let token = content.pointer("/users/0/user/token").and_then(Value::as_str).context("no token")?;
    let claims = token.split('.').nth(1).context("a token that is no JWT")?;
    // base64url without padding, to what k8s-openapi reads.
    let mut claims = claims.replace('-', "+").replace('_', "/");
    claims.extend(std::iter::repeat_n('=', (4 - claims.len() % 4) % 4));
    let ByteString(claims) = serde_json::from_value(claims.into())?;
    let claims: Value = serde_json::from_slice(&claims)?;
    let id = claims.get("jti").and_then(Value::as_str).context("a token without an id")?;
    Ok(format!("JTI={id}"))
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

fn write(path: &Path, url: &str, authority: &Path, user: &Value) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;

    #[test]
    fn a_token_is_known_by_its_id() {
        let rig = Rig::new("credential").unwrap();
        let path = rig.folder().join("kubeconfig");
        // {"jti":"4f-?~"}, whose base64 has each of the letters that base64url writes otherwise.
        let user = json!({"token": "e30.eyJqdGkiOiI0Zi0_fiJ9.c2ln"});
        write(&path, "https://127.0.0.1:1", Path::new("ca.crt"), &user).unwrap();
        assert_eq!(credential(&path).unwrap(), "JTI=4f-?~");
        write(&path, "https://127.0.0.1:1", Path::new("ca.crt"), &json!({"token": "secret"})).unwrap();
        assert!(!format!("{:#}", credential(&path).unwrap_err()).contains("secret"));
        rig.succeed();
    }
}

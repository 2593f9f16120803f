//! ServiceAccount tokens the way a kubelet keeps them: in a file, replaced long before the token in it is void.
//!
//! Each token is bound to a Secret of its own, because that is the one way to make a token void before it expires: with the
//! Secret, it goes.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{Secret, ServiceAccount},
    },
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use super::{Cluster, identity};

/// Longer than any test and any evening with the demo.
const LIVES: i64 = 24 * 60 * 60;

static TOKENS: AtomicU32 = AtomicU32::new(0);

/// A token that was replaced and is still good.
#[must_use]
pub struct Replaced {
    client: Client,
    namespace: String,
    secret: String,
}

impl Replaced {
    /// Makes it void. The API server may take ten seconds to notice.
    pub async fn void(self) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.client, &self.namespace);
        secrets.delete(&self.secret, &DeleteParams::default()).await?;
        Ok(())
    }
}

impl Cluster {
    /// A kubeconfig file that leads to the file of a fresh token of this ServiceAccount, which must exist.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        // A file for each token: a replica that is restarted stays who it was.
        let number = TOKENS.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("serviceaccount-{namespace}-{name}-{number}.kubeconfig"));
        let file = path.with_extension("token");
        fs::write(&file, self.token(namespace, name).await?)?;
        identity::write(&path, &self.url(), &self.folder.join("ca.crt"), &json!({"tokenFile": file}))?;
        Ok(path)
    }

    /// A client that is this ServiceAccount.
    pub async fn service_account_client(&self, namespace: &str, name: &str) -> Result<Client> {
        let kubeconfig = self.service_account_kubeconfig(namespace, name).await?;
        Ok(Client::try_from(identity::config(&kubeconfig).await?)?)
    }

    /// Replaces the token behind a kubeconfig that [`Cluster::service_account_kubeconfig`] made.
    pub async fn renew_token(&self, kubeconfig: &Path) -> Result<Replaced> {
        let file = token_file(kubeconfig)?;
        let claims = claims(&fs::read_to_string(&file)?)?;
        let text = |pointer: &str| claims.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let place = "/kubernetes.io/";
        let namespace = text(&format!("{place}namespace")).context("a token without namespace")?;
        let name = text(&format!("{place}serviceaccount/name")).context("a token without account")?;
        let secret = text(&format!("{place}secret/name")).context("a token that is bound to nothing")?;
        let draft = file.with_extension("draft");
        fs::write(&draft, self.token(&namespace, &name).await?)?;
        fs::rename(draft, file).context("swap the token")?;
        Ok(Replaced { client: self.client().await?, namespace, secret })
    }

    async fn token(&self, namespace: &str, name: &str) -> Result<String> {
        let client = self.client().await?;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let secret = json!({"metadata": {"generateName": "kit-token-"}});
        let secret = secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
        let bound = BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Secret".into()),
            name: Some(secret.name_any()),
            uid: secret.uid(),
        };
        let spec = TokenRequestSpec {
            expiration_seconds: Some(LIVES),
            bound_object_ref: Some(bound),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("token of ServiceAccount {namespace}/{name}"))?;
        Ok(answer.status.context("a TokenRequest was answered without a token")?.token)
    }
}

/// How the audit log calls the token behind a kubeconfig of the kit: by its id.
pub(crate) fn credential(kubeconfig: &Path) -> Result<String> {
    let claims = claims(&fs::read_to_string(token_file(kubeconfig)?)?)?;
    let id = claims.get("jti").and_then(Value::as_str).context("a token without an id")?;
    Ok(format!("JTI={id}"))
}

fn token_file(kubeconfig: &Path) -> Result<PathBuf> {
    let content: Value = serde_json::from_slice(&fs::read(kubeconfig)?)?;
    let file = content.pointer("/users/0/user/tokenFile").and_then(Value::as_str);
    Ok(file.context("a kubeconfig without a token file")?.into())
}

fn claims(token: &str) -> Result<Value> {
    let claims = token.split('.').nth(1).context("a token that is no JWT")?;
    // base64url without padding, to what k8s-openapi reads.
    let mut claims = claims.replace('-', "+").replace('_', "/");
    claims.extend(std::iter::repeat_n('=', (4 - claims.len() % 4) % 4));
    let ByteString(claims) = serde_json::from_value(claims.into())?;
    Ok(serde_json::from_slice(&claims)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;

    #[test]
    fn a_token_is_known_by_its_id() {
        let rig = Rig::new("credential").unwrap();
        let (path, file) = (rig.folder().join("kubeconfig"), rig.folder().join("token"));
        let user = json!({"tokenFile": file});
        identity::write(&path, "https://127.0.0.1:1", Path::new("ca.crt"), &user).unwrap();
        // {"jti":"4f-?~"}, whose base64 has each of the letters that base64url writes otherwise.
        fs::write(&file, "e30.eyJqdGkiOiI0Zi0_fiJ9.c2ln").unwrap();
        assert_eq!(credential(&path).unwrap(), "JTI=4f-?~");
        fs::write(&file, "secret").unwrap();
        assert!(!format!("{:#}", credential(&path).unwrap_err()).contains("secret"));
        rig.succeed();
    }
}

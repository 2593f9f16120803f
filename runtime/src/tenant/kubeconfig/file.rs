//! The YAML of a kubeconfig, as far as it is looked at, and what in it is refused.

use k8s_openapi::ByteString;
use serde::{Deserialize, de::IgnoredAny};

use super::Unusable;

/// Deepest nesting; a kubeconfig has four levels.
const DEPTH: usize = 16;
/// Most mappings, lists and scalars.
const NODES: usize = 2_000;

/// A whole kubeconfig.
#[derive(Deserialize)]
pub(super) struct File {
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedContext>>,
    #[serde(rename = "current-context")]
    current_context: Option<String>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Option<Cluster>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<User>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Option<Context>,
}

#[derive(Deserialize)]
struct Context {
    cluster: Option<String>,
    user: Option<String>,
}

/// Where the API server is and how it is recognised.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub(super) server: Option<String>,
    pub(super) tls_server_name: Option<String>,
    #[serde(rename = "certificate-authority-data")]
    pub(super) authority: Option<ByteString>,
    certificate_authority: Option<IgnoredAny>,
    insecure_skip_tls_verify: Option<bool>,
    proxy_url: Option<String>,
}

/// Who we are there.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct User {
    #[serde(rename = "client-certificate-data")]
    pub(super) certificate: Option<ByteString>,
    #[serde(rename = "client-key-data")]
    pub(super) key: Option<ByteString>,
    pub(super) token: Option<String>,
    client_certificate: Option<IgnoredAny>,
    client_key: Option<IgnoredAny>,
    #[serde(rename = "tokenFile")]
    token_file: Option<IgnoredAny>,
    exec: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
    username: Option<IgnoredAny>,
    password: Option<IgnoredAny>,
    r#as: Option<IgnoredAny>,
    as_uid: Option<IgnoredAny>,
    as_groups: Option<IgnoredAny>,
    as_user_extra: Option<IgnoredAny>,
}

impl File {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Unusable> {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_aliases: 0,
                max_anchors: 0,
                max_merge_keys: 0,
                max_documents: 1,
                max_depth: DEPTH,
                flow_nesting_limit: DEPTH,
                max_nodes: NODES,
                max_events: 4 * NODES,
            },
            with_snippet: false,
        };
        serde_saphyr::from_slice_with_options(bytes, options).map_err(|error| {
            let place = error.location();
            Unusable::NotReadable {
                line: place.map_or(0, |place| place.line()),
                column: place.map_or(0, |place| place.column()),
            }
        })
    }

    /// The one cluster and the one user of the one context: where there are several, it is not ours to choose.
    pub(super) fn only(self) -> Result<(Cluster, User), Unusable> {
        let context = one(self.contexts)?;
        let cluster = one(self.clusters)?;
        let user = one(self.users)?;
        let wanted = context.context.ok_or(Unusable::Ambiguous)?;
        let current = self.current_context.filter(|name| !name.is_empty());
        let fits = current.is_none_or(|name| name == context.name)
            && wanted.cluster.as_ref() == Some(&cluster.name)
            && wanted.user.as_ref() == Some(&user.name);
        match (cluster.cluster, user.user) {
            (Some(cluster), Some(user)) if fits => Ok((cluster, user)),
            _ => Err(Unusable::Ambiguous),
        }
    }
}

impl Cluster {
    pub(super) fn check(&self) -> Result<(), Unusable> {
        if self.certificate_authority.is_some() {
            return Err(Unusable::File("certificate-authority"));
        }
        if self.insecure_skip_tls_verify == Some(true) {
            return Err(Unusable::Insecure);
        }
        if self.proxy_url.as_ref().is_some_and(|url| !url.is_empty()) {
            return Err(Unusable::Proxy);
        }
        Ok(())
    }
}

impl User {
    pub(super) fn check(&self) -> Result<(), Unusable> {
        let refused = [
            (&self.exec, Unusable::Command("exec")),
            (&self.auth_provider, Unusable::Command("auth-provider")),
            (&self.token_file, Unusable::File("tokenFile")),
            (&self.client_certificate, Unusable::File("client-certificate")),
            (&self.client_key, Unusable::File("client-key")),
            (&self.username, Unusable::Password),
            (&self.password, Unusable::Password),
            (&self.r#as, Unusable::Impersonation("as")),
            (&self.as_uid, Unusable::Impersonation("as-uid")),
            (&self.as_groups, Unusable::Impersonation("as-groups")),
            (&self.as_user_extra, Unusable::Impersonation("as-user-extra")),
        ];
        refused.into_iter().find(|(field, _)| field.is_some()).map_or(Ok(()), |(_, cause)| Err(cause))
    }
}

fn one<T>(items: Option<Vec<T>>) -> Result<T, Unusable> {
    let mut items = items.unwrap_or_default();
    if items.len() > 1 {
        return Err(Unusable::Ambiguous);
    }
    items.pop().ok_or(Unusable::Ambiguous)
}

//! Why a kubeconfig is not used, in words for a person. None of them holds a byte of the Secret's content.

use std::fmt::{self, Display};

/// A kubeconfig Secret that is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// `namespace/name` of the Secret.
    pub secret: String,
    /// What is wrong with it.
    pub cause: Unusable,
}

/// What is wrong with a kubeconfig Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unusable {
    /// Not of Cluster API's type.
    Type,
    /// Not labelled with its Cluster.
    Label,
    /// No kubeconfig in it.
    Empty,
    /// Larger than [`super::LARGEST`].
    TooLarge,
    /// No YAML of a kubeconfig, or YAML with anchors, aliases or merges.
    NotReadable {
        /// Line of the first fault, from 1; 0 when it is not known.
        line: u64,
        /// Column of the first fault, from 1; 0 when it is not known.
        column: u64,
    },
    /// Not exactly one context with its one cluster and its one user.
    Ambiguous,
    /// It names a command or a plugin to log in with.
    Command(&'static str),
    /// It names a file.
    File(&'static str),
    /// It names a proxy.
    Proxy,
    /// It switches the check of the server's certificate off.
    Insecure,
    /// It acts as somebody else.
    Impersonation(&'static str),
    /// It logs in with a password.
    Password,
    /// The server's address is not `https://host:port`.
    Server,
    /// `tls-server-name` is no name.
    ServerName,
    /// No certificates of the authority.
    Authority,
    /// The client certificate and its key are not a pair.
    Identity,
    /// The token has characters that no token has.
    Token,
    /// Neither client certificate nor token.
    NoIdentity,
}

impl Unusable {
    /// What is wrong, and what to do.
    fn words(self) -> (String, &'static str) {
        const REGENERATE: &str = "delete the Secret, so that its control-plane provider writes it anew";
        const INLINE: &str = "state certificates, key and token in the kubeconfig itself";
        let text = |text: &str| text.to_owned();
        match self {
            Self::Type => (text("is not of type cluster.x-k8s.io/secret"), REGENERATE),
            Self::Label => (text("has no label cluster.x-k8s.io/cluster-name with its Cluster"), REGENERATE),
            Self::Empty => (text("has no kubeconfig under the key `value`"), REGENERATE),
            Self::TooLarge => (text("holds more than 64 KiB"), "state one context, cluster and user in it"),
            Self::NotReadable { line, column } => (
                format!("is no kubeconfig, from line {line}, column {column} on"),
                "write plain YAML without anchors, aliases and repeated keys",
            ),
            Self::Ambiguous => (
                text("does not have exactly one context with its cluster and its user"),
                "state one of each, with matching names",
            ),
            Self::Command(field) => (format!("logs in with a command (`{field}`)"), INLINE),
            Self::File(field) => (format!("names a file (`{field}`)"), INLINE),
            Self::Proxy => {
                (text("names a proxy (`proxy-url`)"), "remove it; API servers are dialled directly")
            }
            Self::Insecure => (
                text("does not check the server (`insecure-skip-tls-verify`)"),
                "state its authority instead",
            ),
            Self::Impersonation(field) => {
                (format!("acts as somebody else (`{field}`)"), "remove it and use that identity's own")
            }
            Self::Password => (text("logs in with a password"), "use a client certificate or a token"),
            Self::Server => (
                text("has a `server` that is not of the form https://host:port"),
                "state it so, without a path",
            ),
            Self::ServerName => {
                (text("has a `tls-server-name` that is no name"), "state a DNS name or an address")
            }
            Self::Authority => (
                text("has no readable certificates in `certificate-authority-data`"),
                "state those of the server",
            ),
            Self::Identity => (
                text("has no matching pair in `client-certificate-data` and `client-key-data`"),
                "state a certificate in PEM and its own key",
            ),
            Self::Token => (text("has a `token` with blanks or control characters"), "state the token alone"),
            Self::NoIdentity => {
                (text("has neither a client certificate nor a token"), "state one of them in it")
            }
        }
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cause, remedy) = self.cause.words();
        write!(f, "Secret {} {cause}: {remedy}", self.secret)
    }
}

impl std::error::Error for Refusal {}

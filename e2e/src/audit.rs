//! The audit log as an oracle: who wrote what, when, how often.
//!
//! The API server logs each request once, when it is answered. A mark is a place in the file, so "nothing was
//! written since" is one question: take [`Audit::mark`] before, ask it for [`Audit::writes`] after. Questions about
//! many requests together (per object, per minute, in which order, who took over from whom) are [`Requests`]'; which
//! permissions were used and which are only granted is [`permissions`]'.

pub mod permissions;
mod requests;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
};

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, de::IgnoredAny};

pub use self::requests::{Handover, Requests, Target};

/// The audit log from some place on.
#[derive(Debug, Clone)]
pub struct Audit {
    path: PathBuf,
    from: u64,
}

/// One answered request.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// `create`, `update`, `patch`, `delete`, `deletecollection`, `get`, `list`, `watch`.
    pub verb: String,
    /// Who asked.
    pub user: User,
    /// In whose name, if in another's.
    pub impersonated_user: Option<User>,
    /// The program that asked.
    #[serde(default)]
    pub user_agent: String,
    /// With the query, where the field manager stands.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// What it was about; absent for requests that are about no resource.
    pub object_ref: Option<Reference>,
    /// What was answered.
    pub response_status: Option<Answer>,
    /// When it came, RFC 3339 with microseconds: sorts as text.
    pub request_received_timestamp: String,
    /// When it was answered.
    pub stage_timestamp: String,
    stage: String,
    #[serde(rename = "auditID", default)]
    id: String,
    request_object: Option<IgnoredAny>,
    response_object: Option<IgnoredAny>,
}

/// A user of the API.
#[derive(Debug, Clone, Deserialize)]
pub struct User {
    /// As RBAC knows it.
    #[serde(default)]
    pub username: String,
    /// What else the authenticator knows.
    #[serde(default)]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What a request was about.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reference {
    /// Plural, lower case.
    pub resource: String,
    /// `status`, `finalizers`, `token`, or empty.
    pub subresource: String,
    /// Empty for cluster scope.
    pub namespace: String,
    /// Empty where the server makes the name.
    pub name: String,
    /// Empty for the core group.
    pub api_group: String,
}

/// An answer's status.
#[derive(Debug, Clone, Deserialize)]
pub struct Answer {
    /// The HTTP code.
    pub code: u16,
}

impl Entry {
    /// In whose name the request was made.
    pub fn username(&self) -> &str {
        &self.impersonated_user.as_ref().unwrap_or(&self.user).username
    }

    /// What it was about; all empty if it was about nothing.
    pub fn reference(&self) -> Reference {
        self.object_ref.clone().unwrap_or_default()
    }

    /// The HTTP code; 0 if none was given.
    pub fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |answer| answer.code)
    }

    /// The credential it was made with: of each token another one, even of one ServiceAccount's.
    pub fn credential(&self) -> Option<&str> {
        self.user.extra.get("authentication.kubernetes.io/credential-id")?.first().map(String::as_str)
    }

    /// The field manager: the one that is named, or the one that the server takes instead.
    pub fn manager(&self) -> &str {
        let query = self.request_uri.split_once('?').map_or("", |(_, query)| query);
        let named = query.split('&').find_map(|pair| pair.strip_prefix("fieldManager="));
        named.unwrap_or_else(|| self.user_agent.split('/').next().unwrap_or_default())
    }

    /// When it came.
    pub fn received(&self) -> Result<Timestamp> {
        self.request_received_timestamp.parse().context("requestReceivedTimestamp")
    }

    /// When it was answered.
    pub fn answered(&self) -> Result<Timestamp> {
        self.stage_timestamp.parse().context("stageTimestamp")
    }

    /// Whether the log holds what was sent or what was answered.
    pub fn has_body(&self) -> bool {
        self.request_object.is_some() || self.response_object.is_some()
    }

    /// Whether the server did what it was asked.
    pub fn is_accepted(&self) -> bool {
        (200..300).contains(&self.code())
    }

    /// Whether it made the object; a server-side apply may.
    pub fn is_creation(&self) -> bool {
        self.is_write() && self.code() == 201
    }

    /// Whether it is a write that does the work: no Lease, no Event, no review, no token, no dry run.
    pub fn is_useful_write(&self) -> bool {
        let about = self.reference();
        let review = about.resource.ends_with("reviews") || about.subresource == "token";
        self.is_write()
            && !matches!(about.resource.as_str(), "leases" | "events")
            && !review
            && !self.request_uri.contains("dryRun=")
    }

    /// Whether it could have changed something.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Whether the user is this ServiceAccount.
    pub fn is_by(&self, namespace: &str, service_account: &str) -> bool {
        self.username() == format!("system:serviceaccount:{namespace}:{service_account}")
    }

    /// One line: time, who, verb, what, code.
    pub fn line(&self) -> String {
        let about = self.reference();
        let sub =
            if about.subresource.is_empty() { String::new() } else { format!("/{}", about.subresource) };
        format!(
            "{} {} {} {}.{}{sub} {}/{} → {}",
            self.request_received_timestamp,
            self.username(),
            self.verb,
            about.resource,
            about.api_group,
            about.namespace,
            about.name,
            self.code(),
        )
    }
}

impl Audit {
    /// All of the log at this path.
    pub fn of(path: PathBuf) -> Self {
        Self { path, from: 0 }
    }

    /// The log from its present end on.
    pub fn mark(&self) -> Result<Self> {
        let from = std::fs::metadata(&self.path).context("the audit log")?.len();
        Ok(Self { path: self.path.clone(), from })
    }

    /// Every answered request since the mark. A long-running one (watch) counts when it ends.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let mut entries = self.lines()?;
        entries.retain(|entry| entry.stage == COMPLETE);
        Ok(entries)
    }

    /// Every request since the mark, also watches that have begun and not ended; in the order in which they came.
    pub fn requests(&self) -> Result<Requests> {
        Ok(Requests::new(self.lines()?))
    }

    /// What a ServiceAccount asked since the mark, and what of it RBAC forbade (admission refuses with the same code).
    ///
    /// Of a long log, which is mostly others', far faster than [`Audit::requests`].
    pub fn asked_by(&self, namespace: &str, account: &str) -> Result<(Requests, Vec<Entry>)> {
        let user = format!("\"system:serviceaccount:{namespace}:{account}\"");
        let (mut asked, mut forbidden) = (Vec::new(), Vec::new());
        for line in self.text()?.lines().filter(|line| line.contains(&user)) {
            let entry = parse(line)?;
            if line.contains(FORBIDDEN) {
                forbidden.push(entry.clone());
            }
            asked.push(entry);
        }
        Ok((Requests::new(asked), forbidden))
    }

    fn lines(&self) -> Result<Vec<Entry>> {
        self.text()?.lines().map(parse).collect()
    }

    /// Whole lines.
    fn text(&self) -> Result<String> {
        let mut file = File::open(&self.path).context("the audit log")?;
        file.seek(SeekFrom::Start(self.from))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // The last line may be half written.
        text.truncate(text.rfind('\n').unwrap_or(0));
        Ok(text)
    }

    /// The writes since the mark that were not dry runs.
    pub fn writes(&self) -> Result<Vec<Entry>> {
        let entries = self.entries()?.into_iter();
        Ok(entries.filter(|e| e.is_write() && !e.request_uri.contains("dryRun=")).collect())
    }

    /// The writes of one ServiceAccount since the mark.
    pub fn writes_by(&self, namespace: &str, service_account: &str) -> Result<Vec<Entry>> {
        Ok(self.writes()?.into_iter().filter(|entry| entry.is_by(namespace, service_account)).collect())
    }
}

/// How the log says that RBAC did not allow it.
const FORBIDDEN: &str = r#""authorization.k8s.io/decision":"forbid""#;

/// The stage of a request that has been answered to its end.
const COMPLETE: &str = "ResponseComplete";

fn parse(line: &str) -> Result<Entry> {
    serde_json::from_str(line).with_context(|| format!("audit line {line}"))
}

#[cfg(test)]
mod tests;

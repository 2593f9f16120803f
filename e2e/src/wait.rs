//! Waiting for the cluster to become what a test expects, and telling why it did not.
//!
//! Nothing here asserts a time: the patience is generous because CI is slow. A wait that fails shows what the
//! reader would look for next: the objects it was about as YAML, the Events beside them, the end of every process'
//! log.

mod dump;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use kube::{
    Api, Client, Resource,
    core::{ApiResource, DynamicObject},
};
use serde::de::DeserializeOwned;

use crate::{cluster::Cluster, rig::Rig};

/// How long a wait lasts unless told otherwise.
pub const PATIENCE: Duration = Duration::from_mins(1);

const PAUSE: Duration = Duration::from_millis(50);

/// Tries until the probe gives a value. An error of the probe counts as "not yet" and is told at the end.
pub async fn eventually<T>(
    what: &str,
    patience: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        let last = match tokio::time::timeout(patience, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => bail!("not within {patience:?}: {what} (the probe itself did not return)"),
        };
        if Instant::now() >= deadline {
            let why = last.map(|error| format!(": {error:#}")).unwrap_or_default();
            bail!("not within {patience:?}: {what}{why}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What a failed wait shows.
#[derive(Debug, Clone)]
struct Shown {
    resource: ApiResource,
    namespace: Option<String>,
    /// All of the kind if `None`.
    name: Option<String>,
}

/// A wait on a cluster; made by [`Cluster::wait_for`].
pub struct Wait {
    what: String,
    patience: Duration,
    client: Client,
    rig: Arc<Rig>,
    shown: Vec<Shown>,
}

impl Wait {
    /// Sets the patience.
    #[must_use]
    pub fn within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// On failure, shows this object and the Events of its namespace.
    #[must_use]
    pub fn showing<K: Resource<DynamicType = ()>>(self, namespace: Option<&str>, name: &str) -> Self {
        self.showing_resource(&ApiResource::erase::<K>(&()), namespace, Some(name))
    }

    /// On failure, shows all objects of this kind.
    #[must_use]
    pub fn showing_all<K: Resource<DynamicType = ()>>(self, namespace: Option<&str>) -> Self {
        self.showing_resource(&ApiResource::erase::<K>(&()), namespace, None)
    }

    /// On failure, shows objects of a kind known only at run time.
    #[must_use]
    pub fn showing_resource(
        mut self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Self {
        let (namespace, name) = (namespace.map(Into::into), name.map(Into::into));
        self.shown.push(Shown { resource: resource.clone(), namespace, name });
        self
    }

    /// Tries until the probe gives a value.
    pub async fn until<T>(self, probe: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
        match eventually(&self.what, self.patience, probe).await {
            Ok(value) => Ok(value),
            Err(error) => {
                let seen = dump::all(&self.client, &self.rig, &self.shown).await;
                bail!("{error:#}\n{seen}")
            }
        }
    }
}

/// A condition as a test expects it.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// `Ready`, say.
    pub condition: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// Any reason if `None`.
    pub reason: Option<&'a str>,
}

/// `Ready=True`, whatever the reason.
pub const READY: Expected<'static> = Expected { condition: "Ready", status: "True", reason: None };

/// `Ready=False` with this reason.
pub fn not_ready(reason: &str) -> Expected<'_> {
    Expected { condition: "Ready", status: "False", reason: Some(reason) }
}

impl Expected<'_> {
    /// Whether the object's condition is so, and about its present generation.
    pub fn holds(&self, object: &DynamicObject) -> bool {
        let conditions = object.data.pointer("/status/conditions").and_then(serde_json::Value::as_array);
        conditions.is_some_and(|all| {
            all.iter().any(|c| {
                let observed = c.get("observedGeneration").and_then(serde_json::Value::as_i64);
                c["type"] == self.condition
                    && c["status"] == self.status
                    && self.reason.is_none_or(|reason| c["reason"] == reason)
                    && observed.is_none_or(|observed| Some(observed) == object.metadata.generation)
            })
        })
    }
}

impl Cluster {
    /// A wait that shows, when it fails, what it is told to and every log of this cluster's rig.
    pub async fn wait_for(&self, what: impl Into<String>) -> Result<Wait> {
        Ok(Wait {
            what: what.into(),
            patience: PATIENCE,
            client: self.client().await?,
            rig: self.rig().clone(),
            shown: Vec::new(),
        })
    }

    /// Waits for a condition of one object and returns the object.
    pub async fn wait_condition<K>(
        &self,
        namespace: Option<&str>,
        name: &str,
        expected: Expected<'_>,
    ) -> Result<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let resource = ApiResource::erase::<K>(&());
        let api = dynamic(self.client().await?, &resource, namespace);
        let what = format!(
            "{} {}{name} has {}={}{}",
            resource.kind,
            namespace.map(|ns| format!("{ns}/")).unwrap_or_default(),
            expected.condition,
            expected.status,
            expected.reason.map(|reason| format!(" ({reason})")).unwrap_or_default(),
        );
        let wait = self.wait_for(what).await?.showing::<K>(namespace, name);
        let object =
            wait.until(async || Ok(api.get_opt(name).await?.filter(|object| expected.holds(object)))).await?;
        serde_json::from_value(serde_json::to_value(object)?).context("an object of another shape")
    }

    /// Waits until an object is gone.
    pub async fn wait_gone<K: Resource<DynamicType = ()>>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<()> {
        let resource = ApiResource::erase::<K>(&());
        let api = dynamic(self.client().await?, &resource, namespace);
        let wait = self.wait_for(format!("{} {name} is gone", resource.kind)).await?;
        wait.showing::<K>(namespace, name)
            .until(async || Ok(api.get_opt(name).await?.is_none().then_some(())))
            .await
    }
}

fn dynamic(client: Client, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    }
}

//! Our charts, through the real helm.
//!
//! A chart is rendered by `helm template` and applied server-side, or installed by `helm upgrade --install` where
//! the test is about helm itself. Values are JSON, so a test states them beside what it expects.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Result;
use kube::core::DynamicObject;
use serde_json::Value;

use crate::{apply, child::Launch, cluster::Cluster, places, programs};

/// A chart folder with the release's name and namespace and its values.
#[derive(Debug, Clone)]
pub struct Chart {
    folder: PathBuf,
    release: String,
    namespace: String,
    values: Value,
}

impl Chart {
    /// One of `deploy/charts`, released under its own name.
    pub fn ours(name: &str, namespace: &str, values: Value) -> Self {
        Self::at(places::chart(name), name, namespace, values)
    }

    /// A chart anywhere.
    pub fn at(folder: impl Into<PathBuf>, release: &str, namespace: &str, values: Value) -> Self {
        Self { folder: folder.into(), release: release.into(), namespace: namespace.into(), values }
    }

    /// The same chart and release with other values.
    #[must_use]
    pub fn with_values(&self, values: Value) -> Self {
        Self { values, ..self.clone() }
    }

    /// The release's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// What `helm template` makes of it.
    pub async fn render(&self) -> Result<Vec<DynamicObject>> {
        apply::parse(&self.render_text().await?)
    }

    /// What `helm template` prints.
    pub async fn render_text(&self) -> Result<String> {
        self.helm(&["template", &self.release], None).await
    }

    /// Renders it and applies it as administrator; its namespace is made if it is not there.
    pub async fn install(&self, cluster: &Cluster) -> Result<Vec<DynamicObject>> {
        let objects = self.render().await?;
        let namespace =
            format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {}}}}}", self.namespace);
        let mut all = apply::parse(&namespace)?;
        all.extend(objects.iter().cloned());
        apply::apply(&cluster.client().await?, &self.namespace, all).await?;
        Ok(objects)
    }

    /// `helm lint --strict`.
    pub async fn lint(&self) -> Result<String> {
        self.helm(&["lint", "--strict"], None).await
    }

    /// `helm upgrade --install --create-namespace`, and what it prints.
    pub async fn upgrade(&self, cluster: &Cluster) -> Result<String> {
        let kubeconfig = Some(cluster.kubeconfig());
        self.helm(&["upgrade", "--install", "--create-namespace", &self.release], kubeconfig).await
    }

    async fn helm(&self, command: &[&str], kubeconfig: Option<&Path>) -> Result<String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let home = places::kit().join("helm");
        fs::create_dir_all(&home)?;
        let unique = format!("values-{}-{}.json", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let values = home.join(unique);
        fs::write(&values, serde_json::to_string(&self.values)?)?;
        // Nothing of the user's own helm is read or written; no cluster of theirs is reached.
        let launch = Launch::new("helm", programs::helm())
            .env("HELM_CACHE_HOME", home.join("cache"))
            .env("HELM_CONFIG_HOME", home.join("config"))
            .env("HELM_DATA_HOME", home.join("data"))
            .env("KUBECONFIG", kubeconfig.unwrap_or(Path::new("/dev/null")))
            .args(command)
            .arg(&self.folder)
            .args(["--namespace", &self.namespace, "--values"])
            .arg(&values);
        let output = tokio::task::spawn_blocking(move || {
            programs::ensure_only(|group| group.folder == "helm")?;
            launch.output()
        })
        .await?;
        let _ = fs::remove_file(values);
        output
    }
}

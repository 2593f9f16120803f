//! A person at a terminal: shows what they type, runs it as them, shows what they see.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};
use kmetal_e2e::cluster::Cluster;
use serde_json::json;

/// One person and their terminal.
pub(crate) struct Terminal<'a> {
    who: &'static str,
    cluster: &'a Cluster,
    kubeconfig: PathBuf,
    folder: PathBuf,
}

impl<'a> Terminal<'a> {
    /// The platform's engineer.
    pub(crate) fn engineer(cluster: &'a Cluster) -> Result<Self> {
        let folder = cluster.rig().subfolder("manifests-engineer")?;
        Ok(Self { who: "engineer", cluster, kubeconfig: cluster.kubeconfig().into(), folder })
    }

    /// A tenant's person, who may edit what is in one Environment and nothing else.
    pub(crate) async fn tenant(cluster: &'a Cluster, who: &'static str, namespace: &str) -> Result<Self> {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": who, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": who}],
        });
        cluster.apply_yaml(&binding.to_string()).await?;
        let kubeconfig = cluster.user_kubeconfig(who, &format!("{who}-people"))?;
        set_namespace(&kubeconfig, namespace)?;
        let folder = cluster.rig().subfolder(&format!("manifests-{who}"))?;
        Ok(Self { who, cluster, kubeconfig, folder })
    }

    /// Writes a manifest, shows it, applies it.
    pub(crate) async fn apply(&self, file: &str, manifest: &str) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, manifest)?;
        println!("\n{}$ cat {file}", self.who);
        print!("{}", indented(manifest));
        println!("{}$ kubectl apply -f {file}", self.who);
        self.show(&["apply", "-f", &path.to_string_lossy()]).await;
        Ok(())
    }

    /// Types a kubectl command and shows what it prints, whether or not it goes well.
    pub(crate) async fn types(&self, command: &str) {
        println!("\n{}$ kubectl {command}", self.who);
        let words: Vec<&str> = command.split_whitespace().collect();
        self.show(&words).await;
    }

    /// What `KUBECONFIG` has to be to go on as this person.
    pub(crate) fn how_to_go_on(&self) -> String {
        format!("{}: export KUBECONFIG={}; cd {}", self.who, self.kubeconfig.display(), self.folder.display())
    }

    async fn show(&self, args: &[&str]) {
        match self.cluster.kubectl_as(&self.kubeconfig, args).await {
            Ok(text) => print!("{}", indented(&text)),
            Err(error) => print!("{}", indented(what_it_said(&error.to_string()))),
        }
    }
}

/// The first line of the error is ours (which command, which status), the rest is what the person sees.
fn what_it_said(error: &str) -> &str {
    error.split_once('\n').map_or(error, |(_, said)| said)
}

/// The kubeconfig is JSON, which is YAML.
fn set_namespace(kubeconfig: &PathBuf, namespace: &str) -> Result<()> {
    let mut config: serde_json::Value = serde_json::from_str(&fs::read_to_string(kubeconfig)?)?;
    config["contexts"][0]["context"]["namespace"] = json!(namespace);
    fs::write(kubeconfig, config.to_string()).context("name the namespace in the kubeconfig")
}

fn indented(text: &str) -> String {
    text.lines().flat_map(|line| ["    ", line, "\n"]).collect()
}

//! What a pod of the chart's Deployment is told: pure, from the rendered objects.

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Container, EnvVar, PodSpec, Volume},
};
use kube::{ResourceExt, core::DynamicObject};

/// One pod, as far as a process can see it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) service_account: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) mounts: Vec<Mount>,
}

/// A mounted folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Where the container sees it.
    pub(super) path: String,
    /// What is in it.
    pub(super) content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    ConfigMap(String),
    Secret(String),
    Nothing,
}

impl Pod {
    /// Replica `index` of the one Deployment among the objects.
    pub(super) fn of(objects: &[DynamicObject], namespace: &str, index: usize) -> Result<Self> {
        let is_deployment = |o: &&DynamicObject| o.types.as_ref().is_some_and(|t| t.kind == "Deployment");
        let deployments: Vec<&DynamicObject> = objects.iter().filter(is_deployment).collect();
        let [deployment] = deployments[..] else {
            bail!("the chart has {} Deployments, not one", deployments.len());
        };
        let deployment: Deployment = serde_json::from_value(serde_json::to_value(deployment)?)?;
        let name = format!("{}-{index}", deployment.name_any());
        let namespace = deployment.namespace().unwrap_or_else(|| namespace.to_owned());
        let spec =
            deployment.spec.and_then(|spec| spec.template.spec).context("a Deployment without pods")?;
        let [container] = &spec.containers[..] else { bail!("more than one container") };
        let service_account =
            spec.service_account_name.clone().context("the Deployment names no ServiceAccount")?;
        let facts = Facts { name: &name, namespace: &namespace, service_account: &service_account };
        let env =
            container.env.iter().flatten().map(|variable| facts.value(variable)).collect::<Result<_>>()?;
        ensure!(container.env_from.as_ref().is_none_or(Vec::is_empty), "envFrom is not played here");
        Ok(Self {
            args: container.args.clone().unwrap_or_default(),
            env,
            mounts: mounts(container, &spec)?,
            service_account: service_account.clone(),
            namespace: namespace.clone(),
            name,
        })
    }
}

/// The downward API.
struct Facts<'a> {
    name: &'a str,
    namespace: &'a str,
    service_account: &'a str,
}

impl Facts<'_> {
    fn value(&self, variable: &EnvVar) -> Result<(String, String)> {
        let name = variable.name.clone();
        let Some(source) = &variable.value_from else {
            return Ok((name, variable.value.clone().unwrap_or_default()));
        };
        let field = source.field_ref.as_ref().map(|field| field.field_path.as_str());
        let value = match field {
            Some("metadata.name") => self.name,
            Some("metadata.namespace") => self.namespace,
            Some("spec.serviceAccountName") => self.service_account,
            Some("status.podIP" | "status.hostIP") => "127.0.0.1",
            _ => bail!("environment variable {name} has a source that is not played here: {source:?}"),
        };
        Ok((name, value.to_owned()))
    }
}

fn mounts(container: &Container, spec: &PodSpec) -> Result<Vec<Mount>> {
    let volume = |name: &str| spec.volumes.iter().flatten().find(|volume| volume.name == name);
    let mounts = container.volume_mounts.iter().flatten();
    mounts
        .map(|mount| {
            let volume = volume(&mount.name).with_context(|| format!("no volume {}", mount.name))?;
            ensure!(mount.sub_path.is_none(), "a subPath mount is never renewed: {}", mount.mount_path);
            Ok(Mount { path: mount.mount_path.clone(), content: content(volume)? })
        })
        .collect()
}

fn content(volume: &Volume) -> Result<Content> {
    if let Some(map) = &volume.config_map {
        Ok(Content::ConfigMap(map.name.clone()))
    } else if let Some(secret) = &volume.secret {
        Ok(Content::Secret(secret.secret_name.clone().context("a secret volume without a name")?))
    } else if volume.empty_dir.is_some() {
        Ok(Content::Nothing)
    } else {
        bail!("volume {} is of a kind that is not played here", volume.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply;

    const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: kmetal-x}
spec:
  selector: {}
  template:
    spec:
      serviceAccountName: x
      containers:
        - name: controller
          args: [--file=/etc/x/a.yaml]
          env:
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: LEVEL, value: info}
          volumeMounts: [{name: config, mountPath: /etc/x}]
      volumes: [{name: config, configMap: {name: x-config}}]
";

    #[test]
    fn a_pod_is_read_from_the_deployment() {
        let pod = Pod::of(&apply::parse(DEPLOYMENT).unwrap(), "there", 1).unwrap();
        let expected = Pod {
            name: "kmetal-x-1".into(),
            namespace: "there".into(),
            service_account: "x".into(),
            args: vec!["--file=/etc/x/a.yaml".into()],
            env: vec![("POD_NAME".into(), "kmetal-x-1".into()), ("LEVEL".into(), "info".into())],
            mounts: vec![Mount { path: "/etc/x".into(), content: Content::ConfigMap("x-config".into()) }],
        };
        assert_eq!(pod, expected);
    }

    #[test]
    fn a_mount_that_would_never_be_renewed_is_refused() {
        let sub_path = DEPLOYMENT.replace("mountPath: /etc/x", "mountPath: /etc/x, subPath: a.yaml");
        let error = Pod::of(&apply::parse(&sub_path).unwrap(), "there", 0).unwrap_err();
        assert!(error.to_string().contains("subPath"), "{error}");
    }
}

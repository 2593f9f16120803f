//! Cluster API and Kamaji, as far as whoever looks for tenant clusters can see them: their real CRDs, and the *capi*
//! actor, which writes what their processes would.
//!
//! The CRDs are read from the modules. Neither Cluster API's manager, nor Kamaji, nor its provider runs; the facts played:
//! - Cluster API puts its finalizer and the references on a Cluster, and, on one of a ClusterClass, two labels; it sets
//!   phase, `initialization` and conditions (Cluster API v1.13);
//! - Kamaji's provider makes a KamajiControlPlane of the Cluster's name, and publishes `<cluster>-kubeconfig`, labelled
//!   and owned by it, with the kubeconfig of a `kubernetes-super-admin` in `system:masters` (v0.20.0,
//!   `controllers/kamajicontrolplane_controller_resources.go`);
//! - a deleted Cluster keeps the finalizer until its control plane is gone; the Secret goes with its owner.

use std::fs;

use anyhow::{Context, Result};
use k8s_openapi::{
    ByteString, api::core::v1::Secret,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{
    apply::{self, MANAGER},
    cluster::Cluster,
    programs,
};

/// The label with the Cluster's name, on all that belongs to it.
pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// The Kubernetes version that Clusters ask for.
pub const VERSION: &str = "v1.35.4";

const FINALIZER: &str = "cluster.cluster.x-k8s.io";
const CONTROL_PLANE: &str = "KamajiControlPlane";

/// Module, file, and the label that the module's kustomization adds to tell which contract the kind keeps.
type Crd = (&'static str, &'static str, Option<(&'static str, &'static str)>);

const CRDS: [Crd; 2] = [
    ("sigs.k8s.io/cluster-api", "config/crd/bases/cluster.x-k8s.io_clusters.yaml", None),
    (
        "github.com/clastix/cluster-api-control-plane-provider-kamaji",
        "config/crd/bases/controlplane.cluster.x-k8s.io_kamajicontrolplanes.yaml",
        Some(("cluster.x-k8s.io/v1beta2", "v1alpha2")),
    ),
];

/// Installs the CRDs of Cluster and KamajiControlPlane, unless they are there.
///
/// Cluster serves v1beta1 and v1beta2; no converter runs, so speak v1beta2.
pub async fn install(under: &Cluster) -> Result<()> {
    let client = under.client().await?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    if crds.get_opt("kamajicontrolplanes.controlplane.cluster.x-k8s.io").await?.is_some() {
        return Ok(());
    }
    let read = || -> Result<Vec<DynamicObject>> {
        let mut all = Vec::new();
        for (module, file, label) in CRDS {
            let file = programs::module_dir("cluster-api", module)?.join(file);
            let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            let mut crds = apply::parse(&text)?;
            for (crd, (key, value)) in crds.iter_mut().zip(label) {
                crd.labels_mut().insert(key.into(), value.into());
            }
            all.extend(crds);
        }
        Ok(all)
    };
    let crds = tokio::task::spawn_blocking(read).await??;
    apply::apply(&client, "default", crds).await
}

/// The actor, for one Cluster.
#[derive(Clone)]
pub struct Actor {
    client: Client,
    namespace: String,
    name: String,
}

impl Actor {
    /// For the Cluster of this name.
    pub async fn of(under: &Cluster, namespace: &str, name: &str) -> Result<Self> {
        Ok(Self { client: under.client().await?, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Writes the Cluster as its user would, and returns it.
    pub async fn create(&self, metadata: Value, spec: Value) -> Result<DynamicObject> {
        let mut cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Cluster",
            "metadata": metadata,
            "spec": spec,
        });
        cluster["metadata"]["name"] = json!(self.name);
        self.patch(&self.clusters(), &cluster, "kmetal-kit-user").await
    }

    /// Takes charge of a Cluster: finalizer, references, the control plane's object; `topology` as of a ClusterClass.
    pub async fn adopt(&self, topology: bool) -> Result<()> {
        let labels =
            topology.then(|| json!({CLUSTER_NAME: self.name, "topology.cluster.x-k8s.io/owned": ""}));
        let reference = |group: &str, kind: &str| json!({"apiGroup": group, "kind": kind, "name": self.name});
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Cluster",
            "metadata": {"name": self.name, "labels": labels, "finalizers": [FINALIZER]},
            "spec": {
                "controlPlaneRef": reference("controlplane.cluster.x-k8s.io", CONTROL_PLANE),
                "infrastructureRef": reference("infrastructure.cluster.x-k8s.io", "KubevirtCluster"),
            },
        });
        let cluster = self.patch(&self.clusters(), &cluster, MANAGER).await?;
        let control_plane = json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1alpha2",
            "kind": CONTROL_PLANE,
            "metadata": {
                "name": self.name,
                "labels": {CLUSTER_NAME: self.name},
                "ownerReferences": [owner(&cluster)?],
            },
            "spec": {"version": VERSION, "replicas": 2},
        });
        self.patch(&self.control_planes(), &control_plane, MANAGER).await?;
        Ok(())
    }

    /// Publishes a kubeconfig, whatever its text, as Kamaji's provider does.
    pub async fn publish(&self, kubeconfig: &str) -> Result<()> {
        let control_plane = self.control_planes().get(&self.name).await?;
        let mut owner = owner(&control_plane)?;
        owner["controller"] = json!(true);
        owner["blockOwnerDeletion"] = json!(true);
        let mut secret: Secret = serde_json::from_value(json!({
            "metadata": {
                "name": self.secret(),
                "labels": {
                    CLUSTER_NAME: self.name,
                    "kamaji.clastix.io/component": "capi",
                    "kamaji.clastix.io/secret": "kubeconfig",
                    "kamaji.clastix.io/cluster": self.name,
                    "kamaji.clastix.io/tcp": self.name,
                },
                "ownerReferences": [owner],
            },
            "type": "cluster.x-k8s.io/secret",
        }))?;
        secret.data = Some([("value".to_owned(), ByteString(kubeconfig.into()))].into());
        self.secrets()
            .patch(&self.secret(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(&secret))
            .await?;
        Ok(())
    }

    /// Reports that the control plane at this address has come up.
    pub async fn initialized(&self, host: &str, port: u16) -> Result<()> {
        let endpoint = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Cluster",
            "metadata": {"name": self.name},
            "spec": {"controlPlaneEndpoint": {"host": host, "port": port}},
        });
        self.patch(&self.clusters(), &endpoint, "kmetal-kit-endpoint").await?;
        self.report("Provisioned", true, true).await
    }

    /// Reports a phase, whether the control plane has ever come up, and whether Cluster API reaches it now.
    pub async fn report(&self, phase: &str, initialized: bool, reached: bool) -> Result<()> {
        let condition = |kind: &str, holds: bool, [yes, no]: [&str; 2]| {
            json!({
                "type": kind,
                "status": if holds { "True" } else { "False" },
                "reason": if holds { yes } else { no },
                "message": "",
                "lastTransitionTime": Time(Timestamp::now()),
            })
        };
        let status = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Cluster",
            "metadata": {"name": self.name},
            "status": {
                "phase": phase,
                "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": initialized},
                "conditions": [
                    condition("Available", initialized && reached, ["Available", "NotAvailable"]),
                    condition("ControlPlaneInitialized", initialized, ["Initialized", "NotInitialized"]),
                    condition("RemoteConnectionProbe", reached, ["ProbeSucceeded", "ProbeFailed"]),
                ],
            },
        });
        let parameters = PatchParams::apply(MANAGER).force();
        self.clusters().patch_status(&self.name, &parameters, &Patch::Apply(&status)).await?;
        Ok(())
    }

    /// Lets a Cluster that is being deleted go, once its control plane is gone.
    pub async fn release(&self) -> Result<()> {
        gone(self.control_planes().delete(&self.name, &DeleteParams::default()).await)?;
        // Kubernetes' collector would do so, but it notices a kind that is new half a minute late.
        gone(self.secrets().delete(&self.secret(), &DeleteParams::default()).await)?;
        let without = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        gone(self.clusters().patch(&self.name, &PatchParams::default(), &without).await)
    }

    /// The Clusters of its namespace.
    pub fn clusters(&self) -> Api<DynamicObject> {
        self.api("cluster.x-k8s.io", "v1beta2", "Cluster")
    }

    /// The name of the kubeconfig Secret.
    pub fn secret(&self) -> String {
        format!("{}-kubeconfig", self.name)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn control_planes(&self) -> Api<DynamicObject> {
        self.api("controlplane.cluster.x-k8s.io", "v1alpha2", CONTROL_PLANE)
    }

    fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    async fn patch(&self, api: &Api<DynamicObject>, object: &Value, manager: &str) -> Result<DynamicObject> {
        let parameters = PatchParams::apply(manager).force();
        Ok(api.patch(&self.name, &parameters, &Patch::Apply(object)).await?)
    }
}

fn owner(object: &DynamicObject) -> Result<Value> {
    let types = object.types.as_ref().context("an object without kind")?;
    Ok(json!({
        "apiVersion": types.api_version,
        "kind": types.kind,
        "name": object.name_any(),
        "uid": object.uid().context("an object without uid")?,
    }))
}

/// What is gone already need not go.
fn gone<T>(answer: kube::Result<T>) -> Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

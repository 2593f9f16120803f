//! The real kube-ovn-controller, on a [`Cluster`] and an [`Ovn`].
//!
//! It runs under its own ServiceAccount, so that whatever a policy permits to that account alone is tested. Several
//! run side by side: ports are their own, and each sees a `/var/log` of its own, the one place that it writes to
//! whatever it is told.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::json;

use super::{Ovn, default_vpc};
use crate::{
    apply,
    child::{Child, Launch},
    cluster::Cluster,
    ports::{self, Port},
    programs,
    rig::{Rig, tail},
    wait::eventually,
};

/// The namespace that Kube-OVN runs in.
pub const NAMESPACE: &str = "kube-system";
/// Its ServiceAccount there.
pub const SERVICE_ACCOUNT: &str = "ovn";
/// The controller's Lease there.
pub const LEASE: &str = "kube-ovn-controller";
/// The API group of its CRDs.
const GROUP: &str = "kubeovn.io";

/// The CRD that Multus brings. The text is ours; upstream's is not to be had as a module.
const ATTACHMENT_CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names:
    kind: NetworkAttachmentDefinition
    plural: network-attachment-definitions
    singular: network-attachment-definition
    shortNames: [net-attach-def]
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                config: {type: string, description: A CNI configuration as JSON text}
";

/// Every right: what it may do is not what is tested, who it is is.
const ACCOUNT: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: ovn, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kit-kube-ovn}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: ovn, namespace: kube-system}]
";

/// The last thing that it says when it starts: all workers run, and the gateway label has been reset.
const STARTED: &str = "finish remove ovn external gw";
const STARTS_WITHIN: Duration = Duration::from_secs(90);
const STOPS_WITHIN: Duration = Duration::from_secs(20);
const REMOVED_WITHIN: Duration = Duration::from_mins(1);
/// What a running controller has not let go by then it never will.
const LETS_GO_WITHIN: Duration = Duration::from_secs(10);

/// Runs the program with a `/var/log` of its own. Becoming root in a user namespace drops the parent-death signal, so
/// it is set again.
const OWN_LOGS: &str =
    r#"mount -t tmpfs kit /var/log && mkdir /var/log/kube-ovn && exec setpriv --pdeathsig KILL -- "$@""#;

/// A kube-ovn-controller that can be stopped, killed and started again. Dropping it kills it.
pub struct KubeOvn {
    launch: Launch,
    log: PathBuf,
    process: Mutex<Option<Child>>,
    rig: Arc<Rig>,
    client: Client,
    _health: Port,
}

impl KubeOvn {
    /// Installs the CRDs, Multus' among them, starts the controller and waits until it works. A Node with a chassis
    /// must be there (see [`super::under_cluster`]).
    pub async fn start(cluster: &Cluster, ovn: &Ovn) -> Result<Self> {
        let kube_ovn = Self::prepare(cluster, ovn).await?;
        kube_ovn.install_crds().await?;
        kube_ovn.start_again().await?;
        Ok(kube_ovn)
    }

    /// All but the CRDs and the process: what a cluster has before Kube-OVN comes.
    pub async fn prepare(cluster: &Cluster, ovn: &Ovn) -> Result<Self> {
        cluster.apply_yaml(ACCOUNT).await?;
        let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT).await?;
        let health = ports::take()?;
        let root = rustix::process::geteuid().is_root();
        let namespaces: &[&str] = if root { &["--mount"] } else { &["--mount", "--user", "--map-root-user"] };
        let name = format!("{}-kube-ovn-controller", cluster.name());
        let launch = Launch::new(&name, "unshare")
            .args(namespaces)
            .args(["--propagation", "private", "sh", "-c", OWN_LOGS, "sh"])
            .arg(programs::kube_ovn_controller())
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--ovn-nb-addr={}", ovn.northbound()))
            .arg(format!("--ovn-sb-addr={}", ovn.southbound()))
            .arg(format!("--pprof-port={}", health.number()))
            .args([
                "--logtostderr=true",
                "--non-primary-cni-mode=true",
                "--enable-metrics=false",
                "--enable-live-migration-optimize=false",
                "--default-cidr=10.16.0.0/16",
                "--node-switch-cidr=100.64.0.0/16",
                "--network-type=geneve",
            ])
            // Half of it looks for its API server here, whatever the flag says.
            .env("KUBECONFIG", &kubeconfig)
            // One name over all restarts: the Lease is its own again at once.
            .env("POD_NAME", LEASE)
            .env("POD_NAMESPACE", NAMESPACE)
            .env("KUBE_NAMESPACE", NAMESPACE)
            .env("KUBE_NODE_NAME", super::under_cluster::NODE)
            .env("POD_IPS", "127.0.0.1")
            .env("ENABLE_BIND_LOCAL_IP", "true");
        Ok(Self {
            launch,
            log: cluster.rig().log_of(&name),
            process: Mutex::new(None),
            rig: cluster.rig().clone(),
            client: cluster.client().await?,
            _health: health,
        })
    }

    /// Starts the controller and waits until its workers run.
    pub async fn start_again(&self) -> Result<()> {
        default_vpc::ensure(&self.client).await?;
        let earlier = starts(&self.log);
        self.start_without_waiting()?;
        let deadline = Instant::now() + STARTS_WITHIN;
        while starts(&self.log) == earlier {
            self.must_run()?;
            ensure!(Instant::now() < deadline, "kube-ovn-controller hangs:\n{}", tail(&self.log, 20));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Starts the controller and does not wait: for a start that is meant to hang, such as one without CRDs.
    pub fn start_without_waiting(&self) -> Result<()> {
        *self.lock() = Some(self.launch.start(&self.rig)?);
        Ok(())
    }

    /// SIGTERM: it gives its Lease back.
    pub async fn stop(&self) -> Result<()> {
        let process = self.lock().take();
        if let Some(process) = process {
            process.terminate(STOPS_WITHIN).await?;
        }
        Ok(())
    }

    /// SIGKILL: its Lease stays until it expires.
    pub fn kill(&self) -> Result<()> {
        let process = self.lock().take();
        if let Some(process) = process {
            process.kill()?;
        }
        Ok(())
    }

    /// Stops and starts it. It comes back with the gateway label of every node set to `false`.
    pub async fn restart(&self) -> Result<()> {
        self.stop().await?;
        self.start_again().await
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.lock().as_ref().is_some_and(Child::is_running)
    }

    /// Installs Kube-OVN's CRDs as they lie in its module, and that of Multus.
    pub async fn install_crds(&self) -> Result<()> {
        install_crds(&self.client).await
    }

    /// Removes Kube-OVN's CRDs and with them every object of its kinds. What Kube-OVN does not let go (with it
    /// stopped, all that has its finalizer; else a Subnet whose Vlan went first) loses its finalizers.
    pub async fn remove_crds(&self) -> Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let ours = async || -> Result<Vec<CustomResourceDefinition>> {
            let all = crds.list(&ListParams::default()).await?;
            Ok(all.items.into_iter().filter(|crd| crd.spec.group == GROUP).collect())
        };
        for crd in ours().await? {
            crds.delete(&crd.name_any(), &DeleteParams::default()).await?;
        }
        let asked = Instant::now();
        eventually("Kube-OVN's CRDs are gone", REMOVED_WITHIN, async || {
            let left = ours().await?;
            if !self.is_running() || asked.elapsed() > LETS_GO_WITHIN {
                for crd in &left {
                    release_objects(&self.client, crd).await?;
                }
            }
            Ok(left.is_empty().then_some(()))
        })
        .await
    }

    fn must_run(&self) -> Result<()> {
        self.lock().as_ref().context("kube-ovn-controller was not started")?.must_run()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Installs Kube-OVN's CRDs as they lie in its module, and that of Multus.
pub async fn install_crds(client: &Client) -> Result<()> {
    let mut crds = apply::parse(ATTACHMENT_CRD)?;
    crds.extend(kube_ovn_crds().await?);
    apply::apply(client, "default", crds).await
}

/// How often a log tells of a completed start.
fn starts(log: &Path) -> usize {
    fs::read(log).map_or(0, |bytes| String::from_utf8_lossy(&bytes).matches(STARTED).count())
}

async fn kube_ovn_crds() -> Result<Vec<DynamicObject>> {
    let module =
        tokio::task::spawn_blocking(|| programs::module_dir("kube-ovn", "github.com/kubeovn/kube-ovn"));
    let file = module.await??.join("charts/kube-ovn-v2/crds/kube-ovn-crd.yaml");
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let crds = apply::parse(&text)?;
    ensure!(!crds.is_empty(), "{} holds no CRD", file.display());
    Ok(crds)
}

/// Takes the finalizers from this kind's objects that are being deleted.
async fn release_objects(client: &Client, crd: &CustomResourceDefinition) -> Result<()> {
    let version =
        crd.spec.versions.iter().find(|version| version.storage).context("a CRD without versions")?;
    let resource = ApiResource {
        group: crd.spec.group.clone(),
        version: version.name.clone(),
        api_version: format!("{}/{}", crd.spec.group, version.name),
        kind: crd.spec.names.kind.clone(),
        plural: crd.spec.names.plural.clone(),
    };
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let Ok(objects) = all.list(&ListParams::default()).await else { return Ok(()) };
    for object in objects.items.iter().filter(|object| object.metadata.deletion_timestamp.is_some()) {
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => all.clone(),
        };
        let without = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        match api.patch(&object.name_any(), &PatchParams::default(), &without).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => drop(other?),
        }
    }
    Ok(())
}

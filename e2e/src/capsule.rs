//! Capsule, the real one, as a plain process on a cluster: it decides whose namespace is whose, and counts.
//!
//! CRDs, permissions and the configuration with its list of webhooks come from the chart in Capsule's module, rendered
//! by helm; Capsule writes the webhook configurations itself. It must be the very ServiceAccount that its own webhooks
//! trust, so it gets that one's token. It is ready when it says so *and* its webhooks are in force. While it is down,
//! nobody creates a namespace, nor writes into a tenant's: a promise may use that.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
};
use kube::{Api, Client, api::ListParams, core::DynamicObject};
use serde_json::{Value, json};

use crate::{
    apply,
    chart::Chart,
    child::{Child, Launch},
    cluster::Cluster,
    controller::admin,
    ports::{self, Port},
    programs,
    rig::Rig,
};

/// The group whose users Capsule takes for tenants' people; everybody else it leaves to RBAC.
pub const PEOPLE: &str = "kmetal-people";

/// Capsule's own administrator, by name and group: the only one who may put a namespace that is there into a Tenant.
pub const ADMINISTRATOR: (&str, &str) = ("kmetal-platform", "system:masters");

const NAMESPACE: &str = "capsule-system";
const SERVICE_ACCOUNT: &str = "capsule";
const MODULE: &str = "github.com/projectcapsule/capsule";
const STARTS_WITHIN: Duration = Duration::from_secs(90);
/// What a cluster needs of the chart; the rest is for Capsule as pods.
const WANTED: [&str; 4] = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "CapsuleConfiguration"];

/// A release of Capsule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// v0.13.11.
    V013,
    /// v0.14.0, which counts over all namespaces of a Tenant before it admits. Only exhaustive tests use it: building it takes as
    /// long again.
    V014,
}

impl Release {
    /// The kit's folder of it, and the program.
    fn folder(self) -> &'static str {
        match self {
            Self::V013 => "capsule",
            Self::V014 => "capsule-0.14",
        }
    }
}

/// A running Capsule. Dropping it stops it.
pub struct Capsule {
    launch: Launch,
    process: Mutex<Option<Child>>,
    client: Client,
    url: String,
    health: Port,
    _webhook: Port,
    rig: Arc<Rig>,
}

impl Capsule {
    /// Installs it on a cluster, starts it and waits until its webhooks are in force.
    pub async fn start(cluster: &Cluster, release: Release) -> Result<Self> {
        let began = Instant::now();
        let folder = release.folder();
        tokio::task::spawn_blocking(move || programs::ensure_only(|group| group.folder == folder)).await??;
        let (webhook, health) = (ports::take()?, ports::take()?);
        let url = format!("https://{}", webhook.address());
        let client = cluster.client().await?;
        let home = cluster.rig().subfolder(&format!("{}-capsule", cluster.name()))?;
        install(cluster, &home, folder, &url).await?;
        let kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT).await?;
        cluster.authority().server("capsule", &["127.0.0.1"])?.write(&home, "tls")?;
        let launch = Launch::new(format!("{}-capsule", cluster.name()), programs::capsule(folder))
            .env("NAMESPACE", NAMESPACE)
            .env("SERVICE_ACCOUNT", SERVICE_ACCOUNT)
            .env("KUBECONFIG", kubeconfig)
            .env("CAPSULE_HEALTH_ADDRESS", health.address())
            .args([
                "--configuration-name=default",
                "--enable-leader-election=false",
                "--metrics-addr=0",
                "--workers=2",
                "--client-connection-qps=200",
                "--client-connection-burst=400",
            ])
            .arg(format!("--webhook-port={}", webhook.number()))
            .arg(format!("--webhook-cert-path={}", home.display()));
        let rig = cluster.rig().clone();
        let capsule = Self { launch, process: Mutex::default(), client, url, health, _webhook: webhook, rig };
        capsule.start_again().await?;
        eprintln!("kit: {folder} works on {} after {:.1} s", cluster.name(), began.elapsed().as_secs_f32());
        Ok(capsule)
    }

    /// SIGKILL.
    pub fn kill(&self) -> Result<()> {
        let process = self.lock().take();
        process.map_or(Ok(()), |process| process.kill().map(drop))
    }

    /// Starts it after [`Capsule::kill`] and waits until its webhooks are in force.
    pub async fn start_again(&self) -> Result<()> {
        *self.lock() = Some(self.launch.start(&self.rig)?);
        let deadline = Instant::now() + STARTS_WITHIN;
        while !self.works().await? {
            let running = self.lock().as_ref().map_or(Ok(()), Child::must_run);
            running?;
            let log = || self.lock().as_ref().map(|process| process.log_tail(20)).unwrap_or_default();
            ensure!(Instant::now() < deadline, "Capsule is not ready:\n{}", log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn works(&self) -> Result<bool> {
        if !admin::get(&self.health.address(), "/readyz").await.is_ok_and(|(code, _)| code == 200) {
            return Ok(false);
        }
        let all = ListParams::default();
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let ours = |url: Option<&String>| url.is_some_and(|url| url.starts_with(&self.url));
        let validates = validating.list(&all).await?.items.into_iter().filter_map(|found| found.webhooks);
        let mutates = mutating.list(&all).await?.items.into_iter().filter_map(|found| found.webhooks);
        Ok(validates.flatten().any(|hook| ours(hook.client_config.url.as_ref()))
            && mutates.flatten().any(|hook| ours(hook.client_config.url.as_ref())))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All but the process: CRDs, ServiceAccount, permissions, configuration.
async fn install(cluster: &Cluster, home: &Path, folder: &'static str, url: &str) -> Result<()> {
    let copy = home.join("chart");
    let (crds, chart) = {
        let copy = copy.clone();
        tokio::task::spawn_blocking(move || read_chart(folder, copy)).await??
    };
    let authority = ByteString(cluster.authority().identity().certificate.into());
    let values = json!({
        "webhooks": {"service": {"url": url, "caBundle": authority}},
        "tls": {"enableController": false, "create": false},
        "certManager": {"generateCertificates": false},
        "manager": {"options": {
            "users": [{"kind": "Group", "name": PEOPLE}],
            "capsuleUserGroups": [],
            "administrators": [{"kind": "User", "name": ADMINISTRATOR.0}],
        }},
    });
    let rendered = Chart::at(chart, SERVICE_ACCOUNT, NAMESPACE, values).render().await?;
    let is_wanted = |object: &DynamicObject| {
        let hook = object.metadata.annotations.as_ref().is_some_and(|all| all.contains_key("helm.sh/hook"));
        !hook && object.types.as_ref().is_some_and(|types| WANTED.contains(&types.kind.as_str()))
    };
    let mut objects =
        apply::parse(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}"))?;
    objects.extend(crds);
    objects.extend(rendered.into_iter().filter(is_wanted));
    apply::apply(&cluster.client().await?, NAMESPACE, objects).await
}

/// The CRDs, and a copy of the chart that helm can render: without what it would fetch first.
fn read_chart(folder: &str, copy: PathBuf) -> Result<(Vec<DynamicObject>, PathBuf)> {
    let module = programs::module_dir(folder, MODULE)?.join("charts/capsule");
    let mut crds = Vec::new();
    for entry in fs::read_dir(module.join("crds"))? {
        let path = entry?.path();
        // The others there are templates of the chart.
        if path.extension().is_some_and(|extension| extension == "yaml") {
            crds.extend(apply::parse(&fs::read_to_string(&path)?)?);
        }
    }
    programs::copy_folder(&module, &copy)?;
    let file = copy.join("Chart.yaml");
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let mut chart: Value = serde_saphyr::from_str(&text)?;
    chart.as_object_mut().context("Chart.yaml is no map")?.remove("dependencies");
    // JSON is YAML.
    fs::write(&file, chart.to_string())?;
    let _ = fs::remove_file(copy.join("Chart.lock"));
    Ok((crds, copy))
}

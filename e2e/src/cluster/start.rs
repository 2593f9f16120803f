//! Starting the four programs in order, each awaited where the next one needs it.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};

use super::{Cluster, Etcd, Options, Program, READY_WITHIN, identity};
use crate::{
    child::{Child, Launch},
    pki::{self, Authority},
    ports::{self, Port},
    programs,
    rig::Rig,
};

/// Everything at Metadata level, once per request: the log is the oracle, not a history of bodies.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
";

/// The hosts that the API server's certificate is good for.
pub(super) const HOSTS: [&str; 5] = [
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

pub(super) async fn start(rig: &Arc<Rig>, name: &str, options: Options) -> Result<Cluster> {
    let kubernetes = |group: &programs::Group| group.folder == "kubernetes";
    tokio::task::spawn_blocking(move || programs::ensure_only(kubernetes)).await??;
    let began = Instant::now();
    let folder = rig.subfolder(name)?;
    let [port, manager, scheduler] = [ports::take()?, ports::take()?, ports::take()?];
    let url = format!("https://{}", port.address());
    let authority = Authority::new("kit")?;
    write_identities(&folder, &url, &authority)?;
    write_fixed(&folder)?;

    let etcd = match &options.etcd {
        Some(shared) => shared.clone(),
        None => Etcd::start(rig, name, &folder)?,
    };
    let apiserver_launch = apiserver(name, &folder, &port, &etcd.url(), &options);
    let apiserver = apiserver_launch.start(rig)?;
    let kubeconfig = folder.join("admin.kubeconfig");
    let client = Client::try_from(identity::config(&kubeconfig).await?)?;
    if let Err(error) = ready(&client, &apiserver).await {
        etcd.must_run()?;
        return Err(error);
    }
    let mut controllers = Vec::new();
    if options.controller_manager {
        let launch = controller_manager(name, &folder, &manager, &options);
        let child = launch.start(rig)?;
        controllers_work(&client, &child).await?;
        controllers.push(Program { launch, child });
    }
    if options.scheduler {
        let launch = self::scheduler(name, &folder, &scheduler);
        let child = launch.start(rig)?;
        controllers.push(Program { launch, child });
    }
    eprintln!("kit: cluster {name} works after {:.1} s", began.elapsed().as_secs_f32());
    Ok(Cluster {
        name: name.to_owned(),
        controllers,
        apiserver: Mutex::new(Some(apiserver)),
        etcd,
        apiserver_launch,
        folder,
        kubeconfig,
        authority,
        port,
        _ports: [manager, scheduler],
        rig: rig.clone(),
    })
}

/// Waits until the API server says it is ready.
pub(super) async fn ready(client: &Client, apiserver: &Child) -> Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        apiserver.must_run()?;
        let request = http::Request::get("/readyz").body(Vec::new())?;
        match client.request_text(request).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= deadline => {
                return Err(error).with_context(|| {
                    format!("{} is not ready:\n{}", apiserver.name(), apiserver.log_tail(20))
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The default ServiceAccount is made by a controller: where it is, controllers work.
async fn controllers_work(client: &Client, manager: &Child) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let deadline = Instant::now() + READY_WITHIN;
    while accounts.get_opt("default").await?.is_none() {
        manager.must_run()?;
        anyhow::ensure!(Instant::now() < deadline, "controllers do nothing:\n{}", manager.log_tail(20));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// What an authority signs: the API server's certificate and the clients that belong to the control plane.
pub(super) fn write_identities(folder: &Path, url: &str, authority: &Authority) -> Result<()> {
    authority.identity().write(folder, "ca")?;
    authority.server("kube-apiserver", &HOSTS)?.write(folder, "apiserver")?;
    for user in ["admin", "kube-controller-manager", "kube-scheduler"] {
        let (certificate, key) = authority.client(user, "system:masters")?.write(folder, user)?;
        let path = folder.join(format!("{user}.kubeconfig"));
        identity::write_certificate(&path, url, &folder.join("ca.crt"), (&certificate, &key))?;
    }
    Ok(())
}

/// What stays when the authority is replaced.
fn write_fixed(folder: &Path) -> Result<()> {
    let (private, public) = pki::signing_key()?;
    fs::write(folder.join("tokens.key"), private)?;
    fs::write(folder.join("tokens.pub"), public)?;
    fs::write(folder.join("audit-policy.yaml"), AUDIT_POLICY)?;
    Ok(())
}

fn apiserver(cluster: &str, folder: &Path, port: &Port, etcd: &str, options: &Options) -> Launch {
    let file = |name: &str| folder.join(name).display().to_string();
    Launch::new(format!("{cluster}-kube-apiserver"), programs::kube_apiserver())
        .args([
            flag("etcd-servers", etcd),
            flag("etcd-prefix", options.etcd.as_ref().map_or("/registry".into(), |_| format!("/{cluster}"))),
            flag("bind-address", "127.0.0.1"),
            flag("advertise-address", "127.0.0.1"),
            flag("external-hostname", "localhost"),
            flag("secure-port", port.number()),
            flag("cert-dir", file("apiserver-certs")),
            flag("tls-cert-file", file("apiserver.crt")),
            flag("tls-private-key-file", file("apiserver.key")),
            flag("client-ca-file", file("ca.crt")),
            flag("service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
            flag("service-account-key-file", file("tokens.pub")),
            flag("service-account-signing-key-file", file("tokens.key")),
            flag("service-cluster-ip-range", &options.service_networks),
            flag("authorization-mode", "Node,RBAC"),
            flag("allow-privileged", true),
            // There is no node on which the address of the `kubernetes` Service would mean anything.
            flag("endpoint-reconciler-type", "none"),
            flag("audit-policy-file", file("audit-policy.yaml")),
            flag("audit-log-path", file("audit.log")),
            // Never rotated: the oracle reads one file.
            flag("audit-log-maxsize", 100_000),
        ])
        .args(&options.apiserver_flags)
}

fn controller_manager(cluster: &str, folder: &Path, port: &Port, options: &Options) -> Launch {
    let file = |name: &str| folder.join(name).display().to_string();
    Launch::new(format!("{cluster}-kube-controller-manager"), programs::kube_controller_manager()).args([
        flag("kubeconfig", file("kube-controller-manager.kubeconfig")),
        flag("bind-address", "127.0.0.1"),
        flag("secure-port", port.number()),
        flag("cert-dir", file("kube-controller-manager-certs")),
        flag("leader-elect", false),
        flag("controllers", "*,bootstrap-signer-controller,token-cleaner-controller"),
        flag("use-service-account-credentials", true),
        flag("service-account-private-key-file", file("tokens.key")),
        flag("root-ca-file", file("ca.crt")),
        flag("cluster-signing-cert-file", file("ca.crt")),
        flag("cluster-signing-key-file", file("ca.key")),
        flag("service-cluster-ip-range", &options.service_networks),
        // At the default of 20 requests a second its controllers take six seconds to get their tokens.
        flag("kube-api-qps", 1000),
        flag("kube-api-burst", 2000),
        // Hand-made nodes have no heartbeat; their pods must not be evicted for it.
        flag("node-monitor-grace-period", "24h"),
    ])
}

fn scheduler(cluster: &str, folder: &Path, port: &Port) -> Launch {
    let file = |name: &str| folder.join(name).display().to_string();
    Launch::new(format!("{cluster}-kube-scheduler"), programs::kube_scheduler()).args([
        flag("kubeconfig", file("kube-scheduler.kubeconfig")),
        flag("bind-address", "127.0.0.1"),
        flag("secure-port", port.number()),
        flag("cert-dir", file("kube-scheduler-certs")),
        flag("leader-elect", false),
    ])
}

pub(super) fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

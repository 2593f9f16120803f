//! The kit's own promise: tenant clusters are published, go away and come back as Cluster API and Kamaji do it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use kmetal_e2e::{
    cluster::{self, Cluster},
    environment::Environment,
    faults::{Door, Select},
    rig::Rig,
    tenant_cluster::{Options, TenantCluster},
    wait::eventually,
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

const ENVIRONMENT: &str = "acme-prod";
const SHOP: &str = "shop";
const SECRET: &str = "shop-kubeconfig";

async fn secrets(under: &Cluster) -> Result<Api<Secret>> {
    Ok(Api::namespaced(under.client().await?, ENVIRONMENT))
}

/// What is published of the Cluster.
async fn published(under: &Cluster) -> Result<String> {
    let secret = secrets(under).await?.get(SECRET).await?;
    let value = secret.data.context("no data")?.remove("value").context("no key value")?;
    Ok(String::from_utf8(value.0)?)
}

/// A client of a published kubeconfig, for one connection.
async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.connect_timeout = Some(Duration::from_secs(2));
    config.read_timeout = Some(Duration::from_secs(2));
    Ok(Client::try_from(config)?)
}

async fn opens(kubeconfig: &str) -> Result<()> {
    let services: Api<Service> = Api::namespaced(client(kubeconfig).await?, "default");
    services.list(&ListParams::default()).await?;
    Ok(())
}

/// Why it does not open.
async fn stays_shut(kubeconfig: &str, otherwise: &str) -> Result<String> {
    opens(kubeconfig).await.err().map(|error| format!("{error:#}")).context(otherwise.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_cluster_is_published_cut_off_renewed_deleted_and_made_again() -> Result<()> {
    let options = cluster::Options { scheduler: false, ..cluster::Options::default() };
    let under = Cluster::start_in(&Rig::new("tenant-cluster")?, "under", options).await?;
    let environment = Environment::labelled(&under, "acme", ENVIRONMENT).await?;
    let shop = TenantCluster::start_unpublished(&under, ENVIRONMENT, SHOP, Options::on("front")).await?;
    ensure!(secrets(&under).await?.get_opt(SECRET).await?.is_none(), "nobody reaches it yet");
    drop(shop);
    let mut shop = TenantCluster::start(&under, ENVIRONMENT, SHOP, Options::on("front")).await?;
    as_cluster_api_shows_it(&under, &shop).await?;
    it_is_cut_off_and_comes_back(&under, &shop).await?;
    its_certificates_are_renewed(&under, &mut shop).await?;

    let (uid, kubeconfig) = (shop.uid().to_owned(), published(&under).await?);
    shop.delete().await?;
    ensure!(secrets(&under).await?.get_opt(SECRET).await?.is_none(), "the Secret outlives its Cluster");
    let again = TenantCluster::start(&under, ENVIRONMENT, SHOP, Options::plain().annotated("a", "b")).await?;
    ensure!(again.uid() != uid, "the same Cluster");
    let other = TenantCluster::start(&under, ENVIRONMENT, "other", Options::plain()).await?;
    nothing_is_shared(&kubeconfig, &again, &other).await?;

    environment.delete().await?;
    again.finish_deletion().await?;
    other.finish_deletion().await?;
    under.wait_gone::<Namespace>(None, ENVIRONMENT).await?;
    under.finish();
    Ok(())
}

async fn as_cluster_api_shows_it(under: &Cluster, shop: &TenantCluster) -> Result<()> {
    let cluster = shop.object().await?.context("no Cluster")?;
    ensure!(cluster.data.pointer("/spec/topology/variables/0/value/subnet") == Some(&json!("front")));
    ensure!(cluster.data.pointer("/status/initialization/controlPlaneInitialized") == Some(&json!(true)));
    let host = cluster.data.pointer("/spec/controlPlaneEndpoint/port").and_then(serde_json::Value::as_u64);
    ensure!(host == Some(shop.cluster().port().into()), "{host:?}");
    let secret = secrets(under).await?.get(SECRET).await?;
    ensure!(secret.type_.as_deref() == Some("cluster.x-k8s.io/secret"));
    ensure!(secret.labels().get("cluster.x-k8s.io/cluster-name").is_some_and(|name| name == SHOP));
    let owner = secret.owner_references().first().context("an orphan")?;
    ensure!(owner.kind == "KamajiControlPlane" && owner.controller == Some(true), "{owner:?}");
    opens(&published(under).await?).await?;
    let services: Api<Service> = Api::namespaced(shop.client().await?, "default");
    let service = json!({
        "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    let service = services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    let port = service.spec.and_then(|spec| spec.ports?.first()?.node_port);
    ensure!(port.is_some(), "a LoadBalancer without node port");
    Ok(())
}

async fn it_is_cut_off_and_comes_back(under: &Cluster, shop: &TenantCluster) -> Result<()> {
    let kubeconfig = published(under).await?;
    shop.hang()?;
    let told = stays_shut(&kubeconfig, "a hanging server answers").await?;
    ensure!(!told.to_lowercase().contains("refused"), "it hangs, it does not refuse: {told}");
    shop.resume()?;
    eventually("it answers again", Duration::from_secs(20), async || opens(&kubeconfig).await.map(Some))
        .await?;
    shop.stop()?;
    stays_shut(&kubeconfig, "a stopped server answers").await?;
    shop.start_again().await?;
    opens(&kubeconfig).await?;

    let proxy = shop.through_proxy().await?;
    let through = published(under).await?;
    opens(&through).await?;
    ensure!(proxy.count(&Select::lists()) == 1, "it went another way");
    proxy.door(Door::Silent);
    stays_shut(&through, "a silent proxy lets through").await?;
    opens(&kubeconfig).await
}

async fn its_certificates_are_renewed(under: &Cluster, shop: &mut TenantCluster) -> Result<()> {
    shop.renew_kubeconfig().await?;
    let first = published(under).await?;
    shop.renew_kubeconfig().await?;
    let second = published(under).await?;
    ensure!(first != second, "the same certificate");
    opens(&first).await?;
    opens(&second).await?;

    shop.publish_for(Duration::from_secs(3)).await?;
    let short = published(under).await?;
    opens(&short).await?;
    eventually("a certificate expires", Duration::from_secs(20), async || {
        Ok(opens(&short).await.err().map(|error| format!("{error:#}")))
    })
    .await?;

    let shown = serving_certificate(shop).await?;
    shop.cluster().renew_serving_certificate()?;
    let wait = under.wait_for("the API server shows its new certificate").await?;
    wait.until(async || Ok((serving_certificate(shop).await? != shown).then_some(()))).await?;
    opens(&second).await?;

    shop.renew_authority().await?;
    stays_shut(&second, "a certificate of the authority before opens it").await?;
    opens(&published(under).await?).await
}

/// What a new connection is shown. openssl is there where Open vSwitch is.
async fn serving_certificate(shop: &TenantCluster) -> Result<String> {
    let address = format!("127.0.0.1:{}", shop.cluster().port());
    let launch =
        kmetal_e2e::child::Launch::new("openssl", "openssl").args(["s_client", "-connect", &address]);
    let shown = tokio::task::spawn_blocking(move || launch.output()).await??;
    let start = shown.find("-----BEGIN CERTIFICATE").context("no certificate is shown")?;
    let end = shown.find("-----END CERTIFICATE").context("no certificate is shown")?;
    Ok(shown[start..end].to_owned())
}

/// Neither an earlier cluster of the name nor a neighbour in the same store.
async fn nothing_is_shared(old: &str, again: &TenantCluster, other: &TenantCluster) -> Result<()> {
    stays_shut(old, "the kubeconfig of the earlier Cluster opens something").await?;
    for tenant in [again, other] {
        let services: Api<Service> = Api::all(tenant.client().await?);
        let names: Vec<String> =
            services.list(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();
        ensure!(!names.iter().any(|name| name == "web"), "{}: {names:?}", tenant.name());
    }
    let namespaces: Api<Namespace> = Api::all(again.client().await?);
    namespaces
        .create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "mine"}}))?)
        .await?;
    let theirs: Api<Namespace> = Api::all(other.client().await?);
    ensure!(theirs.get_opt("mine").await?.is_none(), "one store, one content");
    Ok(())
}

//! How kmetal-networking joins the shared suite.

use std::fmt::Debug;

use anyhow::{Result, bail};
use k8s_openapi::{ClusterResourceScope, api::core::v1::Pod};
use kmetal_crds::{
    foreign::{
        kube_ovn::{OvnEip, OvnSnatRule, Subnet, Vpc},
        multus::NetworkAttachmentDefinition,
    },
    names::{CLAIM_NAME, CLAIM_NAMESPACE},
    networking::{EipClaim, SubnetClaim, VpcClaim},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams},
    core::{ApiResource, DynamicObject},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{NAME, NAMESPACE, Offer, values};
use crate::{
    chart::Chart,
    cluster::Cluster,
    ovn::{provider_network::ProviderNetwork, under_cluster::UnderCluster},
    suite::{
        kind::Kind,
        scenario::{Scenario, Story, Tamper},
    },
    wait::{READY, not_ready},
};

/// A VPC with a way out and a subnet in it, with a machine; beside it a public address.
pub struct Networks {
    under: UnderCluster,
    chart: Chart,
}

impl Scenario for Networks {
    const PROCESS: &'static str = NAME;

    /// 1: a VPC without a way out, whose subnet goes before it.
    const PLOTS: usize = 2;
    /// 2: the way out is taken away again, and the machine goes first. Kube-OVN has lapses here, each of which takes half
    /// a minute to mend.
    const MORE_PLOTS: usize = 1;

    async fn world(name: &str) -> Result<Self> {
        let under = UnderCluster::start(name).await?;
        let internet = ProviderNetwork::new("internet", "203.0.113.0/24", "203.0.113.1");
        under.provider_networks(std::slice::from_ref(&internet)).await?;
        let chart = Chart::ours(NAME, NAMESPACE, values(&[Offer::from(internet)]));
        chart.install(under.cluster()).await?;
        Ok(Self { under, chart })
    }

    fn cluster(&self) -> &Cluster {
        self.under.cluster()
    }

    fn chart(&self) -> &Chart {
        &self.chart
    }

    fn kinds() -> Vec<Kind> {
        vec![
            Kind::own::<VpcClaim>(),
            Kind::own::<SubnetClaim>(),
            Kind::own::<EipClaim>(),
            // Kube-OVN 1.16 now and then does not note which kind of NAT rule an address has, though the rule is there.
            Kind::child::<OvnEip>().assigned(&["/spec/v4Ip", "/spec/macAddress"]).noise(&["/status/nat"]),
            Kind::child::<Vpc>(),
            // Of the segment's Subnet: which addresses are in use, beside how many.
            Kind::child::<Subnet>().noise(&["/status/v4availableIPrange", "/status/v4usingIPrange"]),
            Kind::child::<OvnSnatRule>(),
            Kind::child::<NetworkAttachmentDefinition>(),
        ]
    }

    async fn begin(&self, story: &Story) -> Result<()> {
        let Story { namespace, name, plot } = story;
        let egress = if *plot == 1 { json!({}) } else { json!({"egress": {}}) };
        self.apply("VpcClaim", story, egress).await?;
        self.apply("SubnetClaim", story, json!({"vpc": name, "cidr": "10.1.0.0/24"})).await?;
        if *plot == 1 {
            return Ok(());
        }
        self.apply("EipClaim", story, json!({})).await?;
        self.cluster().wait_condition::<SubnetClaim>(Some(namespace), name, READY).await?;
        self.under.workload(namespace, name, name).await?;
        if *plot == 2 {
            self.apply("VpcClaim", story, json!({})).await?;
        }
        Ok(())
    }

    async fn done(&self, Story { namespace, name, plot }: &Story) -> Result<()> {
        let cluster = self.cluster();
        cluster.wait_condition::<VpcClaim>(Some(namespace), name, READY).await?;
        cluster.wait_condition::<SubnetClaim>(Some(namespace), name, READY).await?;
        if *plot != 1 {
            cluster.wait_condition::<EipClaim>(Some(namespace), name, READY).await?;
        }
        Ok(())
    }

    async fn remove(&self, story: &Story) -> Result<()> {
        let Story { namespace, name, plot } = story;
        let client = self.under.client().await?;
        let asked = DeleteParams::default();
        let vpcs: Api<VpcClaim> = Api::namespaced(client.clone(), namespace);
        let subnets: Api<SubnetClaim> = Api::namespaced(client.clone(), namespace);
        if *plot == 1 {
            subnets.delete(name, &asked).await?;
            vpcs.delete(name, &asked).await?;
            return Ok(());
        }
        Api::<EipClaim>::namespaced(client.clone(), namespace).delete(name, &asked).await?;
        let machines: Api<Pod> = Api::namespaced(client, namespace);
        let at_once = DeleteParams::default().grace_period(0);
        if *plot == 2 {
            machines.delete(name, &at_once).await?;
            subnets.delete(name, &asked).await?;
            vpcs.delete(name, &asked).await?;
        } else {
            vpcs.delete(name, &asked).await?;
            subnets.delete(name, &asked).await?;
            self.cluster().wait_condition::<SubnetClaim>(Some(namespace), name, not_ready("InUse")).await?;
            machines.delete(name, &at_once).await?;
        }
        Ok(())
    }

    async fn elsewhere(&self) -> Result<Vec<String>> {
        self.under.ovn().rows().await
    }

    async fn tampers(&self, story: &Story) -> Result<Vec<Tamper>> {
        let client = self.under.client().await?;
        let vpc = stands_for::<Vpc>(&client, story).await?;
        let subnet = stands_for::<Subnet>(&client, story).await?;
        let attachment = Kind::child::<NetworkAttachmentDefinition>().resource;
        Ok(vec![
            tamper::<Vpc>(&vpc, json!({"spec": {"policyRoutes": []}})),
            tamper::<Vpc>(&vpc, json!({"spec": {"staticRoutes": []}})),
            tamper::<Subnet>(&subnet, json!({"spec": {"enableDHCP": false}})),
            Tamper {
                resource: attachment,
                namespace: Some(story.namespace.clone()),
                name: story.name.clone(),
                change: Some(json!({"spec": {"config": "{}"}})),
            },
        ])
    }

    fn poison(&self, story: &Story) -> Vec<DynamicObject> {
        let subnet = |name: &str, spec: Value| ("SubnetClaim", name.to_owned(), spec);
        let long = "x".repeat(63 - "-heavy".len() - story.name.len() - 1);
        let poison = [
            ("VpcClaim", "nowhere".to_owned(), json!({"egress": {"providerNetwork": "nowhere"}})),
            ("EipClaim", "nowhere".to_owned(), json!({"providerNetwork": "nowhere"})),
            ("EipClaim", "outside".to_owned(), json!({"address": "255.255.255.255"})),
            subnet("nobody", json!({"vpc": "nobody", "cidr": "10.0.0.0/24"})),
            subnet("bits", json!({"vpc": "nobody", "cidr": "10.0.0.1/24"})),
            subnet("number", json!({"vpc": "nobody", "cidr": "999.0.0.0/24"})),
            subnet("loop", json!({"vpc": "nobody", "cidr": "127.0.0.0/8"})),
            subnet("all", json!({"vpc": "nobody", "cidr": "0.0.0.0/0"})),
            subnet(&long, json!({"vpc": "nobody", "cidr": "10.0.0.0/24,::/0"})),
        ];
        let object = |(kind, name, spec): (&str, String, Value)| {
            let name = format!("{}-{name}", story.name);
            let mut object =
                DynamicObject::new(&name, &ApiResource::erase::<VpcClaim>(&())).within(&story.namespace);
            if let Some(types) = &mut object.types {
                kind.clone_into(&mut types.kind);
            }
            object.data = json!({"spec": spec});
            object
        };
        poison.into_iter().map(object).collect()
    }

    fn finish(self) {
        self.under.finish();
    }
}

impl Networks {
    async fn apply(&self, kind: &str, story: &Story, spec: Value) -> Result<()> {
        let claim = json!({
            "apiVersion": "networking.kmetal.clastix.io/v1alpha1",
            "kind": kind,
            "metadata": {"name": story.name, "namespace": story.namespace},
            "spec": spec,
        });
        self.cluster().apply_yaml(&claim.to_string()).await
    }
}

/// The name of the object that stands for the claim of this story.
async fn stands_for<K>(client: &Client, story: &Story) -> Result<String>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
{
    let labels = format!("{CLAIM_NAMESPACE}={},{CLAIM_NAME}={}", story.namespace, story.name);
    let found = Api::<K>::all(client.clone()).list(&ListParams::default().labels(&labels)).await?;
    let [one] = &found.items[..] else { bail!("{} {}s for {}", found.items.len(), K::kind(&()), story.name) };
    Ok(one.name_any())
}

fn tamper<K: Resource<DynamicType = ()>>(name: &str, change: Value) -> Tamper {
    let resource = ApiResource::erase::<K>(&());
    Tamper { resource, namespace: None, name: name.to_owned(), change: Some(change) }
}

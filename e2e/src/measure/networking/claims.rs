//! The claims that are measured with, and how they are made, waited for and taken away.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kmetal_crds::{
    condition::{self, READY},
    networking::{EipClaim, EipClaimSpec, SubnetClaim, SubnetClaimSpec, VpcClaim, VpcClaimSpec},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams},
    core::NamespaceResourceScope,
};

use crate::measure::{
    bare,
    bench::{Bench, LARGE},
    watching::Watching,
};

/// As many requests a client of ours has under way; our process does as many reconciles of a kind.
pub const AT_ONCE: usize = 8;
/// What thousands of claims may take on a slow machine.
pub const PATIENCE: Duration = Duration::from_mins(10);

/// A claim of any kind.
pub trait Claim {
    /// What it says of itself.
    fn conditions(&self) -> &[Condition];

    /// Whether it is Ready.
    fn is_ready(&self) -> bool {
        condition::is_true(self.conditions(), READY)
    }

    /// The reason and the message of its Ready, when that is False.
    fn refusal(&self) -> Option<(&str, &str)> {
        let ready = condition::get(self.conditions(), READY).filter(|ready| ready.status == "False")?;
        Some((&ready.reason, &ready.message))
    }
}

impl Claim for VpcClaim {
    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }
}

impl Claim for SubnetClaim {
    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }
}

impl Claim for EipClaim {
    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }
}

/// A VpcClaim without a way out.
pub fn vpc(namespace: &str, name: &str) -> VpcClaim {
    within(VpcClaim::new(name, VpcClaimSpec::default()), namespace)
}

/// A SubnetClaim for the `nth` /24 of 10.0.0.0/8.
pub fn subnet(namespace: &str, name: &str, vpc: &str, nth: usize) -> SubnetClaim {
    let cidr = format!("10.{}.{}.0/24", nth / 256, nth % 256);
    let spec = SubnetClaimSpec { vpc: vpc.into(), cidr, ..SubnetClaimSpec::default() };
    within(SubnetClaim::new(name, spec), namespace)
}

/// An EipClaim on a provider network.
pub fn eip(namespace: &str, name: &str, network: &str, address: Option<String>) -> EipClaim {
    let spec = EipClaimSpec { provider_network: Some(network.into()), address };
    within(EipClaim::new(name, spec), namespace)
}

fn within<K: Resource>(mut object: K, namespace: &str) -> K {
    object.meta_mut().namespace = Some(namespace.into());
    object
}

/// The `Api` of the namespace that an object lies in.
pub fn api_of<K>(client: &Client) -> impl Fn(&K) -> Api<K> + use<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let client = client.clone();
    move |object| Api::namespaced(client.clone(), &object.namespace().unwrap_or_default())
}

/// How many claims of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// VpcClaims.
    pub vpcs: usize,
    /// SubnetClaims.
    pub subnets: usize,
    /// EipClaims.
    pub eips: usize,
}

impl Count {
    /// All of them.
    pub fn all(self) -> usize {
        self.vpcs + self.subnets + self.eips
    }
}

/// How many claims of a mixed Environment are of each kind: a hundred, of which most are subnets.
pub const MIXED: Count = Count { vpcs: 10, subnets: 80, eips: 10 };

/// All claims of a bench, as they are now.
pub struct Claims {
    client: Client,
    /// VpcClaims.
    pub vpcs: Watching<VpcClaim>,
    /// SubnetClaims.
    pub subnets: Watching<SubnetClaim>,
    /// EipClaims.
    pub eips: Watching<EipClaim>,
}

impl Claims {
    /// Follows the claims of this bench.
    pub async fn of(bench: &Bench) -> Result<Self> {
        let client = bench.client();
        Ok(Self {
            vpcs: Watching::start(Api::all(client.clone())).await?,
            subnets: Watching::start(Api::all(client.clone())).await?,
            eips: Watching::start(Api::all(client.clone())).await?,
            client,
        })
    }

    /// Makes a tenant's Environment with claims of every kind, [`MIXED`] unless told otherwise.
    pub async fn populate(&self, bench: &Bench, environment: &str, count: Count) -> Result<()> {
        bench.environment(environment, environment).await?;
        let vpcs = (0..count.vpcs).map(|n| vpc(environment, &format!("net-{n}")));
        bare::create_all(vpcs.collect(), AT_ONCE, api_of(&self.client)).await?;
        let subnets = (0..count.subnets)
            .map(|n| subnet(environment, &format!("s-{n}"), &format!("net-{}", n % count.vpcs), n));
        bare::create_all(subnets.collect(), AT_ONCE, api_of(&self.client)).await?;
        let eips = (0..count.eips).map(|n| eip(environment, &format!("a-{n}"), LARGE.0, None));
        bare::create_all(eips.collect(), AT_ONCE, api_of(&self.client)).await?;
        Ok(())
    }

    /// Waits until so many are Ready.
    pub async fn ready(&self, count: Count) -> Result<()> {
        self.vpcs.until_count("VpcClaims are Ready", PATIENCE, count.vpcs, Claim::is_ready).await?;
        self.subnets.until_count("SubnetClaims are Ready", PATIENCE, count.subnets, Claim::is_ready).await?;
        self.eips.until_count("EipClaims are Ready", PATIENCE, count.eips, Claim::is_ready).await
    }

    /// Deletes every claim of an Environment and waits until none is left.
    pub async fn clear(&self, environment: &str) -> Result<()> {
        let (deletion, all) = (DeleteParams::default(), ListParams::default());
        let client = || self.client.clone();
        Api::<SubnetClaim>::namespaced(client(), environment).delete_collection(&deletion, &all).await?;
        Api::<EipClaim>::namespaced(client(), environment).delete_collection(&deletion, &all).await?;
        Api::<VpcClaim>::namespaced(client(), environment).delete_collection(&deletion, &all).await?;
        let there = |namespace: Option<String>| namespace.as_deref() == Some(environment);
        self.subnets.until_count("SubnetClaims are left", PATIENCE, 0, |c| there(c.namespace())).await?;
        self.eips.until_count("EipClaims are left", PATIENCE, 0, |c| there(c.namespace())).await?;
        self.vpcs.until_count("VpcClaims are left", PATIENCE, 0, |c| there(c.namespace())).await
    }
}

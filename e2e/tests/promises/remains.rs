//! What is left of claims, in the API and in OVN itself.
//!
//! OVN is compared with what it was before the first claim, row by row, so a kind of row that nobody thought of counts
//! as well.

use std::{fmt::Debug, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::ClusterResourceScope;
use kmetal_crds::{
    foreign::{
        kube_ovn::{OvnDnatRule, OvnEip, OvnSnatRule, Subnet, Vpc},
        multus::NetworkAttachmentDefinition,
    },
    names::CLAIM_UID,
    networking::{SubnetClaim, VpcClaim},
};
use kmetal_e2e::{networking::Networking, ovn::Ovn};
use kube::{Api, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;

/// OVN as it was at a moment.
pub struct Before(Vec<String>);

impl Before {
    /// OVN as it is now; ask before the first claim.
    pub async fn claims(networking: &Networking) -> Result<Self> {
        Ok(Self(networking.under().ovn().rows().await?))
    }

    /// Waits until no claim is left, no object of one, and OVN is what it was.
    pub async fn nothing_is_left(&self, networking: &Networking) -> Result<()> {
        let cluster = networking.under().cluster();
        let wait = cluster.wait_for("nothing is left of the claims, in the API and in OVN").await?;
        // Where Kube-OVN forgets something, it takes half a minute until that is noticed and mended.
        wait.within(Duration::from_mins(3))
            .showing_all::<VpcClaim>(None)
            .showing_all::<SubnetClaim>(None)
            .showing_all::<Vpc>(None)
            .until(async || {
                let objects = objects(networking).await?;
                ensure!(objects.is_empty(), "the API has {objects:?}");
                self.is_again(networking.under().ovn()).await?;
                Ok(Some(()))
            })
            .await
    }

    /// Whether OVN is what it was; the error tells the difference.
    pub async fn is_again(&self, ovn: &Ovn) -> Result<()> {
        let now = ovn.rows().await?;
        let only = |these: &[String], those: &[String]| -> Vec<String> {
            these.iter().filter(|row| !those.contains(row)).cloned().collect()
        };
        let (more, less) = (only(&now, &self.0), only(&self.0, &now));
        ensure!(more.is_empty() && less.is_empty(), "OVN has {more:?} too many and misses {less:?}");
        ensure!(now.len() == self.0.len(), "OVN has rows twice: {now:?}");
        Ok(())
    }
}

/// Every claim, and every object that stands for one: `kind namespace/name`.
pub async fn objects(networking: &Networking) -> Result<Vec<String>> {
    let client = networking.under().client().await?;
    let labelled = ListParams::default().labels(CLAIM_UID);
    let all = ListParams::default();
    let mut found = listed(&Api::<VpcClaim>::all(client.clone()), &all).await?;
    found.extend(listed(&Api::<SubnetClaim>::all(client.clone()), &all).await?);
    found.extend(cluster_wide::<Vpc>(networking, &labelled).await?);
    found.extend(cluster_wide::<Subnet>(networking, &labelled).await?);
    // Nobody but the claims' routers has one.
    found.extend(cluster_wide::<OvnSnatRule>(networking, &all).await?);
    found.extend(cluster_wide::<OvnDnatRule>(networking, &all).await?);
    found.extend(cluster_wide::<OvnEip>(networking, &all).await?);
    found.extend(listed(&Api::<NetworkAttachmentDefinition>::all(client), &labelled).await?);
    Ok(found)
}

async fn cluster_wide<K>(networking: &Networking, which: &ListParams) -> Result<Vec<String>>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
{
    listed(&Api::<K>::all(networking.under().client().await?), which).await
}

async fn listed<K>(api: &Api<K>, which: &ListParams) -> Result<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let told = |object: &K| {
        format!("{} {}/{}", K::kind(&()), object.namespace().unwrap_or_default(), object.name_any())
    };
    Ok(api.list(which).await?.items.iter().map(told).collect())
}

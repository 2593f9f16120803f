//! Who shows which address, at every moment and over all tenant clusters.
//!
//! The kit's tenant clusters keep their objects in the under cluster's store, so their versions have one order, and what was
//! shown at once in two clusters can be told from what was shown one after the other.

use std::{collections::BTreeMap, net::Ipv4Addr};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kmetal_e2e::{history::History, services, tenant_cluster::TenantCluster};
use kube::{ResourceExt, core::ApiResource};

/// A recording of the Services of some clusters.
pub struct Shown(Vec<History>);

impl Shown {
    /// From now on.
    pub async fn record(tenants: &[&TenantCluster]) -> Result<Self> {
        let mut histories = Vec::new();
        for tenant in tenants {
            let client = tenant.client().await?;
            histories.push(History::record(&client, &[ApiResource::erase::<Service>(&())]).await?);
        }
        Ok(Self(histories))
    }

    /// That no address was in two Services' status in any version so far. Returns how often one appeared.
    pub async fn each_once(&self) -> Result<usize> {
        let mut versions = Vec::new();
        for (cluster, history) in self.0.iter().enumerate() {
            history.caught_up().await?;
            for version in history.versions::<Service>()? {
                let revision: u64 = version.object.resource_version().context("no version")?.parse()?;
                versions.push((revision, cluster, version));
            }
        }
        versions.sort_by_key(|(revision, ..)| *revision);
        let mut now: BTreeMap<(usize, String), Ipv4Addr> = BTreeMap::new();
        let mut appeared = 0;
        for (revision, cluster, version) in versions {
            let service: Service = serde_json::from_value(serde_json::to_value(&version.object)?)?;
            let who =
                (cluster, format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any()));
            match services::shown(&service).filter(|_| !version.deleted) {
                Some(address) => {
                    let other = now.iter().find(|(other, shown)| **other != who && **shown == address);
                    ensure!(other.is_none(), "at version {revision} {who:?} and {other:?} show {address}");
                    appeared += usize::from(now.insert(who, address) != Some(address));
                }
                None => drop(now.remove(&who)),
            }
        }
        ensure!(appeared > 0, "no address was ever shown");
        Ok(appeared)
    }
}

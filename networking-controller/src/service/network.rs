//! By which VPC a Cluster's Services come in: Cluster → SubnetClaim → VpcClaim → its Vpc, its provider network and
//! the subnets in which workers may be. Pure.

use ipnet::Ipv4Net;
use kmetal_crds::{
    foreign::{
        capi::Cluster,
        kube_ovn::{Subnet, Vpc},
    },
    networking::{SubnetClaim, VpcClaim, service::reason},
};
use kube::ResourceExt;

use super::{demand::Refused, worker::Segment};
use crate::{
    claim::{ClaimRef, Owner, is_deleting},
    cluster::subnet_claim,
    range::Range,
    vpc::attached,
};

/// The way in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Name of the Vpc.
    pub vpc: String,
    /// Uid of the VpcClaim.
    pub vpc_claim_uid: String,
    /// External Subnet that the Vpc is attached to.
    pub external_subnet: String,
    /// Its subnets in IPv4.
    pub segments: Vec<Segment>,
}

/// What was found for a Cluster.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The Cluster.
    pub cluster: &'a Cluster,
    /// The SubnetClaim that it names.
    pub subnet_claim: Option<&'a SubnetClaim>,
    /// The VpcClaim that that one names.
    pub vpc_claim: Option<&'a VpcClaim>,
    /// The Vpc of that name, whoever's it is.
    pub vpc: Option<&'a Vpc>,
    /// The Subnets of that VpcClaim.
    pub subnets: &'a [Subnet],
}

/// The way in.
///
/// # Errors
/// What is missing, for the tenant. It says nothing of what stands already.
pub fn network(found: &Found<'_>) -> Result<Network, Refused> {
    let refused = |reason, message: String| Err(Refused { reason, message });
    let cluster = found.cluster.name_any();
    let Some(subnet) = subnet_claim(found.cluster) else {
        return refused(
            reason::NETWORK_NOT_READY,
            format!(
                "Cluster {cluster} does not say on which SubnetClaim its workers are; set property subnet of its variable network, or on a Cluster without topology the annotation {}",
                kmetal_crds::networking::SUBNET_CLAIM
            ),
        );
    };
    let Some(subnet_claim) = found.subnet_claim else {
        return refused(
            reason::NETWORK_NOT_READY,
            format!(
                "there is no SubnetClaim '{}' in the Environment, which Cluster {cluster} names; create it",
                shown(subnet)
            ),
        );
    };
    let vpc_name = &subnet_claim.spec.vpc;
    let Some(vpc_claim) = found.vpc_claim else {
        return refused(
            reason::NETWORK_NOT_READY,
            format!(
                "there is no VpcClaim '{vpc_name}' in the Environment, which SubnetClaim {} names; create it",
                subnet_claim.name_any()
            ),
        );
    };
    if vpc_claim.spec.egress.is_none() {
        return refused(
            reason::NO_EGRESS,
            format!(
                "VpcClaim {vpc_name}, on which Cluster {cluster} is, has no egress, so nothing comes in either; add spec.egress to it"
            ),
        );
    }
    let vpc = found.vpc.filter(|vpc| {
        ClaimRef::of(vpc_claim).owner(Some(*vpc)) == Owner::Ours
            && !is_deleting(*vpc)
            && !is_deleting(vpc_claim)
    });
    let is_built =
        |vpc: &&Vpc| vpc.status.as_ref().is_some_and(|status| status.standby && status.enable_external);
    let built = vpc.filter(is_built).and_then(|vpc| Some((vpc, attached(Some(vpc))?)));
    let Some((vpc, external_subnet)) = built else {
        return refused(
            reason::NETWORK_NOT_READY,
            format!(
                "VpcClaim {vpc_name}, on which Cluster {cluster} is, is not ready; see its own Ready condition"
            ),
        );
    };
    Ok(Network {
        vpc: vpc.name_any(),
        vpc_claim_uid: vpc_claim.uid().unwrap_or_default(),
        external_subnet: external_subnet.to_owned(),
        segments: found.subnets.iter().filter(|subnet| !is_deleting(*subnet)).filter_map(segment).collect(),
    })
}

fn segment(subnet: &Subnet) -> Option<Segment> {
    let net: Ipv4Net = Range::parse(&subnet.spec.cidr_block).ok()?.v4?;
    let gateway = subnet.spec.gateway.split(',').find_map(|address| address.parse().ok());
    Some(Segment { net, gateway })
}

/// A name out of a tenant's free text, as far as it fits into a message.
pub(super) fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(63).collect()
}

#[cfg(test)]
mod tests {
    use kmetal_crds::{
        foreign::{
            capi::ClusterSpec,
            kube_ovn::{SubnetSpec, VpcSpec, VpcStatus},
        },
        networking::{Egress, SUBNET_CLAIM, SubnetClaimSpec, VpcClaimSpec},
    };

    use super::*;

    struct World {
        cluster: Cluster,
        subnet_claim: Option<SubnetClaim>,
        vpc_claim: Option<VpcClaim>,
        vpc: Option<Vpc>,
        subnets: Vec<Subnet>,
    }

    fn good() -> World {
        let mut cluster = Cluster::new("blue", ClusterSpec::default());
        cluster.annotations_mut().insert(SUBNET_CLAIM.into(), "front".into());
        let mut vpc_claim =
            VpcClaim::new("prod", VpcClaimSpec { egress: Some(Egress { provider_network: None }) });
        vpc_claim.metadata.namespace = Some("acme".into());
        vpc_claim.metadata.uid = Some("uid-prod".into());
        let spec = VpcSpec {
            enable_external: true,
            extra_external_subnets: vec!["ext".into()],
            ..VpcSpec::default()
        };
        let mut vpc = Vpc::new("vpc-x", spec);
        vpc.metadata.labels = Some(ClaimRef::of(&vpc_claim).labels("uid-prod"));
        vpc.status = Some(VpcStatus { standby: true, enable_external: true, ..VpcStatus::default() });
        let subnet = |cidr: &str, gateway: &str| {
            let spec =
                SubnetSpec { cidr_block: cidr.into(), gateway: gateway.into(), ..SubnetSpec::default() };
            Subnet::new("snet", spec)
        };
        World {
            cluster,
            subnet_claim: Some(SubnetClaim::new(
                "front",
                SubnetClaimSpec { vpc: "prod".into(), ..SubnetClaimSpec::default() },
            )),
            vpc_claim: Some(vpc_claim),
            vpc: Some(vpc),
            subnets: vec![
                subnet("10.0.0.0/24", "10.0.0.1"),
                subnet("10.1.0.0/24,fd00:1::/64", "10.1.0.9,fd00:1::1"),
                subnet("fd00:2::/64", "fd00:2::1"),
            ],
        }
    }

    fn of(world: &World) -> Result<Network, Refused> {
        network(&Found {
            cluster: &world.cluster,
            subnet_claim: world.subnet_claim.as_ref(),
            vpc_claim: world.vpc_claim.as_ref(),
            vpc: world.vpc.as_ref(),
            subnets: &world.subnets,
        })
    }

    #[test]
    fn the_way_in_is_that_of_the_clusters_vpc() {
        let network = of(&good()).unwrap();
        assert_eq!((&*network.vpc, &*network.external_subnet), ("vpc-x", "ext"));
        let segment = |net: &str, gateway: &str| Segment {
            net: net.parse().unwrap(),
            gateway: Some(gateway.parse().unwrap()),
        };
        let segments = [segment("10.0.0.0/24", "10.0.0.1"), segment("10.1.0.0/24", "10.1.0.9")];
        assert_eq!(network.segments, segments);
    }

    #[test]
    fn what_is_missing_is_named() {
        type Harm = fn(&mut World);
        let harms: [(Harm, &str, &str); 8] = [
            (|world| world.cluster.metadata.annotations = None, reason::NETWORK_NOT_READY, "Cluster blue"),
            (|world| world.subnet_claim = None, reason::NETWORK_NOT_READY, "SubnetClaim 'front'"),
            (|world| world.vpc_claim = None, reason::NETWORK_NOT_READY, "VpcClaim 'prod'"),
            (
                |world| world.vpc_claim.as_mut().unwrap().spec.egress = None,
                reason::NO_EGRESS,
                "VpcClaim prod",
            ),
            (|world| world.vpc = None, reason::NETWORK_NOT_READY, "VpcClaim prod"),
            (
                |world| world.vpc.as_mut().unwrap().metadata.labels = None,
                reason::NETWORK_NOT_READY,
                "VpcClaim prod",
            ),
            (
                |world| world.vpc.as_mut().unwrap().spec.enable_external = false,
                reason::NETWORK_NOT_READY,
                "VpcClaim prod",
            ),
            (|world| world.vpc.as_mut().unwrap().status = None, reason::NETWORK_NOT_READY, "VpcClaim prod"),
        ];
        for (index, (harm, wanted, named)) in harms.into_iter().enumerate() {
            let mut world = good();
            harm(&mut world);
            let refused = of(&world).unwrap_err();
            assert_eq!(refused.reason, wanted, "{index}");
            assert!(refused.message.contains(named), "{index}: {}", refused.message);
        }
    }
}

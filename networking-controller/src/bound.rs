//! Which public addresses are bound to Services behind which VPC: a VpcClaim counts them, keeps its way out for them,
//! and waits for them when it is deleted.
//!
//! An address is behind a VPC when a rule translates it into it, or when it is bound to a Service of a Cluster whose
//! machines are in it, rules or not: the next pass may make them.

use std::collections::{BTreeSet, HashMap};

use kmetal_crds::{
    foreign::{capi::Cluster, kube_ovn::OvnDnatRule},
    networking::{EipClaim, SubnetClaim},
};
use kmetal_runtime::Result;
use kube::ResourceExt;

use crate::{
    claim::{ClaimRef, Owner, vpc_claim_uid},
    cluster::subnet_claim,
    context::Caches,
    names,
};

/// Everything that the answer depends on.
pub struct Around<'a> {
    /// The rules inside the VPC.
    pub rules: &'a [OvnDnatRule],
    /// The EipClaims of the Environment.
    pub eip_claims: &'a [EipClaim],
    /// Its Clusters.
    pub clusters: &'a [Cluster],
    /// Its SubnetClaims.
    pub subnet_claims: &'a [SubnetClaim],
}

/// Names of the EipClaims that are bound behind the VPC of `vpc_claim`, in order.
pub fn behind(vpc_claim: &str, around: &Around<'_>) -> Vec<String> {
    let translated: BTreeSet<ClaimRef> =
        around.rules.iter().filter_map(|rule| ClaimRef::from_labels(&rule.metadata)).collect();
    let vpc_of: HashMap<String, &str> =
        around.subnet_claims.iter().map(|claim| (claim.name_any(), claim.spec.vpc.as_str())).collect();
    let vpc_of_cluster: HashMap<String, &str> = around
        .clusters
        .iter()
        .filter_map(|cluster| Some((cluster.uid()?, *vpc_of.get(subnet_claim(cluster)?)?)))
        .collect();
    let is_behind = |claim: &EipClaim| {
        let bound = claim.status.as_ref().and_then(|status| status.bound_to.as_ref());
        bound.is_some_and(|bound| {
            translated.contains(&ClaimRef::of(claim))
                || vpc_of_cluster.get(&bound.cluster.uid) == Some(&vpc_claim)
        })
    };
    let names: BTreeSet<String> =
        around.eip_claims.iter().filter(|claim| is_behind(claim)).map(ResourceExt::name_any).collect();
    names.into_iter().collect()
}

/// Whether a rule is of our making and does not say any more whose it is.
pub fn is_torn(rule: &OvnDnatRule) -> bool {
    names::is_dnat_of_ours(&rule.name_any()) && ClaimRef::from_labels(&rule.metadata).is_none()
}

impl Caches {
    /// The EipClaim whose address a rule translates: by its labels, or else by those of the OvnEip.
    pub fn eip_claim_of(&self, rule: &OvnDnatRule) -> Option<ClaimRef> {
        let by_eip = || ClaimRef::from_labels(&self.eips.get_named(&rule.spec.ovn_eip)?.metadata);
        ClaimRef::from_labels(&rule.metadata).or_else(by_eip).filter(|claim| claim.kind == "EipClaim")
    }

    /// The OvnDnatRules in the VPC of a VpcClaim. By name as well: a label may have been taken away.
    pub fn dnats_in(&self, vpc_claim: &ClaimRef) -> Result<Vec<OvnDnatRule>> {
        let vpc = names::vpc(&vpc_claim.namespace, &vpc_claim.name);
        let inside =
            |rule: &OvnDnatRule| vpc_claim_uid(rule) == Some(vpc_claim.uid.as_str()) || rule.spec.vpc == vpc;
        self.dnats_where(inside)
    }

    /// The OvnDnatRules that translate the address of an EipClaim. By address and form of the name as well: the labels may
    /// have been taken away, and such a rule must go like the others.
    pub fn dnats_of(&self, eip_claim: &ClaimRef) -> Result<Vec<OvnDnatRule>> {
        let eip = names::eip(&eip_claim.namespace, &eip_claim.name);
        self.dnats_where(|rule| match eip_claim.owner(Some(rule)) {
            Owner::Ours => true,
            _ => rule.spec.ovn_eip == eip && is_torn(rule),
        })
    }

    /// Something is let go where there is none, so it must be known that there is none.
    fn dnats_where(&self, wanted: impl Fn(&OvnDnatRule) -> bool) -> Result<Vec<OvnDnatRule>> {
        let rules = self.dnats.read(|rules| rules.state_filter(wanted))?;
        Ok(rules.iter().map(|rule| (**rule).clone()).collect())
    }

    /// Names of the EipClaims that are bound behind the VPC of a VpcClaim, in order.
    pub fn bound_behind(&self, vpc_claim: &ClaimRef, rules: &[OvnDnatRule]) -> Vec<String> {
        let namespace = vpc_claim.namespace.as_str();
        let eip_claims: Vec<EipClaim> = self
            .eip_claims_in(namespace)
            .iter()
            .filter(|claim| claim.status.as_ref().is_some_and(|status| status.bound_to.is_some()))
            .map(|claim| (**claim).clone())
            .collect();
        if eip_claims.is_empty() {
            return Vec::new();
        }
        let clusters: Vec<Cluster> =
            self.clusters_in(namespace).iter().map(|cluster| (**cluster).clone()).collect();
        let subnet_claims: Vec<SubnetClaim> =
            self.subnet_claims_in(namespace).iter().map(|claim| (**claim).clone()).collect();
        let around =
            Around { rules, eip_claims: &eip_claims, clusters: &clusters, subnet_claims: &subnet_claims };
        behind(&vpc_claim.name, &around)
    }
}

#[cfg(test)]
mod tests {
    use kmetal_crds::{
        foreign::{capi::ClusterSpec, kube_ovn::OvnDnatRuleSpec},
        networking::{Binding, BoundCluster, EipClaimSpec, EipClaimStatus, SUBNET_CLAIM, SubnetClaimSpec},
    };

    use super::*;

    fn cluster(name: &str, subnet: &str) -> Cluster {
        let mut cluster = Cluster::new(name, ClusterSpec::default());
        cluster.metadata.uid = Some(format!("uid-{name}"));
        cluster.annotations_mut().insert(SUBNET_CLAIM.into(), subnet.into());
        cluster
    }

    fn eip_claim(name: &str, cluster_uid: Option<&str>) -> EipClaim {
        let mut claim = EipClaim::new(name, EipClaimSpec::default());
        claim.metadata.namespace = Some("acme".into());
        claim.metadata.uid = Some(format!("uid-{name}"));
        let cluster = cluster_uid.map(|uid| BoundCluster { uid: uid.into(), ..BoundCluster::default() });
        let bound_to = cluster.map(|cluster| Binding { cluster, ..Binding::default() });
        claim.status = Some(EipClaimStatus { bound_to, ..EipClaimStatus::default() });
        claim
    }

    fn rule(of: &EipClaim) -> OvnDnatRule {
        let mut rule = OvnDnatRule::new("dnat", OvnDnatRuleSpec::default());
        rule.metadata.labels = Some(ClaimRef::of(of).labels("uid-prod"));
        rule
    }

    #[test]
    fn an_address_is_behind_a_vpc_by_its_rules_or_by_its_cluster() {
        let subnet = |name: &str, vpc: &str| {
            SubnetClaim::new(name, SubnetClaimSpec { vpc: vpc.into(), ..SubnetClaimSpec::default() })
        };
        let translated = eip_claim("c-translated", Some("uid-gone"));
        let left = eip_claim("d-left", None);
        let rules = [rule(&translated), rule(&left)];
        let eip_claims = [
            eip_claim("b-cluster", Some("uid-blue")),
            eip_claim("a-free", None),
            eip_claim("e-other-vpc", Some("uid-green")),
            eip_claim("f-earlier-cluster", Some("uid-blue-0")),
            translated,
            left,
        ];
        let around = Around {
            rules: &rules,
            eip_claims: &eip_claims,
            clusters: &[cluster("blue", "front"), cluster("green", "test"), cluster("red", "none")],
            subnet_claims: &[subnet("front", "prod"), subnet("test", "test")],
        };
        assert_eq!(behind("prod", &around), ["b-cluster", "c-translated"]);
        let nothing = Around { rules: &[], eip_claims: &[], ..around };
        assert_eq!(behind("prod", &nothing), [""; 0]);
    }
}

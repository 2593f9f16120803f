//! A world in memory around `plan`: the two API servers and Kube-OVN, as far as a Service's passes can tell them from
//! the real ones. It checks after every write what must hold in every stored version.

use kmetal_crds::{
    condition::READY,
    foreign::kube_ovn::{OvnDnatRuleStatus, OvnEipSpec, OvnEipStatus},
    networking::{Binding, EipClaimSpec, EipClaimStatus, service::EIP_CLAIM},
};
use serde_json::json;

use super::*;
use crate::service::{rules::is_of, worker::Segment};

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Service `shop/web` of Cluster `blue` with TCP 443; `more` of its spec.
pub fn service(uid: &str, more: &serde_json::Value) -> Service {
    let mut spec = json!({
        "type": "LoadBalancer",
        "ipFamilies": ["IPv4"],
        "externalTrafficPolicy": "Cluster",
        "ports": [{ "port": 443, "nodePort": 30443, "protocol": "TCP" }],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let meta = json!({ "name": "web", "namespace": "shop", "uid": uid, "resourceVersion": "1" });
    serde_json::from_value(json!({ "metadata": meta, "spec": spec })).unwrap()
}

pub fn naming(mut service: Service, claim: &str) -> Service {
    service.annotations_mut().insert(EIP_CLAIM.into(), claim.into());
    service
}

/// An EipClaim with this address, Ready.
pub fn claim(name: &str, last: u8) -> EipClaim {
    let mut claim = EipClaim::new(name, EipClaimSpec::default());
    claim.metadata.namespace = Some("acme".into());
    claim.metadata.uid = Some(format!("uid-{name}"));
    allocate(&mut claim, last);
    claim
}

fn allocate(claim: &mut EipClaim, last: u8) {
    let ready = kmetal_crds::condition::conditions(
        &[],
        kmetal_crds::condition::Progress::Ready,
        READY,
        "",
        None,
        at(0),
    );
    claim.status = Some(EipClaimStatus {
        address: Some(format!("203.0.113.{last}")),
        provider_network: Some("internet".into()),
        conditions: ready,
        ..EipClaimStatus::default()
    });
}

pub struct World {
    pub now: i64,
    pub service: Option<Service>,
    pub claims: Vec<EipClaim>,
    pub rules: Vec<OvnDnatRule>,
    pub network: Result<Network, Refused>,
    pub workers: Option<Vec<Worker>>,
    pub endpoints: Option<BTreeMap<String, BTreeSet<String>>>,
    pub over_quota: bool,
    pub kube_ovn: KubeOvn,
    /// Every write, in words.
    pub log: Vec<String>,
}

impl World {
    pub fn with(service: Service, claims: Vec<EipClaim>) -> Self {
        let worker = |name: &str, last| Worker {
            name: name.into(),
            addresses: vec![Ipv4Addr::new(10, 0, 0, last)],
            ready: true,
            schedulable: true,
            ..Worker::default()
        };
        let segment =
            Segment { net: "10.0.0.0/24".parse().unwrap(), gateway: Some(Ipv4Addr::new(10, 0, 0, 1)) };
        Self {
            now: 1_000,
            service: Some(service),
            claims,
            rules: Vec::new(),
            network: Ok(Network {
                vpc: "vpc".into(),
                vpc_claim_uid: "uid-prod".into(),
                external_subnet: "ext".into(),
                segments: vec![segment],
            }),
            workers: Some(vec![worker("a", 10), worker("b", 11)]),
            endpoints: Some(BTreeMap::new()),
            over_quota: false,
            kube_ovn: KubeOvn::Running,
            log: Vec::new(),
        }
    }

    pub fn service(&mut self) -> &mut Service {
        self.service.as_mut().unwrap()
    }

    pub fn claim(&mut self, name: &str) -> &mut EipClaim {
        self.claims.iter_mut().find(|claim| claim.name_any() == name).unwrap()
    }

    pub fn seen(&self) -> Seen {
        let service = self.service.as_ref().unwrap();
        let uid = service.uid().unwrap();
        let wanted = match Demand::check(service).map(|demand| demand.wish) {
            Ok(Wish::Named(name)) => Some(name),
            Ok(Wish::Own(_)) => Some(names::own_claim(&uid)),
            Err(_) => None,
        };
        let claim = self.claims.iter().find(|claim| Some(claim.name_any()) == wanted).cloned();
        let eip = claim.as_ref().filter(|claim| address(claim).is_some()).map(|claim| {
            let spec = OvnEipSpec { external_subnet: "ext".into(), type_: "nat".into(), v4_ip: None };
            let mut eip = OvnEip::new(&names::eip("acme", &claim.name_any()), spec);
            eip.status = Some(OvnEipStatus { ready: true, ..OvnEipStatus::default() });
            eip
        });
        let tied = |claim: &&EipClaim| {
            let bound = claim.status.as_ref().and_then(|status| status.bound_to.as_ref());
            bound.is_some_and(|bound| bound.service.uid == uid) || is_own(claim, "uid-blue", &uid)
        };
        Seen {
            cluster: InCluster { namespace: "acme".into(), name: "blue".into(), uid: "uid-blue".into() },
            kube_ovn: self.kube_ovn.clone(),
            network: self.network.clone(),
            provider_network: Some("internet".into()),
            rules: self.rules.clone(),
            ties: self.claims.iter().filter(tied).cloned().collect(),
            claim,
            eip,
            pending: BTreeSet::new(),
            workers: self.workers.clone(),
            endpoints: self.endpoints.clone(),
            over_quota: self.over_quota,
            own_waiting: 0,
        }
    }

    pub fn plan(&self) -> Plan {
        plan(self.service.as_ref().unwrap(), &self.seen(), at(self.now))
    }

    /// One pass; false when it changed nothing.
    pub fn pass(&mut self) -> bool {
        let plan = self.plan();
        let wrote = self.log.len();
        for change in plan.changes {
            self.write(change);
            if self.service.is_none() {
                return true;
            }
        }
        if let Some(status) = plan.status {
            self.tell(&status);
        }
        self.log.len() != wrote
    }

    /// Passes until nothing changes, Kube-OVN and the EipClaims' own passes in between.
    pub fn settle(&mut self) {
        for _ in 0..30 {
            self.check();
            if self.service.is_none() || (!self.pass() && !self.others_go_on()) {
                return;
            }
        }
        panic!("it does not come to rest: {:#?}", self.log);
    }

    /// What others do meanwhile; false when they have nothing to do.
    fn others_go_on(&mut self) -> bool {
        let mut went_on = false;
        self.rules.retain(|rule| {
            went_on |= is_deleting(rule);
            !is_deleting(rule)
        });
        for rule in self.rules.iter_mut().filter(|rule| rule.status.is_none()) {
            rule.status = Some(OvnDnatRuleStatus { ready: true });
            went_on = true;
        }
        self.claims.retain(|claim| {
            let bound = claim.status.as_ref().is_some_and(|status| status.bound_to.is_some());
            let goes = is_deleting(claim) && !bound;
            went_on |= goes;
            !goes
        });
        for claim in self.claims.iter_mut().filter(|claim| claim.status.is_none()) {
            allocate(claim, 99);
            went_on = true;
        }
        went_on
    }

    fn write(&mut self, change: Change) {
        let time = Some(Time(at(self.now)));
        match change {
            Change::Hold => {
                self.log.push("hold".into());
                self.service().finalizers_mut().push(CLEANUP.into());
            }
            Change::Release => {
                self.log.push("release".into());
                self.service().finalizers_mut().retain(|finalizer| finalizer != CLEANUP);
                if is_deleting(self.service()) {
                    self.service = None;
                }
            }
            Change::CreateClaim(mut claim) => {
                self.log.push(format!("create claim {}", claim.name_any()));
                claim.metadata.uid = Some(format!("uid-{}", claim.name_any()));
                self.claims.push(*claim);
            }
            Change::DeleteClaim(target) => {
                self.log.push(format!("delete claim {}", target.name));
                self.claim(&target.name).metadata.deletion_timestamp = time;
            }
            Change::Bind(claim, binding) => {
                self.log.push(format!("bind {}", claim.name_any()));
                let status = self.claim(&claim.name_any()).status.as_mut().unwrap();
                assert_eq!(status.bound_to.replace(binding), None);
            }
            Change::Unbind(claim) => {
                self.log.push(format!("unbind {}", claim.name_any()));
                let Binding { cluster, service } =
                    self.claim(&claim.name_any()).status.as_mut().unwrap().bound_to.take().unwrap();
                let leads = |rule: &OvnDnatRule| is_of(rule, &cluster.uid, &service.uid);
                let rules: Vec<_> = self.rules.iter().filter(|rule| leads(rule)).collect();
                let of = ClaimRef::of(&*claim);
                assert!(!rules.iter().any(|rule| ClaimRef::from_labels(&rule.metadata) == Some(of.clone())));
                assert_ne!(self.shown(), address(&claim), "given away while it is shown");
            }
            Change::Under(change::Change::CreateDnat(mut rule)) => {
                self.log.push(format!("lead {} to {}", rule.spec.external_port, rule.spec.v4_ip));
                rule.metadata.uid = Some(rule.name_any());
                rule.metadata.creation_timestamp = time;
                self.rules.push(*rule);
            }
            Change::Under(change::Change::DeleteDnat(target)) => {
                let rule = self.rules.iter_mut().find(|rule| rule.name_any() == target.name).unwrap();
                self.log.push(format!("unlead {}", rule.spec.external_port));
                rule.metadata.deletion_timestamp = time;
            }
            Change::Under(other) => panic!("{other:?}"),
        }
        self.check();
    }

    fn tell(&mut self, status: &Status) {
        let before = self.service().status.clone().unwrap_or_default();
        let mut after = before.clone();
        let ingress = |ip: String| json!({ "ingress": [{ "ip": ip, "ipMode": "VIP" }] });
        match status.show {
            Show::Nothing => {}
            Show::Wipe => after.load_balancer = None,
            Show::Address(address) => {
                after.load_balancer = Some(serde_json::from_value(ingress(address.to_string())).unwrap());
            }
        }
        after.conditions = status.condition.clone().map(|condition| vec![condition]);
        if after != before {
            let reason = status.condition.as_ref().map_or("-", |condition| condition.reason.as_str());
            let shown =
                if let Show::Address(address) = status.show { address.to_string() } else { "-".into() };
            self.log.push(format!("status {reason} {shown}"));
            self.service().status = Some(after);
        }
        self.check();
    }

    pub fn shown(&self) -> Option<Ipv4Addr> {
        let service = self.service.as_ref()?;
        let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
        ingress.first()?.ip.as_ref()?.parse().ok()
    }

    pub fn reason(&self) -> &str {
        let status = self.service.as_ref().and_then(|service| service.status.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_ref());
        conditions.and_then(|conditions| Some(conditions.first()?.reason.as_str())).unwrap_or_default()
    }

    pub fn message(&self) -> &str {
        let status = self.service.as_ref().and_then(|service| service.status.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_ref());
        conditions.and_then(|conditions| Some(conditions.first()?.message.as_str())).unwrap_or_default()
    }

    /// What holds after every write.
    fn check(&self) {
        let mut sockets = BTreeSet::new();
        for rule in &self.rules {
            let spec = &rule.spec;
            assert!(sockets.insert((&spec.ovn_eip, &spec.external_port, &spec.protocol)), "{:#?}", self.log);
        }
        if let Some(shown) = self.shown() {
            let has = |claim: &EipClaim| {
                claim.status.as_ref().is_some_and(|s| s.bound_to.is_some()) && address(claim) == Some(shown)
            };
            assert!(self.claims.iter().any(has), "{shown} is shown and not bound: {:#?}", self.log);
        }
    }
}

/// Ports by number, all TCP.
pub fn ports(all: &[u16]) -> serde_json::Value {
    let port =
        |n: &u16| json!({ "name": format!("p{n}"), "port": n, "nodePort": 30_000 + n, "protocol": "TCP" });
    json!(all.iter().map(port).collect::<Vec<_>>())
}

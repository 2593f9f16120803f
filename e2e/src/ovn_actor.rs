//! The *ovn* actor: plays what a claim sees of kube-ovn-controller, as fast as an API server lets it.
//!
//! The real one builds a handful of networks a second, so thousands of claims would measure it and not us. This one
//! is for `cargo measure` alone, which names it beside each figure: what is promised is proved against the real one.
//! The facts played are those of `crds/src/foreign/kube_ovn.rs`:
//! - its finalizer is the first write on an object of its kinds, and taking it off the last ([`FINALIZER`]);
//! - a Vpc is `standby` when its router is there, echoes `enableExternal`, and has an OvnEip `<vpc>-<subnet>` of type
//!   `lrp` for each external subnet;
//! - a Subnet is `Validated` and `Ready`, and counts its addresses;
//! - an OvnEip gets an address of its external Subnet in `spec`, then in `status` with `ready`; one that cannot be
//!   served is left as it is;
//! - an OvnSnatRule is `ready`;
//! - the controller renews its Lease.
//!
//! Not played: what is in OVN, refusals, machines and their addresses, and all that goes wrong in the real one.

mod addresses;

use std::{fmt::Debug, sync::Arc, time::Duration};

use anyhow::Result;
use futures::StreamExt;
use kmetal_crds::foreign::kube_ovn::{OvnEip, OvnEipSpec, OvnSnatRule, Subnet, Vpc};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use self::addresses::Addresses;
use crate::{
    apply::MANAGER,
    cluster::Cluster,
    ovn::kube_ovn::{LEASE, NAMESPACE},
};

/// What kube-ovn-controller puts on its objects.
pub const FINALIZER: &str = "kubeovn.io/kube-ovn-controller";
/// How often it renews its Lease.
const BEAT: Duration = Duration::from_secs(6);
/// How many objects of a kind it works at. The real one has three workers; this one is not to be what is waited for.
const AT_ONCE: usize = 8;
/// Before an object is tried again whose write did not get through.
const PAUSE: Duration = Duration::from_millis(200);

/// A running ovn actor; it ends when dropped.
pub struct OvnActor {
    tasks: Vec<JoinHandle<()>>,
}

/// What all its workers share.
struct World {
    client: Client,
    addresses: Addresses,
}

/// One write, after which the object comes again; none when all is well.
enum Answer {
    Nothing,
    /// Merged into the object.
    Object(Value),
    /// Merged into its status.
    Status(Value),
}

impl OvnActor {
    /// Starts playing. Kube-OVN's CRDs must be there.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let world = Arc::new(World { client: cluster.client().await?, addresses: Addresses::default() });
        beat(&world.client).await?;
        // What was handed out before: the first OvnEip may come before its Subnet.
        for subnet in Api::<Subnet>::all(world.client.clone()).list(&ListParams::default()).await? {
            world.addresses.learn(&subnet);
        }
        for eip in Api::<OvnEip>::all(world.client.clone()).list(&ListParams::default()).await? {
            world.addresses.take(&eip.uid().unwrap_or_default(), &eip.spec);
        }
        let tasks = vec![
            tokio::spawn(keep_beating(world.clone())),
            tokio::spawn(play::<Vpc, _>(world.clone(), vpc)),
            tokio::spawn(play::<Subnet, _>(world.clone(), subnet)),
            tokio::spawn(play::<OvnEip, _>(world.clone(), eip)),
            tokio::spawn(play::<OvnSnatRule, _>(world.clone(), snat)),
        ];
        Ok(Self { tasks })
    }
}

impl Drop for OvnActor {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn keep_beating(world: Arc<World>) {
    loop {
        tokio::time::sleep(BEAT).await;
        // An API server that is away is met again at the next beat.
        let _ = beat(&world.client).await;
    }
}

async fn beat(client: &Client) -> Result<()> {
    use k8s_openapi::{
        api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp,
    };
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": NAMESPACE},
        "spec": {
            "holderIdentity": "ovn-actor",
            "leaseDurationSeconds": 30,
            "renewTime": MicroTime(Timestamp::now()),
        },
    });
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    leases.patch(LEASE, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&lease)).await?;
    Ok(())
}

/// Answers each version of each object of a kind, for ever.
async fn play<K, Fut>(world: Arc<World>, answer: impl Fn(Arc<World>, K) -> Fut)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    Fut: Future<Output = Result<Answer, kube::Error>>,
{
    let api = Api::<K>::all_with(world.client.clone(), &());
    let objects = watcher(api.clone(), watcher::Config::default()).default_backoff().applied_objects();
    objects
        .for_each_concurrent(AT_ONCE, async |object| {
            let Ok(object) = object else { return };
            while let Err(kube::Error::Service(_) | kube::Error::HyperError(_)) =
                settle(&world, &api, &object, &answer).await
            {
                tokio::time::sleep(PAUSE).await;
            }
        })
        .await;
}

/// One step; what the API server refuses has changed meanwhile and comes again.
async fn settle<K, Fut>(
    world: &Arc<World>,
    api: &Api<K>,
    object: &K,
    answer: &impl Fn(Arc<World>, K) -> Fut,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    Fut: Future<Output = Result<Answer, kube::Error>>,
{
    let name = object.name_any();
    let parameters = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    let patched = match answer(world.clone(), object.clone()).await? {
        Answer::Nothing => return Ok(()),
        Answer::Object(patch) => api.patch(&name, &parameters, &Patch::Merge(patch)).await,
        Answer::Status(status) => {
            api.patch_status(&name, &parameters, &Patch::Merge(json!({"status": status}))).await
        }
    };
    patched.map(drop)
}

async fn vpc(world: Arc<World>, vpc: Vpc) -> Result<Answer, kube::Error> {
    let status = vpc.status.clone().unwrap_or_default();
    let attached: &[String] = if vpc.spec.enable_external { &vpc.spec.extra_external_subnets } else { &[] };
    if is_deleting(&vpc) {
        for subnet in &status.extra_external_subnets {
            drop_router_eip(&world, &vpc, subnet).await?;
        }
        return Ok(released(&vpc));
    }
    if !is_held(&vpc) {
        return Ok(held(&json!({})));
    }
    if status.standby && status.extra_external_subnets == attached {
        return Ok(Answer::Nothing);
    }
    for subnet in status.extra_external_subnets.iter().filter(|subnet| !attached.contains(subnet)) {
        drop_router_eip(&world, &vpc, subnet).await?;
    }
    for subnet in attached {
        make_router_eip(&world, &vpc, subnet).await?;
    }
    Ok(Answer::Status(json!({
        "standby": true,
        "router": vpc.name_any(),
        "enableExternal": vpc.spec.enable_external,
        "extraExternalSubnets": attached,
    })))
}

async fn make_router_eip(world: &World, vpc: &Vpc, subnet: &str) -> Result<(), kube::Error> {
    let spec = OvnEipSpec { external_subnet: subnet.into(), type_: "lrp".into(), v4_ip: None };
    let eip = OvnEip::new(&format!("{}-{subnet}", vpc.name_any()), spec);
    match Api::<OvnEip>::all(world.client.clone()).create(&PostParams::default(), &eip).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        made => made.map(drop),
    }
}

async fn drop_router_eip(world: &World, vpc: &Vpc, subnet: &str) -> Result<(), kube::Error> {
    let name = format!("{}-{subnet}", vpc.name_any());
    let eips = Api::<OvnEip>::all(world.client.clone());
    match eips.delete(&name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        dropped => dropped.map(drop),
    }
}

async fn subnet(world: Arc<World>, subnet: Subnet) -> Result<Answer, kube::Error> {
    if is_deleting(&subnet) {
        return Ok(released(&subnet));
    }
    world.addresses.learn(&subnet);
    if !is_held(&subnet) {
        return Ok(held(&json!({})));
    }
    if subnet.status.as_ref().is_some_and(|status| !status.conditions.is_empty()) {
        return Ok(Answer::Nothing);
    }
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason});
    Ok(Answer::Status(json!({
        "v4availableIPs": addresses::machines(&subnet.spec),
        "v4usingIPs": 0,
        "v6availableIPs": 0,
        "v6usingIPs": 0,
        "conditions": [
            condition("Validated", "ValidateLogicalSwitchSuccess"),
            condition("Ready", "ResetLogicalSwitchAclSuccess"),
        ],
    })))
}

async fn eip(world: Arc<World>, eip: OvnEip) -> Result<Answer, kube::Error> {
    let uid = eip.uid().unwrap_or_default();
    if is_deleting(&eip) {
        // Free for the next one before the object is gone, as in the real one.
        world.addresses.give_back(&eip.spec.external_subnet, &uid);
        return Ok(released(&eip));
    }
    if eip.status.as_ref().is_some_and(|status| status.ready) {
        return Ok(Answer::Nothing);
    }
    let Some(address) = world.addresses.take(&uid, &eip.spec) else { return Ok(Answer::Nothing) };
    if !is_held(&eip) {
        return Ok(held(&json!({"v4Ip": address})));
    }
    Ok(Answer::Status(json!({"ready": true, "v4Ip": address, "v6Ip": "", "type": eip.spec.type_})))
}

async fn snat(_: Arc<World>, snat: OvnSnatRule) -> Result<Answer, kube::Error> {
    if is_deleting(&snat) {
        return Ok(released(&snat));
    }
    if !is_held(&snat) {
        return Ok(held(&json!({})));
    }
    let is_ready = snat.status.as_ref().is_some_and(|status| status.ready);
    Ok(if is_ready { Answer::Nothing } else { Answer::Status(json!({"ready": true})) })
}

fn is_deleting(object: &impl ResourceExt) -> bool {
    object.meta().deletion_timestamp.is_some()
}

fn is_held(object: &impl ResourceExt) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// The first write: the finalizer, and what the controller fills into `spec`.
fn held(spec: &Value) -> Answer {
    Answer::Object(json!({"metadata": {"finalizers": [FINALIZER]}, "spec": spec}))
}

/// The last write, for an object that is being deleted.
fn released(object: &impl ResourceExt) -> Answer {
    if is_held(object) { Answer::Object(json!({"metadata": {"finalizers": null}})) } else { Answer::Nothing }
}

//! Whole: an under cluster in memory, tenants' API servers on loopback.

use std::{
    collections::BTreeSet,
    sync::{
        Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::api::core::v1::Service;
use kube::runtime::controller::Action;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::{
    Drive,
    fence::Fence,
    mock::Server,
    process::tests::options,
    tenant::{
        Requests,
        kubeconfig::Unusable,
        pki::secret,
        stand_in::{Manner, StandIn},
    },
};
use kmetal_crds::foreign::capi;
use kube::{ResourceExt, runtime::reflector::ObjectRef};

mod hostile;

const CLUSTERS: &str = "/apis/cluster.x-k8s.io/v1beta2/clusters";
const SECRETS: &str = "/api/v1/secrets";
const SERVICES: &str = "/api/v1/services";
const VERSION: &str = r#"{"major":"1","minor":"35","gitVersion":"v1.35.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#;

struct Seen {
    services: Watched<Service>,
}

/// The under cluster, and a process that reconciles Services of all tenant clusters.
struct World {
    under: Server,
    process: Process,
    clusters: TenantClusters<Seen>,
    requests: Requests<Service>,
    /// `cluster/service` of every reconcile.
    passes: Arc<Mutex<Vec<String>>>,
}

impl World {
    fn start() -> Self {
        Self::start_with(|_, _| {})
    }

    /// With `also` run at the beginning of every reconcile, told the Cluster's and the Service's name.
    fn start_with(also: impl Fn(&str, &str) + Send + Sync + Clone + 'static) -> Self {
        let under = Server::new(&[CLUSTERS, SECRETS]);
        let client = under.client(Fence::default());
        let process = Process::assemble("kmetal-test", &options(), client.clone(), client, Fence::default());
        let watched = Watched::start(&process, Api::all(process.client.clone()), watcher::Config::default());
        let loopback = TenantOptions { tenant_api_loopback: true, ..TenantOptions::default() };
        let clusters = TenantClusters::start(&process, &watched, &loopback, |link| Seen {
            services: link.watch(Api::all(link.client()), watcher::Config::default(), |_| {}),
        });
        let (requests, passes) = (Requests::default(), Arc::new(Mutex::new(Vec::new())));
        let world = Self {
            under,
            process,
            clusters: clusters.clone(),
            requests: requests.clone(),
            passes: passes.clone(),
        };
        tokio::spawn(async move {
            clusters
                .for_each("service", move |cluster| {
                    let (passes, requests, also) = (passes.clone(), requests.clone(), also.clone());
                    async move {
                        let link = &cluster.link;
                        let drive =
                            Drive::new("service", &cluster.seen.services).on(requests.of(&link.id().uid));
                        let (name, client) = (link.id().name.clone(), link.client());
                        let reconcile = move |service: Arc<Service>, passes: Arc<Mutex<Vec<String>>>| {
                            let text = format!("{name}/{}", service.name_any());
                            also(&name, &service.name_any());
                            let client = client.clone();
                            async move {
                                client.apiserver_version().await?;
                                passes.lock().unwrap().push(text);
                                Ok(Action::await_change())
                            }
                        };
                        link.drive(drive, passes, reconcile).await;
                    }
                })
                .await;
        });
        world
    }

    /// A Cluster whose control plane is up; returns its uid.
    fn cluster(&self, name: &str) -> String {
        let cluster = self.under.put(
            CLUSTERS,
            json!({
                "metadata": { "namespace": "acme", "name": name }, "spec": {},
                "status": { "initialization": { "controlPlaneInitialized": true } },
            }),
        );
        cluster["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    fn kubeconfig(&self, cluster: &str, kubeconfig: &Value) {
        let secret = secret(cluster, kubeconfig.to_string().as_bytes());
        self.under.put(SECRETS, serde_json::to_value(&secret).unwrap());
    }

    /// A Cluster that is reached through `server`.
    fn reached(&self, name: &str, server: &StandIn) -> String {
        self.kubeconfig(name, &server.kubeconfig());
        self.cluster(name)
    }

    fn remove(&self, name: &str) {
        self.under.remove(CLUSTERS, name);
        self.under.remove(SECRETS, &capi::kubeconfig_secret(name));
    }

    fn state(&self, uid: &str) -> &'static str {
        self.clusters.health(uid).map_or("none", |health| health.state())
    }

    /// Forgets the reconciles so far and returns them.
    fn passes(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.passes.lock().unwrap()).into_iter().collect()
    }

    async fn is(&self, uid: &str, state: &str) {
        wait(&format!("{uid} {state}"), || self.state(uid) == state).await;
    }

    async fn passed(&self, what: &str) {
        wait(what, || self.passes.lock().unwrap().iter().any(|pass| pass == what)).await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.process.stop.cancel();
    }
}

/// Until it holds. On an idle machine nothing here takes a second; a busy one must not make a test fail.
async fn wait(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_mins(3), "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn service(name: &str) -> Value {
    json!({ "metadata": { "namespace": "default", "name": name } })
}

/// The API server of a tenant, with one Service.
fn tenant(service_name: &str) -> Server {
    let server = Server::new(&[SERVICES]);
    server.put(SERVICES, service(service_name));
    server.script(|seen| (seen.path == "/version").then(|| (200, serde_json::from_str(VERSION).unwrap())));
    server
}

#[tokio::test]
async fn services_of_a_cluster_are_reconciled_from_its_first_answer_to_its_end() {
    let world = World::start();
    let server = tenant("web");
    let stand_in = StandIn::start(Manner::Good(server.clone())).await;
    let uid = world.cluster("blue");
    world.is(&uid, "waiting").await;
    world.kubeconfig("blue", &stand_in.kubeconfig());
    world.passed("blue/web").await;
    world.is(&uid, "reachable").await;

    server.put(SERVICES, service("db"));
    world.passed("blue/db").await;
    world.passes();
    world.requests.ask(&uid, &ObjectRef::new("web").within("default"));
    world.passed("blue/web").await;
    assert_eq!(world.passes().len(), 1);
    assert_eq!(world.clusters.named("acme", "blue").unwrap().link.id().uid, uid);
    let text = world.process.metrics.encode().unwrap();
    assert!(text.contains(r#"kmetal_tenant_clusters{state="reachable"} 1"#), "{text}");
    assert!(text.contains(r#"kmetal_watched_objects{kind="tenant/services"} 2"#), "{text}");
    assert!(world.process.gates.report().0, "tenant clusters never count for readiness");

    let seen: Weak<_> = Arc::downgrade(&world.clusters.get(&uid).unwrap());
    world.remove("blue");
    wait("torn down", || stand_in.open() == 0 && seen.strong_count() == 0).await;
    assert!(world.clusters.get(&uid).is_none() && world.clusters.all().is_empty());
    server.put(SERVICES, service("late"));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(world.passes().is_empty());
    let text = world.process.metrics.encode().unwrap();
    assert!(text.contains(r#"kmetal_tenant_clusters{state="reachable"} 0"#), "{text}");
    assert!(text.contains(r#"kmetal_watched_objects{kind="tenant/services"} 0"#), "{text}");
}

#[tokio::test]
async fn nothing_is_begun_before_the_control_plane_is_up_nor_while_the_cluster_is_being_deleted() {
    let world = World::start();
    let stand_in = StandIn::start(Manner::Good(tenant("web"))).await;
    world.kubeconfig("blue", &stand_in.kubeconfig());
    let early = json!({ "metadata": { "namespace": "acme", "name": "blue" }, "spec": {} });
    let uid = world.under.put(CLUSTERS, early)["metadata"]["uid"].as_str().unwrap().to_owned();
    world.is(&uid, "waiting").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(stand_in.accepted(), 0);
    world.cluster("blue");
    world.passed("blue/web").await;

    let mut going = world.under.stored(CLUSTERS, "blue").unwrap();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.under.put(CLUSTERS, going);
    wait("torn down", || stand_in.open() == 0 && world.state(&uid) == "none").await;
}

#[tokio::test]
async fn a_new_kubeconfig_is_a_new_connection_and_the_same_one_is_not() {
    let world = World::start();
    let (one, two) = (
        StandIn::start(Manner::Good(tenant("one"))).await,
        StandIn::start(Manner::Good(tenant("two"))).await,
    );
    let uid = world.reached("blue", &one);
    world.passed("blue/one").await;
    let serial = || world.clusters.get(&uid).map(|cluster| cluster.link.serial);
    let first = serial();
    world.kubeconfig("blue", &one.kubeconfig());
    tokio::time::sleep(LOOKED).await;
    assert_eq!(serial(), first, "written again with the same content");

    world.kubeconfig("blue", &two.kubeconfig());
    world.passed("blue/two").await;
    wait("the old one is let go", || one.open() == 0).await;
    assert!(world.clusters.get(&uid).unwrap().seen.services.get_in("default", "one").is_none());
    world.under.remove(SECRETS, "blue-kubeconfig");
    world.is(&uid, "waiting").await;
    wait("nothing is left", || two.open() == 0 && world.clusters.get(&uid).is_none()).await;
}

/// Longer than a change of a Secret may go unnoticed.
const LOOKED: Duration = Duration::from_millis(2500);

#[tokio::test]
async fn a_cluster_made_anew_under_the_same_name_inherits_nothing() {
    let world = World::start();
    let stand_in = StandIn::start(Manner::Good(tenant("web"))).await;
    let old = world.reached("blue", &stand_in);
    world.passed("blue/web").await;
    let before = world.clusters.get(&old).unwrap();
    world.under.remove(CLUSTERS, "blue");
    let new = world.cluster("blue");
    assert_ne!(old, new);
    world.is(&new, "reachable").await;
    assert!(world.clusters.get(&old).is_none());
    assert_eq!(world.state(&old), "none");
    tokio::time::timeout(Duration::from_secs(1), before.link.gone()).await.unwrap();
    assert!(before.link.client().apiserver_version().await.is_err(), "the old way is closed");
}

#[tokio::test]
async fn a_kubeconfig_that_is_refused_says_why_and_is_used_as_soon_as_it_is_right() {
    let world = World::start();
    let stand_in = StandIn::start(Manner::Good(tenant("web"))).await;
    let mut wrong = stand_in.kubeconfig();
    wrong["users"][0]["user"]["exec"] = json!({ "command": "/bin/false" });
    world.kubeconfig("blue", &wrong);
    let uid = world.cluster("blue");
    world.is(&uid, "refused").await;
    let Some(Health::Refused(refusal)) = world.clusters.health(&uid) else { panic!("refused") };
    assert_eq!(refusal.cause, Unusable::Command("exec"));
    assert_eq!(stand_in.accepted(), 0);
    world.kubeconfig("blue", &stand_in.kubeconfig());
    world.passed("blue/web").await;
}

#[tokio::test]
async fn while_a_cluster_does_not_answer_nothing_is_begun_in_it_and_afterwards_all_is() {
    let world = World::start();
    let server = tenant("web");
    let stand_in = StandIn::start(Manner::Good(server.clone())).await;
    let uid = world.reached("blue", &stand_in);
    world.passed("blue/web").await;
    let away = Arc::new(AtomicBool::new(true));
    let flag = away.clone();
    server.script(move |seen| match seen.path.as_str() {
        "/version" if flag.load(Ordering::SeqCst) => {
            Some(crate::mock::status(401, "Unauthorized", "who are you"))
        }
        "/version" => Some((200, serde_json::from_str(VERSION).unwrap())),
        _ => None,
    });
    // What is refused is noticed without waiting for the next probe.
    let cluster = world.clusters.get(&uid).unwrap();
    assert!(cluster.link.client().apiserver_version().await.is_err());
    world.is(&uid, "unreachable").await;
    let Some(Health::Unreachable { why, since }) = world.clusters.health(&uid) else { panic!("unreachable") };
    assert_eq!(why, "who are you (401)");
    world.passes();
    server.put(SERVICES, service("db"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(world.passes().is_empty());
    let Some(Health::Unreachable { since: later, .. }) = world.clusters.health(&uid) else {
        panic!("unreachable")
    };
    assert_eq!(since, later);
    away.store(false, Ordering::SeqCst);
    world.passed("blue/db").await;
    world.passed("blue/web").await;
}

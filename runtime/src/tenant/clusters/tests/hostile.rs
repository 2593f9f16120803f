//! Clusters that are hostile or many: no other notices, and nothing stays.

use futures::future::join_all;
use tokio::runtime::Handle;

use super::*;
use crate::tenant::stand_in::{answer, head};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_clusters_delay_no_other() {
    let world = World::start();
    let server = tenant("web");
    let good = StandIn::start(Manner::Good(server.clone())).await;
    let garbage = b"\x16\x03\x01garbage\r\n\r\n".to_vec();
    let refusal = answer("429 Too Many Requests\r\nretry-after: 3600", "{}");
    let manners = [
        Manner::Mute,
        Manner::Silent,
        Manner::Drips(b"HTTP/1.1 200 OK\r\n".to_vec(), b"a: b\r\n"),
        Manner::Drips(head("200 OK"), b" "),
        Manner::Pours(head("200 OK"), b"{},"),
        Manner::Pours(b"HTTP/1.1 200 OK\r\n".to_vec(), b"a: b\r\n"),
        Manner::Says(garbage),
        Manner::Says(refusal),
        Manner::Says(answer("302 Found\r\nlocation: https://127.0.0.1:1", "{}")),
        Manner::Says(answer("410 Gone", r#"{"kind":"Status","code":410,"reason":"Expired"}"#)),
        Manner::Says(answer(
            "200 OK",
            r#"{"metadata":{"continue":"more","resourceVersion":"1"},"items":[]}"#,
        )),
        Manner::Says(answer("200 OK", r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{}}]}"#)),
        Manner::Cuts(head("200 OK")),
    ];
    let hostile = join_all(manners.into_iter().map(StandIn::start)).await;
    for (n, stand_in) in hostile.iter().enumerate() {
        for twin in ["a", "b", "c"] {
            world.reached(&format!("hostile{n}{twin}"), stand_in);
        }
    }
    wait("all are met", || hostile.iter().all(|stand_in| stand_in.accepted() > 0)).await;
    let uid = world.reached("good", &good);
    world.passed("good/web").await;
    for n in 0..20 {
        let name = format!("s{n}");
        let began = Instant::now();
        server.put(SERVICES, service(&name));
        world.passed(&format!("good/{name}")).await;
        // Not a measurement: a cluster that waited for another would wait for a time-out, ten seconds.
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(world.state(&uid), "reachable");
    assert!(world.process.gates.report().0);
}

#[tokio::test]
async fn a_panic_in_one_cluster_is_an_error_of_that_reconcile() {
    let world = World::start_with(|cluster, service| assert!(cluster != "bad" || service == "fine"));
    let (bad, good) = (tenant("web"), tenant("web"));
    let bad_in = StandIn::start(Manner::Good(bad.clone())).await;
    let good_in = StandIn::start(Manner::Good(good)).await;
    world.reached("bad", &bad_in);
    world.reached("good", &good_in);
    world.passed("good/web").await;
    bad.put(SERVICES, service("fine"));
    world.passed("bad/fine").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_clusters_leave_nothing_behind() {
    let world = World::start();
    let stand_in = StandIn::start(Manner::Good(tenant("web"))).await;
    let silent = StandIn::start(Manner::Silent).await;
    let alive = || Handle::current().metrics().num_alive_tasks();
    let once = world.reached("warm", &stand_in);
    world.passed("warm/web").await;
    world.remove("warm");
    wait("the first is gone", || world.state(&once) == "none" && stand_in.open() == 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = alive();

    let uids: Vec<_> = (0..300)
        .map(|n| world.reached(&format!("c{n}"), if n % 10 == 0 { &silent } else { &stand_in }))
        .collect();
    wait("all are reconciled", || {
        let passes = world.passes.lock().unwrap();
        passes.iter().collect::<BTreeSet<_>>().len() >= 271
    })
    .await;
    assert!(alive() > before + 600, "{} tasks", alive() - before);
    for n in 0..300 {
        world.remove(&format!("c{n}"));
    }
    wait("all are gone", || {
        uids.iter().all(|uid| world.state(uid) == "none") && stand_in.open() == 0 && silent.open() == 0
    })
    .await;
    wait(&format!("{before} tasks"), || alive() <= before).await;
    assert!(world.clusters.all().is_empty());
}

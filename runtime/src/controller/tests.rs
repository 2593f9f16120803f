use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::*;
use crate::{
    fence::Fence,
    mock::{Server, status},
    process::tests::options,
};

const MAPS: &str = "/api/v1/configmaps";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/ns/events";
const SECOND: Duration = Duration::from_secs(1);

fn map(name: &str) -> Value {
    json!({ "metadata": { "namespace": "ns", "name": name } })
}

fn start(server: &Server) -> (Process, Watched<ConfigMap>) {
    let client = server.client(Fence::default());
    let process =
        Process::assemble("kmetal-test", &options(), client.clone(), client.clone(), Fence::default());
    let watched = Watched::start(&process, Api::all(client), watcher::Config::default());
    (process, watched)
}

/// Everything that was reconciled, in order.
type Log = Mutex<Vec<String>>;

fn taken(log: &Log) -> Vec<String> {
    let mut names = std::mem::take(&mut *log.lock().unwrap());
    names.sort();
    names
}

async fn note(map: Arc<ConfigMap>, log: Arc<Log>) -> Result<Action> {
    log.lock().unwrap().push(map.name_any());
    Ok(Action::await_change())
}

#[tokio::test(start_paused = true)]
async fn an_object_is_reconciled_when_it_or_what_it_depends_on_changes() {
    let server = Server::new(&[MAPS]);
    server.put(MAPS, map("a"));
    server.put(MAPS, map("b"));
    let (process, watched) = start(&server);
    let log = Arc::new(Log::default());
    let (poke, pokes) = futures::channel::mpsc::unbounded();
    let (all, alls) = futures::channel::mpsc::unbounded();
    let driven = Drive::new("map", &watched).on(pokes).everything_on(alls).concurrency(2);
    let running = tokio::spawn({
        let (process, log) = (process.clone(), log.clone());
        async move { drive(&process, driven, log, note).await }
    });
    sleep(SECOND).await;
    assert_eq!(taken(&log), ["a", "b"]);
    server.put(MAPS, map("a"));
    sleep(SECOND).await;
    assert_eq!(taken(&log), ["a"]);
    poke.unbounded_send(ObjectRef::new("b").within("ns")).unwrap();
    poke.unbounded_send(ObjectRef::new("unknown").within("ns")).unwrap();
    sleep(SECOND).await;
    assert_eq!(taken(&log), ["b"]);
    all.unbounded_send(()).unwrap();
    sleep(SECOND).await;
    assert_eq!(taken(&log), ["a", "b"]);
    process.stop.cancel();
    timeout(SECOND, running).await.unwrap().unwrap();
    let metrics = process.metrics.encode().unwrap();
    assert!(metrics.contains(r#"kmetal_reconcile_total{controller="map",outcome="ok"} 6"#), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_fails_is_retried_ever_more_slowly_and_told_of_once() {
    let server = Server::new(&[MAPS, EVENTS]);
    server.put(MAPS, map("bad"));
    server.put(MAPS, map("panics"));
    let (process, watched) = start(&server);
    let log = Arc::new(Log::default());
    let running = tokio::spawn({
        let (process, log) = (process.clone(), log.clone());
        async move {
            drive(&process, Drive::new("map", &watched), log, async |map: Arc<ConfigMap>, log: Arc<Log>| {
                log.lock().unwrap().push(map.name_any());
                assert_ne!(map.name_any(), "panics");
                Err(anyhow::anyhow!("the disk is full").into())
            })
            .await;
        }
    });
    // 1 + 2 + 4 + 8 + 16 + 32 s
    sleep(64 * SECOND).await;
    let bad = taken(&log).iter().filter(|name| *name == "bad").count();
    assert_eq!(bad, 7);
    let told: Vec<_> = server.seen().into_iter().filter(|seen| seen.path == EVENTS).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    let notes: Vec<_> = told.iter().filter_map(|seen| seen.body["note"].as_str()).collect();
    assert!(notes.contains(&"the disk is full"), "{notes:?}");
    assert_eq!(told[0].body["reason"], "ReconcileFailed");
    process.stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_race_is_retried_and_nobody_is_told() {
    let server = Server::new(&[MAPS, EVENTS]);
    server.put(MAPS, map("a"));
    let (process, watched) = start(&server);
    let tries = Arc::new(AtomicUsize::new(0));
    let running =
        tokio::spawn({
            let (process, tries) = (process.clone(), tries.clone());
            async move {
                drive(&process, Drive::new("map", &watched), tries, async |_, tries: Arc<AtomicUsize>| {
                    match tries.fetch_add(1, Ordering::SeqCst) {
                        0 | 1 => Err(Error::Conflict("changed meanwhile".into())),
                        _ => Ok(Action::await_change()),
                    }
                })
                .await;
            }
        });
    sleep(60 * SECOND).await;
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    assert!(server.seen().iter().all(|seen| seen.path != EVENTS));
    process.stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn on_stop_a_reconcile_under_way_may_end_but_not_hold_up_the_process() {
    for (takes, finishes) in [(SECOND, true), (3600 * SECOND, false)] {
        let server = Server::new(&[MAPS]);
        server.put(MAPS, map("a"));
        let (process, watched) = start(&server);
        let done = Arc::new(AtomicUsize::new(0));
        let running = tokio::spawn({
            let (process, done) = (process.clone(), done.clone());
            async move {
                drive(
                    &process,
                    Drive::new("map", &watched),
                    done,
                    move |_, done: Arc<AtomicUsize>| async move {
                        sleep(takes).await;
                        done.fetch_add(1, Ordering::SeqCst);
                        Ok(Action::await_change())
                    },
                )
                .await;
            }
        });
        sleep(SECOND / 2).await;
        process.stop.cancel();
        timeout(DRAIN + SECOND / 10, running).await.unwrap().unwrap();
        assert_eq!(done.load(Ordering::SeqCst) == 1, finishes);
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_kind_is_uninstalled_and_comes_back_its_objects_are_reconciled_again() {
    let server = Server::new(&[MAPS]);
    server.put(MAPS, map("a"));
    let (process, watched) = start(&server);
    let log = Arc::new(Log::default());
    let running = tokio::spawn({
        let (process, log) = (process.clone(), log.clone());
        async move { drive(&process, Drive::new("map", &watched), log, note).await }
    });
    sleep(SECOND).await;
    server.stop_serving(MAPS);
    sleep(SECOND).await;
    server.serve(MAPS);
    server.put(MAPS, map("b"));
    sleep(10 * SECOND).await;
    assert_eq!(taken(&log), ["a", "b"]);
    process.stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_repeated_work_runs_at_the_start_on_triggers_and_on_its_interval() {
    let (process, _) = start(&Server::new(&[]));
    let (poke, pokes) = futures::channel::mpsc::unbounded();
    let runs = Arc::new(AtomicUsize::new(0));
    let running = tokio::spawn({
        let (process, runs) = (process.clone(), runs.clone());
        async move {
            repeat(&process, "sweep", pokes, 600 * SECOND, async || {
                runs.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
            .await;
        }
    });
    sleep(SECOND).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    for _ in 0..100 {
        poke.unbounded_send(()).unwrap();
    }
    sleep(SECOND).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2, "what comes close together is one");
    drop(poke);
    sleep(1201 * SECOND).await;
    assert_eq!(runs.load(Ordering::SeqCst), 4);
    process.stop.cancel();
    timeout(SECOND, running).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_repeated_work_that_fails_is_tried_again_soon_and_then_more_slowly() {
    let (process, _) = start(&Server::new(&[]));
    let runs = Arc::new(AtomicUsize::new(0));
    let running = tokio::spawn({
        let (process, runs) = (process.clone(), runs.clone());
        async move {
            repeat(&process, "sweep", stream::pending(), 600 * SECOND, async || {
                assert_ne!(runs.fetch_add(1, Ordering::SeqCst), 1, "a panic is a failure like any other");
                Err(Error::Kube(kube::Error::Api(Box::new(
                    serde_json::from_value(status(500, "R", "m").1).unwrap(),
                ))))
            })
            .await;
        }
    });
    // 1 + 2 + 4 + 8 + 16 + 30 s
    sleep(62 * SECOND).await;
    assert_eq!(runs.load(Ordering::SeqCst), 7);
    process.stop.cancel();
    timeout(SECOND, running).await.unwrap().unwrap();
}

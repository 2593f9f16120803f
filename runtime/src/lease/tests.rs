use k8s_openapi::api::coordination::v1::LeaseSpec;
use kube::Api;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    fence::Fence,
    mock::{Server, Wire},
};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kmetal-system/leases";
const SECOND: Duration = Duration::from_secs(1);
const TERMS: Terms = Terms { duration: Duration::from_secs(15) };

fn lease(holder: Option<&str>, duration: Option<i32>) -> Lease {
    let spec = LeaseSpec {
        holder_identity: holder.map(ToOwned::to_owned),
        lease_duration_seconds: duration,
        ..LeaseSpec::default()
    };
    Lease { spec: Some(spec), ..Lease::default() }
}

#[test]
fn a_candidate_decides_by_what_it_saw_and_for_how_long() {
    let held = lease(Some("a"), Some(15));
    let longer = lease(Some("a"), Some(60));
    let released = lease(None, Some(1));
    let emptied = lease(Some(""), Some(1));
    let never_said = lease(Some("a"), None);
    let blank = Lease::default();
    for (name, lease, unchanged, step) in [
        ("no lease", None, 0, Step::Create),
        ("just seen", Some(&held), 0, Step::Wait(15 * SECOND)),
        ("silent for a while", Some(&held), 14, Step::Wait(SECOND)),
        ("silent for the duration", Some(&held), 15, Step::Take),
        ("silent for long", Some(&held), 1000, Step::Take),
        ("the holder's duration counts when it is longer", Some(&longer), 15, Step::Wait(45 * SECOND)),
        ("ours counts when it is longer", Some(&never_said), 10, Step::Wait(5 * SECOND)),
        ("released", Some(&released), 0, Step::Take),
        ("released the old way", Some(&emptied), 0, Step::Take),
        ("an object without a spec", Some(&blank), 0, Step::Take),
    ] {
        assert_eq!(decide(lease, unchanged * SECOND, TERMS), step, "{name}");
    }
}

#[test]
fn the_holder_gives_up_before_anybody_may_take_over() {
    assert_eq!(TERMS.deadline(), 10 * SECOND);
    assert_eq!(TERMS.retry(), 2 * SECOND);
    for seconds in 5..600 {
        let terms = Terms { duration: Duration::from_secs(seconds) };
        assert!(terms.deadline() + terms.retry() < terms.duration);
    }
}

/// A replica that takes part in the election over its own wire.
struct Replica {
    candidate: Candidate,
    fence: Fence,
    wire: Wire,
    release: CancellationToken,
}

fn replica(server: &Server, identity: &str) -> Replica {
    let (fence, wire) = (Fence::default(), Wire::default());
    let client = server.client_over(Fence::default(), wire.clone());
    let api = Api::namespaced(client, "kmetal-system");
    let candidate = Candidate::new(api, "kmetal-test", identity, TERMS, fence.clone());
    Replica { candidate, fence, wire, release: CancellationToken::new() }
}

fn holder(server: &Server) -> Option<String> {
    server.stored(LEASES, "kmetal-test")?["spec"]["holderIdentity"].as_str().map(ToOwned::to_owned)
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_creates_the_lease_and_keeps_renewing_it() {
    let server = Server::new(&[LEASES]);
    let a = replica(&server, "a");
    assert!(a.fence.check().is_err(), "a candidate may not write");
    let held = a.candidate.acquire().await;
    assert!(a.fence.check().is_ok());
    let keeping = tokio::spawn(held.keep(a.release.clone()));
    tokio::time::sleep(600 * SECOND).await;
    assert!(!keeping.is_finished());
    assert!(a.fence.check().is_ok());
    let writes = server.seen().iter().filter(|seen| seen.method == http::Method::PUT).count();
    assert!((295..=300).contains(&writes), "{writes} renewals in 600 s");
}

#[tokio::test(start_paused = true)]
async fn two_candidates_are_never_both_leader() {
    for silent_at in 0..12 {
        let server = Server::new(&[LEASES]);
        let (a, b) = (replica(&server, "a"), replica(&server, "b"));
        let held = a.candidate.acquire().await;
        let a_keeps = tokio::spawn(held.keep(a.release.clone()));
        let b_takes = tokio::spawn({
            let candidate = b.candidate.clone();
            async move { candidate.acquire().await }
        });
        // Off the whole seconds of the renewals.
        tokio::time::sleep(20 * SECOND + silent_at * SECOND / 4).await;
        a.wire.silence();
        let silent = Instant::now();
        while !b_takes.is_finished() {
            assert!(!(a.fence.check().is_ok() && b.fence.check().is_ok()), "both may write");
            assert!(silent.elapsed() < 60 * SECOND, "nobody took over");
            tokio::time::sleep(SECOND / 20).await;
        }
        assert!(a.fence.check().is_err());
        assert!(b.fence.check().is_ok());
        let took = silent.elapsed();
        assert!((13 * SECOND..=17 * SECOND).contains(&took), "took over after {took:?}");
        assert!(matches!(a_keeps.await.unwrap(), Ended::Lost(_)));
        assert_eq!(holder(&server).as_deref(), Some("b"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_gives_up_after_two_thirds_of_the_duration() {
    let server = Server::new(&[LEASES]);
    let a = replica(&server, "a");
    let held = a.candidate.acquire().await;
    let start = Instant::now();
    a.wire.silence();
    assert_eq!(held.keep(a.release).await, Ended::Lost("not renewed for 10 s".into()));
    assert_eq!(start.elapsed(), 10 * SECOND);
    assert!(a.fence.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_stolen_lease_ends_leadership_at_the_next_renewal() {
    let server = Server::new(&[LEASES]);
    let a = replica(&server, "a");
    let held = a.candidate.acquire().await;
    let keeping = tokio::spawn(held.keep(a.release.clone()));
    tokio::time::sleep(5 * SECOND).await;
    let mut lease = server.stored(LEASES, "kmetal-test").unwrap();
    lease["spec"]["holderIdentity"] = json!("thief");
    server.put(LEASES, lease);
    let start = Instant::now();
    assert_eq!(keeping.await.unwrap(), Ended::Lost("thief holds it".into()));
    assert!(start.elapsed() <= TERMS.retry());
    assert!(a.fence.check().is_err());
    assert_eq!(holder(&server).as_deref(), Some("thief"));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_ends_leadership() {
    let server = Server::new(&[LEASES]);
    let a = replica(&server, "a");
    let held = a.candidate.acquire().await;
    server.remove(LEASES, "kmetal-test");
    assert!(matches!(held.keep(a.release).await, Ended::Lost(_)));
    assert!(a.fence.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn somebody_labelling_the_lease_does_not_end_leadership() {
    let server = Server::new(&[LEASES]);
    let a = replica(&server, "a");
    let held = a.candidate.acquire().await;
    let keeping = tokio::spawn(held.keep(a.release.clone()));
    for _ in 0..20 {
        let mut lease = server.stored(LEASES, "kmetal-test").unwrap();
        lease["metadata"]["labels"] = json!({ "touched": Instant::now().elapsed().as_millis().to_string() });
        server.put(LEASES, lease);
        tokio::time::sleep(SECOND).await;
        assert!(a.fence.check().is_ok());
    }
    assert!(!keeping.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_over_at_once() {
    let server = Server::new(&[LEASES]);
    let (a, b) = (replica(&server, "a"), replica(&server, "b"));
    let held = a.candidate.acquire().await;
    let keeping = tokio::spawn(held.keep(a.release.clone()));
    let waiting = tokio::spawn(async move { b.candidate.acquire().await });
    tokio::time::sleep(7 * SECOND).await;
    let start = Instant::now();
    a.release.cancel();
    assert_eq!(keeping.await.unwrap(), Ended::Released);
    assert!(a.fence.check().is_err(), "nothing is written after the release");
    waiting.await.unwrap();
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
    assert_eq!(server.stored(LEASES, "kmetal-test").unwrap()["spec"]["leaseTransitions"], json!(2));
}

#[tokio::test(start_paused = true)]
async fn times_written_by_a_machine_with_a_wrong_clock_change_nothing() {
    for wrong in ["1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        let server = Server::new(&[LEASES]);
        let lease = |n: i32| {
            json!({
                "metadata": { "name": "kmetal-test" },
                "spec": { "holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": wrong, "leaseTransitions": n },
            })
        };
        server.put(LEASES, lease(0));
        let a = replica(&server, "a");
        let start = Instant::now();
        let waiting = tokio::spawn(async move { a.candidate.acquire().await });
        for n in 1..30 {
            tokio::time::sleep(SECOND).await;
            server.put(LEASES, lease(n));
        }
        assert!(!waiting.is_finished(), "the holder renews");
        waiting.await.unwrap();
        assert_eq!(start.elapsed(), (29 + 15) * SECOND);
    }
}

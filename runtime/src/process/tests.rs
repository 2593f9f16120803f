use clap::Parser;

use super::*;
use crate::mock::Server;

#[derive(Parser, Debug)]
struct Settings {
    #[command(flatten)]
    options: Options,
}

pub(crate) fn options() -> Options {
    Settings::parse_from(["test"]).options
}

#[test]
fn the_settings_have_the_defaults_that_the_charts_rely_on() {
    let options = options();
    assert_eq!(options.admin_address.to_string(), "0.0.0.0:8080");
    assert_eq!(options.lease_seconds, 15);
    assert_eq!(options.log_format, LogFormat::Text);
}

#[test]
fn a_lease_too_short_to_be_renewed_is_refused() {
    assert!(Settings::try_parse_from(["test", "--lease-seconds", "4"]).is_err());
    assert!(Settings::try_parse_from(["test", "--lease-seconds", "5"]).is_ok());
}

#[test]
fn every_flag_can_be_set_by_environment() {
    use clap::CommandFactory;
    for flag in Settings::command().get_arguments() {
        assert!(flag.get_env().is_some(), "{}", flag.get_id());
    }
}

#[test]
fn two_starts_in_one_pod_are_two_candidates() {
    assert_ne!(identity("pod"), identity("pod"));
}

#[tokio::test(start_paused = true)]
async fn a_process_leads_and_on_finish_gives_the_lease_back() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kmetal-system/leases";
    let server = Server::new(&[LEASES]);
    let fence = Fence::default();
    let (client, election) = (server.client(fence.clone()), server.client(Fence::default()));
    let mut options = options();
    options.lease_namespace = "kmetal-system".into();
    let process = Process::assemble("kmetal-test", &options, client, election, fence);
    assert!(process.fence.check().is_ok(), "a process that never asks for leadership writes freely");
    process.lead().await.unwrap();
    assert!(process.fence.check().is_ok());
    process.finish().await;
    assert!(process.fence.check().is_err());
    assert!(process.stop.is_cancelled());
    let lease = server.stored(LEASES, "kmetal-test").unwrap();
    assert!(lease["spec"]["holderIdentity"].is_null());
    process.finish().await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_is_asked_to_stop_does_not_fail() {
    let server = Server::new(&[]);
    let fence = Fence::default();
    let (client, election) = (server.client(fence.clone()), server.client(Fence::default()));
    let process = Process::assemble("kmetal-test", &options(), client, election, fence);
    let stop = process.stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        stop.cancel();
    });
    let error = process.lead().await.unwrap_err();
    assert!(error.is::<Stopped>());
    assert!(process.fence.check().is_err(), "a standby does not write");
}

//! kmetal-networking: what tenants claim in their Environments becomes Kube-OVN objects on the under cluster, closed
//! against every other tenant and against the platform.
//!
//! | question | module |
//! |---|---|
//! | what a VpcClaim, SubnetClaim or EipClaim needs now | [`vpc`], [`subnet`], [`eip`]: `observe` reads, `plan` decides, [`mod@apply`] writes |
//! | how a Service of a tenant cluster gets an address | [`service`] |
//! | what keeps tenants apart | [`isolation`] |
//! | what the platform's engineers state | [`platform`] |
//! | which addresses are in use behind which VPC | [`bound`] |
//! | in which order things go down | [`teardown`] |
//! | who takes down what a vanished claim left | [`orphans`] |
//! | through which nodes VPCs leave | [`gateways`] |
//! | how often a torn object is mended | [`pace`] |
//! | whether Kube-OVN is there | [`kube_ovn`] |

pub mod apply;
pub mod bound;
pub mod change;
pub mod claim;
pub mod cluster;
pub mod config;
pub mod context;
pub mod eip;
pub mod environment;
pub mod gateways;
pub mod isolation;
pub mod kube_ovn;
pub mod names;
pub mod orphans;
pub mod pace;
pub mod platform;
pub mod range;
pub mod report;
pub mod route;
pub mod sent;
pub mod service;
pub mod subnet;
pub mod teardown;
pub mod trigger;
pub mod vpc;

use std::sync::Arc;

use kmetal_runtime::Process;

use crate::{
    config::Config,
    context::{Caches, Context},
    kube_ovn::Health,
    pace::Pace,
    platform::PlatformFile,
    sent::Sent,
    service::{InTenant, Tenants},
};

/// The whole process, from leadership to the last reconcile.
pub async fn run(process: Process, config: Config) -> anyhow::Result<()> {
    process.lead().await?;
    // Watched from here on, not before: what the last leader wrote is in the first lists, and no decision is made
    // on less.
    let listed = process.gates.gate("caches");
    listed.close("the objects of the under cluster are being listed");
    let caches = Arc::new(Caches::start(&process, &config.kube_ovn_namespace));
    tokio::select! {
        () = caches.settled() => {}
        // Nobody lists any more, so they would never be.
        () = process.stop.cancelled() => return Ok(()),
    }
    let context = Arc::new(Context {
        platform: PlatformFile::watch(config.platform_file, process.stop.clone()),
        kube_ovn: Health::watch(&process, caches.clone()),
        sent_subnets: Sent::default(),
        ranges: subnet::Ranges::default(),
        sent_eips: Sent::default(),
        tenants: Tenants::start(&process, &caches.clusters, &config.tenants, InTenant::watch),
        services: service::Shared::default(),
        pace: Pace::default(),
        lost: vpc::mend::Lost::default(),
        process,
        caches,
    });
    listed.open();
    tokio::join!(
        vpc::run(context.clone()),
        subnet::run(context.clone()),
        eip::run(context.clone()),
        orphans::run(context.clone()),
        gateways::run(context.clone()),
        service::run(context.clone()),
        route::run(context),
    );
    Ok(())
}

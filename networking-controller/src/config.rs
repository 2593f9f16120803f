//! Settings of the process: the only place that reads flags and environment.

use std::path::PathBuf;

use kmetal_runtime::{Options, TenantOptions};

/// Turns the claims of tenants into isolated Kube-OVN networks.
#[derive(clap::Parser, Debug, Clone)]
#[command(name = "kmetal-networking", version)]
pub struct Config {
    #[command(flatten)]
    process: Options,
    /// File in which the platform's engineers state provider networks and protected CIDRs; re-read while running.
    #[arg(long, env = "KMETAL_PLATFORM_FILE", default_value = "/etc/kmetal/platform.yaml")]
    pub platform_file: PathBuf,
    /// Namespace in which kube-ovn-controller keeps its Lease, its sign of life.
    #[arg(long, env = "KMETAL_KUBE_OVN_NAMESPACE", default_value = "kube-system")]
    pub kube_ovn_namespace: String,
    /// Where API servers of tenant clusters may be.
    #[command(flatten)]
    pub tenants: TenantOptions,
}

impl AsRef<Options> for Config {
    fn as_ref(&self) -> &Options {
        &self.process
    }
}

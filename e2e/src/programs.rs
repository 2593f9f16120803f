//! Other people's programs, built once from pinned Go modules into `target/kit/bin`.
//!
//! One small `go.mod` per upstream lives in `e2e/kit/<folder>`; a program is built again only when that folder (or
//! how we build) changes. Nothing of an upstream is copied into the repository: CRDs and charts are read at run
//! time from the module's own folder ([`module_dir`]).

mod build;
mod own;
mod source;

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

pub use self::{
    build::{ensure, ensure_only},
    own::{PROCESSES, build_own, own_binary},
    source::copy_folder,
};
use crate::{child::Launch, places};

/// What one `go build` makes.
#[derive(Debug)]
pub struct Group {
    /// The folder below `e2e/kit`.
    pub folder: &'static str,
    /// The programs: what the file is called, and its Go package.
    pub programs: &'static [(&'static str, &'static str)],
    /// What the linker is told.
    ldflags: &'static str,
    /// What is another text in what we build; then the module is built from a copy, with its own go.mod.
    change: Option<Change>,
    /// Whether only exhaustive tests need it.
    pub exhaustive: bool,
}

/// A text in an upstream's source that has to be another one here, for want of a flag.
#[derive(Debug)]
struct Change {
    module: &'static str,
    file: &'static str,
    /// Occurs once.
    from: &'static str,
    to: &'static str,
}

/// A group of the kit's own go.mod, needed by all.
const PLAIN: Group = Group { folder: "", programs: &[], ldflags: "-s -w", change: None, exhaustive: false };

/// Capsule's health server listens on one port that no flag changes, so two of them could not run on one machine.
const CAPSULE_HEALTH: Change = Change {
    module: "github.com/projectcapsule/capsule",
    file: "cmd/controller/main.go",
    from: "\":10080\"",
    to: "os.Getenv(\"CAPSULE_HEALTH_ADDRESS\")",
};

/// The API server reports the version it was linked with, and clients refuse one that they cannot parse.
const KUBERNETES_VERSION: &str = "-s -w -X k8s.io/component-base/version.gitVersion=v1.35.4 \
    -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35 \
    -X k8s.io/client-go/pkg/version.gitVersion=v1.35.4";

/// Everything the kit builds, in the order in which it is needed.
pub const GROUPS: &[Group] = &[
    Group { folder: "kubernetes", programs: &[("etcd", "go.etcd.io/etcd/server/v3")], ..PLAIN },
    Group {
        folder: "kubernetes",
        programs: &[
            ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
            ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
        ],
        ldflags: KUBERNETES_VERSION,
        ..PLAIN
    },
    Group {
        folder: "kube-ovn",
        // The binary asks argv[0] which of Kube-OVN's programs it is.
        programs: &[("kube-ovn-controller", "github.com/kubeovn/kube-ovn/cmd/controller")],
        ..PLAIN
    },
    Group { folder: "kube-ovn", programs: &[("ovn-schema", "./schema")], ..PLAIN },
    Group { folder: "helm", programs: &[("helm", "helm.sh/helm/v4/cmd/helm")], ..PLAIN },
    Group {
        folder: "capsule",
        programs: &[("capsule", "./cmd/controller")],
        change: Some(CAPSULE_HEALTH),
        ..PLAIN
    },
    Group {
        folder: "capsule-0.14",
        programs: &[("capsule-0.14", "./cmd/controller")],
        change: Some(CAPSULE_HEALTH),
        exhaustive: true,
        ..PLAIN
    },
];

/// `etcd`, or the one in `KUBEBUILDER_ASSETS`.
pub fn etcd() -> PathBuf {
    asset("etcd")
}

/// `kube-apiserver`, or the one in `KUBEBUILDER_ASSETS`.
pub fn kube_apiserver() -> PathBuf {
    asset("kube-apiserver")
}

/// `kubectl`, or the one in `KUBEBUILDER_ASSETS`.
pub fn kubectl() -> PathBuf {
    asset("kubectl")
}

/// `kube-controller-manager`.
pub fn kube_controller_manager() -> PathBuf {
    built("kube-controller-manager")
}

/// `kube-scheduler`.
pub fn kube_scheduler() -> PathBuf {
    built("kube-scheduler")
}

/// Kube-OVN's controller.
pub fn kube_ovn_controller() -> PathBuf {
    built("kube-ovn-controller")
}

/// Prints an OVN database schema: `ovn-schema nb`, `ovn-schema sb`.
pub fn ovn_schema() -> PathBuf {
    built("ovn-schema")
}

/// `helm`.
pub fn helm() -> PathBuf {
    built("helm")
}

/// Capsule, built in this folder of the kit's: `capsule`, `capsule-0.14`.
pub fn capsule(folder: &str) -> PathBuf {
    built(folder)
}

/// Where Go keeps the source of a module that one of the kit's folders requires.
pub fn module_dir(folder: &str, module: &str) -> Result<PathBuf> {
    let list = |args: &[&str]| Launch::new("go", "go").folder(places::module(folder)).args(args).output();
    // `go list` answers with an empty line for a module that is required but not there yet.
    let mut found = list(&["list", "-m", "-f", "{{.Dir}}", module])?;
    if found.trim().is_empty() {
        list(&["mod", "download", module])?;
        found = list(&["list", "-m", "-f", "{{.Dir}}", module])?;
    }
    let found = Path::new(found.trim()).to_owned();
    found.is_dir().then_some(found).with_context(|| format!("Go has no folder for module {module}"))
}

fn asset(name: &str) -> PathBuf {
    match env::var_os("KUBEBUILDER_ASSETS") {
        Some(folder) => Path::new(&folder).join(name),
        None => built(name),
    }
}

fn built(name: &str) -> PathBuf {
    places::programs().join(name)
}

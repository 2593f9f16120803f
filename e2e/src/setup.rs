//! The Debian packages that the kit needs, installed when we may and named when we may not.
//!
//! Only programs are wanted: the packages' own services are neither started nor used, so that the machine's Open
//! vSwitch, if it has one, is not ours to disturb.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::child::Launch;

/// Package and why.
const PACKAGES: &[(&str, &str)] = &[
    ("util-linux", "setpriv: children die with us"),
    ("git", "cargo ci: is the tree clean"),
    ("libfaketime", "children whose clock is wrong"),
    ("openvswitch-switch", "ovsdb-server: the OVN databases"),
    ("openvswitch-common", "ovsdb-tool, ovsdb-client: making and reading them"),
    ("ovn-central", "ovn-northd: logical networks to flows"),
    ("ovn-common", "ovn-nbctl, ovn-sbctl, ovn-trace: what a packet would do"),
];

const TRIES: usize = 3;
const BETWEEN_TRIES: Duration = Duration::from_secs(10);
/// Debian asks this program whether a package may start its services; 101 means no.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Installs what is missing; without the right to, says what to type.
pub fn ensure() -> Result<()> {
    ensure_go()?;
    let missing: Vec<&(&str, &str)> = PACKAGES.iter().filter(|(package, _)| !is_installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(package, _)| *package).collect();
    let why: Vec<String> = missing.iter().map(|(package, why)| format!("  {package} ({why})")).collect();
    let Some(root) = become_root() else {
        bail!(
            "Debian packages are missing:\n{}\nInstall them and try again:\n  sudo apt-get update && sudo apt-get install --no-install-recommends {}",
            why.join("\n"),
            names.join(" ")
        );
    };
    eprintln!("kit: installing Debian packages:\n{}", why.join("\n"));
    let _no_services = NoServices::enforce(&root)?;
    let apt = |args: &[&str]| {
        let mut words = root.clone();
        words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "Acquire::Retries=3"]);
        words.extend(args);
        Launch::new("apt-get", words[0]).args(&words[1..]).run().is_ok_and(|status| status.success())
    };
    for attempt in 1..=TRIES {
        let mut install = vec!["install", "--yes", "--no-install-recommends"];
        install.extend(&names);
        if apt(&["update"]) && apt(&install) {
            return Ok(());
        }
        eprintln!("kit: apt-get: attempt {attempt} of {TRIES} failed");
        thread::sleep(BETWEEN_TRIES);
    }
    bail!("apt-get could not install {}", names.join(" "))
}

fn ensure_go() -> Result<()> {
    let found = Launch::new("go", "go").arg("version").output();
    found.context(
        "the kit builds Kubernetes and Kube-OVN from source and needs Go 1.26 or newer: https://go.dev/dl/",
    )?;
    Ok(())
}

fn is_installed(package: &str) -> bool {
    let status = Launch::new("dpkg-query", "dpkg-query")
        .args(["--show", "--showformat", "${db:Status-Abbrev}", package])
        .output();
    status.is_ok_and(|status| status.starts_with("ii"))
}

/// The words before a command that make it root's; `None` when we may not.
fn become_root() -> Option<Vec<&'static str>> {
    if rustix::process::geteuid().is_root() {
        return Some(Vec::new());
    }
    let sudo = Command::new("sudo").args(["-n", "true"]).stdin(Stdio::null()).stderr(Stdio::null()).status();
    sudo.is_ok_and(|status| status.success()).then(|| vec!["sudo", "-n"])
}

/// While this lives, packages do not start their services. A policy that the machine has already is left alone.
struct NoServices {
    root: Vec<&'static str>,
    ours: bool,
}

impl NoServices {
    fn enforce(root: &[&'static str]) -> Result<Self> {
        let ours = !Path::new(POLICY).exists();
        if ours {
            let draft = env::temp_dir().join(format!("kmetal-policy-{}", std::process::id()));
            fs::write(&draft, "#!/bin/sh\nexit 101\n")?;
            fs::set_permissions(&draft, fs::Permissions::from_mode(0o755))?;
            let draft = draft.display().to_string();
            run_as(root, &["cp", &draft, POLICY])?;
            fs::remove_file(&draft)?;
        }
        Ok(Self { root: root.to_vec(), ours })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = run_as(&self.root, &["rm", "--force", POLICY])
        {
            eprintln!("kit: {POLICY} is left behind: {error:#}");
        }
    }
}

fn run_as(root: &[&str], command: &[&str]) -> Result<()> {
    let words = [root, command].concat();
    Launch::new(command[0], words[0]).args(&words[1..]).output()?;
    Ok(())
}

//! over all promises together, no process was forbidden anything, and each did all that it may.
//!
//! A right that nothing uses is a door that stands open for nothing. What is granted is read from the charts that were
//! installed, what is used from the audit logs; every cluster whose test went well adds its part to a folder, and who ran the
//! tests judges it when all have run. A part of the promises shows what is forbidden, only all of them show what is idle.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fs::{self, File},
    io::Write as _,
    path::Path,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::rbac::v1::{RoleRef, Subject};
use kube::core::DynamicObject;

use crate::{
    audit::{self, permissions::Permission},
    cluster::Cluster,
    networking,
};

/// Names the folder to those who run the promises; without it nothing is kept.
pub const FOLDER: &str = "KMETAL_PERMISSIONS";

/// A right that is needed only where chance has it so: no promise uses it each time that all run.
#[derive(Debug, Clone, Copy)]
pub struct Exception {
    /// The process.
    pub account: &'static str,
    /// As a [`Permission`] is written.
    pub permission: &'static str,
    /// Why it must be granted all the same.
    pub because: &'static str,
}

/// All that there are.
pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        account: networking::NAME,
        permission: "get leases of coordination.k8s.io",
        because: "a write to the Lease that failed is followed by a look at it",
    },
    Exception {
        account: networking::NAME,
        permission: "get ovn-snat-rules of kubeovn.io",
        because: "a rule whose name is taken already is looked at: it may be ours",
    },
    Exception {
        account: networking::NAME,
        permission: "get ovn-dnat-rules of kubeovn.io",
        because: "a rule whose name is taken already is looked at: it may be ours",
    },
    Exception {
        account: networking::NAME,
        permission: "patch events of events.k8s.io",
        because: "the same Event twice within minutes is counted up",
    },
];

/// What the Roles give that these objects bind to a ServiceAccount.
pub fn granted(objects: &[DynamicObject], account: &str) -> Result<BTreeSet<Permission>> {
    let mut roles = Vec::new();
    for binding in objects.iter().filter(|object| kind(object).ends_with("RoleBinding")) {
        let subjects: Vec<Subject> = serde_json::from_value(binding.data["subjects"].clone())?;
        if subjects.iter().any(|subject| subject.name == account) {
            roles.push(serde_json::from_value::<RoleRef>(binding.data["roleRef"].clone())?.name);
        }
    }
    let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
    audit::permissions::granted(objects, &roles)
}

fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| &types.kind)
}

/// Adds what the processes on this cluster were granted, used and were forbidden.
pub fn keep(cluster: &Cluster) -> Result<()> {
    let Some(folder) = env::var_os(FOLDER) else { return Ok(()) };
    let rig = cluster.rig();
    for (namespace, account, granted) in rig.accounts() {
        let (asked, forbidden) = cluster.audit().asked_by(&namespace, &account)?;
        let lines = granted.iter().map(|right| format!("granted {right}"));
        let lines = lines.chain(asked.permissions().into_iter().map(|right| format!("used {right}")));
        let lines = lines
            .chain(forbidden.iter().map(|entry| format!("forbidden in {}: {}", rig.name(), entry.line())));
        // One write, so that lines of two tests do not mix.
        let text: String = lines.map(|line| line + "\n").collect();
        let mut file = File::options().create(true).append(true).open(Path::new(&folder).join(&account))?;
        file.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// What was kept of one process.
#[derive(Debug, Default)]
struct Kept {
    granted: BTreeSet<Permission>,
    used: BTreeSet<Permission>,
    forbidden: BTreeSet<String>,
}

impl Kept {
    fn parse(text: &str) -> Result<Self> {
        let mut kept = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("granted", right)) => drop(kept.granted.insert(right.parse()?)),
                Some(("used", right)) => drop(kept.used.insert(right.parse()?)),
                _ => drop(kept.forbidden.insert(line.to_owned())),
            }
        }
        Ok(kept)
    }

    /// What is wrong, one line each; what is idle only if all promises have run.
    fn faults(&self, account: &str, exceptions: &[Exception], all_ran: bool) -> Vec<String> {
        let mut faults: Vec<String> = self.forbidden.iter().cloned().collect();
        if !all_ran {
            return faults;
        }
        let idle: BTreeSet<String> =
            self.granted.difference(&self.used).map(|right| format!("{account} may {right}")).collect();
        let excepted: BTreeSet<String> = exceptions
            .iter()
            .filter(|exception| exception.account == account)
            .map(|exception| format!("{account} may {}", exception.permission))
            .collect();
        faults.extend(idle.difference(&excepted).map(|right| format!("{right}, and nothing uses it")));
        let granted = self.granted.iter().map(|right| format!("{account} may {right}")).collect();
        faults
            .extend(excepted.difference(&granted).map(|right| format!("{right}: an exception that is none")));
        faults
    }
}

/// Judges what was kept in the folder.
pub fn judge(folder: &Path, all_ran: bool) -> Result<()> {
    let mut faults = BTreeMap::new();
    for file in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let file = file?;
        let account = file.file_name().to_string_lossy().into_owned();
        let kept = Kept::parse(&fs::read_to_string(file.path())?)?;
        eprintln!("kit: {account} may {} things and did {} of them", kept.granted.len(), kept.used.len());
        faults.insert(account.clone(), kept.faults(&account, EXCEPTIONS, all_ran));
    }
    faults.retain(|_, faults| !faults.is_empty());
    ensure!(faults.is_empty(), "permissions: {faults:#?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply;

    const CHART: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: of-x}
rules: [{apiGroups: [g], resources: [claims, claims/status], verbs: [list, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: of-tenants}
rules: [{apiGroups: [g], resources: [claims], verbs: [delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: any}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: of-x}
subjects: [{kind: ServiceAccount, name: x, namespace: kmetal-system}]
";

    fn kept(more: &str) -> Kept {
        let granted = granted(&apply::parse(CHART).unwrap(), "x").unwrap();
        assert_eq!(granted.len(), 4);
        let granted: Vec<String> = granted.iter().map(|right| format!("granted {right}")).collect();
        let granted = granted.join("\n");
        let used = "used list claims of g\nused patch claims of g\nused patch claims/status of g\n";
        Kept::parse(&format!("{granted}\n{used}{more}")).unwrap()
    }

    #[test]
    fn a_planted_right_that_nothing_uses_is_found_when_all_have_run() {
        assert_eq!(kept("").faults("x", &[], true), ["x may list claims/status of g, and nothing uses it"]);
        assert_eq!(kept("").faults("x", &[], false), Vec::<String>::new());
        let exception =
            Exception { account: "x", permission: "list claims/status of g", because: "it is a test" };
        assert_eq!(kept("").faults("x", &[exception], true), Vec::<String>::new());
        assert_eq!(kept("").faults("y", &[exception], true).len(), 1, "an exception is for one process");
        let all = kept("used list claims/status of g\n");
        assert_eq!(all.faults("x", &[], true), Vec::<String>::new());
        assert_eq!(all.faults("x", &[exception], true), Vec::<String>::new(), "chance had it so");
        let stale = Exception { permission: "delete claims of g", ..exception };
        assert!(all.faults("x", &[stale], true)[0].contains("an exception that is none"));
    }

    #[test]
    fn a_planted_refusal_is_found_at_once() {
        let faults = kept("forbidden in rig: get secrets → 403\n").faults("x", &[], false);
        assert_eq!(faults, ["forbidden in rig: get secrets → 403"]);
    }
}

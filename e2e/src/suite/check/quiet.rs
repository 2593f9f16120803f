//! a process that has nothing to do does nothing. Its Lease is renewed, its watches are, and that is all.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::audit::Entry;

/// How long a watch of ours lasts before it is asked for anew.
const WATCH: Duration = Duration::from_secs(40);

/// What a process did too much while nothing happened for so long, one line each. `entries` are all its requests in that
/// time.
pub fn faults(entries: &[Entry], lasted: Duration) -> Vec<String> {
    let mut faults = writes(entries);
    let ordinary: Vec<&Entry> = entries.iter().filter(|e| !e.is_write() && !is_lease(e)).collect();
    let watches: BTreeSet<String> =
        ordinary.iter().filter(|e| e.verb == "watch").map(|e| selection(e)).collect();
    // Twice what keeping the watches up takes.
    let renewals = lasted.as_secs().div_ceil(WATCH.as_secs());
    let allowed = 2 * watches.len() * usize::try_from(renewals).unwrap_or(usize::MAX);
    if ordinary.len() > allowed {
        let mut by_kind: BTreeMap<String, usize> = BTreeMap::new();
        for entry in &ordinary {
            *by_kind.entry(format!("{} {}", entry.verb, entry.reference().resource)).or_default() += 1;
        }
        faults.push(format!(
            "{} requests in {lasted:?} with {} watches, of which {allowed} are allowed: {by_kind:?}",
            ordinary.len(),
            watches.len(),
        ));
    }
    faults
}

/// Every write but those of the Lease, one line each.
pub fn writes(entries: &[Entry]) -> Vec<String> {
    let writes = entries.iter().filter(|entry| entry.is_write() && !is_lease(entry));
    writes.map(|entry| format!("written without need: {}", entry.line())).collect()
}

/// Leadership is kept up, whatever else happens.
fn is_lease(entry: &Entry) -> bool {
    entry.reference().resource == "leases"
}

/// What a watch selects, without from where on.
fn selection(entry: &Entry) -> String {
    let (path, query) = entry.request_uri.split_once('?').unwrap_or((&entry.request_uri, ""));
    let selects = |pair: &&str| pair.starts_with("fieldSelector=") || pair.starts_with("labelSelector=");
    format!("{path} {}", query.split('&').filter(selects).collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::check::tests::entry;

    const MINUTE: Duration = Duration::from_mins(1);

    fn watches(kinds: usize, times: usize) -> Vec<Entry> {
        let one = |kind| entry("watch", &format!("/apis/g/v1/kind{kind}?watch=true&resourceVersion={kind}7"));
        (0..kinds).flat_map(|kind| std::iter::repeat_n(kind, times)).map(one).collect()
    }

    #[test]
    fn a_lease_and_watches_are_quiet() {
        let mut entries = watches(10, 2);
        for _ in 0..30 {
            entries.push(entry("update", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"));
            entries.push(entry("get", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"));
        }
        assert_eq!(faults(&entries, MINUTE), Vec::<String>::new());
    }

    #[test]
    fn a_planted_status_loop_is_found() {
        let mut entries = watches(10, 2);
        entries.push(entry("patch", "/apis/g/v1/namespaces/n/claims/one/status"));
        let faults = faults(&entries, MINUTE);
        assert!(faults.len() == 1 && faults[0].contains("claims"), "{faults:?}");
        assert_eq!(writes(&entries).len(), 1);
    }

    #[test]
    fn a_planted_poll_is_found() {
        let mut entries = watches(2, 2);
        entries.extend((0..7).map(|_| entry("list", "/apis/g/v1/claims?limit=500")));
        let faults = faults(&entries, MINUTE);
        assert!(faults.len() == 1 && faults[0].contains("list"), "{faults:?}");
    }

    #[test]
    fn a_planted_watch_that_is_asked_for_again_and_again_is_found() {
        assert_eq!(faults(&watches(1, 5), MINUTE).len(), 1);
    }
}

//! What addresses that are bound behind a VPC do to its claim, on facts written by hand.

use super::{tests::*, *};

#[test]
fn bound_addresses_are_counted() {
    let claim = claim(Some(""));
    let mut seen = built(&claim);
    let count = |seen: &Seen| plan(&claim, seen, now()).status.bound_addresses;
    assert_eq!(count(&seen), Some(0));
    seen.bound = vec!["shop".into(), "mail".into()];
    assert_eq!(count(&seen), Some(2));
    assert_eq!(count(&empty()), None);
}

#[test]
fn the_way_out_stays_while_addresses_come_in_by_it_and_they_are_named() {
    let mut seen = built(&claim(Some("")));
    seen.bound = vec!["shop".into(), "mail".into()];
    seen.nat_rules = vec!["dnat-x".into()];
    let refused = plan(&claim(None), &seen, now());
    assert_eq!((refused.changes.len(), reason_of(&refused)), (0, reason::IN_USE));
    assert!(ready_of(&refused).message.contains("shop, mail"), "{}", ready_of(&refused).message);
    assert!(refused.status.egress.is_some());

    // Released, but not gone yet; then gone.
    seen.bound.clear();
    let waits = plan(&claim(None), &seen, now());
    assert_eq!((waits.changes.len(), reason_of(&waits)), (0, reason::UPDATING));
    seen.nat_rules.clear();
    let closes = plan(&claim(None), &seen, now());
    assert!(matches!(&closes.changes[..], [Change::UpdateVpc(vpc)] if !vpc.spec.enable_external));
}

#[test]
fn a_claim_without_egress_that_never_had_one_is_not_refused_for_an_address() {
    let claim = claim(None);
    let seen = Seen { bound: vec!["shop".into()], ..built(&claim) };
    assert_eq!(reason_of(&plan(&claim, &seen, now())), reason::READY);
}

#[test]
fn a_claim_that_goes_waits_for_the_addresses_bound_behind_it_unless_its_environment_goes() {
    let going = deleted(claim(Some("")));
    let mut seen = built(&claim(Some("")));
    seen.bound = (0..10).map(|n| format!("eip-{n}")).collect();
    let waits = plan(&going, &seen, now());
    assert_eq!((waits.changes.len(), reason_of(&waits)), (0, reason::IN_USE));
    assert!(ready_of(&waits).message.contains("eip-0, ") && ready_of(&waits).message.contains("and 2 more"));
    seen.environment.terminating = true;
    seen.environment.workloads = false;
    assert_eq!(plan(&going, &seen, now()).changes, [Change::Release]);
}

//! What becomes of a subnet whose objects an administrator's hand has torn, on facts written by hand.

use super::{
    tests::{built, claim, now},
    *,
};
use crate::change::Kind;

#[test]
fn torn_labels_come_back_and_nothing_else_is_said_or_done() {
    let mut claim = claim("10.1.0.0/24");
    let mut seen = built(&claim, true);
    for (meta, uid) in [
        (&mut seen.objects.snat.as_mut().unwrap().metadata, "snat-uid"),
        (&mut seen.objects.attachment.as_mut().unwrap().metadata, "nad-uid"),
    ] {
        meta.uid = Some(uid.into());
    }
    claim.status = Some(plan(&claim, &seen, now()).status);
    let objects = &mut seen.objects;
    let labels = objects.subnet.as_mut().unwrap().metadata.labels.take().unwrap();
    objects.snat.as_mut().unwrap().metadata.labels = None;
    let other = objects.attachment.as_mut().unwrap().metadata.labels.as_mut().unwrap();
    other.insert(kmetal_crds::names::CLAIM_UID.into(), "uid-0".into());

    let plan = plan(&claim, &seen, now());
    let kinds: Vec<Kind> = plan
        .changes
        .iter()
        .map(|change| match change {
            Change::Relabel(kind, _, given) if *given == labels => *kind,
            change => panic!("{change:?}"),
        })
        .collect();
    assert_eq!(kinds, [Kind::Subnet, Kind::OvnSnatRule, Kind::Attachment]);
    assert_eq!(Some(plan.status), claim.status);
}

#[test]
fn an_attachment_gets_its_finalizer_back() {
    let claim = claim("10.1.0.0/24");
    let mut seen = built(&claim, false);
    seen.objects.attachment.as_mut().unwrap().metadata.finalizers = None;
    let plan = plan(&claim, &seen, now());
    let [Change::UpdateAttachment(attachment)] = &plan.changes[..] else { panic!("{:?}", plan.changes) };
    assert!(attachment.metadata.finalizers.is_some());
}

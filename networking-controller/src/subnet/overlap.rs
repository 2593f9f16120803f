//! Who gets a range that several SubnetClaims of one VPC want. Pure.
//!
//! Who has a Subnet keeps it; among the rest the older goes first, then the smaller uid. A claim that is itself
//! refused stands in nobody's way.

use k8s_openapi::jiff::Timestamp;

use crate::range::Range;

/// A SubnetClaim of the VPC, or a Subnet in it whose claim is gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The claim's name; none when it is gone.
    pub name: Option<String>,
    /// The claim's uid.
    pub uid: String,
    /// When the claim was created.
    pub created: Option<Timestamp>,
    /// What it asks for.
    pub range: Range,
    /// Whether it has a Subnet already.
    pub has_subnet: bool,
}

/// The candidate that keeps `me` from its range, if any.
pub fn in_the_way<'a>(me: &Candidate, others: &'a [Candidate]) -> Option<&'a Candidate> {
    if me.has_subnet {
        return None;
    }
    let mut served: Vec<&Candidate> = others.iter().filter(|other| other.has_subnet).collect();
    let mut older: Vec<&Candidate> =
        others.iter().filter(|other| !other.has_subnet && age(other) < age(me)).collect();
    older.sort_by_key(|other| age(other));
    for candidate in older {
        if !served.iter().any(|kept| kept.range.overlaps(&candidate.range)) {
            served.push(candidate);
        }
    }
    served.into_iter().find(|kept| kept.range.overlaps(&me.range))
}

fn age(candidate: &Candidate) -> (Option<Timestamp>, &str) {
    (candidate.created, &candidate.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, second: i64, range: &str, has_subnet: bool) -> Candidate {
        Candidate {
            name: Some(name.into()),
            uid: name.into(),
            created: Some(Timestamp::from_second(second).unwrap()),
            range: Range::parse(range).unwrap(),
            has_subnet,
        }
    }

    fn blocker(me: &Candidate, others: &[Candidate]) -> Option<String> {
        in_the_way(me, others).and_then(|other| other.name.clone())
    }

    #[test]
    fn who_has_a_subnet_keeps_it_even_from_an_older_claim() {
        let old = candidate("old", 1, "10.0.0.0/24", false);
        let new = candidate("new", 2, "10.0.0.0/25", true);
        assert_eq!(blocker(&old, std::slice::from_ref(&new)), Some("new".into()));
        assert_eq!(blocker(&new, &[old]), None);
    }

    #[test]
    fn among_those_without_one_the_older_goes_first_then_the_smaller_uid() {
        let a = candidate("a", 1, "10.0.0.0/24", false);
        let b = candidate("b", 1, "10.0.0.0/24", false);
        let c = candidate("c", 0, "10.0.0.128/25", false);
        assert_eq!(blocker(&a, std::slice::from_ref(&b)), None);
        assert_eq!(blocker(&b, std::slice::from_ref(&a)), Some("a".into()));
        assert_eq!(blocker(&a, &[b, c]), Some("c".into()));
    }

    #[test]
    fn a_claim_that_is_itself_refused_stands_in_nobodys_way() {
        let kept = candidate("kept", 3, "10.0.0.0/25", true);
        let refused = candidate("refused", 1, "10.0.0.0/24", false);
        let me = candidate("me", 2, "10.0.0.128/25", false);
        assert_eq!(blocker(&me, &[kept, refused]), None);
    }
}

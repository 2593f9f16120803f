//! Conditions under one set of rules: `Ready` always, `Reconciling` and `Stalled` only while true (kstatus), the
//! transition time moves only with the status, whole seconds.
//!
//! Source of the manners: kstatus of cli-utils and the metav1.Condition contract.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The object does what its spec asks.
pub const READY: &str = "Ready";
/// Present and `True` only while the controller or a peer is still working.
pub const RECONCILING: &str = "Reconciling";
/// Present and `True` only while nothing will move before somebody changes something.
pub const STALLED: &str = "Stalled";

/// Only the conditions that [`conditions`] writes: whoever adds others of their own to an object keeps them.
pub fn ours(mut all: Vec<Condition>) -> Vec<Condition> {
    all.retain(|condition| [READY, RECONCILING, STALLED].contains(&condition.type_.as_str()));
    all
}

/// Where an object stands, in the three words a reader asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// `Ready=True`.
    Ready,
    /// `Ready=False`, `Reconciling=True`: wait.
    Waiting,
    /// `Ready=False`, `Stalled=True`: a person must act; the message says who and how.
    Stalled,
}

/// The conditions of an object at `now`, carrying over the transition times of `before`.
///
/// `message` names what, which object, why, and what to do; it is cut at the 32 KiB that metav1 allows.
pub fn conditions(
    before: &[Condition],
    progress: Progress,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let of = |type_: &str, status: &str| {
        let since = before
            .iter()
            .find(|old| old.type_ == type_ && old.status == status)
            .map_or_else(|| whole_seconds(now), |old| old.last_transition_time.clone());
        Condition {
            type_: type_.into(),
            status: status.into(),
            reason: reason.into(),
            message: bounded(message),
            observed_generation: generation,
            last_transition_time: since,
        }
    };
    match progress {
        Progress::Ready => vec![of(READY, "True")],
        Progress::Waiting => vec![of(READY, "False"), of(RECONCILING, "True")],
        Progress::Stalled => vec![of(READY, "False"), of(STALLED, "True")],
    }
}

/// The condition of that type.
pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of that type is present and `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    get(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// The API server stores whole seconds; anything finer would differ from what comes back and loop (kube trap T13).
fn whole_seconds(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

fn bounded(message: &str) -> String {
    const LIMIT: usize = 32_768;
    if message.len() <= LIMIT {
        return message.into();
    }
    let end = (0..=LIMIT - 4).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let first = conditions(&[], Progress::Waiting, "Creating", "a", Some(1), at(10));
        let second = conditions(&first, Progress::Waiting, "Other", "b", Some(2), at(20));
        assert_eq!(second[0].last_transition_time, first[0].last_transition_time);
        assert_eq!(second[0].reason, "Other");
        let third = conditions(&second, Progress::Ready, "Ready", "c", Some(2), at(30));
        assert_eq!(third[0].last_transition_time.0, at(30));
    }

    #[test]
    fn reconciling_and_stalled_are_there_only_while_true() {
        let types = |progress| {
            conditions(&[], progress, "R", "m", None, at(0))
                .into_iter()
                .map(|c| (c.type_, c.status))
                .collect::<Vec<_>>()
        };
        let pair = |t: &str, s: &str| (t.to_owned(), s.to_owned());
        assert_eq!(types(Progress::Ready), [pair("Ready", "True")]);
        assert_eq!(types(Progress::Waiting), [pair("Ready", "False"), pair("Reconciling", "True")]);
        assert_eq!(types(Progress::Stalled), [pair("Ready", "False"), pair("Stalled", "True")]);
    }

    #[test]
    fn a_fraction_of_a_second_does_not_survive() {
        let now = Timestamp::from_millisecond(10_900).unwrap();
        assert_eq!(conditions(&[], Progress::Ready, "R", "m", None, now)[0].last_transition_time.0, at(10));
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        let long = "ü".repeat(40_000);
        assert!(bounded(&long).len() <= 32_768);
    }
}

//! asked to wait, the process waits, with all that it has to do and not with each thing by itself.

use std::{collections::BTreeMap, time::Duration};

use crate::faults::Passed;

/// The least time between two requests of one verb, a little less than a second: both ends have a scheduler.
const PACE: Duration = Duration::from_millis(900);
/// What was under way when the first was refused cannot know of it.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// Requests that came sooner than a second after another one of their verb, of those that were refused for pace; one line
/// each.
pub fn faults(refused: &[Passed]) -> Vec<String> {
    let Some(first) = refused.iter().map(|passed| passed.at).min() else { return Vec::new() };
    let mut last: BTreeMap<String, std::time::SystemTime> = BTreeMap::new();
    let mut faults = Vec::new();
    for passed in refused.iter().filter(|passed| passed.at > first + UNDER_WAY) {
        let before = last.insert(passed.asked.method.to_string(), passed.at);
        let since = before.and_then(|before| passed.at.duration_since(before).ok());
        if let Some(since) = since.filter(|since| *since < PACE) {
            faults.push(format!("{since:?} after another one: {}", passed.asked));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::Method;

    use super::*;
    use crate::faults::Asked;

    fn refused(times: &[(u64, Method)]) -> Vec<Passed> {
        let one = |(millis, method): &(u64, Method)| Passed {
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(*millis),
            asked: Asked {
                method: method.clone(),
                path: "/api".into(),
                query: String::new(),
                agent: "x".into(),
            },
            server: None,
            client: Some(429),
            faults: vec![],
        };
        times.iter().map(one).collect()
    }

    #[test]
    fn one_a_second_of_each_verb_is_well_after_a_burst() {
        let burst = (0..20).map(|n| (n * 10, Method::GET));
        let paced = (2..9).flat_map(|n| [(n * 1000, Method::GET), (n * 1000 + 5, Method::PATCH)]);
        assert_eq!(faults(&refused(&burst.chain(paced).collect::<Vec<_>>())), Vec::<String>::new());
    }

    #[test]
    fn a_planted_impatience_is_found() {
        let times = [(0, Method::GET), (2000, Method::PATCH), (2100, Method::GET), (2500, Method::PATCH)];
        let found = faults(&refused(&times));
        assert!(found.len() == 1 && found[0].contains("PATCH"), "{found:?}");
    }
}

//! What the proxy's connections share: the rules with their counts, the log, and who is connected.
//!
//! One lock over all of it, held for moments: a request is counted against every rule and entered in the log in one
//! step, so numbers in the log and numbers in rules tell the same order.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use tokio::sync::watch;

use super::{
    Asked, Fault, Select, Which,
    line::{Line, Mood},
};

/// How new connections are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Door {
    /// As usual.
    #[default]
    Open,
    /// Accepted, then silence: no TLS handshake, no FIN.
    Silent,
    /// Accepted and closed at once.
    Shut,
}

/// One request that came to the proxy, and what became of it.
#[derive(Debug, Clone)]
pub struct Passed {
    /// When its head had been read.
    pub at: SystemTime,
    /// The request.
    pub asked: Asked,
    /// What the server answered; `None` if it was not asked or has not answered (yet).
    pub server: Option<u16>,
    /// What the client was answered; `None` if nothing (yet).
    pub client: Option<u16>,
    /// The faults that befell it, as their `Debug` shows them.
    pub faults: Vec<String>,
}

impl Passed {
    /// Whether the server accepted it.
    pub fn is_applied(&self) -> bool {
        self.server.is_some_and(|code| (200..300).contains(&code))
    }
}

/// A rule that was made. Dropping this changes nothing: a rule lasts until it is lifted or all are.
#[derive(Debug, Clone)]
pub struct Rule {
    id: u64,
    state: Weak<State>,
    struck: watch::Receiver<u64>,
}

impl Rule {
    /// From now on it strikes nobody.
    pub fn lift(&self) {
        if let Some(state) = self.state.upgrade() {
            state.lock().rules.remove(&self.id);
        }
    }

    /// How many requests it has struck.
    pub fn struck(&self) -> u64 {
        *self.struck.borrow()
    }

    /// Waits until it has struck a request; `false` if it was lifted without.
    pub async fn has_struck(&self) -> bool {
        self.struck.clone().wait_for(|struck| *struck > 0).await.is_ok()
    }
}

#[derive(Debug)]
struct Planted {
    select: Select,
    numbers: RangeInclusive<u64>,
    until: Option<Instant>,
    fault: Fault,
    counted: u64,
    struck: watch::Sender<u64>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    inner: Mutex<Inner>,
    door: watch::Sender<Door>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    rules: BTreeMap<u64, Planted>,
    lines: BTreeMap<u64, Weak<Line>>,
    log: Vec<Passed>,
}

impl Inner {
    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// The place of a request in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place(usize);

impl State {
    pub(super) fn add(self: &Arc<Self>, which: Which, fault: Fault) -> Rule {
        let (sender, struck) = watch::channel(0);
        let planted = Planted {
            select: which.select,
            numbers: which.numbers,
            until: which.lasting.map(|lasting: Duration| Instant::now() + lasting),
            fault,
            counted: 0,
            struck: sender,
        };
        let mut inner = self.lock();
        let id = inner.id();
        inner.rules.insert(id, planted);
        Rule { id, state: Arc::downgrade(self), struck }
    }

    /// A request has come: enters it in the log, counts it, and tells what befalls it.
    pub(super) fn arrive(&self, asked: &Asked) -> (Place, Vec<Fault>) {
        let (mut faults, now) = (Vec::new(), Instant::now());
        let mut inner = self.lock();
        inner.rules.retain(|_, rule| rule.until.is_none_or(|until| now < until));
        for rule in inner.rules.values_mut().filter(|rule| rule.select.takes(asked)) {
            rule.counted += 1;
            if rule.numbers.contains(&rule.counted) {
                rule.struck.send_modify(|struck| *struck += 1);
                faults.push(rule.fault.clone());
            }
        }
        inner.log.push(Passed {
            at: SystemTime::now(),
            asked: asked.clone(),
            server: None,
            client: None,
            faults: faults.iter().map(|fault| format!("{fault:?}")).collect(),
        });
        (Place(inner.log.len() - 1), faults)
    }

    pub(super) fn server_said(&self, place: Place, code: u16) {
        if let Some(passed) = self.lock().log.get_mut(place.0) {
            passed.server = Some(code);
        }
    }

    pub(super) fn client_was_told(&self, place: Place, code: u16) {
        if let Some(passed) = self.lock().log.get_mut(place.0) {
            passed.client = Some(code);
        }
    }

    pub(super) fn log(&self) -> Vec<Passed> {
        self.lock().log.clone()
    }

    /// A new connection.
    pub(super) fn connected(&self, line: &Arc<Line>) {
        let mut inner = self.lock();
        inner.lines.retain(|_, line| line.strong_count() > 0);
        let id = inner.id();
        inner.lines.insert(id, Arc::downgrade(line));
    }

    fn lines(&self) -> Vec<Arc<Line>> {
        self.lock().lines.values().filter_map(Weak::upgrade).collect()
    }

    /// Strikes the connections on which such an exchange is under way, or all.
    pub(super) fn strike(&self, select: Option<&Select>, mood: Mood) -> usize {
        let meant = |line: &&Arc<Line>| select.is_none_or(|select| line.is_busy_with(select));
        self.lines().iter().filter(meant).filter(|line| line.strike(mood)).count()
    }

    /// Ends the bodies under way with these last bytes.
    pub(super) fn finish(&self, select: &Select, last: &Bytes) -> usize {
        self.lines().iter().filter(|line| line.is_busy_with(select)).filter(|line| line.finish(last)).count()
    }

    pub(super) fn clear(&self) {
        self.lock().rules.clear();
        self.door(Door::Open);
        for line in self.lines().iter().filter(|line| line.is_silent()) {
            line.strike(Mood::Broken);
        }
    }

    pub(super) fn door(&self, door: Door) {
        self.door.send_replace(door);
    }

    pub(super) fn watch_door(&self) -> watch::Receiver<Door> {
        self.door.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

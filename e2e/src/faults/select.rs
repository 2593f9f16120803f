//! Which requests a rule is about: a predicate, and which of those that it takes.

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use super::Asked;

type Predicate = dyn Fn(&Asked) -> bool + Send + Sync;

/// A kind of request. Those that know Kubernetes are in [`super::kubernetes`].
#[derive(Clone)]
pub struct Select(Arc<Predicate>);

impl fmt::Debug for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Select")
    }
}

impl Select {
    /// Those that this says yes to.
    pub fn new(predicate: impl Fn(&Asked) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(predicate))
    }

    /// All.
    pub fn all() -> Self {
        Self::new(|_| true)
    }

    /// Those whose method changes something.
    pub fn writes() -> Self {
        Self::new(Asked::is_write)
    }

    /// Those whose path starts like this.
    pub fn under(path: &str) -> Self {
        let path = path.to_owned();
        Self::new(move |asked| asked.path.starts_with(&path))
    }

    /// Those of programs whose user agent starts like this.
    pub fn of(agent: &str) -> Self {
        let agent = agent.to_owned();
        Self::new(move |asked| asked.agent.starts_with(&agent))
    }

    /// Those that are of this kind and of the other.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        let other = other.clone();
        Self::new(move |asked| self.takes(asked) && other.takes(asked))
    }

    /// Those that are of this kind and not of the other.
    #[must_use]
    pub fn but_not(self, other: &Self) -> Self {
        let other = other.clone();
        Self::new(move |asked| self.takes(asked) && !other.takes(asked))
    }

    /// Whether the request is of this kind.
    pub fn takes(&self, asked: &Asked) -> bool {
        (self.0)(asked)
    }

    /// The `n`-th of them, from 1.
    pub fn nth(self, n: u64) -> Which {
        Which { numbers: n..=n, ..self.into() }
    }

    /// The first `n` of them.
    pub fn first(self, n: u64) -> Which {
        Which { numbers: 1..=n, ..self.into() }
    }

    /// The `n`-th and all after it.
    pub fn from(self, n: u64) -> Which {
        Which { numbers: n..=u64::MAX, ..self.into() }
    }

    /// Those that come within this time from when the rule is made.
    pub fn lasting(self, lasting: Duration) -> Which {
        Which { lasting: Some(lasting), ..self.into() }
    }
}

/// Which requests of a kind; a bare [`Select`] is all of them.
#[derive(Debug, Clone)]
pub struct Which {
    pub(super) select: Select,
    pub(super) numbers: RangeInclusive<u64>,
    pub(super) lasting: Option<Duration>,
}

impl Which {
    /// Of these, those that come within this time from when the rule is made.
    #[must_use]
    pub fn lasting(self, lasting: Duration) -> Self {
        Self { lasting: Some(lasting), ..self }
    }
}

impl From<Select> for Which {
    fn from(select: Select) -> Self {
        Self { select, numbers: 1..=u64::MAX, lasting: None }
    }
}

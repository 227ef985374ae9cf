//! A lock's name, keys and options, which an acquisition carries.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::name::{Name, Owner};
use crate::protocol::{Counter, Durability, LockKey};
use crate::time::YEAR;

/// A lock's name, keys and options: the same for all its acquisitions. It dereferences to its
/// [options](LockOptions).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockSpec {
    /// The name of the lock. It takes no memory of its own if it is made [with the key](LockKey::with_name).
    pub name: Name,
    /// The lock's keys in the store.
    pub key: LockKey,
    /// The options of the lock. Locks with equal options should share them.
    pub options: Arc<LockOptions>,
}

/// The options of a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockOptions {
    /// The time to live of a lease that is not renewed.
    pub ttl: Duration,
    /// True if leases end by themselves, without renewal.
    pub fixed: bool,
    /// True if all acquisitions through one handle share a tenure. Otherwise each excludes every other.
    pub reentrant: bool,
    /// The holder's label, which others can see.
    pub owner: Owner,
    /// The rule for new tokens.
    pub counter: Counter,
    /// The copies that an acquisition or renewal needs, besides the server that executes it, before it
    /// counts.
    pub durability: Option<Durability>,
    /// The age at which a lease ends even if it is renewed.
    pub at_most: Option<Duration>,
    /// The age until which the name stays taken after a release.
    pub at_least: Option<Duration>,
    /// The state of a job's schedule before the owner's tick, for the events of the turn.
    pub backlog: Option<Backlog>,
    /// The most waiters in line; a caller that finds more fails instead of waiting.
    pub max_line: Option<u32>,
    /// True if a shared name whose capacity at the store is not the owner's is refused.
    pub strict: bool,
}

/// The ticks of a schedule before the one that a runner claims, as far as it saw them when it asked.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// The first missed tick, which nobody completed.
    pub first: u64,
    /// The number of missed ticks.
    pub missed: u64,
    /// True if an earlier turn had begun the claimed tick and not completed it.
    pub again: bool,
}

impl Deref for LockSpec {
    type Target = LockOptions;

    fn deref(&self) -> &LockOptions {
        &self.options
    }
}

impl LockOptions {
    /// Returns these options, or an equal recent value that shares its memory.
    pub fn shared(self, recent: &mut Vec<Arc<Self>>) -> Arc<Self> {
        if let Some(same) = recent.iter().find(|options| ***options == self) {
            return same.clone();
        }
        if recent.len() >= MOST_RECENT {
            recent.remove(0);
        }
        let options = Arc::new(self);
        recent.push(options.clone());
        options
    }
}

/// The number of recent options to compare with: a program has few kinds of locks.
const MOST_RECENT: usize = 8;

impl LockSpec {
    /// The shortest time to live.
    pub const MIN_TTL: Duration = Duration::from_millis(10);
    /// The longest time to live: a year.
    pub const MAX_TTL: Duration = YEAR;

    /// Checks the options. Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) if a time is out of
    /// bounds.
    pub fn check(&self) -> Result<(), Error> {
        Self::check_ttl(self.ttl)?;
        self.counter.check()?;
        self.check_ages()?;
        self.check_share()?;
        self.durability.as_ref().map_or(Ok(()), Durability::check)
    }

    /// Checks that a shared name has no option that only other locks have.
    pub(super) fn check_share(&self) -> Result<(), Error> {
        let options = [
            ("reentrant", self.reentrant),
            ("at_least", self.at_least.is_some()),
        ];
        let unfit = options.iter().find(|(_, is_set)| *is_set);
        match unfit.filter(|_| self.owner.share().is_some()) {
            Some((what, _)) => Err(Error::bad_option(what, "cannot be used with a shared name")),
            None => Ok(()),
        }
    }

    /// Checks the bounds of a lease's age against each other and the time to live.
    pub fn check_ages(&self) -> Result<(), Error> {
        let (longest, ttl) = (Self::MAX_TTL, self.ttl);
        if let Some(age) = self.at_most.filter(|age| *age < ttl) {
            let rule = format!("must be at least the time to live, {ttl:?}; got {age:?}");
            return Err(Error::bad_option("at_most", rule));
        }
        if let (Some(age), Some(most)) = (self.at_least, self.at_most)
            && age > most
        {
            let rule = format!("must not exceed the longest time, {most:?}; got {age:?}");
            return Err(Error::bad_option("at_least", rule));
        }
        let ages = [("at_most", self.at_most), ("at_least", self.at_least)];
        let mut ages = ages
            .into_iter()
            .filter_map(|(what, age)| Some((what, age?)));
        ages.try_for_each(|(what, age)| Error::check_range(what, age, Duration::ZERO, longest))
    }

    /// Returns the copies that a lease with this time to live needs. The wait for them is limited to a third
    /// of that time.
    pub(super) fn durability(&self, ttl: Duration) -> Option<Durability> {
        self.durability.map(|durability| durability.within(ttl / 3))
    }

    /// Checks a time to live. Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) if it is out of
    /// bounds.
    pub fn check_ttl(ttl: Duration) -> Result<(), Error> {
        let what = "a lease's time to live";
        Error::check_range(what, ttl, Self::MIN_TTL, Self::MAX_TTL)
    }
}

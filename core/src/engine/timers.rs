//! When the engine has to look at what again.

use std::collections::BTreeSet;

use super::io::CallId;
use super::table::Short;
use crate::time::Timestamp;

/// What a timer is of.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timed {
    Link,
    Contender(Short),
    Release(Short),
    Query(CallId),
    Shutdown,
}

/// One timer at most for each thing; the thing remembers when its own is set for.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Timestamp, Timed)>);

impl Timers {
    /// Moves a timer from where the thing remembers it to where it should be.
    pub(super) fn set(&mut self, what: Timed, was: &mut Timestamp, at: Timestamp) {
        if *was == at {
            return;
        }
        if *was != Timestamp::NEVER {
            self.0.remove(&(*was, what));
        }
        if at != Timestamp::NEVER {
            self.0.insert((at, what));
        }
        *was = at;
    }

    pub(super) fn first(&self) -> Option<Timestamp> {
        self.0.first().map(|(at, _)| *at)
    }

    /// The next thing whose time has come. Its timer stays set until the thing moves it.
    pub(super) fn due(&self, now: Timestamp) -> Option<Timed> {
        self.0
            .first()
            .filter(|(at, _)| *at <= now)
            .map(|(_, what)| *what)
    }
}

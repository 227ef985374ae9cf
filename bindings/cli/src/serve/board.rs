//! All that is known of the locks, and what of it the pages have not been sent yet.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use leasehold::{FencingToken, Inspection, Name};
use serde::Serialize;

use super::look::{Change, Kind, Look};
use super::past::{History, Past, Recent};
use super::show::{Happened, Row, Sum};
use super::tally::{Histogram, Tally};
use crate::out::plain;

/// More locks are not looked at, and the page says so.
pub(super) const MOST_KNOWN: usize = 50_000;
/// How long a free lock stays in the table.
const LINGERS: Duration = Duration::from_secs(5);
/// Of those who wait, the table names the first.
const NAMED: usize = 3;
/// Events that wait to be sent; older ones are dropped.
const MOST_EVENTS: usize = 5_000;
/// Forced releases that were not seen to take effect yet.
const MOST_REVOKED: usize = 1_000;

/// How the store is.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub(super) enum Store {
    Up,
    Away { error: String },
}

/// Progress of the first walk over the locks that existed when the watch began.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Walk {
    /// The walk is under way.
    Pending,
    /// The walk under way has left a name out.
    Lacking,
    Complete,
}

#[derive(Debug)]
pub(super) struct Board {
    rows: BTreeMap<Name, Option<Look>>,
    /// Keys of locks that are none, and such.
    troubles: HashMap<Name, String>,
    /// The locks whose own pages are open.
    opened: HashSet<Name>,
    revoked: HashMap<Name, FencingToken>,
    changed: BTreeSet<Name>,
    gone: BTreeSet<Name>,
    happened: Vec<(Name, Instant, Change)>,
    began: Instant,
    walk: Walk,
    /// Locks that were not there before, and have not been looked at yet.
    fresh: HashSet<Name>,
    past: Past,
    pub(super) tally: Tally,
    pub(super) store: Store,
    /// Why the locks cannot be listed, if the store works otherwise.
    pub(super) unlisted: Option<String>,
    /// Whether the server says what changes.
    pub(super) follows: bool,
    pub(super) looks: u64,
    pub(super) steps: u64,
    /// Whether there are more locks than are looked at.
    pub(super) overflown: bool,
}

/// What the pages have to be told.
#[derive(Serialize)]
struct Delta<'a> {
    rows: Vec<Row<'a>>,
    gone: Vec<&'a Name>,
    events: Vec<Happened<'a>>,
}

impl Board {
    pub(super) fn new() -> Self {
        Self {
            rows: BTreeMap::new(),
            troubles: HashMap::new(),
            opened: HashSet::new(),
            revoked: HashMap::new(),
            changed: BTreeSet::new(),
            gone: BTreeSet::new(),
            happened: Vec::new(),
            began: Instant::now(),
            walk: Walk::Pending,
            fresh: HashSet::new(),
            past: Past::default(),
            tally: Tally::default(),
            store: Store::Up,
            unlisted: None,
            follows: false,
            looks: 0,
            steps: 0,
            overflown: false,
        }
    }

    /// Takes up a lock that may not have been known; `false` if there are too many.
    pub(super) fn meet(&mut self, name: &Name) -> bool {
        if self.rows.contains_key(name) {
            return true;
        }
        self.overflown = self.rows.len() >= MOST_KNOWN;
        if self.overflown {
            self.skip();
            return false;
        }
        if self.walk == Walk::Complete {
            self.fresh.insert(name.clone());
        }
        self.rows.insert(name.clone(), None);
        self.gone.remove(name);
        self.changed.insert(name.clone());
        true
    }

    /// A name is left out. If it is met later, it may have been there all the while.
    pub(super) fn skip(&mut self) {
        self.walk = Walk::Lacking;
    }

    /// A walk has come by all names.
    pub(super) fn walked(&mut self) {
        self.walk = match self.walk {
            Walk::Lacking => Walk::Pending,
            Walk::Pending | Walk::Complete => Walk::Complete,
        };
    }

    /// Takes in what a look found. Returns whether the lock is to be looked at again.
    pub(super) fn found(&mut self, name: &Name, found: Inspection, at: Instant) -> bool {
        self.looks += 1;
        self.store = Store::Up;
        self.troubles.remove(name);
        let Some(row) = self.rows.get_mut(name) else {
            return false;
        };
        let look = Look::new(found, at, row.as_ref());
        let is_new = self.fresh.remove(name);
        let changes = if let Some(before) = row {
            look.changes(before, self.revoked.get(name).copied())
        } else {
            let watched = at.saturating_duration_since(self.began);
            look.first(watched, is_new).into_iter().collect()
        };
        let (waiting, waited) = (
            look.found.waiting,
            row.as_ref().map(|row| row.found.waiting),
        );
        if changes.is_empty() && waited.unwrap_or(0) != waiting {
            self.past.note(name, at, waiting, None);
        }
        for change in changes {
            self.tally.add(&change);
            self.past.note(name, at, waiting, Some(change.clone()));
            if change.kind == Kind::Revoked {
                self.revoked.remove(name);
            }
            if self.happened.len() < MOST_EVENTS {
                self.happened.push((name.clone(), at, change));
            }
        }
        let idle = look
            .idle
            .is_some_and(|idle| at.saturating_duration_since(idle) >= LINGERS);
        *row = Some(look);
        if idle && !self.opened.contains(name) {
            self.forget(name);
            return false;
        }
        self.changed.insert(name.clone());
        true
    }

    /// Something is wrong with this lock alone.
    pub(super) fn trouble(&mut self, name: &Name, what: &str) {
        self.looks += 1;
        self.troubles.insert(name.clone(), plain(what));
        self.changed.insert(name.clone());
    }

    pub(super) fn away(&mut self, error: &str) {
        let error = plain(error);
        self.store = Store::Away { error };
    }

    /// This tenure is going to be released by force.
    pub(super) fn revoke(&mut self, name: &Name, token: FencingToken) {
        if self.revoked.len() >= MOST_REVOKED {
            self.revoked.clear();
        }
        self.revoked.insert(name.clone(), token);
    }

    /// It was over already.
    pub(super) fn spare(&mut self, name: &Name) {
        self.revoked.remove(name);
    }

    pub(super) fn open(&mut self, opened: HashSet<Name>) {
        // Their lines are shown in full from now on.
        self.changed.extend(
            opened
                .iter()
                .filter(|name| self.rows.contains_key(*name))
                .cloned(),
        );
        self.opened = opened;
    }

    pub(super) fn back(&mut self) {
        self.store = Store::Up;
    }

    pub(super) fn knows(&self, name: &Name) -> bool {
        self.rows.contains_key(name)
    }

    pub(super) fn is_free(&self, name: &Name) -> bool {
        let look = self.rows.get(name).and_then(Option::as_ref);
        look.is_some_and(|look| look.found.holder.is_none())
    }

    /// All rows, as the pages get them.
    pub(super) fn rows(&self, now: Instant) -> impl Iterator<Item = Row<'_>> {
        let names = self.rows.keys();
        names.filter_map(move |name| self.row(name, now))
    }

    /// What changed since this was called last; nothing if nothing has.
    pub(super) fn delta(&mut self, now: Instant) -> Option<String> {
        let changed = std::mem::take(&mut self.changed);
        let gone = std::mem::take(&mut self.gone);
        let happened = std::mem::take(&mut self.happened);
        if changed.is_empty() && gone.is_empty() && happened.is_empty() {
            return None;
        }
        let delta = Delta {
            rows: changed
                .iter()
                .filter_map(|name| self.row(name, now))
                .collect(),
            gone: gone.iter().collect(),
            events: happened
                .iter()
                .map(|(name, at, change)| Happened::new(name, change, now, *at))
                .collect(),
        };
        serde_json::to_string(&delta).ok()
    }

    /// Keeps what was counted until now, for pages that load later.
    pub(super) fn sample(&mut self, now: Instant) {
        self.past.sample(now, &self.tally);
    }

    pub(super) fn recent(&self, now: Instant) -> Recent<'_> {
        self.past.recent(now)
    }

    pub(super) fn history(&self, name: &Name, now: Instant) -> History<'_> {
        self.past.of(name, now)
    }

    pub(super) fn sum(&self, now: Instant) -> Sum<'_> {
        let (mut held, mut waiting, mut line) = (0, 0, Histogram::default());
        let mut longest: Option<(&Name, u32)> = None;
        let mut oldest: Option<(&Name, Duration)> = None;
        for (name, look) in &self.rows {
            let Some(look) = look else {
                continue;
            };
            held += u64::from(look.found.holder.is_some());
            let in_line = look.found.waiting;
            waiting += u64::from(in_line);
            let since = now.saturating_duration_since(look.at);
            for waiter in &look.found.line {
                line.add(waiter.waited + since);
            }
            if in_line > longest.map_or(0, |(_, most)| most) {
                longest = Some((name, in_line));
            }
            if let Some(held) = look.held.map(|held| held + since)
                && oldest.is_none_or(|(_, most)| held > most)
            {
                oldest = Some((name, held));
            }
        }
        Sum::new(self, (held, waiting, line), (longest, oldest))
    }

    fn forget(&mut self, name: &Name) {
        self.rows.remove(name);
        self.troubles.remove(name);
        self.revoked.remove(name);
        self.changed.remove(name);
        self.fresh.remove(name);
        self.gone.insert(name.clone());
        self.overflown = false;
    }

    fn row<'a>(&'a self, name: &'a Name, now: Instant) -> Option<Row<'a>> {
        let look = self.rows.get(name)?.as_ref();
        let named = if self.opened.contains(name) {
            usize::MAX
        } else {
            NAMED
        };
        let trouble = self.troubles.get(name).map(String::as_str);
        Some(Row::new((name, look, trouble), now, named))
    }
}

#[cfg(test)]
mod tests {
    use leasehold::{Lease, Locker};

    use super::*;

    async fn taken(locker: &Locker, name: &str) -> (Name, Lease, Inspection) {
        let lock = locker.lock(name).expect("a valid name");
        let lease = lock.acquire().await.expect("it is free");
        let found = locker.inspect(name).await.expect("it replies");
        (lease.name().clone(), lease, found)
    }

    /// Catches acquisitions that are not counted, whose ends are.
    #[tokio::test]
    async fn what_is_first_seen_was_acquired_if_it_began_since() {
        let (locker, minute) = (Locker::in_memory(), Duration::from_secs(60));
        let (name, _lease, found) = taken(&locker, "a").await;
        let mut board = Board::new();
        assert!(board.meet(&name));
        let looked = board.began;
        board.found(&name, found.clone(), looked);
        assert_eq!(board.tally.acquired, 0, "it was held before");

        let mut board = Board::new();
        assert!(board.meet(&name));
        // It is younger than the watch.
        let looked = board.began + minute;
        board.found(&name, found.clone(), looked);
        board.found(&name, found, looked + minute);
        assert_eq!(board.tally.acquired, 1, "once");
        let free = locker.inspect("b").await.expect("it replies");
        board.found(&name, free, looked + 2 * minute);
        assert_eq!(board.tally.ends.iter().sum::<u64>(), 1);
    }

    /// Catches dense tokens, which say nothing of when a tenure began.
    #[tokio::test]
    async fn what_no_walk_came_by_was_acquired_since() {
        let locker = Locker::in_memory();
        let old = taken(&locker, "old").await;
        let new = taken(&locker, "new").await;
        let mut board = Board::new();
        let dense = |mut found: Inspection| {
            let holder = found.holder.as_mut().expect("it is held");
            holder.token = FencingToken::new(7).expect("a token");
            found
        };
        let looked = board.began + Duration::from_secs(60);
        assert!(board.meet(&old.0));
        board.walked();
        assert!(board.meet(&new.0));
        board.found(&old.0, dense(old.2), looked);
        assert_eq!(board.tally.acquired, 0, "it may be old");
        board.found(&new.0, dense(new.2), looked);
        assert_eq!(board.tally.acquired, 1);
        // After a name was left out, another walk has to come by all.
        board.skip();
        board.walked();
        assert_eq!(board.walk, Walk::Pending);
        board.walked();
        assert_eq!(board.walk, Walk::Complete);
    }
}

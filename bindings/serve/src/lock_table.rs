//! Everything that is known about the locks, and the changes that the pages have not received yet.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use leasehold::{FencingToken, Inspection, Name};
use leasehold_observe::{Change, ChangeKind, Observation, escaped, is_held};
use serde::Serialize;

use crate::counts::{Counts, Histogram};
use crate::history::History;
use crate::json::{LockEvent, Row, Store, Sum, millis};
use crate::shares::Shares;

/// The most locks that are observed. The page says if there are more.
pub(crate) const MOST_KNOWN: usize = 50_000;
/// How long a free lock stays in the table. A job stays for as long as the store remembers its ticks.
const LINGERS: Duration = Duration::from_secs(5);
/// How many waiters a row names.
const NAMED: usize = 3;
/// The most events that wait to be sent. Later ones are dropped.
const MOST_EVENTS: usize = 5_000;
/// The most forced releases whose effect was not seen yet.
const MOST_REVOKED: usize = 1_000;

/// Progress of the first scan for the locks that existed when the page was started.
#[derive(Clone, Copy, PartialEq, Debug)]
enum FirstScan {
    /// The scan is under way.
    Pending,
    /// The scan is under way, and has left a name out.
    Lacking,
    Complete,
}

#[derive(Debug)]
pub(crate) struct LockTable {
    rows: BTreeMap<Name, Option<Observation>>,
    /// Problems of single locks, such as a key of the wrong type.
    troubles: HashMap<Name, String>,
    /// The locks whose own pages are open.
    opened: HashSet<Name>,
    revoked: HashMap<Name, FencingToken>,
    changed: BTreeSet<Name>,
    gone: BTreeSet<Name>,
    events: Vec<(Name, Instant, Change)>,
    began: Instant,
    first_scan: FirstScan,
    /// Locks that were not there before, and have not been inspected yet.
    new: HashSet<Name>,
    pub(crate) history: History,
    counts: Counts,
    store: Store,
    /// Why the locks cannot be listed, if the store works otherwise.
    pub(crate) unlisted: Option<String>,
    /// True if the server reports changes.
    pub(crate) tracks: bool,
    looks: u64,
    pub(crate) steps: u64,
    /// True if there are more locks than are observed.
    overflown: bool,
}

/// The changes that the pages have not received yet.
#[derive(Serialize)]
struct Delta<'a> {
    rows: Vec<Row<'a>>,
    gone: Vec<&'a Name>,
    events: Vec<LockEvent<'a>>,
}

impl LockTable {
    pub(crate) fn new() -> Self {
        Self {
            rows: BTreeMap::new(),
            troubles: HashMap::new(),
            opened: HashSet::new(),
            revoked: HashMap::new(),
            changed: BTreeSet::new(),
            gone: BTreeSet::new(),
            events: Vec::new(),
            began: Instant::now(),
            first_scan: FirstScan::Pending,
            new: HashSet::new(),
            history: History::default(),
            counts: Counts::default(),
            store: Store::Up,
            unlisted: None,
            tracks: false,
            looks: 0,
            steps: 0,
            overflown: false,
        }
    }

    /// Adds a lock, if it was not known. Returns `false` if there are too many.
    pub(crate) fn add(&mut self, name: &Name) -> bool {
        if self.rows.contains_key(name) {
            return true;
        }
        self.overflown = self.rows.len() >= MOST_KNOWN;
        if self.overflown {
            self.skip();
            return false;
        }
        if self.first_scan == FirstScan::Complete {
            self.new.insert(name.clone());
        }
        self.rows.insert(name.clone(), None);
        self.gone.remove(name);
        self.changed.insert(name.clone());
        true
    }

    /// Notes that a name was left out. If it is added later, it may have been there all the while.
    fn skip(&mut self) {
        self.first_scan = FirstScan::Lacking;
    }

    /// Notes that a scan is complete.
    pub(crate) fn scanned(&mut self) {
        self.first_scan = match self.first_scan {
            FirstScan::Lacking => FirstScan::Pending,
            FirstScan::Pending | FirstScan::Complete => FirstScan::Complete,
        };
    }

    /// Takes in an inspection. Returns `true` if the lock must be inspected again.
    pub(crate) fn observe(&mut self, name: &Name, inspection: Inspection, at: Instant) -> bool {
        self.looks += 1;
        self.store = Store::Up;
        self.troubles.remove(name);
        let Some(row) = self.rows.get_mut(name) else {
            return false;
        };
        let seen = Observation::new(inspection, at, row.as_ref());
        let is_new = self.new.remove(name);
        let changes = if let Some(before) = row {
            seen.changes(before, self.revoked.get(name).copied())
        } else {
            let watched = at.saturating_duration_since(self.began);
            seen.first_change(watched, is_new).into_iter().collect()
        };
        let waiting = seen.inspection.waiting;
        let waited = row.as_ref().map_or(0, |row| row.inspection.waiting);
        if changes.is_empty() && waited != waiting {
            self.history.add(name, at, waiting, None);
        }
        for change in changes {
            self.counts.add(&change);
            self.history.add(name, at, waiting, Some(change.clone()));
            if change.kind == ChangeKind::Revoked {
                self.revoked.remove(name);
            }
            if self.events.len() < MOST_EVENTS {
                self.events.push((name.clone(), at, change));
            }
        }
        let idle = seen
            .idle_since
            .is_some_and(|idle| at.saturating_duration_since(idle) >= LINGERS);
        let is_job = seen.inspection.job.is_some();
        *row = Some(seen);
        if idle && !is_job && !self.opened.contains(name) {
            self.forget(name);
            return false;
        }
        self.changed.insert(name.clone());
        true
    }

    /// Notes that something is wrong with this lock alone.
    pub(crate) fn trouble(&mut self, name: &Name, what: &str) {
        self.looks += 1;
        self.troubles.insert(name.clone(), escaped(what));
        self.changed.insert(name.clone());
    }

    pub(crate) fn away(&mut self, error: &str) {
        let error = escaped(error);
        self.store = Store::Away { error };
    }

    /// Notes that this tenure is about to be released by force.
    pub(crate) fn revoke(&mut self, name: &Name, token: FencingToken) {
        if self.revoked.len() >= MOST_REVOKED {
            self.revoked.clear();
        }
        self.revoked.insert(name.clone(), token);
    }

    /// Notes that the forced release found the tenure over.
    pub(crate) fn spare(&mut self, name: &Name) {
        self.revoked.remove(name);
    }

    /// Sets the locks whose own pages are open. Their lines are sent in full from now on.
    pub(crate) fn open(&mut self, opened: HashSet<Name>) {
        self.changed.extend(
            opened
                .iter()
                .filter(|name| self.rows.contains_key(*name))
                .cloned(),
        );
        self.opened = opened;
    }

    pub(crate) fn back(&mut self) {
        self.store = Store::Up;
    }

    pub(crate) fn knows(&self, name: &Name) -> bool {
        self.rows.contains_key(name)
    }

    pub(crate) fn is_free(&self, name: &Name) -> bool {
        let seen = self.rows.get(name).and_then(Option::as_ref);
        seen.is_some_and(|seen| !is_held(&seen.inspection))
    }

    /// Returns all rows, as the pages get them.
    pub(crate) fn rows(&self, now: Instant) -> impl Iterator<Item = Row<'_>> {
        let names = self.rows.keys();
        names.filter_map(move |name| self.row(name, now))
    }

    /// Returns what changed since this was called last, as JSON; `None` if nothing has.
    pub(crate) fn delta(&mut self, now: Instant) -> Option<String> {
        let changed = std::mem::take(&mut self.changed);
        let gone = std::mem::take(&mut self.gone);
        let events = std::mem::take(&mut self.events);
        if changed.is_empty() && gone.is_empty() && events.is_empty() {
            return None;
        }
        let delta = Delta {
            rows: changed
                .iter()
                .filter_map(|name| self.row(name, now))
                .collect(),
            gone: gone.iter().collect(),
            events: events
                .iter()
                .map(|(name, at, change)| LockEvent::new(name, change, now, *at))
                .collect(),
        };
        serde_json::to_string(&delta).ok()
    }

    /// Keeps what was counted until now, for pages that load later.
    pub(crate) fn sample(&mut self, now: Instant) {
        self.history.sample(now, &self.counts);
    }

    pub(crate) fn sum(&self, now: Instant) -> Sum<'_> {
        let (mut held, mut waiting, mut line) = (0, 0, Histogram::default());
        let mut shares = Shares::default();
        let mut longest: Option<(&Name, u32)> = None;
        let mut oldest: Option<(&Name, Duration)> = None;
        for (name, seen) in &self.rows {
            let Some(seen) = seen else {
                continue;
            };
            held += u64::from(is_held(&seen.inspection));
            shares.add(&seen.inspection);
            let in_line = seen.inspection.waiting;
            waiting += u64::from(in_line);
            let since = now.saturating_duration_since(seen.at);
            for waiter in &seen.inspection.line {
                line.add(waiter.waited + since);
            }
            if in_line > longest.map_or(0, |(_, most)| most) {
                longest = Some((name, in_line));
            }
            if let Some(held) = seen.held_for.map(|held| held + since)
                && oldest.is_none_or(|(_, most)| held > most)
            {
                oldest = Some((name, held));
            }
        }
        Sum {
            held,
            waiting,
            shares,
            longest,
            oldest: oldest.map(|(name, held)| (name, millis(held))),
            line,
            counts: &self.counts,
            store: &self.store,
            unlisted: self.unlisted.as_deref(),
            follows: self.tracks,
            overflown: self.overflown,
            looks: self.looks,
            steps: self.steps,
        }
    }

    fn forget(&mut self, name: &Name) {
        self.rows.remove(name);
        self.troubles.remove(name);
        self.revoked.remove(name);
        self.changed.remove(name);
        self.new.remove(name);
        self.gone.insert(name.clone());
        self.overflown = false;
    }

    fn row<'a>(&'a self, name: &'a Name, now: Instant) -> Option<Row<'a>> {
        let seen = self.rows.get(name)?.as_ref();
        let waiters = if self.opened.contains(name) {
            usize::MAX
        } else {
            NAMED
        };
        let trouble = self.troubles.get(name).map(String::as_str);
        Some(Row::new((name, seen, trouble), now, waiters))
    }
}

#[cfg(test)]
mod tests {
    use leasehold::{Claimed, Lease, Locker};

    use super::*;

    async fn taken(locker: &Locker, name: &str) -> (Name, Lease, Inspection) {
        let lock = locker.lock(name).expect("a valid name");
        let lease = lock.acquire().await.expect("it is free");
        let found = locker.inspect(name).await.expect("it replies");
        (lease.name().clone(), lease, found)
    }

    /// Catches an acquisition that is not counted although its end is.
    #[tokio::test]
    async fn a_tenure_that_is_first_seen_counts_if_it_began_since() {
        let (locker, minute) = (Locker::in_memory(), Duration::from_secs(60));
        let (name, _lease, found) = taken(&locker, "a").await;
        let mut table = LockTable::new();
        assert!(table.add(&name));
        let looked = table.began;
        table.observe(&name, found.clone(), looked);
        assert_eq!(table.counts.acquired, 0, "it was held before");

        let mut table = LockTable::new();
        assert!(table.add(&name));
        // It is younger than the page.
        let looked = table.began + minute;
        table.observe(&name, found.clone(), looked);
        table.observe(&name, found, looked + minute);
        assert_eq!(table.counts.acquired, 1, "once");
        let free = locker.inspect("b").await.expect("it replies");
        table.observe(&name, free, looked + 2 * minute);
        assert_eq!(table.counts.ends.iter().sum::<u64>(), 1);
    }

    /// Catches a job that is gone between its turns, and one that stays forever.
    #[tokio::test]
    async fn a_job_stays_for_as_long_as_the_store_remembers_it() {
        let (locker, minute) = (Locker::in_memory(), Duration::from_secs(60));
        let job = locker.job("a").expect("a valid name");
        let Ok(Claimed::Turn(turn)) = job.claim(7).await else {
            panic!("nobody has it");
        };
        let name = turn.name().clone();
        turn.done().await.expect("it is held");
        let found = locker.inspect("a").await.expect("it replies");
        let forgotten = locker.inspect("b").await.expect("it replies");
        let mut table = LockTable::new();
        assert!(table.add(&name));
        let looked = table.began;
        for times in 0..3 {
            assert!(table.observe(&name, found.clone(), looked + times * minute));
        }
        let row = table.row(&name, looked + 2 * minute).expect("it is known");
        let row = serde_json::to_value(row).expect("JSON");
        let done = &row["job"]["completed"];
        assert_eq!(
            (&done["tick"], &row["job"]["begun"]),
            (&7.into(), &().into())
        );
        assert!(
            done["took"].as_u64().is_some_and(|took| took < 10_000),
            "{row}"
        );
        assert!(!table.observe(&name, forgotten, looked + 3 * minute));
        assert!(!table.knows(&name));
    }

    /// Catches dense tokens, which do not tell when a tenure began.
    #[tokio::test]
    async fn a_name_that_no_scan_had_found_was_acquired_since() {
        let locker = Locker::in_memory();
        let old = taken(&locker, "old").await;
        let new = taken(&locker, "new").await;
        let mut table = LockTable::new();
        let dense = |mut found: Inspection| {
            let holder = found.holder.as_mut().expect("it is held");
            holder.token = FencingToken::new(7).expect("a token");
            found
        };
        let looked = table.began + Duration::from_secs(60);
        assert!(table.add(&old.0));
        table.scanned();
        assert!(table.add(&new.0));
        table.observe(&old.0, dense(old.2), looked);
        assert_eq!(table.counts.acquired, 0, "it may be old");
        table.observe(&new.0, dense(new.2), looked);
        assert_eq!(table.counts.acquired, 1);
        // After a name was left out, another scan must find all names.
        table.skip();
        table.scanned();
        assert_eq!(table.first_scan, FirstScan::Pending);
        table.scanned();
        assert_eq!(table.first_scan, FirstScan::Complete);
    }
}

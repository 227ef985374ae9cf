//! Inspects locks, no more often than it may, and first those that need it most.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use leasehold::{Error, ErrorKind, Inspection, Locker, Name};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::schedule::{Rank, Schedule};
use crate::state::State;

const TICK: Duration = Duration::from_millis(50);
/// The most inspections at once. So a slow store gets fewer a second.
const MOST_UNDER_WAY: usize = 128;
/// The pause between two inspections of a lock that changes all the time, if a page shows it.
const SHOWN_GAP: Duration = Duration::from_millis(250);
/// The pause between two inspections of a lock that changes all the time, if no page shows it.
const GAP: Duration = Duration::from_secs(1);
/// The pause between two inspections while the store is away.
const RETRY: Duration = Duration::from_millis(500);
/// The pause after a lock could not be read.
const TROUBLED: Duration = Duration::from_secs(30);
/// A lock is inspected once more before its time to live ends, to see whether it was renewed.
const NEAR_THE_END: Duration = Duration::from_millis(300);

/// Progress of a scan.
#[derive(Debug)]
pub(crate) enum Scanned {
    /// These locks are held.
    Step(Vec<Name>),
    /// The scan is complete: it has found every lock that was held all the while.
    End,
}

type Inspecting = BoxFuture<'static, (Name, Result<Inspection, Error>)>;

/// Inspects locks by a schedule, and enters what it finds into the table.
pub(crate) struct Poller {
    locker: Locker,
    state: Arc<State>,
    /// The most inspections a second.
    looks: u32,
    /// True if inspections cost nothing, because the store is in this process.
    free: bool,
    schedule: Schedule,
    under_way: FuturesUnordered<Inspecting>,
    shown: Arc<HashSet<Name>>,
    /// The locks that the current scan has found so far.
    scanned: HashSet<Name>,
    /// The locks that were known when the current scan began.
    before: BTreeSet<Name>,
    /// How many inspections may begin now.
    allowance: f64,
    ticked: Instant,
    /// When to inspect again, while the store is away.
    retry: Option<Instant>,
}

impl Poller {
    pub(crate) fn new(locker: Locker, state: Arc<State>, looks: u32, free: bool) -> Self {
        Self {
            locker,
            state,
            looks,
            free,
            schedule: Schedule::default(),
            under_way: FuturesUnordered::new(),
            shown: Arc::default(),
            scanned: HashSet::new(),
            before: BTreeSet::new(),
            allowance: 0.0,
            ticked: Instant::now(),
            retry: None,
        }
    }

    /// Inspects the locks that scans find and pages show, forever.
    pub(crate) async fn run(mut self, mut scanned: mpsc::Receiver<Scanned>) {
        let mut shown = self.state.shown();
        // Pages may have opened before the store was there.
        shown.mark_changed();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.tick(Instant::now()),
                Some((name, result)) = self.under_way.next(), if !self.under_way.is_empty() => {
                    self.done(&name, result, Instant::now());
                }
                Some(scanned) = scanned.recv() => self.scanned(scanned, Instant::now()),
                Ok(()) = shown.changed() => {
                    let shown = shown.borrow_and_update().clone();
                    self.show(&shown, Instant::now());
                }
            }
        }
    }

    fn tick(&mut self, now: Instant) {
        let took = now.saturating_duration_since(self.ticked).min(TICK * 2);
        self.ticked = now;
        let rate = f64::from(self.looks);
        let most = (rate * (TICK * 2).as_secs_f64()).max(1.0);
        self.allowance = (self.allowance + rate * took.as_secs_f64()).min(most);
        for name in self.state.take_changed() {
            self.hasten(&name, now);
        }
        if self.retry.is_some_and(|retry| now < retry) {
            return;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is from 0 to some thousand"
        )]
        let mut count = self.allowance as usize;
        count = count.min(MOST_UNDER_WAY - self.under_way.len().min(MOST_UNDER_WAY));
        if self.retry.is_some() {
            count = count.min(usize::from(self.under_way.is_empty()));
        }
        for name in self.schedule.take(now, count) {
            self.allowance -= 1.0;
            let locker = self.locker.clone();
            self.under_way.push(Box::pin(async move {
                let found = locker.inspect(name.as_str()).await;
                (name, found)
            }));
        }
    }

    fn done(&mut self, name: &Name, result: Result<Inspection, Error>, now: Instant) {
        let mut table = self.state.table();
        let next = match result {
            Ok(found) => {
                let next = self.next(&found, name, table.tracks);
                self.retry = None;
                if !table.observe(name, found, now) {
                    self.schedule.forget(name);
                    return;
                }
                next
            }
            Err(error) if matches!(error.kind(), ErrorKind::WrongType | ErrorKind::Config) => {
                table.trouble(name, &error.to_string());
                TROUBLED
            }
            Err(error) => {
                table.away(&error.to_string());
                self.retry = Some(now + RETRY);
                RETRY
            }
        };
        let rank = self.rank(name, Rank::Old);
        self.schedule.done(name, now + next, rank);
    }

    /// Returns how long to wait until the next inspection. Most leases are renewed when two thirds are left.
    fn next(&self, found: &Inspection, name: &Name, tracks: bool) -> Duration {
        let millis = match (self.shown.contains(name), tracks) {
            _ if self.free => 100,
            (true, false) => 500,
            (false, true) => 60_000,
            (false, false) if found.waiting > 0 => 1_000,
            (true, true) | (false, false) => 2_000,
        };
        let next = Duration::from_millis(millis);
        let shared = found.shared.as_ref();
        let soonest = shared.and_then(|shared| shared.holders.first());
        let left = found.holder.as_ref().map(|holder| holder.remaining);
        let Some(left) = left.or(soonest.map(|permit| permit.remaining)) else {
            // A free lock leaves the table soon, and a job stays.
            let is_job = found.job.is_some();
            return next.min(Duration::from_secs(if is_job { 60 } else { 2 }));
        };
        let near = if left > NEAR_THE_END {
            left * 9 / 10
        } else {
            left + Duration::from_millis(10)
        };
        next.min(near).max(TICK)
    }

    fn scanned(&mut self, scanned: Scanned, now: Instant) {
        match scanned {
            Scanned::Step(names) => {
                for name in names {
                    if !self.schedule.has(&name) {
                        self.add(&name, now);
                    }
                    self.scanned.insert(name);
                }
            }
            Scanned::End => {
                let before = std::mem::take(&mut self.before);
                // Locks that the scan did not find were free at some moment.
                for name in before.difference(&self.scanned.drain().collect()) {
                    if self.schedule.has(name) && !self.state.table().is_free(name) {
                        self.hasten(name, now);
                    }
                }
                self.before = self.schedule.names().cloned().collect();
                self.state.table().scanned();
            }
        }
    }

    fn show(&mut self, shown: &Arc<HashSet<Name>>, now: Instant) {
        let before = std::mem::replace(&mut self.shown, shown.clone());
        for name in before.difference(shown) {
            self.schedule.defer(name);
        }
        for name in shown.iter() {
            self.hasten(name, now);
        }
    }

    fn hasten(&mut self, name: &Name, now: Instant) {
        if !self.schedule.has(name) {
            return self.add(name, now);
        }
        let rank = self.rank(name, Rank::Changed);
        let gap = if rank == Rank::Shown { SHOWN_GAP } else { GAP };
        self.schedule.hasten(name, now, gap, rank);
    }

    fn add(&mut self, name: &Name, now: Instant) {
        if self.state.table().add(name) {
            self.schedule.put(name, now, self.rank(name, Rank::Changed));
        }
    }

    fn rank(&self, name: &Name, otherwise: Rank) -> Rank {
        if self.shown.contains(name) {
            Rank::Shown
        } else {
            otherwise
        }
    }
}

//! Looks at the locks, no more often than it may, wherever a look is most needed.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use leasehold::{Error, ErrorKind, Inspection, Locker, Name};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::agenda::{Agenda, Rank};
use super::board::MOST_KNOWN;
use super::state::State;

const TICK: Duration = Duration::from_millis(50);
/// Looks that are under way at once: with a slow store there are fewer a second by that.
const MOST_UNDER_WAY: usize = 128;
/// Between two looks at a lock that changes all the time: one that somebody sees, and another.
const GAPS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
/// While the store is away.
const RETRY: Duration = Duration::from_millis(500);
const TROUBLED: Duration = Duration::from_secs(30);
/// Before a time to live ends there is one more look, to see whether it was renewed.
const NEAR_THE_END: Duration = Duration::from_millis(300);

/// What the eye hears of.
pub(super) struct Inputs {
    /// What the walk comes by.
    pub(super) walked: mpsc::Receiver<Walked>,
    /// What somebody sees.
    pub(super) seen: watch::Receiver<Arc<HashSet<Name>>>,
}

#[derive(Debug)]
pub(super) enum Walked {
    Step(Vec<Name>),
    /// The walk is at its end: what was held all the while was come by.
    End,
}

/// How it looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The most looks a second.
    pub(super) looks: u32,
    /// Whether looks cost nothing, because the store is in this process.
    pub(super) free: bool,
}

type Looking = BoxFuture<'static, (Name, Result<Inspection, Error>)>;

pub(super) struct Eye {
    locker: Locker,
    state: Arc<State>,
    pace: Pace,
    agenda: Agenda,
    under_way: FuturesUnordered<Looking>,
    seen: Arc<HashSet<Name>>,
    /// What the walk that is on has come by, and what was known when it began.
    walked: HashSet<Name>,
    before: BTreeSet<Name>,
    /// How many looks may begin.
    allowance: f64,
    ticked: Instant,
    /// While the store is away: when it is asked again.
    retry: Option<Instant>,
}

impl Eye {
    pub(super) fn new(locker: Locker, state: Arc<State>, pace: Pace) -> Self {
        Self {
            locker,
            state,
            pace,
            agenda: Agenda::default(),
            under_way: FuturesUnordered::new(),
            seen: Arc::default(),
            walked: HashSet::new(),
            before: BTreeSet::new(),
            allowance: 0.0,
            ticked: Instant::now(),
            retry: None,
        }
    }

    /// Looks for ever.
    pub(super) async fn look(mut self, mut inputs: Inputs) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.tick(Instant::now()),
                Some((name, result)) = self.under_way.next(), if !self.under_way.is_empty() => {
                    self.done(&name, result, Instant::now());
                }
                Some(walked) = inputs.walked.recv() => self.walked(walked, Instant::now()),
                Ok(()) = inputs.seen.changed() => {
                    let seen = inputs.seen.borrow_and_update().clone();
                    self.see(&seen, Instant::now());
                }
            }
        }
    }

    fn tick(&mut self, now: Instant) {
        let took = now.saturating_duration_since(self.ticked).min(TICK * 2);
        self.ticked = now;
        let rate = f64::from(self.pace.looks);
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
        for name in self.agenda.take(now, count) {
            self.allowance -= 1.0;
            let locker = self.locker.clone();
            self.under_way.push(Box::pin(async move {
                let found = locker.inspect(name.as_str()).await;
                (name, found)
            }));
        }
    }

    fn done(&mut self, name: &Name, result: Result<Inspection, Error>, now: Instant) {
        let mut board = self.state.board();
        let next = match result {
            Ok(found) => {
                let next = self.next(&found, name);
                self.retry = None;
                if !board.found(name, found, now) {
                    self.agenda.forget(name);
                    return;
                }
                next
            }
            Err(error) if matches!(error.kind(), ErrorKind::WrongType | ErrorKind::Config) => {
                board.trouble(name, &error.to_string());
                TROUBLED
            }
            Err(error) => {
                board.away(&error.to_string());
                self.retry = Some(now + RETRY);
                RETRY
            }
        };
        let rank = self.rank(name, Rank::Old);
        self.agenda.done(name, now + next, rank);
    }

    /// How long until the next look. Most leases are renewed when two thirds are left.
    fn next(&self, found: &Inspection, name: &Name) -> Duration {
        let millis = match (self.seen.contains(name), self.state.follows()) {
            _ if self.pace.free => 100,
            (true, false) => 500,
            (false, true) => 60_000,
            (false, false) if found.waiting > 0 => 1_000,
            (true, true) | (false, false) => 2_000,
        };
        let next = Duration::from_millis(millis);
        let Some(holder) = &found.holder else {
            return next.min(Duration::from_secs(2));
        };
        let left = holder.remaining;
        let near = if left > NEAR_THE_END {
            left * 9 / 10
        } else {
            left + Duration::from_millis(10)
        };
        next.min(near).max(TICK)
    }

    fn walked(&mut self, walked: Walked, now: Instant) {
        match walked {
            Walked::Step(names) => {
                for name in names {
                    if !self.agenda.has(&name) {
                        self.meet(&name, now);
                    }
                    self.walked.insert(name);
                }
            }
            Walked::End => {
                let before = std::mem::take(&mut self.before);
                // They were free at some moment.
                for name in before.difference(&self.walked.drain().collect()) {
                    if self.agenda.has(name) && !self.state.board().is_free(name) {
                        self.hasten(name, now);
                    }
                }
                self.before = self.agenda.names().cloned().collect();
                self.state.board().walked();
            }
        }
    }

    fn see(&mut self, seen: &Arc<HashSet<Name>>, now: Instant) {
        let before = std::mem::replace(&mut self.seen, seen.clone());
        for name in before.difference(seen) {
            self.agenda.defer(name);
        }
        for name in seen.iter() {
            self.hasten(name, now);
        }
    }

    fn hasten(&mut self, name: &Name, now: Instant) {
        if !self.agenda.has(name) {
            return self.meet(name, now);
        }
        let rank = self.rank(name, Rank::Changed);
        let gap = if rank == Rank::Seen { GAPS.0 } else { GAPS.1 };
        self.agenda.hasten(name, now, gap, rank);
    }

    fn meet(&mut self, name: &Name, now: Instant) {
        let mut board = self.state.board();
        if self.agenda.len() >= MOST_KNOWN {
            board.skip();
        } else if board.meet(name) {
            self.agenda.put(name, now, self.rank(name, Rank::Changed));
        }
    }

    fn rank(&self, name: &Name, otherwise: Rank) -> Rank {
        if self.seen.contains(name) {
            Rank::Seen
        } else {
            otherwise
        }
    }
}

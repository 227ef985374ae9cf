//! The last half hour, for pages that load.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use leasehold::Name;
use leasehold_observe::{Change, ChangeKind};
use serde::Serialize;

use crate::counts::Counts;
use crate::json::{LockEvent, millis};

const KEPT: Duration = Duration::from_secs(30 * 60);
/// The most entries. Each has a name of up to 512 bytes and an owner of up to 128: at most 16 MB together.
const MOST_ENTRIES: usize = 20_000;
/// The most events that a page gets when it loads.
const MOST_EVENTS: usize = 300;

/// A change of a lock, or of the length of its line.
#[derive(Debug)]
struct Entry {
    name: Name,
    at: Instant,
    waiting: u32,
    change: Option<Change>,
}

/// The counts of acquisitions, handoffs and losses at a moment.
#[derive(Debug)]
struct Sample {
    at: Instant,
    counts: [u64; 3],
}

#[derive(Default, Debug)]
pub(crate) struct History {
    entries: VecDeque<Entry>,
    samples: VecDeque<Sample>,
}

/// The history of all locks. Times are in milliseconds before now.
#[derive(Serialize)]
pub(crate) struct Recent<'a> {
    /// The time, and the acquisitions, handoffs and losses until then.
    samples: Vec<[u64; 4]>,
    /// The newest come last.
    events: Vec<LockEvent<'a>>,
}

/// The history of one lock.
#[derive(Serialize)]
pub(crate) struct LockHistory<'a> {
    events: Vec<LockEvent<'a>>,
    /// The times at which the line changed, each with its length from then on.
    lengths: Vec<(u64, u32)>,
}

impl History {
    pub(crate) fn add(&mut self, name: &Name, at: Instant, waiting: u32, change: Option<Change>) {
        let name = name.clone();
        self.entries.push_back(Entry {
            name,
            at,
            waiting,
            change,
        });
        while self.entries.len() > MOST_ENTRIES
            || is_over(self.entries.front().map(|entry| entry.at), at)
        {
            self.entries.pop_front();
        }
    }

    pub(crate) fn sample(&mut self, at: Instant, counts: &Counts) {
        let ends = ChangeKind::ENDS.into_iter().zip(counts.ends);
        let losses = ends
            .filter(|(kind, _)| kind.is_loss())
            .map(|(_, count)| count);
        let counts = [counts.acquired, counts.handoffs, losses.sum()];
        self.samples.push_back(Sample { at, counts });
        while is_over(self.samples.front().map(|sample| sample.at), at) {
            self.samples.pop_front();
        }
    }

    pub(crate) fn recent(&self, now: Instant) -> Recent<'_> {
        let changes = self.entries.iter().filter_map(|entry| event(entry, now));
        let skipped = changes.clone().count().saturating_sub(MOST_EVENTS);
        let samples = self.samples.iter().map(|sample| {
            let [acquired, handoffs, losses] = sample.counts;
            let ago = millis(now.saturating_duration_since(sample.at));
            [ago, acquired, handoffs, losses]
        });
        Recent {
            samples: samples.collect(),
            events: changes.skip(skipped).collect(),
        }
    }

    pub(crate) fn of(&self, name: &Name, now: Instant) -> LockHistory<'_> {
        let entries = self.entries.iter().filter(|entry| entry.name == *name);
        let ago = |entry: &Entry| millis(now.saturating_duration_since(entry.at));
        LockHistory {
            events: entries
                .clone()
                .filter_map(|entry| event(entry, now))
                .collect(),
            lengths: entries.map(|entry| (ago(entry), entry.waiting)).collect(),
        }
    }
}

fn is_over(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) > KEPT)
}

fn event(entry: &Entry, now: Instant) -> Option<LockEvent<'_>> {
    let change = entry.change.as_ref()?;
    Some(LockEvent::new(&entry.name, change, now, entry.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_bounded_in_time_and_number() {
        let (mut history, start) = (History::default(), Instant::now());
        let name = Name::new("a").expect("a valid name");
        for at in 0..40 * 60 {
            let at = start + Duration::from_secs(at);
            history.add(&name, at, 1, None);
            history.sample(at, &Counts::default());
        }
        let kept = usize::try_from(KEPT.as_secs()).expect("a small number") + 1;
        assert_eq!((history.entries.len(), history.samples.len()), (kept, kept));
        for _ in 0..=MOST_ENTRIES {
            history.add(&name, start + Duration::from_secs(40 * 60), 1, None);
        }
        assert_eq!(history.entries.len(), MOST_ENTRIES);
    }
}

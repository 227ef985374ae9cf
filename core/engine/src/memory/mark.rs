//! The incarnation record of a server of a quorum.

use std::collections::BTreeMap;
use std::time::Duration;

use super::MemoryServer;
use super::steps::whole;
use crate::protocol::limits::{MOST_KNOWN, MOST_WATCHED};
use crate::protocol::{Enter, Entered, Incarnation, Reply, Terms};
use crate::time::ServerTime;

/// The record in the key of the empty name of a namespace.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    incarnation: Incarnation,
    /// The process that wrote the record.
    process: u64,
    since: ServerTime,
    longest: Duration,
    known: Noted,
    watched: Noted,
}

/// Incarnations, and when each was noted.
type Noted = BTreeMap<Incarnation, ServerTime>;

impl MemoryServer {
    pub(super) fn enter(&mut self, now: ServerTime, enter: &Enter) -> Reply {
        let (incarnation, process) = (enter.incarnation, self.process);
        let Some(terms) = &enter.terms else {
            let mark = self.marks.get(&enter.key);
            let same = |mark: &Mark| mark.incarnation == incarnation && mark.process == process;
            let intact = mark.is_some_and(same);
            return if intact { Reply::Intact } else { Reply::Forgot };
        };
        let since = ServerTime::from_millis(now.millis());
        let new = || Mark {
            incarnation,
            process,
            since,
            longest: Duration::ZERO,
            known: BTreeMap::new(),
            watched: BTreeMap::new(),
        };
        let mark = self.marks.entry(enter.key.clone()).or_insert_with(new);
        if mark.process != process {
            (mark.incarnation, mark.process, mark.since) = (incarnation, process, since);
        }
        let longest = whole(terms.longest);
        if !mark.known.contains_key(&mark.incarnation) {
            mark.longest = longest;
        }
        if mark.longest == longest {
            mark.learn(since, terms);
        }
        let watched = mark.watched.iter();
        Reply::Entered(Entered {
            incarnation: mark.incarnation,
            age: since.since(mark.since),
            longest: mark.longest,
            known: mark.known.keys().copied().collect(),
            watched: watched.map(|(id, at)| (*id, since.since(*at))).collect(),
        })
    }
}

impl Mark {
    fn learn(&mut self, now: ServerTime, terms: &Terms) {
        for known in &terms.remember {
            self.watched.remove(known);
            note(&mut self.known, *known, (now, MOST_KNOWN));
        }
        for watched in &terms.watch {
            if !self.watched.contains_key(watched) {
                note(&mut self.watched, *watched, (now, MOST_WATCHED));
            }
        }
        for over in &terms.forget {
            self.known.remove(over);
            self.watched.remove(over);
        }
    }
}

/// Adds an incarnation. If there are too many, drops the one that was noted longest ago.
fn note(all: &mut Noted, incarnation: Incarnation, (now, most): (ServerTime, usize)) {
    all.remove(&incarnation);
    if all.len() >= most {
        let oldest = all.iter().min_by_key(|(_, noted)| **noted);
        let oldest = oldest.map(|(oldest, _)| *oldest);
        oldest.and_then(|oldest| all.remove(&oldest));
    }
    all.insert(incarnation, now);
}

//! What a server of a quorum knows of itself: whether it has forgotten something, and who may vote.

use std::collections::BTreeSet;
use std::time::Duration;

use super::MemoryServer;
use super::steps::whole;
use crate::error::{Error, ErrorKind};
use crate::protocol::limits::MOST_KNOWN;
use crate::protocol::{Enter, Entered, Incarnation, Reply, Terms};
use crate::time::ServerTime;

/// The key of the empty name in a namespace.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    incarnation: Incarnation,
    /// The process that wrote it.
    process: u64,
    since: ServerTime,
    longest: Duration,
    known: BTreeSet<Incarnation>,
}

impl MemoryServer {
    pub(super) fn enter(&mut self, now: ServerTime, enter: &Enter) -> Result<Reply, Error> {
        let (incarnation, process) = (enter.incarnation, self.process);
        let Some(terms) = &enter.terms else {
            let mark = self.marks.get(&enter.key);
            let same = |mark: &Mark| mark.incarnation == incarnation && mark.process == process;
            let intact = mark.is_some_and(same);
            return Ok(if intact { Reply::Intact } else { Reply::Forgot });
        };
        let since = ServerTime::from_millis(now.millis());
        let new = || Mark {
            incarnation,
            process,
            since,
            longest: Duration::ZERO,
            known: BTreeSet::new(),
        };
        let mark = self.marks.entry(enter.key.clone()).or_insert_with(new);
        if mark.process != process {
            (mark.incarnation, mark.process, mark.since) = (incarnation, process, since);
        }
        mark.longest = mark.longest.max(whole(terms.longest));
        mark.learn(terms)?;
        Ok(Reply::Entered(Entered {
            incarnation: mark.incarnation,
            age: since.since(mark.since),
            longest: mark.longest,
            known: mark.known.iter().copied().collect(),
        }))
    }
}

impl Mark {
    fn learn(
        &mut self,
        Terms {
            remember, forget, ..
        }: &Terms,
    ) -> Result<(), Error> {
        if !remember.is_empty() && self.known.len() >= MOST_KNOWN {
            let message = "too many incarnations of servers are known";
            return Err(Error::new(ErrorKind::Store, message));
        }
        self.known.extend(remember);
        self.known.retain(|known| !forget.contains(known));
        Ok(())
    }
}

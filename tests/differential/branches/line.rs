//! The branches of the script that concern the line.

use std::time::Duration;

use leasehold_engine::protocol::{
    Acquire, ClientId, Command, Counter, Inspected, News, Push, Release, Reply,
};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{Error, protocol::Claim};

use super::Lock;
use crate::model::{Place, claim, member};

/// How many dead waiters a newcomer removes at most.
const MOST_CLEARED: usize = 100;

pub(super) const BRANCHES: [&str; 65] = [
    "acquire: its turn",
    "acquire: its turn, after the dead",
    "acquire: free, all in line are dead",
    "acquire: free, in line and dead itself",
    "acquire: reclaimed out of the line",
    "acquire: reclaimed, former self told",
    "acquire: reclaimed, former self not subscribed",
    "acquire: retry while another claim of the lease waits",
    "try: busy, no waiter",
    "try: busy, others wait",
    "try: busy, itself in line",
    "try: free, but not its turn",
    "wait: first",
    "wait: behind others",
    "wait: behind the dead",
    "wait: confirmed",
    "wait: confirmed, after it died",
    "wait: confirmed, behind others",
    "wait: a free lock is handed to another",
    "wait: in the same microsecond as the one before",
    "wait: cleared the dead",
    "wait: cleared as many of the dead as one does",
    "wait: same label as the holder, who has no right to it",
    "handoff: by a release",
    "handoff: by a stranger's release of a free lock",
    "handoff: by a release out of the line of a free lock",
    "handoff: by a force-release",
    "handoff: by a force-release of a free lock",
    "handoff: by an acquisition of a free lock",
    "handoff: by a try of a free lock",
    "handoff: after the holder expired",
    "handoff: past one who died",
    "handoff: past more than eight who died",
    "handoff: past more than 72 who died",
    "handoff: others go on waiting",
    "handoff: the line ends",
    "handoff: heard",
    "handoff: unheard, so for half of its window",
    "handoff: heard, a window cut to the longest",
    "handoff: dense",
    "handoff: clock floor",
    "handoff: common, heard",
    "handoff: common, unheard",
    "handoff: common, by the reply",
    "handoff: common, the line ends",
    "handoff: to the holder's own client",
    "handoff: to the client that releases, by its reply",
    "handoff: to another claim of the holder's lease",
    "handoff: fails, counter used up, by a release",
    "handoff: fails, counter used up, by a release of a free lock",
    "handoff: fails, counter used up, by a force-release",
    "handoff: fails, counter used up, by an acquisition",
    "release: all in line are dead",
    "release: left the line",
    "release: left the line, behind others",
    "release: taken, was not in line",
    "release: of the holder by another claim of its lease",
    "force-release: holder told",
    "force-release: holder not subscribed",
    "force-release: free, all in line are dead",
    "inspect: some wait",
    "inspect: some of the line are dead",
    "inspect: more wait than are named",
    "inspect: free, some wait",
    "inspect: the named are dead, others wait",
];

pub(super) const LISTS: [&str; 5] = [
    "list: late",
    "list: nothing held",
    "list: none of those held",
    "list: some of those held",
    "list: all held",
];

/// The change that one operation made.
pub(super) struct Change<'a> {
    pub(super) now: ServerTime,
    pub(super) command: &'a Command,
    pub(super) reply: &'a Result<Reply, Error>,
    pub(super) lock: Option<&'a Lock>,
    pub(super) outlived: bool,
    pub(super) line: Vec<Place>,
    pub(super) lock_after: Option<Lock>,
    pub(super) line_after: Vec<Place>,
    pub(super) pushes: Vec<(ClientId, Push)>,
}

impl Change<'_> {
    pub(super) fn branches(&self) -> Vec<&'static str> {
        let mut hits = match (self.command, self.reply) {
            (_, Ok(Reply::Late)) => return Vec::new(),
            (Command::Acquire(acquire), Ok(Reply::Held(_))) => self.held(acquire),
            (Command::Acquire(acquire), Ok(Reply::Busy { .. })) if acquire.waits => {
                self.waits(&acquire.claim)
            }
            (Command::Acquire(acquire), Ok(Reply::Busy { .. })) => vec![self.tries(&acquire.claim)],
            (Command::Release(Release { claim, .. }), Ok(_)) => self.released(claim),
            (Command::ForceRelease(_), Ok(_)) => self.force_released(),
            (Command::AskYield(_), Ok(Reply::Asked)) => vec![self.asked()],
            (Command::Inspect(_), Ok(Reply::Inspected(seen))) => self.inspected(seen),
            _ => Vec::new(),
        };
        hits.extend(self.handed_over());
        hits.extend(self.failed());
        hits
    }

    fn dead(&self) -> usize {
        self.line
            .iter()
            .filter(|place| place.is_dead(self.now))
            .count()
    }

    fn all_dead(&self) -> bool {
        !self.line.is_empty() && self.dead() == self.line.len()
    }

    fn first_alive(&self) -> Option<&Place> {
        self.line.iter().find(|place| !place.is_dead(self.now))
    }

    /// Returns the place of a claim in line before the operation.
    fn place(&self, of: &Claim) -> Option<usize> {
        let own = member(of);
        self.line.iter().position(|place| place.member == own)
    }

    pub(super) fn told(&self, what: impl Fn(&News) -> bool) -> bool {
        self.pushes.iter().any(|(_, push)| what(&push.news))
    }

    fn held(&self, acquire: &Acquire) -> Vec<&'static str> {
        let own = self.place(&acquire.claim);
        let lease = acquire.claim.lease.to_string();
        let mut hits = Vec::new();
        match self.lock {
            None if self.all_dead() => {
                hits.push("acquire: free, all in line are dead");
                if own.is_some() {
                    hits.push("acquire: free, in line and dead itself");
                }
            }
            None if own.is_some() => {
                hits.push("acquire: its turn");
                if own > Some(0) {
                    hits.push("acquire: its turn, after the dead");
                }
            }
            None => {}
            Some(lock) if lock.lease == lease => {
                let same = |place: &Place| claim(&place.member).lease == acquire.claim.lease;
                if self.line.iter().any(same) {
                    hits.push("acquire: retry while another claim of the lease waits");
                }
            }
            Some(_) => {
                hits.push(
                    if self.told(|news| matches!(news, News::Superseded { .. })) {
                        "acquire: reclaimed, former self told"
                    } else {
                        "acquire: reclaimed, former self not subscribed"
                    },
                );
                if own.is_some() {
                    hits.push("acquire: reclaimed out of the line");
                }
            }
        }
        hits
    }

    fn tries(&self, own: &Claim) -> &'static str {
        match (self.lock, self.place(own)) {
            (None, _) => "try: free, but not its turn",
            (Some(_), Some(_)) => "try: busy, itself in line",
            (Some(_), None) if self.line.is_empty() => "try: busy, no waiter",
            (Some(_), None) => "try: busy, others wait",
        }
    }

    fn waits(&self, own: &Claim) -> Vec<&'static str> {
        let mut hits = Vec::new();
        if self.lock.is_none() {
            hits.push("wait: a free lock is handed to another");
        }
        let text = member(own);
        let is_own = |place: &Place| place.member == text;
        let after = self.line_after.iter().position(is_own);
        let place = after.expect("it has a place in line");
        if let Some(before) = self.line.iter().find(|place| is_own(place)) {
            hits.push("wait: confirmed");
            if before.is_dead(self.now) {
                hits.push("wait: confirmed, after it died");
            }
            if place > 0 {
                hits.push("wait: confirmed, behind others");
            }
            return hits;
        }
        hits.push(if place == 0 {
            "wait: first"
        } else {
            "wait: behind others"
        });
        let ahead = &self.line_after[..place];
        if ahead.iter().any(|place| place.is_dead(self.now)) {
            hits.push("wait: behind the dead");
        }
        if self.line_after[place].arrival > self.now.as_micros() {
            hits.push("wait: in the same microsecond as the one before");
        }
        if self
            .lock
            .is_some_and(|lock| lock.label == own.owner.label() && !lock.has_owner())
        {
            hits.push("wait: same label as the holder, who has no right to it");
        }
        let dead = self.dead();
        if self.lock.is_some() && dead > 0 {
            hits.push("wait: cleared the dead");
            if dead > MOST_CLEARED {
                hits.push("wait: cleared as many of the dead as one does");
            }
        }
        hits
    }

    fn released(&self, own: &Claim) -> Vec<&'static str> {
        let lease = own.lease.to_string();
        let mut hits = Vec::new();
        match (self.lock, self.place(own)) {
            (Some(lock), _) if lock.lease == lease => {
                if lock.client != own.client.to_string() || lock.label != own.owner.label() {
                    hits.push("release: of the holder by another claim of its lease");
                }
                if self.all_dead() {
                    hits.push("release: all in line are dead");
                }
            }
            (Some(_), Some(place)) => {
                hits.push("release: left the line");
                if place > 0 {
                    hits.push("release: left the line, behind others");
                }
            }
            (Some(_), None) => hits.push("release: taken, was not in line"),
            (None, _) => {}
        }
        hits
    }

    fn force_released(&self) -> Vec<&'static str> {
        match self.lock {
            Some(_) if self.reply == &Ok(Reply::Taken) => Vec::new(),
            Some(_) => vec![if self.told(|news| matches!(news, News::Revoked { .. })) {
                "force-release: holder told"
            } else {
                "force-release: holder not subscribed"
            }],
            None if self.all_dead() => vec!["force-release: free, all in line are dead"],
            None => Vec::new(),
        }
    }

    fn inspected(&self, seen: &Inspected) -> Vec<&'static str> {
        let named = u32::try_from(seen.line.len()).expect("few are named");
        let all = [
            (seen.waiting > 0, "inspect: some wait"),
            (self.dead() > 0, "inspect: some of the line are dead"),
            (seen.waiting > named, "inspect: more wait than are named"),
            (
                seen.waiting > 0 && seen.holder.is_none(),
                "inspect: free, some wait",
            ),
            (
                seen.waiting > 0 && named == 0,
                "inspect: the named are dead, others wait",
            ),
        ];
        all.into_iter()
            .filter(|(holds, _)| *holds)
            .map(|(_, hit)| hit)
            .collect()
    }

    /// Returns the branches in which the lock went to a lease that did not ask just now.
    fn handed_over(&self) -> Vec<&'static str> {
        let (Some(after), Some(first)) = (&self.lock_after, self.first_alive()) else {
            return Vec::new();
        };
        let stays = self.lock.is_some_and(|lock| lock.token == after.token);
        if stays || matches!(self.reply, Ok(Reply::Held(_))) {
            return Vec::new();
        }
        let mut hits = vec![match (self.command, self.lock) {
            (Command::Release(_), Some(_)) => "handoff: by a release",
            (Command::Release(Release { claim, .. }), None) if self.place(claim).is_some() => {
                "handoff: by a release out of the line of a free lock"
            }
            (Command::Release(_), None) => "handoff: by a stranger's release of a free lock",
            (Command::ForceRelease(_), Some(_)) => "handoff: by a force-release",
            (Command::ForceRelease(_), None) => "handoff: by a force-release of a free lock",
            (Command::Acquire(acquire), None) if acquire.waits => {
                "handoff: by an acquisition of a free lock"
            }
            (Command::Acquire(_), None) => "handoff: by a try of a free lock",
            (command, _) => panic!("{command:?} hands no lock over"),
        }];
        let past = self
            .line
            .iter()
            .take_while(|place| place.is_dead(self.now))
            .count();
        // A waiter that releases its place is skipped, too.
        let own = claim(&first.member);
        let given = own.lease.to_string() == after.lease;
        let others = self.line_after.iter().any(|place| !place.is_dead(self.now));
        let more = [
            (self.outlived, "handoff: after the holder expired"),
            (past > 0, "handoff: past one who died"),
            (past > 8, "handoff: past more than eight who died"),
            (past > 72, "handoff: past more than 72 who died"),
            (others, "handoff: others go on waiting"),
            (self.line_after.is_empty(), "handoff: the line ends"),
        ];
        hits.extend(
            more.into_iter()
                .filter(|(holds, _)| *holds)
                .map(|(_, hit)| hit),
        );
        if given {
            let granted = self.granted(&own, after);
            if self.is_common(&own) {
                hits.push(match granted[0] {
                    "handoff: heard" => "handoff: common, heard",
                    "handoff: unheard, so for half of its window" => "handoff: common, unheard",
                    _ => "handoff: common, by the reply",
                });
                if self.line_after.is_empty() {
                    hits.push("handoff: common, the line ends");
                }
            }
            hits.extend(granted);
        }
        hits
    }

    /// True for the claims that the script handles by a written-out fast path.
    fn is_common(&self, own: &Claim) -> bool {
        let is_common = |claim: &Claim| {
            let least = Duration::from_secs(3_600);
            matches!(claim.counter, Counter::ClockFloor { retention } if retention >= least)
                && claim.ttl < least
        };
        let Command::Release(Release { claim, token, .. }) = self.command else {
            return false;
        };
        let is_first = self.line[0].member == member(own) && !self.line[0].is_dead(self.now);
        is_first && is_common(own) && is_common(claim) && token.is_some()
    }

    fn granted(&self, own: &Claim, after: &Lock) -> Vec<&'static str> {
        if matches!(self.reply, Ok(Reply::HandedOver { .. })) {
            return vec!["handoff: to the client that releases, by its reply"];
        }
        let heard = self.told(|news| matches!(news, News::Granted { .. }));
        let mut hits = vec![if heard {
            "handoff: heard"
        } else {
            "handoff: unheard, so for half of its window"
        }];
        hits.push(match own.counter {
            Counter::Dense => "handoff: dense",
            Counter::ClockFloor { .. } => "handoff: clock floor",
        });
        if heard && own.window > Claim::LONGEST_WINDOW {
            hits.push("handoff: heard, a window cut to the longest");
        }
        if self.lock.is_some_and(|lock| lock.client == after.client) {
            hits.push("handoff: to the holder's own client");
        }
        if self.lock.is_some_and(|lock| lock.lease == after.lease) {
            hits.push("handoff: to another claim of the holder's lease");
        }
        hits
    }

    /// Returns the branch in which the lock stayed free although there was a waiter to hand it to.
    fn failed(&self) -> Option<&'static str> {
        let first = self.first_alive()?;
        if self.lock_after.is_some() || self.line_after.is_empty() {
            return None;
        }
        match (self.command, self.lock) {
            (Command::Release(_), Some(_)) => Some("handoff: fails, counter used up, by a release"),
            (Command::Release(_), None) => {
                Some("handoff: fails, counter used up, by a release of a free lock")
            }
            (Command::ForceRelease(_), _) => {
                Some("handoff: fails, counter used up, by a force-release")
            }
            (Command::Acquire(acquire), None) if first.member != member(&acquire.claim) => {
                Some("handoff: fails, counter used up, by an acquisition")
            }
            _ => None,
        }
    }
}

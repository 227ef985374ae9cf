//! The promises, checked after each action.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_engine::protocol::{BatchReply, Claim, Command, LeaseId, Op, Reply};
use leasehold_engine::testing::ms;
use leasehold_engine::time::{ServerTime, Timestamp};

use crate::program::Client;
use crate::world::{Action, TTL, World, name};

/// A promise that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) promise: &'static str,
    pub(crate) what: String,
}

fn broken<T>(promise: &'static str, what: impl Into<String>) -> Result<T, Violation> {
    let what = what.into();
    Err(Violation { promise, what })
}

/// Checks I8 of a lease: it lasts no longer than its program asked for.
pub(crate) fn lasts(now: Timestamp, deadline: Timestamp) -> Result<(), Violation> {
    if deadline > now + TTL {
        return broken("I8", "a lease lasts longer than its program asked for");
    }
    Ok(())
}

/// A lease as its program sees it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) lease: LeaseId,
    pub(crate) token: u64,
    /// The deadline that the engine told.
    pub(crate) deadline: Timestamp,
    /// The time until which the program goes on. It differs from the deadline only in controls.
    pub(crate) until: Timestamp,
    pub(crate) lost: bool,
}

/// The tenure and the line that the server has for the name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stored {
    pub(crate) tenure: Option<(LeaseId, u64)>,
    pub(crate) expires: Option<ServerTime>,
    /// Each waiter's claim, its arrival, and until when it counts as alive.
    pub(crate) line: Vec<(String, u64, ServerTime)>,
}

/// A waiter, as the checks know it.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) claim: Claim,
    /// The time until which it counts as alive.
    until: ServerTime,
    /// True if it was dead and asked again: the server may have given its place to others, or not.
    lapsed: bool,
}

/// The checks' own knowledge of what happened.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// The greatest token that each server gave.
    given: BTreeMap<usize, u64>,
    /// The greatest token that a program got.
    got: u64,
    /// The waiters in the order in which the server got to know them.
    pub(crate) line: Vec<Waiting>,
    /// True if the only server lost its data, so that exclusion is not promised.
    lost_data: bool,
    /// True if the servers form a quorum, whose waiters wait at one server while others may vote for anybody.
    is_quorum: bool,
}

impl Checks {
    pub(crate) fn of(servers: usize) -> Self {
        Self {
            is_quorum: servers > 1,
            ..Self::default()
        }
    }

    pub(crate) fn flushed(&mut self, is_lost: bool) {
        self.line.clear();
        self.lost_data = is_lost;
    }

    /// Checks I1 and I4: no two programs hold the lock at one time, and each loss is told by the deadline.
    pub(crate) fn leases(&self, now: Timestamp, clients: &[Client]) -> Result<(), Violation> {
        let mut holder = None;
        for (client, state) in clients.iter().enumerate() {
            let Some(held) = &state.held else { continue };
            if held.deadline <= now && !held.lost {
                let who = name(client);
                return broken(
                    "I4",
                    format!("{who} is not told of its loss by the deadline"),
                );
            }
            if held.until <= now || self.lost_data {
                continue;
            }
            if let Some(other) = holder.replace(client) {
                let (one, other) = (name(other), name(client));
                return broken("I1", format!("{one} and {other} hold the lock at one time"));
            }
        }
        Ok(())
    }

    /// Checks I2 and I8 of a new lease: its token is the greatest, and it ends in time.
    pub(crate) fn acquired(
        &mut self,
        now: Timestamp,
        token: u64,
        deadline: Timestamp,
    ) -> Result<(), Violation> {
        // After a loss of data two programs may hold the lock, and learn of their tokens in any order.
        if token <= self.got && !self.lost_data {
            return broken(
                "I2",
                format!("a program got token {token} after {}", self.got),
            );
        }
        self.got = token;
        lasts(now, deadline)
    }

    /// Checks what a batch did at the server.
    pub(crate) fn executed(
        &mut self,
        (server, now, is_over): (usize, ServerTime, bool),
        batch: &[Op],
        reply: &BatchReply,
        (before, after): (Stored, Stored),
    ) -> Result<(), Violation> {
        let is_release = |op: &Op| matches!(op.command, Command::Release(_));
        if is_over && before != after && !batch.iter().all(is_release) {
            return broken("I6", "a request acts after its caller gave up");
        }
        for (op, reply) in batch.iter().zip(&reply.replies) {
            self.executed_one(now, op, reply.as_ref().ok(), (&before, &after))?;
        }
        let Some((lease, token)) = after.tenure.filter(|_| before.tenure != after.tenure) else {
            return Ok(());
        };
        let given = self.given.insert(server, token).unwrap_or(0);
        if token <= given {
            let what = format!("a server gives token {token} after {given}");
            return broken("I2", what);
        }
        let own = |waiting: &Waiting| waiting.claim.lease == lease;
        let is_free = self
            .line
            .iter()
            .any(|waiting| own(waiting) && waiting.lapsed);
        let alive = |waiting: &&Waiting| waiting.until.millis() > now.millis() && !waiting.lapsed;
        let ahead = self.line.iter().take_while(|waiting| !own(waiting));
        let ahead = ahead.filter(alive).count();
        self.line.retain(|waiting| !own(waiting));
        if ahead > 0 && !is_free && !self.is_quorum {
            return broken("I7", format!("the lock goes past {ahead} live waiters"));
        }
        Ok(())
    }

    fn executed_one(
        &mut self,
        now: ServerTime,
        op: &Op,
        reply: Option<&Reply>,
        (before, after): (&Stored, &Stored),
    ) -> Result<(), Violation> {
        let has = |stored: &Stored, lease| stored.tenure.is_some_and(|(held, _)| held == lease);
        match &op.command {
            Command::Renew(renew) if has(after, renew.lease) && !has(before, renew.lease) => {
                broken("I5", "a renewal takes the lock again")
            }
            Command::Release(release) if !matches!(reply, Some(Reply::Late)) => {
                let lease = release.claim.lease;
                self.line.retain(|waiting| waiting.claim.lease != lease);
                let waits =
                    |(claim, ..): &(String, u64, ServerTime)| claim.contains(&lease.to_string());
                if has(after, lease) || after.line.iter().any(waits) {
                    return broken("I6", "a release leaves a lock or a place in line");
                }
                Ok(())
            }
            Command::Acquire(acquire) => {
                if let Some(Reply::Busy { place: Some(_), .. }) = reply {
                    let until = now + acquire.claim.window;
                    let lease = acquire.claim.lease;
                    let own = |waiting: &&mut Waiting| waiting.claim.lease == lease;
                    if let Some(waiting) = self.line.iter_mut().find(own) {
                        waiting.lapsed |= waiting.until < now;
                        waiting.until = until;
                    } else {
                        let (claim, lapsed) = (acquire.claim.clone(), false);
                        self.line.push(Waiting {
                            claim,
                            until,
                            lapsed,
                        });
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The time within which the name must become free when nothing new happens: a lease of each client, and the
/// time in which the first waiters are found to be dead.
const QUIET: Duration = ms(3 * 2_000 + 2 * 2_400 + 2_000);

impl World {
    /// Checks I6 and I7 from here on: whatever is under way is lost, the network works again, and programs
    /// release what they get. Then each waiter gets the lock, and the name becomes free, within a bound.
    ///
    /// Also returns the story to its end.
    pub(crate) fn ends_quietly(mut self) -> (Result<(), Violation>, Vec<String>) {
        let result = self.quiet();
        (result, self.story.unwrap_or_default())
    }

    fn quiet(&mut self) -> Result<(), Violation> {
        self.tell(|| "all that is under way is lost, and from here on nothing is".to_owned());
        self.requests.clear();
        self.replies.clear();
        self.pushes.clear();
        let end = self.host.now + QUIET;
        while self.host.now < end {
            self.carry()?;
            self.pass(ms(100))?;
        }
        self.carry()?;
        if let Some(client) = self
            .clients
            .iter()
            .position(|client| client.asking.is_some())
        {
            return broken("I7", format!("{} waits in vain", name(client)));
        }
        if (0..self.plan.servers).any(|server| self.stored(server).tenure.is_some()) {
            return broken("I6", "the name does not become free");
        }
        Ok(())
    }

    /// Delivers everything, in order, and releases what is held.
    fn carry(&mut self) -> Result<(), Violation> {
        loop {
            let holds = |client: usize| self.clients[client].held.as_ref();
            let mut holders = (0..self.clients.len()).filter(|client| holds(*client).is_some());
            if let Some(client) = holders.next() {
                self.release(client);
            } else if !self.requests.is_empty() {
                let request = self.requests.remove(0);
                self.execute(request)?;
            } else if !self.replies.is_empty() {
                let (sent, reply) = self.replies.remove(0);
                self.host.reply(&sent, Ok(reply));
            } else if !self.pushes.is_empty() {
                let push = 0;
                self.apply(Action::Push { push })?;
            } else {
                return Ok(());
            }
            self.settle()?;
        }
    }
}

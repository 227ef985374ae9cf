//! Looking at locks, and freeing other people's.

use super::io::{CallId, Done, HolderInfo, Inspection, WaiterInfo};
use super::link::{Answer, came_late, mismatch};
use super::pace::{FIRST_RETRY, Flight, Pace, SLOWEST_RETRY};
use super::timers::Timed;
use super::{Engine, Serial, Whose};
use crate::error::Error;
use crate::protocol::{Command, ForceRelease, Holder, Inspected, LeaseId, Reply};
use crate::time::{ServerTime, Timestamp};

/// A question to the store that is under way.
#[derive(Debug)]
pub(super) struct Query {
    command: Command,
    goal: Goal,
    until: Timestamp,
    flight: Option<Flight>,
    pace: Pace,
    error: Option<Error>,
    pub(super) wake: Timestamp,
}

/// What the answer is for.
#[derive(Debug)]
pub(super) enum Goal {
    /// It is what the program wants to know.
    Look,
    /// The lock is to be freed, whoever turns out to have it.
    Free,
    /// It is being freed of this holder.
    FreeOf(HolderInfo),
}

impl Engine {
    pub(super) fn query(&mut self, call: CallId, command: Command, goal: Goal) {
        let until = self.now + self.settings.patience;
        let pace = Pace::due(self.now);
        self.queries.insert(
            call,
            Query {
                command,
                goal,
                until,
                flight: None,
                pace,
                error: None,
                wake: Timestamp::NEVER,
            },
        );
        self.attempt_query(call);
        self.settle_query(call);
    }

    pub(super) fn query_time(&mut self, call: CallId) {
        let now = self.now;
        let Some(query) = self.queries.get(&call) else {
            return;
        };
        match query.flight {
            Some(flight) if flight.give_up <= now => {
                let error = self.why_no_answer(flight.attempt);
                self.query_failed(call, error);
            }
            None if query.until <= now => {
                let error = query.error.clone().unwrap_or_else(Error::no_answer);
                self.end_query(call);
                self.complete(call, Err(error));
            }
            None if query.pace.next <= now => self.attempt_query(call),
            _ => {}
        }
        self.settle_query(call);
    }

    pub(super) fn retry_query(&mut self, call: CallId) {
        let now = self.now;
        if let Some(query) = self.queries.get_mut(&call)
            && query.pace.failures > 0
        {
            query.pace.next = now;
            self.query_time(call);
        }
    }

    pub(super) fn query_answer(&mut self, call: CallId, attempt: Serial, answer: Answer) {
        let Some(query) = self.queries.get(&call) else {
            return;
        };
        if query.flight.is_none_or(|flight| flight.attempt != attempt) {
            return;
        }
        let done = match (answer, &query.goal) {
            (Ok((Reply::Inspected(seen), time)), Goal::Look) => {
                Done::Inspected(inspection(seen, time))
            }
            (Ok((Reply::Listed { cursor, names }, _)), Goal::Look) => {
                Done::Listed { cursor, names }
            }
            (Ok((Reply::Inspected(seen), time)), Goal::Free) => match seen.holder {
                Some(holder) => return self.free_of(call, holder_info(holder, time)),
                None => Done::ForceReleased(None),
            },
            // If it is not there any more, an earlier attempt freed the lock, or it ended by itself.
            (Ok((Reply::Released | Reply::Gone | Reply::Taken, _)), Goal::FreeOf(holder)) => {
                Done::ForceReleased(Some(holder.clone()))
            }
            (Ok((Reply::Late, _)), _) => return self.query_failed(call, came_late()),
            (Ok(_), _) => return self.query_failed(call, mismatch()),
            (Err(error), _) => return self.query_failed(call, error),
        };
        self.end_query(call);
        self.complete(call, Ok(done));
    }

    pub(super) fn end_query(&mut self, call: CallId) {
        if let Some(mut query) = self.queries.take(&call) {
            if let Some(flight) = query.flight {
                self.unsend(flight.attempt);
            }
            self.timers
                .set(Timed::Query(call), &mut query.wake, Timestamp::NEVER);
        }
    }

    fn attempt_query(&mut self, call: CallId) {
        let (now, timeout) = (self.now, self.settings.command_timeout);
        let attempt = self.next_serial();
        let Some(query) = self.queries.get_mut(&call) else {
            return;
        };
        let give_up = (now + timeout).min(query.until);
        let flight = Flight {
            attempt,
            sent: now,
            give_up,
        };
        query.flight = Some(flight);
        let command = query.command.clone();
        self.send(Whose::Query(call), flight, command);
    }

    /// The lock has this holder: now it is freed of exactly that one.
    fn free_of(&mut self, call: CallId, holder: HolderInfo) {
        let Some(query) = self.queries.get_mut(&call) else {
            return;
        };
        let Some(key) = query.command.key().cloned() else {
            return;
        };
        let token = holder.token;
        query.command = Command::ForceRelease(ForceRelease { key, token });
        query.goal = Goal::FreeOf(holder);
        self.attempt_query(call);
        self.settle_query(call);
    }

    fn query_failed(&mut self, call: CallId, error: Error) {
        let now = self.now;
        let Some(query) = self.queries.get_mut(&call) else {
            return;
        };
        let flight = query.flight.take();
        let until = query.until;
        if let Some(flight) = flight {
            self.unsend(flight.attempt);
        }
        if !error.is_transient() || until <= now {
            self.end_query(call);
            return self.complete(call, Err(error));
        }
        let Some(query) = self.queries.get_mut(&call) else {
            return;
        };
        // The seed only spreads retries; the call's number does for that.
        let seed = LeaseId(u128::from(call.0));
        query.pace.back_off(now, FIRST_RETRY, SLOWEST_RETRY, seed);
        query.pace.next = query.pace.next.min(query.until);
        query.error = Some(error);
        self.settle_query(call);
    }

    fn settle_query(&mut self, call: CallId) {
        if let Some(query) = self.queries.get_mut(&call) {
            let at = query
                .flight
                .map_or(query.pace.next, |flight| flight.give_up);
            self.timers.set(Timed::Query(call), &mut query.wake, at);
        }
    }
}

fn inspection(seen: Inspected, time: ServerTime) -> Inspection {
    let line = seen.line.into_iter().map(|waiter| WaiterInfo {
        owner: waiter.owner,
        waited: time.since(waiter.since),
    });
    Inspection {
        holder: seen.holder.map(|holder| holder_info(holder, time)),
        last_token: seen.last_token,
        waiting: seen.waiting,
        line: line.collect(),
    }
}

fn holder_info(holder: Holder, time: ServerTime) -> HolderInfo {
    let Holder {
        token,
        expires,
        owner,
    } = holder;
    HolderInfo {
        token,
        remaining: expires.map(|expires| expires.since(time)),
        owner,
    }
}

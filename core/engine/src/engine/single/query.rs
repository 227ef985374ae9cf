//! Queries to one store: inspecting and listing locks, force-releasing those of others, and asking their
//! holders to yield.

use super::Single;
use super::attempt::{Attempt, Due, Failure, Outcome};
use crate::engine::ctx::Whose;
use crate::engine::front::{self, Queries, Question};
use crate::engine::inspection::{
    CompletedInfo, HolderInfo, Inspection, JobInfo, Listing, PermitInfo, SharedInfo, WaiterInfo,
    WantedInfo,
};
use crate::engine::io::{Answer, CallId, ServerId};
use crate::engine::pace::retry;
use crate::engine::servers::Flight;
use crate::error::{Error, ErrorKind};
use crate::name::Owner;
use crate::protocol::{
    AskYield, Command, ForceRelease, Holder, Inspect, Inspected, LeaseId, List, Reply, Resize,
    SharedState,
};
use crate::tick::Tick;
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;

/// A query in progress.
#[derive(Debug)]
pub(in crate::engine) struct SingleQuery {
    call: CallId,
    question: Question,
    /// The holder whose tenure is being ended, or that is being asked to yield.
    found: Option<HolderInfo>,
    until: Timestamp,
    attempt: Attempt,
    error: Option<Error>,
}

/// The position of a walk. In a cluster, the highest bits of its cursor name the server.
#[derive(Copy, Clone, Debug)]
struct WalkCursor {
    server: ServerId,
    cursor: u64,
}

impl Queries<Single> {
    /// Takes in a new connection: queries that failed before are retried at once.
    pub(super) fn retry_all(&mut self, env: &mut Single) {
        for call in self.calls() {
            self.step(env, call, |query, env| {
                if query.attempt.pace.failures == 0 {
                    return None;
                }
                query.attempt.pace.next = env.cx.now;
                front::Query::time(query, env)
            });
        }
    }

    pub(super) fn landed(&mut self, env: &mut Single, (call, outcome): (CallId, Outcome)) {
        self.step(env, call, |query, env| query.landed(env, outcome));
    }
}

impl front::Query<Single> for SingleQuery {
    fn time(&mut self, env: &mut Single) -> Option<Answer> {
        match self.attempt.due(env.cx.now) {
            Due::Late(flight) => match self.attempt.late(&mut env.servers, env.cx.now, None) {
                Some(error) => self.failed(env, flight, Failure::Unknown(error)),
                None => None,
            },
            Due::Now if self.until <= env.cx.now => {
                let error = self.error.clone().unwrap_or_else(Error::no_answer);
                Some(self.question.failed(error))
            }
            Due::Now => {
                self.ask(env);
                None
            }
            Due::Later => None,
        }
    }

    fn close(&mut self, env: &mut Single) {
        self.attempt.abandon(&mut env.servers);
    }

    fn question(&self) -> &Question {
        &self.question
    }

    fn wake_at(&self) -> Timestamp {
        self.attempt.wake_at()
    }
}

impl SingleQuery {
    pub(super) fn new(env: &mut Single, call: CallId, question: Question) -> Self {
        let mut query = Self {
            call,
            question,
            found: None,
            until: env.cx.now + env.cx.settings.patience,
            attempt: Attempt::due_at(env.cx.now),
            error: None,
        };
        query.ask(env);
        query
    }

    fn ask(&mut self, env: &mut Single) {
        let give_up = (env.cx.now + env.cx.settings.command_timeout).min(self.until);
        let whose = Whose::Query(self.call);
        let (command, server) = self.command(env.cx.settings.clustered);
        self.attempt
            .begin_at(env, whose, (command, server), give_up);
    }

    fn landed(&mut self, env: &mut Single, outcome: Outcome) -> Option<Answer> {
        let flight = self.attempt.land(&outcome)?;
        let answer = match (outcome.result, &self.question, &self.found) {
            (Ok((Reply::Inspected(seen), time)), Question::Inspect(_), _) => {
                Answer::Inspect(Ok(Box::new(inspection(seen, time))))
            }
            (Ok((Reply::Listed { cursor, names }, _)), Question::List(_, from), _) => {
                let place = WalkCursor::of(*from, env.cx.settings.clustered);
                let cursor = cursor.map(|cursor| place.at(cursor));
                Answer::List(Ok(Listing { cursor, names }))
            }
            (Ok((Reply::Inspected(seen), time)), question, None) => {
                match holder_meant(question, seen) {
                    Ok(Some(holder)) => {
                        // The second step concerns exactly this holder's tenure.
                        self.found = Some(holder_info(holder, time));
                        self.ask(env);
                        return None;
                    }
                    Ok(None) => self.question.found(None),
                    Err(error) => self.question.failed(error),
                }
            }
            // If that holder is gone, an earlier attempt freed the lock, it yielded, or the lock expired.
            (Ok((Reply::Released | Reply::Asked | Reply::Gone | Reply::Taken, _)), _, Some(_)) => {
                self.question.found(self.found.clone())
            }
            (Ok((Reply::Resized { epoch }, _)), Question::Resize(..), _) => {
                Answer::Resize(Ok(epoch))
            }
            (Ok((Reply::Late, _)), ..) => {
                return self.failed(env, flight, Failure::late());
            }
            (Ok(_), ..) => return self.failed(env, flight, Failure::mismatch()),
            (Err(error), ..) => {
                return self.failed(env, flight, Failure::Unknown(error));
            }
        };
        Some(answer)
    }

    /// Returns the command to send, and the server for a command without a key.
    fn command(&self, clustered: bool) -> (Command, ServerId) {
        let command = match (&self.question, &self.found) {
            (Question::ForceRelease(key, _), Some(holder)) => Command::ForceRelease(ForceRelease {
                key: key.clone(),
                token: holder.token,
            }),
            (Question::RequestYield(key, by, within), Some(holder)) => {
                Command::AskYield(AskYield {
                    key: key.clone(),
                    token: holder.token,
                    within: *within,
                    by: by.clone(),
                })
            }
            (
                Question::Inspect(key)
                | Question::ForceRelease(key, _)
                | Question::RequestYield(key, ..),
                _,
            ) => Command::Inspect(Inspect { key: key.clone() }),
            (Question::Resize(key, sharing, capacity, counter), _) => Command::Resize(Resize {
                key: key.clone(),
                sharing: *sharing,
                capacity: *capacity,
                counter: *counter,
            }),
            (Question::List(pattern, cursor), _) => {
                let (pattern, place) = (pattern.clone(), WalkCursor::of(*cursor, clustered));
                let cursor = place.cursor;
                return (Command::List(List { pattern, cursor }), place.server);
            }
        };
        (command, ServerId::ONLY)
    }

    fn failed(&mut self, env: &mut Single, flight: Flight, failure: Failure) -> Option<Answer> {
        self.attempt.failed(&mut env.servers, flight, &failure);
        let error = failure.into_error();
        if !error.is_transient() || self.until <= env.cx.now {
            return Some(self.question.failed(error));
        }
        // The seed only spreads retries, so the call's number is random enough.
        let seed = LeaseId(u128::from(self.call.0));
        let between = retry(env.cx.settings.command_timeout);
        self.attempt.pace.back_off(env.cx.now, between, seed);
        self.attempt.pace.next = self.attempt.pace.next.min(self.until);
        self.error = Some(error);
        None
    }
}

impl WalkCursor {
    fn of(cursor: u64, clustered: bool) -> Self {
        if !clustered {
            let server = ServerId::ONLY;
            return Self { server, cursor };
        }
        let server = u32::try_from(cursor >> ServerId::CURSOR_BITS).unwrap_or(0);
        Self {
            server: ServerId(server),
            cursor: cursor & ((1 << ServerId::CURSOR_BITS) - 1),
        }
    }

    /// Returns the cursor of this server at a later position.
    fn at(self, cursor: u64) -> u64 {
        self.server.walk() | cursor
    }
}

fn inspection(seen: Inspected, time: ServerTime) -> Inspection {
    let line = seen.line.into_iter().map(|waiter| WaiterInfo {
        owner: waiter.owner,
        waited: time.since(waiter.since),
    });
    let wanted = seen.wanted.map(|request| WantedInfo {
        by: request.by,
        remaining: request.until.since(time),
    });
    Inspection {
        holder: seen.holder.map(|holder| holder_info(holder, time)),
        last_token: seen.last_token,
        job: seen.job.map(|job| JobInfo {
            completed: job.completed.map(|done| CompletedInfo {
                tick: done.tick.get(),
                token: done.token,
                ago: time.since(done.at),
                by: done.by,
            }),
            begun: job.begun.map(Tick::get),
        }),
        shared: seen
            .shared
            .map(|shared| Box::new(shared_info(*shared, time))),
        waiting: seen.waiting,
        line: line.collect(),
        server_time: time.millis(),
        wanted,
    }
}

fn shared_info(shared: SharedState, time: ServerTime) -> SharedInfo {
    let holders = shared.holders.into_iter().map(|permit| PermitInfo {
        token: permit.token,
        remaining: permit.expires.since(time),
        weight: permit.weight,
        slots: permit.slots,
        by: permit.by,
    });
    SharedInfo {
        sharing: shared.sharing,
        capacity: shared.capacity,
        epoch: shared.epoch,
        generation: shared.generation,
        used: shared.used,
        held: shared.held,
        holders: holders.collect(),
    }
}

/// Returns the holder that a question is about.
fn holder_meant(question: &Question, seen: Inspected) -> Result<Option<Holder>, Error> {
    let token = match question {
        Question::ForceRelease(_, token) => *token,
        _ if seen.shared.is_some() => {
            let message =
                "the name is shared, and its holders cannot be asked to yield: wait in line for it";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        _ => None,
    };
    let is_meant = |held: FencingToken| token.is_none_or(|token| token == held);
    let Some(shared) = seen.shared else {
        return Ok(seen.holder.filter(|holder| is_meant(holder.token)));
    };
    let held = shared.held;
    if token.is_none() && held > 1 {
        let message = format!("the name has {held} holders: name one by its token");
        return Err(Error::new(ErrorKind::Config, message));
    }
    let mut holders = shared.holders.into_iter();
    let Some(permit) = holders.find(|permit| is_meant(permit.token)) else {
        return Ok(None);
    };
    Ok(Some(Holder {
        token: permit.token,
        expires: permit.expires,
        owner: Owner::labelled(permit.by)?,
    }))
}

fn holder_info(holder: Holder, time: ServerTime) -> HolderInfo {
    let Holder {
        token,
        expires,
        owner,
    } = holder;
    HolderInfo {
        token,
        remaining: expires.since(time),
        owner,
    }
}

//! The link to the store: what is sent when, and to whom the answers go.

use super::clock::{Anchor, Margin};
use super::contender::{Contender, Phase};
use super::io::{Output, RequestId, ServerId, Suspicion};
use super::outbox::{Outbox, Outgoing};
use super::pace::{FIRST_RETRY, Flight, Pace, SLOWEST_RETRY};
use super::rates::{Mark, Rates};
use super::table::Short;
use super::tenure::Tenure;
use super::timers::Timed;
use super::{Engine, Origin, Serial, Settings, Whose};
use crate::error::{Error, ErrorKind};
use crate::event::LeaseEvent;
use crate::protocol::{BatchReply, Command, LeaseId, Op, Reply};
use crate::time::{ServerTime, Timestamp};

/// The most operations that leave in one script call, so that it does not keep the server from
/// other work for long.
pub(super) const MAX_BATCH: usize = 128;

/// Of a host of one thread: what part of what waits leaves in one script call, so that all that may
/// be under way is half of it, and the least number of operations.
const PART: usize = 2 * MAX_IN_FLIGHT;
const LEAST_PART: usize = 4;

/// About how many bytes of keys and arguments leave in one script call.
pub(super) const MAX_BATCH_BYTES: usize = 65_536;

/// How many batches may be under way before what comes next waits, to leave together: every
/// script call costs the client a write and the server a call. With none under way nothing waits.
pub(super) const MAX_IN_FLIGHT: usize = 8;

/// As above, where operations leave one by one.
pub(super) const MAX_ALONE_IN_FLIGHT: usize = 64;

#[derive(Debug)]
pub(super) struct Link {
    state: State,
    rates: Rates,
    /// Why the server's clock is not known, as far as that was told.
    trouble: Option<Error>,
    /// Whether the store has ever answered.
    proven: bool,
    pace: Pace,
    pub(super) wake: Timestamp,
    outbox: Outbox,
    /// In the order in which they left.
    requests: Vec<Request>,
    /// How many in a row had no answer in time.
    timeouts: u32,
}

const TIMEOUTS_TO_SUSPECT: u32 = 2;

#[derive(Debug)]
enum State {
    Down,
    /// Connected, or about to be for the first time; the server's clock is not known yet, and so no
    /// `not_after` either. What is to be sent waits.
    Unanchored,
    Up(Anchor),
}

#[derive(Debug)]
struct Request {
    id: RequestId,
    sent: Timestamp,
    give_up: Timestamp,
    origins: Vec<Origin>,
}

/// A reply to one operation, with the server's time.
pub(super) type Answer = Result<(Reply, ServerTime), Error>;

impl Link {
    pub(super) fn new(margin: Margin) -> Self {
        Self {
            state: State::Unanchored,
            rates: Rates::new(margin),
            trouble: None,
            proven: false,
            pace: Pace::due(Timestamp::from_nanos(0)),
            wake: Timestamp::NEVER,
            outbox: Outbox::default(),
            requests: Vec::new(),
            timeouts: 0,
        }
    }

    /// What those are told who wait for a link that there is none of for this reason: nothing was
    /// sent. A refusal is final for a client that was never served, but for another one the next
    /// link may do better: passwords may be changed at the server first.
    fn trouble_of(&self, error: Error) -> Error {
        let message = match error.kind() {
            ErrorKind::Timeout => "the store cannot be reached: it did not answer in time".into(),
            _ if error.is_transient() || !self.proven => return error,
            _ => format!("the store cannot be reached: {error}"),
        };
        Error::with_source(ErrorKind::Unavailable, message, error)
    }
}

impl Engine {
    /// Queues an operation, which leaves at the end of this call of `handle` unless many are under
    /// way. Without a link it waits for one, as long as it may take.
    pub(super) fn send(&mut self, whose: Whose, flight: Flight, command: Command) {
        let Flight {
            attempt, give_up, ..
        } = flight;
        self.link.outbox.push(Outgoing {
            origin: Origin { whose, attempt },
            command,
            give_up,
        });
    }

    pub(super) fn connected(&mut self) {
        self.link.state = State::Unanchored;
        self.link.rates.forget();
        self.link.trouble = None;
        self.link.pace = Pace::due(self.now);
        let error = Error::new(ErrorKind::Unavailable, "the connection was replaced");
        // What still waits for an anchor was never sent, and waits for the new one.
        self.fail_requests(&error);
        self.probe();
        self.retry_all();
    }

    pub(super) fn disconnected(&mut self, error: Error) {
        let error = self.link.trouble_of(error);
        self.link.state = State::Down;
        self.link.trouble = Some(error.clone());
        self.timers
            .set(Timed::Link, &mut self.link.wake, Timestamp::NEVER);
        // What was not sent yet waits for the next link.
        self.fail_requests(&error);
        self.warn_holders(&error);
    }

    /// What is known of the server's clock.
    pub(super) fn anchor(&self) -> Option<Anchor> {
        match self.link.state {
            State::Up(anchor) => Some(anchor),
            State::Unanchored | State::Down => None,
        }
    }

    /// What is allowed for clocks that come apart.
    pub(super) fn margin(&self) -> Margin {
        self.link.rates.margin()
    }

    /// The drift margin, if it had to be widened: an event for readers of all locks.
    pub fn clock_drift(&self) -> Option<LeaseEvent> {
        let drift_margin = self.margin().parts_per_million();
        let widened = drift_margin > self.settings.drift_margin;
        widened.then_some(LeaseEvent::ClockDrift { drift_margin })
    }

    /// Why an attempt has no answer in time: what never left did nothing.
    pub(super) fn why_no_answer(&mut self, attempt: Serial) -> Error {
        if self.has_left(attempt) {
            return Error::no_answer();
        }
        match (&self.link.state, &self.link.trouble) {
            (State::Up(_), _) => never_left(),
            (State::Unanchored | State::Down, Some(error)) => error.clone(),
            (State::Unanchored | State::Down, None) => Error::new(
                ErrorKind::Unavailable,
                "the store cannot be reached: it has not answered yet",
            ),
        }
    }

    pub(super) fn has_left(&mut self, attempt: Serial) -> bool {
        self.link.outbox.find(attempt).is_none()
    }

    /// Takes back an operation that has not left yet: one that never acts.
    pub(super) fn unsend(&mut self, attempt: Serial) -> bool {
        self.link.outbox.take_back(attempt).is_some()
    }

    /// Lets an operation wait on that did not leave in its time: it keeps its turn. Returns until
    /// when; nothing if it left, or if its time is over.
    pub(super) fn wait_on(&mut self, flight: Flight, give_up: Timestamp) -> Option<Flight> {
        let may_leave = give_up > self.now;
        let out = self.link.outbox.find(flight.attempt);
        out.filter(|_| may_leave)?.give_up = give_up;
        Some(Flight { give_up, ..flight })
    }

    pub(super) fn reply(&mut self, request: RequestId, result: Result<BatchReply, Error>) {
        // Whoever waited for a request that is not known any more was told that it failed.
        let mut requests = self.link.requests.iter();
        let Some(place) = requests.position(|sent| sent.id == request) else {
            return;
        };
        let Request { sent, origins, .. } = self.link.requests.remove(place);
        match &result {
            Err(error) if error.is_timeout() => self.timed_out(1),
            Ok(batch) => {
                self.link.timeouts = 0;
                let read_only = |reply: &Result<_, Error>| {
                    reply
                        .as_ref()
                        .is_err_and(|error| error.kind() == ErrorKind::ReadOnly)
                };
                if batch.replies.iter().any(read_only) {
                    self.suspect(Suspicion::Demoted);
                }
            }
            Err(_) => self.link.timeouts = 0,
        }
        match result {
            Ok(batch) => {
                let drifted = self.clock_told(batch.time, sent);
                let mut replies = batch.replies.into_iter();
                for origin in origins {
                    let reply = replies.next().unwrap_or_else(|| {
                        Err(Error::new(
                            ErrorKind::Store,
                            "the server answered less than was asked",
                        ))
                    });
                    self.deliver(origin, Some(sent), reply.map(|reply| (reply, batch.time)));
                }
                if drifted {
                    self.keep_promises();
                }
            }
            Err(error) if origins.is_empty() => self.probe_failed(error),
            Err(error) => {
                for origin in origins {
                    self.deliver(origin, None, Err(error.clone()));
                }
            }
        }
    }

    /// The server's clock said so. Returns whether the drift margin had to be widened.
    fn clock_told(&mut self, time: ServerTime, sent: Timestamp) -> bool {
        let (server, received) = (time, self.now);
        let mark = Mark {
            server,
            sent,
            received,
        };
        // The servers of a cluster have a clock each.
        let one_clock = !self.settings.clustered;
        let drifted = one_clock && self.link.rates.saw(mark);
        let anchor = match self.link.state {
            // What an older answer tells of now rests on the margin.
            State::Up(anchor) if one_clock && !drifted => {
                anchor.refreshed(server, (sent, received), self.margin())
            }
            State::Up(_) | State::Unanchored | State::Down => Anchor::new(server, sent, received),
        };
        self.link.state = State::Up(anchor);
        self.link.trouble = None;
        self.link.proven = true;
        self.timers
            .set(Timed::Link, &mut self.link.wake, Timestamp::NEVER);
        if drifted && let Some(event) = self.clock_drift() {
            self.outputs.push_back(Output::Notice { event });
        }
        drifted
    }

    /// What holders were promised by a margin that was too small: the store is asked for it once more,
    /// and for as much as it takes by the new one.
    fn keep_promises(&mut self) {
        for id in self.contenders_that(|phase| matches!(phase, Phase::Held(_))) {
            self.look(id);
            self.settle(id);
        }
    }

    pub(super) fn link_time(&mut self) {
        self.timers
            .set(Timed::Link, &mut self.link.wake, Timestamp::NEVER);
        if matches!(self.link.state, State::Unanchored) {
            let silent = self.link.trouble_of(Error::no_answer());
            self.link.trouble.get_or_insert(silent);
            self.probe();
        }
    }

    /// Sends what was queued, if the server's clock is known and not too much is under way.
    pub(super) fn flush(&mut self) {
        let now = self.now;
        // A host that is late with its answers must not hold up the rest.
        let before = self.link.requests.len();
        self.link.requests.retain(|request| request.give_up > now);
        let late = before - self.link.requests.len();
        self.timed_out(u32::try_from(late).unwrap_or(u32::MAX));
        let State::Up(anchor) = self.link.state else {
            let trouble = self.link.trouble.clone();
            if let Some(refused) = trouble.filter(|error| !error.is_transient()) {
                self.fail_queued(&refused);
            }
            return;
        };
        let most = if self.settings.clustered {
            MAX_ALONE_IN_FLIGHT
        } else {
            MAX_IN_FLIGHT
        };
        while self.link.requests.len() < most && self.link.outbox.len() > 0 {
            self.send_batch(anchor);
        }
    }

    fn send_batch(&mut self, anchor: Anchor) {
        let (request, margin) = (RequestId(self.next_serial().get()), self.margin());
        let most = self.most_at_once().min(self.link.outbox.len());
        let (mut batch, mut origins) = (Vec::with_capacity(most), Vec::with_capacity(most));
        let (mut give_up, mut bytes) = (self.now, 0);
        while batch.len() < most {
            let fits = |out: &Outgoing| bytes + out.command.size() <= MAX_BATCH_BYTES;
            let Some(out) = self.link.outbox.pop_if(|out| batch.is_empty() || fits(out)) else {
                break;
            };
            bytes += out.command.size();
            give_up = give_up.max(out.give_up);
            origins.push(out.origin);
            batch.push(Op {
                command: out.command,
                not_after: anchor.not_after(out.give_up, margin),
            });
        }
        self.await_reply(request, give_up, origins);
        self.outputs.push_back(Output::Send {
            server: ServerId::ONLY,
            request,
            batch,
            give_up,
        });
    }

    fn timed_out(&mut self, requests: u32) {
        self.link.timeouts += requests;
        if requests > 0 && self.link.timeouts >= TIMEOUTS_TO_SUSPECT {
            self.suspect(Suspicion::Silent);
        }
    }

    fn suspect(&mut self, why: Suspicion) {
        let server = ServerId::ONLY;
        self.outputs.push_back(Output::Suspect { server, why });
    }

    /// How many operations leave in one script call at the most.
    fn most_at_once(&self) -> usize {
        let waiting = self.link.outbox.len();
        match self.settings {
            // The keys of one call have to be on one server of a cluster.
            Settings {
                clustered: true, ..
            } => 1,
            Settings {
                single_threaded: true,
                ..
            } => (waiting / PART).clamp(LEAST_PART, MAX_BATCH),
            _ => MAX_BATCH,
        }
    }

    fn await_reply(&mut self, id: RequestId, give_up: Timestamp, origins: Vec<Origin>) {
        let request = Request {
            id,
            sent: self.now,
            give_up,
            origins,
        };
        self.link.requests.push(request);
    }

    fn probe(&mut self) {
        let request = RequestId(self.next_serial().get());
        let give_up = self.now + self.settings.command_timeout;
        self.await_reply(request, give_up, Vec::new());
        self.outputs.push_back(Output::Send {
            server: ServerId::ONLY,
            request,
            batch: Vec::new(),
            give_up,
        });
        self.timers.set(Timed::Link, &mut self.link.wake, give_up);
    }

    fn probe_failed(&mut self, error: Error) {
        self.link.trouble = Some(self.link.trouble_of(error));
        if matches!(self.link.state, State::Unanchored) {
            let seed = LeaseId(u128::from(self.settings.client.0));
            self.link
                .pace
                .back_off(self.now, FIRST_RETRY, SLOWEST_RETRY, seed);
            let next = self.link.pace.next;
            self.timers.set(Timed::Link, &mut self.link.wake, next);
        }
    }

    fn fail_requests(&mut self, error: &Error) {
        let requests = std::mem::take(&mut self.link.requests);
        for origin in requests.into_iter().flat_map(|request| request.origins) {
            self.deliver(origin, None, Err(error.clone()));
        }
    }

    fn fail_queued(&mut self, error: &Error) {
        // They stay in the outbox meanwhile: what was never sent is in no doubt.
        let queued: Vec<_> = self.link.outbox.origins().collect();
        for origin in queued {
            self.deliver(origin, None, Err(error.clone()));
            self.unsend(origin.attempt);
        }
    }

    /// Tells whoever asked of the answer to what left at that moment, or of its failure.
    fn deliver(&mut self, origin: Origin, sent: Option<Timestamp>, answer: Answer) {
        match origin.whose {
            Whose::Contender(id) => self.contender_answer(id, origin.attempt, sent, answer),
            Whose::Release(id) => self.release_answer(id, origin.attempt, sent, answer),
            Whose::Query(call) => self.query_answer(call, origin.attempt, answer),
        }
    }

    fn contender_answer(
        &mut self,
        id: Short,
        attempt: Serial,
        sent: Option<Timestamp>,
        answer: Answer,
    ) {
        let (flight, acquires) = match self.contenders.get(&id).map(|found| &found.phase) {
            Some(Phase::Acquiring(acquiring)) => (acquiring.flight, true),
            Some(Phase::Held(tenure)) => (tenure.flight, false),
            None => (None, false),
        };
        let flight = flight.filter(|flight| flight.attempt == attempt);
        match flight.map(|flight| flight.left(sent)) {
            Some(flight) if acquires => self.acquiring_answer(id, flight, answer),
            Some(flight) => self.renewal_answer(id, flight, answer),
            None => {
                if let Ok((reply, _)) = &answer {
                    self.resolve_doubt(id, attempt, reply);
                }
            }
        }
        self.settle(id);
    }

    /// Whoever holds a lock is told now that there is no link, and not at its next renewal.
    fn warn_holders(&mut self, error: &Error) {
        let unwarned = |contender: &Contender| match &contender.phase {
            Phase::Held(tenure) => tenure.is_renewed(&contender.spec) && tenure.pace.failures == 0,
            Phase::Acquiring(_) => false,
        };
        let held = self.contenders.iter();
        let held = held.filter(|(_, contender)| unwarned(contender));
        for id in held.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.renewal_failed(id, error.clone());
            self.settle(id);
        }
    }

    fn renew_now(&mut self, which: impl Fn(&Tenure) -> bool) {
        let now = self.now;
        for id in self.contenders_that(|phase| matches!(phase, Phase::Held(held) if which(held))) {
            if let Some((_, tenure)) = self.tenure(id) {
                tenure.pace.next = now;
            }
            self.contender_time(id);
        }
    }

    /// After a reconnect everything that was waiting to try again does so now, and every lease is
    /// renewed: the server may have lost its data.
    fn retry_all(&mut self) {
        self.renew_now(|_| true);
        // Releases first: what is wanted may be what they free.
        let releases: Vec<_> = self.releases.keys().copied().collect();
        for id in releases {
            self.retry_release(id);
        }
        self.ask_again();
        let queries: Vec<_> = self.queries.keys().copied().collect();
        for call in queries {
            self.retry_query(call);
        }
    }
}

fn never_left() -> Error {
    Error::new(
        ErrorKind::Timeout,
        "too much else waits for the store: the request did not leave in time, and did nothing",
    )
}

pub(super) fn came_late() -> Error {
    Error::new(
        ErrorKind::Timeout,
        "the request reached the store too late, and it did nothing",
    )
}

pub(super) fn mismatch() -> Error {
    Error::new(
        ErrorKind::Store,
        "the store answered something else than was asked",
    )
}

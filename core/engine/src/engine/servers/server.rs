//! One server: its connection, the operations sent to it, and the recipients of its replies.

mod sending;

use std::time::Duration;

use super::concurrency::Concurrency;
use super::outbox::{Outbox, Queued};
use super::rates::{Mark, Rates};
use crate::engine::clock::{Anchor, Margin};
use crate::engine::ctx::{Ctx, Origin};
use crate::engine::io::{Output, RequestId, ServerId, Suspicion};
use crate::engine::pace::{Pace, RETRY};
use crate::engine::settings::Settings;
use crate::engine::timers::Timed;
use crate::error::{Error, ErrorKind};
use crate::protocol::{BatchReply, Command, Enter, Incarnation, Inspect, LockKey, Op, Reply};
use crate::time::{ServerTime, Timestamp};
#[cfg(test)]
pub(in crate::engine) use sending::{
    APART, FEW_IN_FLIGHT, LATE, LEAST_HALF, MANY, MAX_ALONE_IN_FLIGHT, MAX_BATCH, MAX_BATCH_BYTES,
    MAX_IN_FLIGHT, NEAR,
};

/// The number of requests in a row without a reply after which the connection is suspected.
const TIMEOUTS_TO_SUSPECT: usize = 2;

/// The first and the longest pause between two suspicions that a server was demoted.
const DEMOTED: (Duration, Duration) = (RETRY.0, Duration::from_secs(5));

/// After this time without a refusal by a replica, the next one counts as the first.
const DEMOTION_OVER: Duration = Duration::from_secs(10);

/// The least time without a reply that makes a connection suspect. A request just before a lease ends has
/// hardly time for a reply.
const LEAST_SILENCE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Server {
    pub(super) id: ServerId,
    state: State,
    rates: Rates,
    /// Why the server's clock is not known, as far as the host said.
    trouble: Option<Error>,
    /// True if the server has ever replied.
    proven: bool,
    /// The pace of requests for the server's clock.
    pace: Pace,
    pub(super) wake: Timestamp,
    pub(super) outbox: Outbox,
    /// The requests in flight, in the order in which they left.
    requests: Vec<Request>,
    concurrency: Concurrency,
    /// The shortest round trip on this connection.
    round_trip: Duration,
    /// The pace of suspicions that the server was demoted.
    demotions: Pace,
    /// The number of requests in a row without a reply in time, and when the first of them left.
    timeouts: usize,
    silent_since: Timestamp,
    /// The check that the server is still in the incarnation that acquisitions are for. Only quorums use it.
    pub(super) meant: Option<Enter>,
    /// True if pushes arrive, and true if the host was asked to subscribe.
    pub(super) hears: bool,
    pub(super) wants_pushes: bool,
}

#[derive(Debug)]
enum State {
    Down,
    /// Connected, or about to be for the first time. The server's clock is not known yet, so no `not_after`
    /// is known either. Operations stay pending.
    Unanchored,
    Up(Anchor),
}

#[derive(Debug)]
pub(crate) struct Request {
    id: RequestId,
    sent: Timestamp,
    give_up: Timestamp,
    /// True if the connection serves nothing else until the copies exist.
    waits: bool,
    /// The senders of the operations. Empty if the request only asks for the clock.
    origins: Vec<Origin>,
    /// The incarnation that the batch's first operation checks, if it has such a check.
    meant: Option<Incarnation>,
}

/// A reply of a server, and its recipients.
#[derive(Debug)]
pub(crate) struct Replied {
    pub(crate) origins: Vec<Origin>,
    pub(crate) sent: Timestamp,
    pub(crate) result: Result<BatchReply, Error>,
    /// True if the drift margin had to be widened.
    pub(crate) drifted: bool,
    /// The incarnation that the server has left.
    pub(crate) forgot: Option<Incarnation>,
}

impl Server {
    pub(super) fn new(id: ServerId, settings: &Settings) -> Self {
        Self {
            id,
            state: State::Unanchored,
            rates: Rates::new(Margin::new(settings.drift_margin)),
            trouble: None,
            proven: false,
            pace: Pace::due_at(Timestamp::from_nanos(0)),
            wake: Timestamp::NEVER,
            outbox: Outbox::default(),
            requests: Vec::new(),
            concurrency: Concurrency::default(),
            round_trip: Duration::MAX,
            demotions: Pace::due_at(Timestamp::from_nanos(0)),
            timeouts: 0,
            silent_since: Timestamp::NEVER,
            meant: None,
            hears: false,
            wants_pushes: false,
        }
    }

    /// Returns the bounds on the server's clock, if they are known.
    pub(super) fn anchor(&self) -> Option<Anchor> {
        match self.state {
            State::Up(anchor) => Some(anchor),
            State::Unanchored | State::Down => None,
        }
    }

    /// Returns the drift margin.
    pub(super) fn margin(&self) -> Margin {
        self.rates.margin()
    }

    /// Returns why pending operations do not leave.
    pub(super) fn why_nothing_leaves(&self) -> Error {
        match (&self.state, &self.trouble) {
            (State::Up(_), _) => never_left(),
            (State::Unanchored | State::Down, Some(error)) => error.clone(),
            (State::Unanchored | State::Down, None) => Error::new(
                ErrorKind::Unavailable,
                "the store cannot be reached: it has not answered yet",
            ),
        }
    }

    /// Adds a pending operation.
    pub(super) fn queue(&mut self, out: Queued) {
        if out.durability.is_none() {
            self.concurrency.asked();
        }
        self.outbox.push(out);
    }

    /// Returns the senders of pending operations. The operations stay pending: one that was never sent leaves
    /// no doubt.
    pub(super) fn queued(&self) -> Vec<Origin> {
        self.outbox.origins().collect()
    }
}

/// The connection.
impl Server {
    pub(super) fn connected(&mut self, cx: &mut Ctx) -> (Vec<Origin>, Error) {
        self.state = State::Unanchored;
        self.rates.forget();
        self.trouble = None;
        self.round_trip = Duration::MAX;
        self.is_heard();
        self.pace = Pace::due_at(cx.now);
        let lost = self.take_requests();
        // A server that needs a key for the request may have no pending operation yet.
        if is_asked_plainly(&cx.settings) {
            self.probe(cx, Vec::new());
        }
        // Operations that wait for an anchor were never sent. They wait for the new one.
        let error = Error::new(ErrorKind::Unavailable, "the connection was replaced");
        (lost, error)
    }

    pub(super) fn disconnected(&mut self, cx: &mut Ctx, error: Error) -> (Vec<Origin>, Error) {
        let error = self.trouble_of(error);
        self.state = State::Down;
        self.trouble = Some(error.clone());
        self.set_timer(cx, Timestamp::NEVER);
        (self.take_requests(), error)
    }

    /// Returns the error for operations that wait for a connection which cannot be made for this reason.
    /// Nothing was sent. A refusal is final for a client that was never served. For any other client the next
    /// connection may succeed, because a password may be changed at the server first.
    fn trouble_of(&self, error: Error) -> Error {
        let message = match error.kind() {
            ErrorKind::Timeout => "the store cannot be reached: it did not answer in time".into(),
            _ if error.is_transient() || !self.proven => return error,
            _ => format!("the store cannot be reached: {error}"),
        };
        Error::with_source(ErrorKind::Unavailable, message, error)
    }

    /// Handles the server's timer. It is set for a request for the clock: for its timeout, or for the next
    /// one. It is also set for a late reply: pending operations stop waiting for it and leave now.
    pub(super) fn time(&mut self, cx: &mut Ctx) {
        self.set_timer(cx, Timestamp::NEVER);
        if matches!(self.state, State::Unanchored) {
            let silent = self.trouble_of(Error::no_answer());
            self.trouble.get_or_insert(silent);
            if is_asked_plainly(&cx.settings) {
                self.probe(cx, Vec::new());
            }
        }
    }

    /// Asks for the server's clock.
    fn probe(&mut self, cx: &mut Ctx, batch: Vec<Op>) {
        let give_up = cx.now + cx.settings.command_timeout;
        self.request(cx, (batch, None, None), give_up, Vec::new());
        self.set_timer(cx, give_up);
    }

    /// Asks a cluster's server for its clock with a key that it has. The operation is past its `not_after`,
    /// so it does nothing.
    fn probe_by(&mut self, cx: &mut Ctx, key: LockKey) {
        let command = Command::Inspect(Inspect { key });
        let not_after = ServerTime::from_micros(0);
        self.probe(cx, vec![Op { command, not_after }]);
    }

    fn probe_failed(&mut self, cx: &mut Ctx, error: Error) {
        self.trouble = Some(self.trouble_of(error));
        if matches!(self.state, State::Unanchored) {
            self.pace.back_off(cx.now, RETRY, cx.seed());
            self.set_timer(cx, self.pace.next);
        }
    }

    fn suspect(&self, cx: &mut Ctx, why: Suspicion) {
        let server = self.id;
        cx.push(Output::Suspect { server, why });
    }

    /// Takes in that this many requests had no reply in time. The first of them left at `sent`.
    fn timed_out(&mut self, cx: &mut Ctx, (requests, sent): (usize, Timestamp)) {
        cx.counts.timed_out(requests);
        // While the connection waits for copies, every other reply is late.
        if requests == 0 || self.waits() {
            return;
        }
        self.timeouts = self.timeouts.saturating_add(requests);
        self.silent_since = self.silent_since.min(sent);
        let least = LEAST_SILENCE.min(cx.settings.command_timeout);
        if self.timeouts >= TIMEOUTS_TO_SUSPECT && cx.now.since(self.silent_since) >= least {
            self.suspect(cx, Suspicion::Silent);
        }
    }

    /// Takes in that the server says it is a replica. While its address leads to no other server, a new connection
    /// is of no use, so the suspicions back off.
    fn is_demoted(&mut self, cx: &mut Ctx) {
        let due = self.demotions.next;
        if cx.now < due {
            return;
        }
        if cx.now.since(due) > DEMOTION_OVER {
            self.demotions = Pace::due_at(cx.now);
        }
        self.demotions.back_off(cx.now, DEMOTED, cx.seed());
        self.suspect(cx, Suspicion::Demoted);
    }

    fn is_heard(&mut self) {
        (self.timeouts, self.silent_since) = (0, Timestamp::NEVER);
    }

    fn set_timer(&mut self, cx: &mut Ctx, at: Timestamp) {
        cx.timers.set(Timed::Server(self.id), &mut self.wake, at);
    }
}

/// Answers.
impl Server {
    /// True for the entry for slots that the host has not named. It stands for several servers, each with its
    /// own clock.
    pub(super) fn has_many_clocks(&self, settings: &Settings) -> bool {
        settings.clustered && self.id == ServerId::ONLY
    }

    pub(super) fn take_request(&mut self, id: RequestId) -> Option<Request> {
        let place = self.requests.iter().position(|sent| sent.id == id)?;
        Some(self.requests.remove(place))
    }

    /// Removes the operations at these places from a request. The rest stays in flight.
    pub(super) fn take_part(&mut self, id: RequestId, places: &[usize]) -> Option<Request> {
        let request = self.requests.iter_mut().find(|sent| sent.id == id)?;
        let origins = std::mem::take(&mut request.origins).into_iter().enumerate();
        let (mut part, mut left) = (Vec::with_capacity(places.len()), Vec::new());
        for (place, origin) in origins {
            if places.binary_search(&place).is_ok() {
                part.push(origin);
            } else {
                left.push(origin);
            }
        }
        request.origins = left;
        Some(Request {
            origins: part,
            ..*request
        })
    }

    fn take_requests(&mut self) -> Vec<Origin> {
        let mut origins = Vec::new();
        for mut request in std::mem::take(&mut self.requests) {
            origins.append(&mut request.origins);
        }
        origins
    }

    /// Takes in the reply to a request. If the request is not known any more, its senders have had its
    /// failure.
    pub(super) fn replied(
        &mut self,
        cx: &mut Ctx,
        request: Option<Request>,
        result: Result<BatchReply, Error>,
    ) -> Replied {
        match &result {
            Err(error) if error.is_timeout() => {
                if let Some(request) = &request {
                    self.timed_out(cx, (1, request.sent));
                }
            }
            answered => {
                self.is_heard();
                if answered
                    .as_ref()
                    .is_ok_and(|batch| batch.replies.iter().any(is_demotion))
                {
                    self.is_demoted(cx);
                }
            }
        }
        let Some(Request {
            sent,
            origins,
            meant,
            waits,
            ..
        }) = request
        else {
            // The reply may still hand a lock over.
            return Replied {
                origins: Vec::new(),
                sent: cx.now,
                result,
                drifted: false,
                forgot: None,
            };
        };
        if !waits {
            self.concurrency.answered(origins.len());
        }
        if result.is_ok() {
            cx.counts.replied(cx.now, sent);
        }
        let drifted = match &result {
            Ok(BatchReply {
                time: Some(time), ..
            }) => self.clock_told(cx, *time, sent),
            Err(error) if origins.is_empty() => {
                self.probe_failed(cx, error.clone());
                false
            }
            Ok(BatchReply { time: None, .. }) | Err(_) => false,
        };
        let (result, forgot) = intact(meant, result);
        Replied {
            origins,
            sent,
            result,
            drifted,
            forgot,
        }
    }

    /// Takes in the time of the server's clock. Returns true if the drift margin had to be widened.
    fn clock_told(&mut self, cx: &mut Ctx, server: ServerTime, sent: Timestamp) -> bool {
        let received = cx.now;
        self.round_trip = self.round_trip.min(received.since(sent));
        let mark = Mark {
            server,
            sent,
            received,
        };
        let one_clock = !self.has_many_clocks(&cx.settings);
        let drifted = one_clock && self.rates.saw(mark);
        let anchor = match self.state {
            // The bounds of an older reply rest on the margin, so they are dropped once it proved too small.
            State::Up(anchor) if one_clock && !drifted => {
                anchor.refreshed(server, (sent, received), self.margin())
            }
            State::Up(_) | State::Unanchored | State::Down => Anchor::new(server, sent, received),
        };
        self.state = State::Up(anchor);
        self.trouble = None;
        self.proven = true;
        self.set_timer(cx, Timestamp::NEVER);
        drifted
    }
}

/// True if a server can be asked for its clock without a key.
fn is_asked_plainly(settings: &Settings) -> bool {
    !settings.clustered || settings.addressed
}

/// Removes the reply to the incarnation check from a batch's replies. If the check failed, the server did
/// nothing of the batch.
fn intact(
    meant: Option<Incarnation>,
    mut result: Result<BatchReply, Error>,
) -> (Result<BatchReply, Error>, Option<Incarnation>) {
    let (Some(_), Ok(batch)) = (meant, &mut result) else {
        return (result, None);
    };
    let checked = (!batch.replies.is_empty()).then(|| batch.replies.remove(0));
    match checked {
        Some(Ok(Reply::Intact | Reply::Late)) => (result, None),
        _ => (Err(Error::forgot()), meant),
    }
}

/// True if the server refuses writes. A primary that became a replica keeps its connections.
fn is_demotion(reply: &Result<Reply, Error>) -> bool {
    let refused = reply.as_ref().err();
    refused.is_some_and(|error| error.kind() == ErrorKind::ReadOnly)
}

fn never_left() -> Error {
    Error::new(
        ErrorKind::Timeout,
        "the request timed out before it was sent: too many pending requests",
    )
}

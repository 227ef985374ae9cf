//! Decides when pending operations leave, and how many of them share a batch.

use std::time::Duration;

use super::{Request, Server, State, is_asked_plainly};
use crate::engine::clock::Anchor;
use crate::engine::ctx::{Ctx, Origin};
use crate::engine::io::{Output, RequestId};
use crate::engine::servers::outbox::Queued;
use crate::engine::settings::Settings;
use crate::error::Error;
use crate::protocol::{Command, Durability, Incarnation, Op};
use crate::time::Timestamp;

/// The most operations in one script call. More would keep the server from other work for too long.
pub(crate) const MAX_BATCH: usize = 128;

/// The approximate limit of keys and arguments in one script call, in bytes.
pub(crate) const MAX_BATCH_BYTES: usize = 65_536;

/// Send a batch once this many operations are pending, even with batches in flight, so that the server and
/// the host work in parallel. With few concurrent callers, half of them suffice. Fewer operations wait for a
/// reply, because every script call costs the client a write and the server a call. With no batch in flight,
/// nothing waits.
pub(crate) const MANY: usize = 32;

/// The least half of concurrent callers that is worth a call of its own.
pub(crate) const LEAST_HALF: usize = 16;

/// The time that a server takes to begin with a batch.
pub(crate) const APART: Duration = Duration::from_micros(50);

/// The number of batches in flight from which on only full ones leave.
pub(crate) const FEW_IN_FLIGHT: usize = 4;

/// The most batches in flight.
pub(crate) const MAX_IN_FLIGHT: usize = 8;

/// The unit of round-trip time. On a slow network, waiting for a reply costs more than a call. So one batch
/// of any size may be in flight for each such unit, besides the first.
pub(crate) const NEAR: Duration = Duration::from_micros(250);

/// The age from which on nothing waits for a reply. The store may be gone, or the host's receiving task may
/// be stuck.
pub(crate) const LATE: Duration = Duration::from_millis(10);

/// The most batches in flight where each batch has one slot only.
pub(crate) const MAX_ALONE_IN_FLIGHT: usize = 64;

impl Server {
    /// Sends pending operations if the server's clock is known and not too many batches are in flight.
    /// Returns the error if none of them can be sent.
    pub(in crate::engine::servers) fn flush(&mut self, cx: &mut Ctx) -> Option<Error> {
        let now = cx.now;
        // A host that reports replies late or never must not block other operations.
        let mut over = (0, now);
        self.requests.retain(|request| {
            let is_over = request.give_up <= now;
            if is_over {
                over = (over.0 + 1, over.1.min(request.sent));
            }
            !is_over
        });
        self.timed_out(cx, over);
        let State::Up(anchor) = self.state else {
            return self.flush_unanchored(cx);
        };
        while self.outbox.len() > 0 && self.outbox.len() >= self.least_to_leave(cx) {
            let under_way = self.under_way().map(|request| request.origins.len());
            let under_way = under_way.sum::<usize>();
            self.concurrency.leaves(under_way + self.outbox.len());
            let most = self.most_to_leave(cx);
            self.send_batch(cx, anchor, None, most);
        }
        if let Some(durability) = self.outbox.next_durability()
            && !self.waits()
        {
            self.send_batch(cx, anchor, Some(durability), MAX_BATCH);
        }
        if self.outbox.len() > 0 && !cx.settings.by_slots() {
            self.time_late_reply(cx);
        }
        if self.requests.is_empty() {
            self.concurrency.idles();
        }
        None
    }

    /// Sets a timer for the time at which pending operations stop waiting for a late reply.
    fn time_late_reply(&mut self, cx: &mut Ctx) {
        let oldest = self.under_way().next();
        let late = oldest.map_or(Timestamp::NEVER, |request| request.sent + LATE);
        if late > cx.now && late != self.wake {
            self.set_timer(cx, late);
        }
    }

    /// Returns the number of pending operations from which on a batch leaves now.
    fn least_to_leave(&self, cx: &Ctx) -> usize {
        let under_way = self.under_way().count();
        let (any_size, most) = if cx.settings.by_slots() {
            (MAX_ALONE_IN_FLIGHT, MAX_ALONE_IN_FLIGHT)
        } else {
            (self.any_size_in_flight(cx.now), MAX_IN_FLIGHT)
        };
        match under_way {
            _ if under_way >= most => usize::MAX,
            _ if under_way < any_size => 1,
            _ if under_way < FEW_IN_FLIGHT && !self.would_join(cx.now) => {
                self.concurrency.half(MANY)
            }
            _ => MAX_BATCH,
        }
    }

    /// True if a batch that leaves now would reach the server together with the last one. Half of many
    /// callers then gain nothing by a call of their own, so they leave at the reply.
    fn would_join(&self, now: Timestamp) -> bool {
        let last = self.under_way().last();
        self.concurrency.half(MANY) >= LEAST_HALF
            && last.is_some_and(|last| now < last.sent + APART)
    }

    /// Returns the most operations of the next batch. If all callers ask at once, half of them leave first,
    /// so that the store and the host both have work. On a slow network that is not worth another call.
    fn most_to_leave(&self, cx: &Ctx) -> usize {
        let half = self.concurrency.half(MAX_BATCH);
        let is_near = self.any_size_in_flight(cx.now) == 1;
        if half >= LEAST_HALF && is_near && self.under_way().next().is_none() {
            half
        } else {
            MAX_BATCH
        }
    }

    /// Returns how many batches of any size may be in flight before the next operations wait for a reply.
    fn any_size_in_flight(&self, now: Timestamp) -> usize {
        let oldest = self.under_way().next();
        let awaited = oldest.map_or(Duration::ZERO, |request| now.since(request.sent));
        let way = if awaited < LATE {
            self.round_trip
        } else {
            awaited
        };
        usize::try_from(1 + way.as_nanos() / NEAR.as_nanos()).unwrap_or(usize::MAX)
    }

    /// True if the connection waits for copies.
    pub(super) fn waits(&self) -> bool {
        self.requests.iter().any(|request| request.waits)
    }

    /// Returns the requests in flight that do not need copies.
    fn under_way(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| !request.waits)
    }

    /// True if more operations are likely to join the pending ones at once: callers that were answered
    /// together ask together again.
    pub(in crate::engine::servers) fn expects_more(&self, settings: &Settings) -> bool {
        !settings.by_slots()
            && self.requests.is_empty()
            && self.concurrency.is_more_than(self.outbox.len(), MANY)
    }

    fn flush_unanchored(&mut self, cx: &mut Ctx) -> Option<Error> {
        let refused = self.trouble.clone().filter(|error| !error.is_transient());
        let asks = !is_asked_plainly(&cx.settings)
            && refused.is_none()
            && matches!(self.state, State::Unanchored)
            && self.requests.is_empty()
            && self.pace.next <= cx.now;
        if asks && let Some(key) = self.outbox.first_key() {
            self.probe_by(cx, key);
        }
        refused
    }

    fn send_batch(
        &mut self,
        cx: &mut Ctx,
        anchor: Anchor,
        durability: Option<Durability>,
        most: usize,
    ) {
        let margin = self.margin();
        let room = most.min(self.outbox.len());
        // In a cluster, the keys of one call have to be in one slot, unless the host splits calls.
        let by_slots = cx.settings.by_slots() || cx.settings.clustered && durability.is_some();
        let mut slot = None;
        let (mut batch, mut origins) = (Vec::with_capacity(room), Vec::with_capacity(room));
        let (mut give_up, mut bytes) = (cx.now, 0);
        while batch.len() < most {
            let fits = |queued: &Queued| {
                bytes + queued.command.size() <= MAX_BATCH_BYTES
                    && (!by_slots || slot.is_some() && queued.slot() == slot)
                    && have_alike_time(give_up.since(cx.now), queued.give_up.since(cx.now))
            };
            let is_first = batch.is_empty();
            let Some(queued) = self
                .outbox
                .pop_if(durability, |queued| is_first || fits(queued))
            else {
                break;
            };
            if is_first && by_slots {
                slot = queued.slot();
            }
            bytes += queued.command.size();
            give_up = give_up.max(queued.give_up);
            origins.push(queued.origin);
            batch.push(Op {
                command: queued.command,
                not_after: anchor.not_after(queued.give_up, margin),
            });
        }
        let meant = self.check_first(&mut batch);
        self.request(cx, (batch, meant, durability), give_up, origins);
    }

    /// Puts a check in front of acquisitions: that the server has forgotten nothing.
    fn check_first(&self, batch: &mut Vec<Op>) -> Option<Incarnation> {
        let check = self.meant.as_ref()?;
        let acquires = |op: &Op| matches!(op.command, Command::Acquire(_));
        let not_after = batch.iter().find(|op| acquires(op))?.not_after;
        let command = Command::Enter(check.clone());
        batch.insert(0, Op { command, not_after });
        Some(check.incarnation)
    }

    pub(super) fn request(
        &mut self,
        cx: &mut Ctx,
        (batch, meant, durability): (Vec<Op>, Option<Incarnation>, Option<Durability>),
        give_up: Timestamp,
        origins: Vec<Origin>,
    ) {
        let id = RequestId(cx.next_serial().get());
        cx.counts.sent(batch.len());
        self.requests.push(Request {
            id,
            sent: cx.now,
            give_up,
            waits: durability.is_some(),
            origins,
            meant,
        });
        cx.push(Output::Send {
            server: self.id,
            request: id,
            batch,
            durability,
            give_up,
        });
    }
}

/// True if two times are within a factor of two. A batch does nothing once its first operation has no time
/// left. So an operation with much less or much more time than the others leaves without them.
fn have_alike_time(one: Duration, other: Duration) -> bool {
    one <= other * 2 && other <= one * 2
}

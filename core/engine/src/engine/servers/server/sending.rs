//! When what waits for a server leaves, and how much of it together.

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

/// The most operations that leave in one script call, so that it does not keep the server from
/// other work for long.
pub(crate) const MAX_BATCH: usize = 128;

/// About how many bytes of keys and arguments leave in one script call.
pub(crate) const MAX_BATCH_BYTES: usize = 65_536;

/// So many operations leave at the latest although batches are under way, so that the store works on one
/// while the host takes in the other. With few concurrent callers, half of them leave. Fewer wait for a reply, because
/// every script call costs the client a write and the server a call. With none under way nothing waits.
pub(crate) const MANY: usize = 32;

/// The least half of concurrent callers that is worth a call of its own.
pub(crate) const LEAST_HALF: usize = 16;

/// A store takes so long to begin with a batch.
pub(crate) const APART: Duration = Duration::from_micros(50);

/// With so many batches under way only full ones leave.
pub(crate) const FEW_IN_FLIGHT: usize = 4;

/// How many batches may be under way at the most.
pub(crate) const MAX_IN_FLIGHT: usize = 8;

/// Where a round trip takes long, to wait for a reply costs more than a call: for each time that this
/// goes into it, one batch of any size may be under way beside the first.
pub(crate) const NEAR: Duration = Duration::from_micros(250);

/// Nothing waits for a reply that is so late: the store may be gone, or the task that is to take it in
/// does not run.
pub(crate) const LATE: Duration = Duration::from_millis(10);

/// The same where operations leave one by one.
pub(crate) const MAX_ALONE_IN_FLIGHT: usize = 64;

impl Server {
    /// Sends what was queued, if the server's clock is known and not too much is under way. Returns
    /// why all of it waits in vain, if it does.
    pub(in crate::engine::servers) fn flush(&mut self, cx: &mut Ctx) -> Option<Error> {
        let now = cx.now;
        // A host that is late with its answers, or never answers, must not hold up the rest.
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

    /// What waits for a reply leaves without it once that is late.
    fn time_late_reply(&mut self, cx: &mut Ctx) {
        let oldest = self.under_way().next();
        let late = oldest.map_or(Timestamp::NEVER, |request| request.sent + LATE);
        if late > cx.now && late != self.wake {
            self.set_timer(cx, late);
        }
    }

    /// How many operations have to wait for a batch of them to leave now.
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

    /// Whether what leaves now comes to the store together with the last batch, and is answered with it:
    /// then half of many callers gain nothing by a call of their own, and better leaves at the reply.
    fn would_join(&self, now: Timestamp) -> bool {
        let last = self.under_way().last();
        self.concurrency.half(MANY) >= LEAST_HALF
            && last.is_some_and(|last| now < last.sent + APART)
    }

    /// How many operations leave together. If all callers ask at once, half of them leave first, so
    /// that the store and the host both have work. Where the way is long that is not worth a further call.
    fn most_to_leave(&self, cx: &Ctx) -> usize {
        let half = self.concurrency.half(MAX_BATCH);
        let is_near = self.any_size_in_flight(cx.now) == 1;
        if half >= LEAST_HALF && is_near && self.under_way().next().is_none() {
            half
        } else {
            MAX_BATCH
        }
    }

    /// How many batches may be under way before what comes next waits for their replies.
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

    /// Whether the connection waits for copies.
    pub(super) fn waits(&self) -> bool {
        self.requests.iter().any(|request| request.waits)
    }

    /// All else that was sent.
    fn under_way(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| !request.waits)
    }

    /// Whether what waits is likely to become more at once: those who were answered together ask
    /// together again.
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
        // The keys of one call have to be in one slot of a cluster, unless the host can do without.
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

    /// With acquisitions the server first checks that it has forgotten nothing.
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

/// A batch does nothing once the first of it has no time left. So one that has much less than the
/// others, or much more, leaves without them.
fn have_alike_time(one: Duration, other: Duration) -> bool {
    one <= other * 2 && other <= one * 2
}

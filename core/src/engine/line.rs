//! Waiting in line: when to ask again, and what the store tells without being asked.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Engine;
use super::contender::Phase;
use super::io::{LockSpec, Output, ServerId};
use super::pace::jitter_at;
use super::release::Doubt;
use super::table::Short;
use super::tenure::Tenure;
use crate::event::LossReason;
use crate::protocol::{Claim, ClientId, Grant, HalfId, LeaseId, News, Push};
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;

/// How often a place in line is confirmed: half of the lock's time to live, within these bounds.
const FASTEST_HEARTBEAT: Duration = Duration::from_secs(1);
const SLOWEST_HEARTBEAT: Duration = Duration::from_secs(5);

/// Those behind the first ask so much later each when the holder's lease should be over, so that
/// the first few do if it is dead too, and the many do not at all.
const STAGGER: Duration = Duration::from_millis(100);

/// What the engine knows of pushes, and of those who wait for one.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Whether the store can be heard.
    subscribed: bool,
    /// Whether the host was told to subscribe.
    wanted: bool,
}

pub(super) fn heartbeat(ttl: Duration) -> Duration {
    (ttl / 2).clamp(FASTEST_HEARTBEAT, SLOWEST_HEARTBEAT)
}

/// Two heartbeats may fail before a place in line is lost. Half of it is longer than one, since a
/// grant of which nobody hears is good for that.
fn window(ttl: Duration) -> Duration {
    heartbeat(ttl) * 12 / 5
}

impl LockSpec {
    /// What an acquisition of this lock asks with.
    pub(super) fn claim(&self, client: ClientId, lease: LeaseId) -> Claim {
        Claim {
            lease,
            client,
            owner: self.owner.clone(),
            counter: self.counter,
            window: window(self.ttl),
        }
    }
}

impl Engine {
    /// The store can be heard, for the first time, or again after something may have been missed:
    /// waiters ask, and holders look.
    pub(super) fn subscribed(&mut self) {
        self.line.subscribed = true;
        self.ask_again();
        let now = self.now;
        let is_older = |phase: &Phase| matches!(phase, Phase::Held(tenure) if tenure.began < now);
        for id in self.contenders_that(is_older) {
            self.look(id);
            self.settle(id);
        }
    }

    /// Nothing is heard for now: waiters ask soon, though not at once, as this may come often.
    pub(super) fn unsubscribed(&mut self) {
        if !std::mem::take(&mut self.line.subscribed) {
            return;
        }
        let soon = self.now + FASTEST_HEARTBEAT;
        for id in self.contenders_that(|phase| matches!(phase, Phase::Acquiring(_))) {
            if let Some((_, acquiring)) = self.acquiring(id) {
                acquiring.pace.next = acquiring.pace.next.min(soon);
            }
            self.settle(id);
        }
    }

    /// Asks the host for pushes once there is something that they could be about.
    pub(super) fn want_pushes(&mut self) {
        if !std::mem::replace(&mut self.line.wanted, true) {
            self.outputs.push_back(Output::Subscribe {
                server: ServerId::ONLY,
            });
        }
    }

    pub(super) fn pushed(&mut self, push: Push) {
        let Some(lease) = self.lease_of(push.lease) else {
            return;
        };
        // What does not open was made by a stranger: anybody may publish.
        match push.open(lease) {
            Some(News::Granted { held, time }) => {
                let id = Short::of(lease);
                match self.acquiring(id) {
                    Some(_) => self.granted(id, held, time),
                    // It was cancelled, and a late attempt of it was handed the lock.
                    None => self.hasten_release(lease),
                }
            }
            Some(News::Revoked { token }) => self.taken_away(lease, token, LossReason::Revoked),
            Some(News::Superseded { token }) => {
                self.taken_away(lease, token, LossReason::Superseded);
            }
            None => {}
        }
    }

    /// The lease of this locker that a push may be about.
    fn lease_of(&self, half: HalfId) -> Option<LeaseId> {
        let id = Short::from(half);
        let contender = self.contenders.get(&id).map(|contender| &contender.phase);
        match contender {
            Some(Phase::Acquiring(acquiring)) => Some(acquiring.lease),
            Some(Phase::Held(tenure)) => Some(tenure.lease),
            None => Some(self.releases.get(&id)?.lease()),
        }
    }

    /// Everyone who wants a lock asks now.
    pub(super) fn ask_again(&mut self) {
        for id in self.contenders_that(|phase| matches!(phase, Phase::Acquiring(_))) {
            self.ask_now(id);
        }
    }

    /// When a waiter that was told its place asks again.
    pub(super) fn next_ask(
        &self,
        spec: &LockSpec,
        lease: LeaseId,
        at_expiry: Option<Timestamp>,
        place: Option<NonZeroU32>,
    ) -> Timestamp {
        let pause = if self.line.subscribed {
            heartbeat(spec.ttl)
        } else {
            FASTEST_HEARTBEAT
        };
        let heartbeat = self.now + jitter_at(pause, lease, self.now);
        let ahead = place.map_or(0, |place| place.get() - 1);
        let turn = at_expiry.map_or(Timestamp::NEVER, |at| at + STAGGER * ahead);
        heartbeat.min(turn)
    }

    /// The lock was handed to this waiter, which need not ask any more: the clocks tell its
    /// deadline. It renews at once, since the store gave it only the time to take the lock up.
    fn granted(&mut self, id: Short, held: Grant, time: ServerTime) {
        // Another server's clock says nothing of the time of this one's grant.
        let anchor = self.anchor().filter(|_| !self.settings.clustered);
        let (now, margin) = (self.now, self.margin());
        let Some((spec, acquiring)) = self.acquiring(id) else {
            return;
        };
        // If the store said later that somebody else has the lock, it was over by then; and what
        // seems to be of the future is told by a clock that was set, and says nothing.
        let is_over = acquiring.refused.is_some_and(|at| at > time);
        let granted_at = anchor.map(|anchor| anchor.not_before(time, margin));
        let Some(at) = granted_at.filter(|at| *at <= now && !is_over) else {
            return self.ask_now(id);
        };
        // The store promises no more than this to one whom it has not heard of.
        let promised = spec.ttl.min(window(spec.ttl) / 2);
        let expires = held.expires.min(time + promised);
        let deadline = margin.deadline(at, time, expires);
        let (spec, lease) = (spec.clone(), acquiring.lease);
        let mut tenure = Tenure::new(&spec, lease, held.token, at, deadline);
        if tenure.is_over(&spec, now) {
            return self.ask_now(id);
        }
        tenure.unconfirmed = true;
        tenure.set_doubt(self.doubt_of_acquiring(id));
        self.start_tenure(id, tenure);
        self.renew(id);
        self.settle(id);
    }

    fn ask_now(&mut self, id: Short) {
        let now = self.now;
        let flight = self.acquiring(id).and_then(|(_, asks)| asks.flight);
        let has_left = flight.is_some_and(|flight| self.has_left(flight.attempt));
        let Some((_, acquiring)) = self.acquiring(id) else {
            return;
        };
        // What is under way may have been answered before whatever happened now.
        acquiring.asks_again |= has_left;
        acquiring.pace.next = now;
        self.contender_time(id);
    }

    /// A push proves nothing: if the store still has the lock, it need not keep it to its expiry.
    pub(super) fn give_back_at_loss(&mut self, id: Short) {
        let now = self.now;
        if let Some((_, tenure)) = self.tenure(id) {
            tenure.set_doubt(Some(tenure.doubt().unwrap_or(Doubt::until(now))));
        }
    }

    fn taken_away(&mut self, lease: LeaseId, token: FencingToken, reason: LossReason) {
        let id = Short::of(lease);
        let Some(contender) = self.contenders.get_mut(&id) else {
            return;
        };
        match &mut contender.phase {
            // A push may overtake an answer, which comes by another connection.
            Phase::Acquiring(acquiring) if acquiring.lease == lease => {
                acquiring.taken_away = Some((token, reason));
            }
            Phase::Held(tenure) if (tenure.lease, tenure.token) == (lease, token) => {
                self.give_back_at_loss(id);
                self.lose(id, reason);
            }
            _ => {}
        }
    }
}

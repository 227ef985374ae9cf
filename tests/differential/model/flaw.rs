//! Models that are wrong on purpose.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_engine::protocol::{
    Acquire, AskYield, Claim, ClientId, Command, Counter, ForceRelease, Grant, Inspect, LeaseId,
    List, LockKey, News, Op, Pattern, Push, Reclaim, Release, Renew, Reply, Retire,
};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{Error, FencingToken, MemoryServer, Owner};

use super::{Model, claim, former_token};
use crate::samples::{self, FLOOR, NAMESPACE};

/// The flaw of a model.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    Nothing,
    /// A renewal of a free lock takes it.
    RenewalTakesGone,
    /// A renewal raises the last token though another lease has the lock.
    RaisesForStrangers,
    /// Tokens are counted without the clock.
    NoClockFloor,
    /// Operations ignore `not_after`.
    ActsLate,
    /// Any client's release frees the lock.
    ReleasesForOthers,
    /// A retry of an acquisition gets a new token.
    RetryTakesNewToken,
    /// A reclaim keeps its former self's token.
    ReclaimKeepsToken,
    /// A reclaim takes over any tenure that its owner has by then.
    ReclaimsAnyTenure,
    /// A renewal reports an extension and does not extend the lock.
    ForgetsRenewals,
    /// A release reports that it freed the lock and does not free it.
    KeepsReleased,
    /// The last waiter is served first.
    LastComesFirst,
    /// The lock is handed to dead waiters.
    ServesTheDead,
    /// A waiter that asks again goes to the end of the line.
    ReaskLosesPlace,
    /// A free lock goes to a newcomer and not to a waiter.
    Overtakes,
    /// The push of a grant has the previous tenure's token.
    GrantKeepsToken,
    /// A grant that no client heard blocks the lock as long as one that was heard.
    UnheardKeepsWindow,
    /// A waiter that releases stays in line.
    ReleaseStaysInLine,
    /// A stranger's release of a free lock does not hand it to the next waiter.
    StrangersReleaseHandsNothingOn,
    /// A retirement ends any tenure.
    RetiresAnybody,
    /// A retirement frees the lock.
    RetirementFrees,
    /// A repeated retirement keeps the name taken for longer.
    RetiresAgain,
    /// An acceptance takes the lock from whoever has it by then.
    AcceptsAnybody,
    /// A repeated acceptance is told that somebody else has the lock.
    RefusesRepeatedAcceptance,
    /// A forced release frees the lock whoever holds it by then.
    ForceReleasesAnybody,
    /// A forced release is not pushed to the holder.
    SilentRevocation,
    /// A request to yield goes to whoever holds the lock by then.
    AsksAnybody,
    /// A request to yield is not pushed to the holder.
    SilentRequest,
    /// A renewal does not report the request to yield.
    HidesRequests,
    /// A request to yield that ends sooner does not replace a pending one.
    KeepsPatientRequest,
    /// A reclaim is not pushed to the earlier incarnation.
    SilentReclaim,
    /// Clients that are not subscribed get pushes, too.
    TellsEverybody,
    /// Pushes are sealed with a value that every client knows.
    SealsWithHalf,
    /// Dead waiters count as waiting.
    CountsTheDead,
    /// Places in line are counted from 0.
    CountsPlacesFromNone,
    /// A list contains all names.
    ListsEverything,
    /// A release does not report that it handed the lock to its own client.
    HidesHandovers,
}

impl Flaw {
    pub(crate) const ALL: [Flaw; 36] = [
        Flaw::RenewalTakesGone,
        Flaw::RaisesForStrangers,
        Flaw::NoClockFloor,
        Flaw::ActsLate,
        Flaw::ReleasesForOthers,
        Flaw::RetryTakesNewToken,
        Flaw::ReclaimKeepsToken,
        Flaw::ReclaimsAnyTenure,
        Flaw::ForgetsRenewals,
        Flaw::KeepsReleased,
        Flaw::LastComesFirst,
        Flaw::ServesTheDead,
        Flaw::ReaskLosesPlace,
        Flaw::Overtakes,
        Flaw::GrantKeepsToken,
        Flaw::UnheardKeepsWindow,
        Flaw::ReleaseStaysInLine,
        Flaw::StrangersReleaseHandsNothingOn,
        Flaw::RetiresAnybody,
        Flaw::RetirementFrees,
        Flaw::RetiresAgain,
        Flaw::AcceptsAnybody,
        Flaw::RefusesRepeatedAcceptance,
        Flaw::ForceReleasesAnybody,
        Flaw::SilentRevocation,
        Flaw::AsksAnybody,
        Flaw::SilentRequest,
        Flaw::HidesRequests,
        Flaw::KeepsPatientRequest,
        Flaw::SilentReclaim,
        Flaw::TellsEverybody,
        Flaw::SealsWithHalf,
        Flaw::CountsTheDead,
        Flaw::CountsPlacesFromNone,
        Flaw::ListsEverything,
        Flaw::HidesHandovers,
    ];

    /// Returns a text that the report of the difference contains.
    pub(crate) fn shows(self) -> &'static str {
        match self {
            Self::SilentRevocation
            | Self::SilentRequest
            | Self::SilentReclaim
            | Self::TellsEverybody
            | Self::SealsWithHalf
            | Self::GrantKeepsToken => "the pushes: the server sent",
            _ => "the model",
        }
    }

    /// Returns true if a push of the model goes out. The push may be changed.
    pub(super) fn lets_through(self, push: &mut Push, is_listening: bool) -> bool {
        match (self, &mut push.news) {
            (Self::SilentRevocation, News::Revoked { .. })
            | (Self::SilentRequest, News::Wanted { .. })
            | (Self::SilentReclaim, News::Superseded { .. }) => false,
            (Self::UnheardKeepsWindow, _) => is_listening,
            (Self::GrantKeepsToken, News::Granted { grant, .. }) => {
                let former = FencingToken::new(grant.token.get() - 1);
                grant.token = former.unwrap_or(grant.token);
                true
            }
            (Self::SealsWithHalf, news) => {
                *push = Push::new(LeaseId(u128::from(push.lease.0) << 64), *news);
                true
            }
            _ => true,
        }
    }
}

impl Model {
    pub(super) fn flawed(&mut self, now: ServerTime, op: &Op) -> Result<Reply, Error> {
        let mut op = op.clone();
        if self.flaw == Flaw::ActsLate {
            op.not_after = now;
        }
        let before = self.memory.clone();
        if now <= op.not_after {
            self.mislead(now, &mut op.command);
        }
        let reply = self.one(now, op.clone());
        if now > op.not_after {
            return reply;
        }
        self.spoil(now, &op, reply, before)
    }

    /// Changes the command, or the state that it will find.
    fn mislead(&mut self, now: ServerTime, command: &mut Command) {
        let holder = command.key().and_then(|key| self.lease_of(now, key));
        let frees = match &*command {
            Command::Release(Release { claim, .. }) => holder == Some(claim.lease),
            _ => holder.is_some(),
        };
        match (&mut *command, self.flaw) {
            (Command::ForceRelease(ForceRelease { key, token }), Flaw::ForceReleasesAnybody)
            | (Command::AskYield(AskYield { key, token, .. }), Flaw::AsksAnybody) => {
                *token = former_token(&self.memory, now, key).unwrap_or(*token);
            }
            (Command::Retire(retire), Flaw::RetiresAnybody) => {
                if let Some(tenure) = self.memory.tenure(now, &retire.key) {
                    (retire.lease, retire.token) = (tenure.lease, tenure.token);
                }
            }
            (Command::Accept(accept), Flaw::AcceptsAnybody) => {
                if let Some(tenure) = self.memory.tenure(now, &accept.key) {
                    (accept.lease, accept.token) = (tenure.lease, tenure.token);
                }
            }
            (Command::AskYield(ask), Flaw::KeepsPatientRequest) => {
                let tenure = self.memory.tenure(now, &ask.key);
                let request = tenure.and_then(|tenure| tenure.request.as_ref());
                if let Some(request) = request.filter(|request| request.until > now) {
                    let left = request.until.since(now) + Duration::from_millis(1);
                    ask.within = ask.within.max(left);
                }
            }
            (Command::Acquire(acquire), Flaw::NoClockFloor) => {
                acquire.claim.counter = Counter::Dense;
            }
            (Command::Acquire(acquire), Flaw::ReclaimsAnyTenure) => {
                let held = former_token(&self.memory, now, &acquire.key);
                acquire.reclaims = held.map_or(acquire.reclaims, Reclaim::From);
            }
            (Command::Acquire(acquire), Flaw::RetryTakesNewToken) => {
                let (key, claim) = (acquire.key.clone(), acquire.claim.clone());
                if self.lease_of(now, &key) == Some(claim.lease) && self.line(now, &key).is_empty()
                {
                    let token = None;
                    let release = Command::Release(Release {
                        key,
                        claim,
                        token,
                        completes: false,
                    });
                    self.memory.execute(now, &samples::batch([release]));
                }
            }
            (Command::Acquire(acquire), Flaw::ReaskLosesPlace) if acquire.waits => {
                let (key, claim) = (acquire.key.clone(), &acquire.claim);
                if self
                    .lease_of(now, &key)
                    .is_some_and(|lease| lease != claim.lease)
                {
                    self.leave(now, &key, claim);
                }
            }
            (
                Command::Release(Release { key, .. })
                | Command::ForceRelease(ForceRelease { key, .. }),
                Flaw::LastComesFirst,
            ) if frees => {
                let (key, line) = (key.clone(), self.line(now, key));
                let others = line.iter().rev().skip(1).map(|place| claim(&place.member));
                for other in others.collect::<Vec<_>>() {
                    self.leave(now, &key, &other);
                }
            }
            (
                Command::Release(Release { key, .. })
                | Command::ForceRelease(ForceRelease { key, .. }),
                Flaw::ServesTheDead,
            ) => {
                let key = key.clone();
                let dead = self
                    .line(now, &key)
                    .into_iter()
                    .filter(|place| place.is_dead(now));
                for place in dead.collect::<Vec<_>>() {
                    self.revive(now, &key, claim(&place.member));
                }
            }
            (Command::Renew(renew), Flaw::RaisesForStrangers) => self.raise(now, renew.clone()),
            (Command::List(List { pattern, .. }), Flaw::ListsEverything) => {
                *pattern = Pattern::new(NAMESPACE, "*").expect("a valid pattern");
            }
            (_, Flaw::UnheardKeepsWindow | Flaw::TellsEverybody) => {
                self.subscribe_all(now, command);
            }
            _ => {}
        }
    }

    /// Changes the reply.
    fn spoil(
        &mut self,
        now: ServerTime,
        op: &Op,
        reply: Result<Reply, Error>,
        before: MemoryServer,
    ) -> Result<Reply, Error> {
        let reply = reply?;
        match (self.flaw, &op.command, &reply) {
            (Flaw::RenewalTakesGone, Command::Renew(_), Reply::Gone) => self.take_gone(now, op),
            (Flaw::ReleasesForOthers, Command::Release(Release { key, .. }), Reply::Taken)
            | (Flaw::RetirementFrees, Command::Retire(Retire { key, .. }), Reply::Released) => {
                self.memory.delete(key);
                Ok(Reply::Released)
            }
            (Flaw::RetiresAgain, Command::Retire(retire), Reply::Released) => {
                let lease = before.tenure(now, &retire.key).map(|tenure| tenure.lease);
                if lease == Some(Retire::NO_LEASE) {
                    let (key, counter) = (retire.key.clone(), retire.counter);
                    let renewal = Renew {
                        key,
                        lease: Retire::NO_LEASE,
                        token: retire.token,
                        counter,
                        ttl: retire.ttl + Duration::from_secs(20_000),
                        floor: None,
                    };
                    let renewal = samples::batch([Command::Renew(renewal)]);
                    self.memory.execute(now, &renewal);
                }
                Ok(Reply::Released)
            }
            (Flaw::RefusesRepeatedAcceptance, Command::Accept(accept), Reply::Held(_)) => {
                let lease = before.tenure(now, &accept.key).map(|tenure| tenure.lease);
                if lease == Some(accept.claim.lease) {
                    Ok(Reply::Taken)
                } else {
                    Ok(reply)
                }
            }
            (Flaw::ReclaimKeepsToken, Command::Acquire(acquire), Reply::Held(held)) => {
                let token = former_token(&before, now, &acquire.key).unwrap_or(held.token);
                Ok(Reply::Held(Grant { token, ..*held }))
            }
            (Flaw::Overtakes, Command::Acquire(acquire), Reply::Busy { .. })
                if before.tenure(now, &acquire.key).is_none() =>
            {
                let token = former_token(&self.memory, now, &acquire.key);
                let token = token.expect("the lock was handed over");
                let expires = now + acquire.claim.ttl;
                Ok(Reply::Held(Grant { token, expires }))
            }
            (Flaw::HidesRequests, _, Reply::Wanted { expires, .. }) => {
                Ok(Reply::Renewed { expires: *expires })
            }
            (Flaw::HidesHandovers, _, Reply::HandedOver { .. }) => Ok(Reply::Released),
            (Flaw::CountsPlacesFromNone, _, Reply::Busy { expires, place }) => Ok(Reply::Busy {
                expires: *expires,
                place: place.and_then(|place| (place.get() - 1).try_into().ok()),
            }),
            (Flaw::CountsTheDead, Command::Inspect(Inspect { key }), Reply::Inspected(seen)) => {
                let mut seen = seen.clone();
                let all = self.line(now, key).len();
                seen.waiting = u32::try_from(all).expect("few wait");
                Ok(Reply::Inspected(seen))
            }
            (Flaw::ForgetsRenewals, Command::Renew(_), Reply::Renewed { .. })
            | (
                Flaw::KeepsReleased,
                Command::Release(_),
                Reply::Released | Reply::HandedOver { .. },
            )
            | (Flaw::ReleaseStaysInLine, Command::Release(_), Reply::Taken)
            | (Flaw::StrangersReleaseHandsNothingOn, Command::Release(_), Reply::Gone) => {
                self.memory = before;
                Ok(reply)
            }
            _ => Ok(reply),
        }
    }

    fn take_gone(&mut self, now: ServerTime, op: &Op) -> Result<Reply, Error> {
        let Command::Renew(Renew {
            key, lease, ttl, ..
        }) = &op.command
        else {
            return Ok(Reply::Gone);
        };
        let claim = Claim {
            lease: *lease,
            client: ClientId(1),
            owner: Owner::labelled("renewal").expect("a valid label"),
            counter: FLOOR,
            ttl: *ttl,
            window: Duration::from_secs(12),
        };
        let command = Command::Acquire(Acquire {
            key: key.clone(),
            claim,
            waits: false,
            reclaims: Reclaim::Never,
        });
        let not_after = op.not_after;
        match self.one(now, Op { command, not_after })? {
            Reply::Held(Grant { expires, .. }) => Ok(Reply::Renewed { expires }),
            other => Ok(other),
        }
    }

    /// Raises the token in the name of the lock's holder.
    fn raise(&mut self, now: ServerTime, mut renew: Renew) {
        if let Some(tenure) = self.tenure(now, &renew.key) {
            (renew.lease, renew.token, renew.ttl) = (tenure.lease, tenure.token, Duration::ZERO);
            self.memory
                .execute(now, &samples::batch([Command::Renew(renew)]));
        }
    }

    /// Removes a claim from the line of a held lock; on a free lock a release would hand it on.
    fn leave(&mut self, now: ServerTime, key: &LockKey, claim: &Claim) {
        let holder = self.lease_of(now, key);
        if holder.is_some_and(|holder| holder != claim.lease) {
            let (key, claim) = (key.clone(), claim.clone());
            let token = None;
            let leave = Command::Release(Release {
                key,
                claim,
                token,
                completes: false,
            });
            self.memory.execute(now, &samples::batch([leave]));
        }
    }

    /// Asks again for a waiter, unless that would take the lock.
    fn revive(&mut self, now: ServerTime, key: &LockKey, claim: Claim) {
        let mut tried = self.memory.clone();
        let ask = Command::Acquire(Acquire {
            key: key.clone(),
            claim,
            waits: true,
            reclaims: Reclaim::Never,
        });
        let answer = tried.execute(now, &samples::batch([ask]));
        if matches!(answer.replies[..], [Ok(Reply::Busy { .. })]) {
            self.memory = tried;
        }
    }

    /// Subscribes every client that the command may concern.
    fn subscribe_all(&mut self, now: ServerTime, command: &Command) {
        let Some(key) = command.key() else { return };
        let line = self.line(now, key);
        let mut clients: BTreeSet<ClientId> = line
            .iter()
            .map(|place| claim(&place.member).client)
            .collect();
        clients.extend(self.memory.tenure(now, key).map(|tenure| tenure.client));
        for client in clients {
            self.memory.subscribe(client);
        }
    }

    fn one(&mut self, now: ServerTime, op: Op) -> Result<Reply, Error> {
        let mut answer = self.memory.execute(now, &[op]);
        answer.replies.pop().expect("one reply to one operation")
    }
}

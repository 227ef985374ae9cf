//! Promises that are broken on purpose, to see that the checks notice.

use std::num::NonZeroU32;

use leasehold_engine::Error;
use leasehold_engine::protocol::{
    Acquire, Claim, ClientId, Command, LeaseId, LockKey, Op, Reclaim, Release, Renew, Reply,
};
use leasehold_engine::time::ServerTime;

use crate::line::lease_of_claim;
use crate::plan::{Pushes, Topology};
use crate::world::World;

/// A way to break a promise on purpose.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Sabotage {
    /// No sabotage: the promises must hold.
    None,
    /// The server acts however late a command comes.
    NotAfterIgnored,
    /// The program goes on for one time to live after its deadline.
    DeadlinesIgnored,
    /// A host's clock runs slower than the drift margin allows for.
    SlowClocks,
    /// The servers' clocks run faster than the drift margin allows for.
    FastServers,
    /// Manual renewals ask the engine for twice as long as the program wants.
    RenewalsForLonger,
    /// A renewal takes a lock that is free or another holder's.
    RenewalsTake,
    /// Tokens are counted from 1 again after the store lost its data.
    TokensFallBack,
    /// The host is told the time half a second late.
    TicksWithheld,
    /// The server frees a job when its tick is completed, and forgets the tick.
    CompletionsForgotten,
    /// No release reaches the server, and all are confirmed.
    ReleasesForgotten,
    /// A release hands the lock to the last waiter.
    LastFirst,
    /// The host believes that the server's clock is 0.9 seconds behind. For this to matter, no renewal is in
    /// time, and grants are short because no subscriber is counted. A lease that the host believes that much
    /// longer ends after the lock went on; with a longer grant, half of the window would make up for it.
    WrongAnchor,
    /// Waiters that leave the line stay in it.
    LeavesForgotten,
    /// After a waiter's first request nothing that it asks reaches the server, and no push reaches a waiter.
    HeartbeatsForgotten,
    /// The subscription is reported before it is made.
    EarlyBarrier,
    /// A forced release frees the lock whoever holds it by then.
    ForceReleasesAnybody,
    /// A request to yield goes to whoever holds the lock by then.
    AsksAnybody,
    /// An owner takes over any tenure that its owner has by then; at a quorum's members, any holder's.
    ReclaimsAnyTenure,
    /// The answers of each server of a cluster are attributed to another server.
    AnswersMisnamed,
    /// The pushes of each of two servers are attributed to the other one, whose clock is 0.9 seconds away.
    /// The rest is as in `WrongAnchor`.
    PushesMisnamed,
    /// Programs go on for as long as any server still has their lease.
    LatestDeadline,
    /// Renewals raise no counter, and report none as raised.
    NothingRaised,
    /// A server takes a new request of a host for one that the host gave back before.
    ReleasesMixedUp,
    /// A server that forgot claims that it did so long ago.
    NoQuarantine,
    /// The other servers judge how long a server that forgot has been there by its own clock.
    OneClock,
    /// A server reports a loss of data only to clients that connect.
    NothingChecked,
    /// A server that restarts with old data takes itself for the earlier process.
    ProcessesMixedUp,
    /// The engine does not know the longest time of a lease.
    AgesForgotten,
    /// A release frees a name that is to stay taken.
    NamesNotKept,
    /// An accept takes the lock from whoever has it by then.
    AcceptsAnyTenure,
    /// Programs go on under leases that they passed on.
    SendersGoOn,
    /// A ticket does not tell when its lease reaches its age.
    TicketsAgeless,
    /// A release of a permit that is gone counts as one of another permit.
    StoreCounts,
    /// Two holders are told the same slot.
    SlotsTwice,
    /// Readers take a name although a writer waits for it.
    ReadersOvertake,
    /// Each client sets the capacity that it asks for.
    ClientsCapacity,
    /// A shrink ends the permits that do not fit any more.
    ShrinksRevoke,
    /// A renewal extends all permits of its process.
    RenewsByProcess,
    /// Readers are not told of the last writer.
    GenerationsForgotten,
}

impl Sabotage {
    /// Returns whether it only shows without other faults (`true`) or only with them (`false`).
    pub(crate) fn calm(self, topology: Topology) -> Option<bool> {
        match self {
            Self::None => None,
            // At a quorum, votes that could not be given back are checked only if nothing else went wrong.
            Self::ReleasesForgotten => Some(topology == Topology::Quorum),
            Self::LastFirst
            | Self::LeavesForgotten
            | Self::HeartbeatsForgotten
            | Self::EarlyBarrier => Some(true),
            _ => Some(false),
        }
    }

    /// True if it only shows when servers forget.
    pub(crate) fn loses(self) -> bool {
        matches!(
            self,
            Self::NoQuarantine | Self::OneClock | Self::NothingChecked | Self::ProcessesMixedUp
        )
    }

    /// Returns whether it needs jobs (`true`) or locks (`false`).
    pub(crate) fn jobs(self) -> Option<bool> {
        match self {
            Self::None => None,
            _ => Some(self == Self::CompletionsForgotten),
        }
    }

    /// True if it needs programs that keep locks, and renewals that come too late.
    pub(crate) fn holds_long(self) -> bool {
        matches!(self, Self::WrongAnchor | Self::PushesMisnamed)
    }

    pub(crate) fn pushes(self) -> Option<Pushes> {
        match self {
            Self::HeartbeatsForgotten => Some(Pushes::Lost),
            Self::WrongAnchor | Self::PushesMisnamed => Some(Pushes::Uncounted),
            _ => None,
        }
    }

    /// Returns the time to live that it needs, by its index.
    pub(crate) fn ttl(self) -> Option<u64> {
        match self {
            Self::WrongAnchor | Self::PushesMisnamed => Some(5),
            Self::EarlyBarrier => Some(4),
            _ => None,
        }
    }
}

/// The sabotage of a server.
impl World {
    /// Returns the answer that a sabotaged run gives without the server and without the checks.
    pub(crate) fn withheld(&self, op: &Op) -> Option<Reply> {
        match (self.plan.sabotage, &op.command) {
            (Sabotage::HeartbeatsForgotten, Command::Acquire(acquire)) => {
                let place = self.checks.lines.place(&acquire.key, acquire.claim.lease)?;
                let place = u32::try_from(place)
                    .ok()
                    .and_then(|place| NonZeroU32::new(place + 1));
                let expires = self.time_at(&acquire.key);
                Some(Reply::Busy { expires, place })
            }
            (Sabotage::LeavesForgotten, Command::Release(Release { key, claim, .. })) => {
                self.checks.lines.place(key, claim.lease)?;
                Some(Reply::Taken)
            }
            (sabotage, Command::Renew(_)) if sabotage.holds_long() => Some(Reply::Late),
            _ => None,
        }
    }

    /// Executes a command, changed if this run is sabotaged.
    pub(crate) fn sabotaged(
        &mut self,
        time: ServerTime,
        (host, server): (usize, usize),
        op: &Op,
    ) -> Result<Reply, Error> {
        if let Command::Acquire(Acquire { claim, waits, .. }) = &op.command
            && *waits
            && self.plan.sabotage == Sabotage::LastFirst
        {
            let claims = &mut self.servers[server].claims;
            claims.insert(claim.lease, claim.clone());
        }
        if let Some(reply) = self.sabotaged_part(time, server, op) {
            return reply;
        }
        let mut op = op.clone();
        match (self.plan.sabotage, &mut op.command) {
            (Sabotage::NotAfterIgnored, _) => op.not_after = time,
            (_, Command::Enter(enter)) => {
                let enter = enter.clone();
                let reply = self.does(time, server, op)?;
                return Ok(self.mistaken(&enter, reply));
            }
            (Sabotage::ForceReleasesAnybody, Command::ForceRelease(force)) => {
                let holder = self.stored_at(server, &force.key);
                force.token = holder.map_or(force.token, |(_, token)| token);
            }
            (Sabotage::AsksAnybody, Command::AskYield(ask)) => {
                let holder = self.stored_at(server, &ask.key);
                ask.token = holder.map_or(ask.token, |(_, token)| token);
            }
            (Sabotage::AcceptsAnyTenure, Command::Accept(accept)) => {
                let holder = self.stored_at(server, &accept.key);
                (accept.lease, accept.token) = holder.unwrap_or((accept.lease, accept.token));
            }
            (Sabotage::ReclaimsAnyTenure, Command::Acquire(acquire)) => {
                self.reclaims_any(server, acquire);
            }
            (Sabotage::NothingRaised, Command::Renew(renew)) => renew.floor = None,
            (Sabotage::ReleasesMixedUp, Command::Release(release)) => {
                let stored = self.stored_at(server, &release.key).map(|(lease, _)| lease);
                let same = |lease: &LeaseId| lease.half() == release.claim.lease.half();
                release.claim.lease = stored.filter(same).unwrap_or(release.claim.lease);
                // The token names the tenure that was meant, so it would protect every other one.
                release.token = None;
            }
            (Sabotage::RenewalsTake, Command::Renew(renew)) if time <= op.not_after => {
                op.command = self.acquire_instead(host, renew);
                return match self.does(time, server, op) {
                    Ok(Reply::Held(held)) => Ok(Reply::Renewed {
                        expires: held.expires,
                    }),
                    _ => Ok(Reply::Taken),
                };
            }
            (Sabotage::CompletionsForgotten, Command::Release(release)) => {
                release.completes = false;
            }
            (Sabotage::NamesNotKept, Command::Retire(retire)) => {
                let key = retire.key.clone();
                let reply = self.does(time, server, op);
                if reply == Ok(Reply::Released) {
                    self.servers[server].store.delete(&key);
                }
                return reply;
            }
            (Sabotage::ReleasesForgotten, Command::Release(_)) => return Ok(Reply::Released),
            (Sabotage::LastFirst, Command::Release(Release { key, claim, .. }))
                if self
                    .stored_at(server, key)
                    .is_some_and(|(holder, _)| holder == claim.lease) =>
            {
                let key = key.clone();
                return self.last_first(time, server, (&key, op));
            }
            _ => {}
        }
        self.does(time, server, op)
    }

    /// Lets a reclaim take any tenure of its owner; at a quorum, any holder's.
    fn reclaims_any(&self, server: usize, acquire: &mut Acquire) {
        let is_quorum = self.plan.is_quorum();
        let takes = !is_quorum || acquire.claim.owner.is_reclaimable();
        if let Some(holder) = self.holder(server, &acquire.key).filter(|_| takes) {
            acquire.reclaims = Reclaim::From(holder.token);
            if is_quorum {
                acquire.claim.owner = holder.owner;
            }
        }
    }

    fn acquire_instead(&mut self, host: usize, renew: &Renew) -> Command {
        Command::Acquire(Acquire {
            key: renew.key.clone(),
            claim: Claim {
                lease: renew.lease,
                ttl: renew.ttl,
                window: renew.ttl,
                ..self.claim(host, ClientId(1))
            },
            waits: false,
            reclaims: Reclaim::Never,
        })
    }

    /// Returns some claim of a host.
    pub(crate) fn claim(&mut self, host: usize, client: ClientId) -> Claim {
        let spec = self.plan.spec(&mut self.random, host, self.now);
        Claim {
            lease: LeaseId(0),
            client,
            owner: spec.owner.clone(),
            counter: spec.counter,
            ttl: spec.ttl,
            window: spec.ttl,
        }
    }

    pub(crate) fn does(&mut self, time: ServerTime, server: usize, op: Op) -> Result<Reply, Error> {
        let store = &mut self.servers[server].store;
        store.execute(time, &[op]).replies.remove(0)
    }

    /// Executes a release while all waiters except the last are away.
    fn last_first(
        &mut self,
        time: ServerTime,
        server: usize,
        (key, op): (&LockKey, Op),
    ) -> Result<Reply, Error> {
        let line = self.servers[server].store.line_value(time, key);
        let members = line.map(|(members, _)| members).unwrap_or_default();
        let claims = &self.servers[server].claims;
        let of = |claim: &str| claims.get(&lease_of_claim(claim)?).cloned();
        let mut claims: Vec<_> = members.iter().filter_map(|(claim, ..)| of(claim)).collect();
        claims.pop();
        let not_after = op.not_after;
        for claim in &claims {
            let (key, claim, token) = (key.clone(), claim.clone(), None);
            let command = Command::Release(Release {
                key,
                claim,
                token,
                completes: false,
            });
            let _ = self.does(time, server, Op { command, not_after });
        }
        let reply = self.does(time, server, op);
        for claim in claims {
            let command = Command::Acquire(Acquire {
                key: key.clone(),
                claim,
                waits: true,
                reclaims: Reclaim::Never,
            });
            let _ = self.does(time, server, Op { command, not_after });
        }
        reply
    }
}

//! Faults that are built in on purpose, each of which breaks one promise.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_engine::FencingToken;
use leasehold_engine::protocol::{
    Acquire, BatchReply, Claim, Command, Counter, Grant, LeaseId, News, Op, Push, Reclaim, Release,
    Reply,
};
use leasehold_engine::testing::{LOCK, key};
use leasehold_engine::time::ServerTime;

use crate::world::World;

/// A fault of the server, the engine's host, or the program.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    None,
    /// A lease counts from the reply, not from the request.
    CountsFromReply,
    /// The program goes on for one time to live after its deadline.
    GoesOn,
    /// The host tells its engine the time half a second late.
    TicksLate,
    /// A loss is not told.
    LossesUntold,
    /// The engine asks for twice the time that the program wants.
    RenewsForLonger,
    /// Each acquisition of a client has the same lease ID.
    LeaseIdsAgain,
    /// The server acts however late a request comes.
    ActsLate,
    /// A release frees the lock of whoever holds it.
    ReleasesAnybody,
    /// A release of a waiter leaves it in line.
    LeavesForgotten,
    /// A renewal takes a free lock again.
    RenewalsTake,
    /// Tokens count from 1, also after the server lost its data.
    TokensFallBack,
    /// A lock that is handed over keeps the token of its last holder.
    TokensStandStill,
    /// A waiter counts as alive for a minute, dead or not.
    LivenessIgnored,
    /// A release hands the lock to the last waiter.
    LastFirst,
    /// An acquisition that does not wait takes a free lock although others wait.
    TriesOvertake,
    /// A repeated acquisition ends the tenure that it repeats, and counts as another one.
    RepeatsCountTwice,
    /// The only server loses its data, and exclusion is checked all the same. A server of a quorum loses only the lock,
    /// so nobody notices.
    DataLost,
    /// A server of a quorum votes for each client that asks.
    VotesTwice,
}

/// The memory of the faults.
#[derive(Debug, Default)]
pub(crate) struct Forged {
    /// The claims that the server has seen.
    claims: BTreeMap<LeaseId, Claim>,
    /// The token of the first tenure.
    first: Option<FencingToken>,
}

impl World {
    /// Executes a batch at a server. The first one has the fault of this world.
    pub(crate) fn serve(&mut self, server: usize, batch: &[Op]) -> BatchReply {
        let (fault, now) = (self.plan.fault, self.host.time(server));
        if fault == Fault::None || server > 0 {
            return self.host.servers[server].execute(now, batch);
        }
        let mut batch = batch.to_vec();
        let mut forged = None;
        for op in &mut batch {
            forged = forged.or(self.forge(now, op));
        }
        let mut reply = self.host.servers[0].execute(now, &batch);
        if let Some(forged) = forged {
            reply.time = Some(now);
            reply.replies = vec![Ok(forged)];
        }
        for (op, reply) in batch.iter().zip(&mut reply.replies) {
            if let Some(vote) = self.vote(now, op, reply.as_ref().ok()) {
                *reply = Ok(vote);
            }
        }
        for reply in reply.replies.iter_mut().flatten() {
            let (Reply::Held(grant) | Reply::HandedOver { grant, .. }) = reply else {
                continue;
            };
            let first = *self.forged.first.get_or_insert(grant.token);
            if fault == Fault::TokensStandStill {
                grant.token = first;
            }
        }
        reply
    }

    /// Changes an operation, or returns the reply to give in place of the server's.
    fn forge(&mut self, now: ServerTime, op: &mut Op) -> Option<Reply> {
        let tenure = self.stored(0).tenure;
        if let Command::Acquire(acquire) = &op.command {
            let claim = acquire.claim.clone();
            self.forged.claims.insert(claim.lease, claim);
        }
        match (self.plan.fault, &mut op.command) {
            (Fault::ActsLate, _) => op.not_after = now,
            (Fault::ReleasesAnybody, Command::Release(release)) => {
                self.leave(now, release.claim.clone());
                release.claim.lease = tenure.map_or(release.claim.lease, |(lease, _)| lease);
            }
            (Fault::LeavesForgotten, Command::Release(release)) => {
                let waits = |claim: &Claim| claim.lease == release.claim.lease;
                if self.checks.line.iter().any(|waiting| waits(&waiting.claim)) {
                    op.command =
                        Command::Inspect(leasehold_engine::protocol::Inspect { key: key(LOCK) });
                    return Some(Reply::Taken);
                }
            }
            (Fault::RenewalsTake, Command::Renew(renew))
                if tenure.is_none() && now <= op.not_after =>
            {
                let claim = self.forged.claims.get(&renew.lease)?.clone();
                let expires = now + claim.ttl;
                op.command = acquire(claim);
                return Some(Reply::Renewed { expires });
            }
            (Fault::TokensFallBack, Command::Acquire(acquire)) => {
                acquire.claim.counter = Counter::Dense;
            }
            (Fault::LivenessIgnored, Command::Acquire(acquire)) => {
                acquire.claim.window = Duration::from_secs(60);
            }
            (Fault::LastFirst, Command::Release(release)) => {
                let line = self.line();
                let holds = tenure.is_some_and(|(lease, _)| lease == release.claim.lease);
                if holds && let Some((_, others)) = line.split_last() {
                    for claim in others {
                        self.leave(now, claim.clone());
                    }
                }
            }
            (Fault::TriesOvertake, Command::Acquire(acquire))
                if !acquire.waits && tenure.is_none() =>
            {
                let line = self.line();
                for claim in line {
                    self.leave(now, claim);
                }
            }
            (Fault::RepeatsCountTwice, Command::Acquire(acquire))
                if tenure.is_some_and(|(lease, _)| lease == acquire.claim.lease)
                    && now <= op.not_after =>
            {
                self.leave(now, acquire.claim.clone());
            }
            _ => {}
        }
        None
    }

    /// Returns the vote of a server that votes twice, in place of its refusal.
    fn vote(&self, now: ServerTime, op: &Op, reply: Option<&Reply>) -> Option<Reply> {
        let (Fault::VotesTwice, Command::Acquire(acquire), Some(Reply::Busy { .. })) =
            (self.plan.fault, &op.command, reply)
        else {
            return None;
        };
        let Reclaim::Propose(token) = acquire.reclaims else {
            return None;
        };
        let expires = now + acquire.claim.ttl;
        Some(Reply::Held(Grant { token, expires }))
    }

    /// Returns the claims in line, as the checks know them.
    fn line(&self) -> Vec<Claim> {
        let line = self.checks.line.iter();
        line.map(|waiting| waiting.claim.clone()).collect()
    }

    /// Takes a claim from the line, or from the lock.
    fn leave(&mut self, now: ServerTime, claim: Claim) {
        let release = Release {
            key: key(LOCK),
            claim,
            token: None,
            completes: false,
        };
        let command = Command::Release(release);
        let not_after = now;
        self.host.servers[0].execute(now, &[Op { command, not_after }]);
    }

    /// Returns a push as the fault of this world makes it.
    pub(crate) fn pushed(&self, push: Push) -> Push {
        let claims = self.forged.claims.keys();
        let lease = claims.copied().find(|lease| lease.half() == push.lease);
        match (self.plan.fault, push.news, lease, self.forged.first) {
            (
                Fault::TokensStandStill,
                News::Granted { mut grant, time },
                Some(lease),
                Some(token),
            ) => {
                grant.token = token;
                Push::new(lease, News::Granted { grant, time })
            }
            _ => push,
        }
    }
}

fn acquire(claim: Claim) -> Command {
    Command::Acquire(Acquire {
        key: key(LOCK),
        claim,
        waits: false,
        reclaims: Reclaim::Never,
    })
}

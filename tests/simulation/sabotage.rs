//! Promises that are broken on purpose at the server, to see that the checks notice.

use std::num::NonZeroU32;

use leasehold::Error;
use leasehold::protocol::{
    Acquire, Claim, Command, ForceRelease, LockKey, Op, Reclaim, Release, Renew, Reply,
};
use leasehold::time::ServerTime;

use crate::plan::Sabotage;
use crate::world::World;

impl World {
    /// What is answered without the server, and without the checks, in a run that is to do it
    /// wrong.
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

    /// Executes a command, unless this run is to do it wrong.
    pub(crate) fn sabotaged(
        &mut self,
        time: ServerTime,
        host: usize,
        op: &Op,
    ) -> Result<Reply, Error> {
        let Op { command, not_after } = op;
        let mut op = op.clone();
        match (self.plan.sabotage, command) {
            (Sabotage::NotAfterIgnored, _) => op.not_after = time,
            (
                Sabotage::ForceReleasesAnybody,
                Command::ForceRelease(ForceRelease { key, token }),
            ) => {
                let holder = self.stored(key).map(|(_, token)| token);
                op.command = Command::ForceRelease(ForceRelease {
                    key: key.clone(),
                    token: holder.unwrap_or(*token),
                });
            }
            (Sabotage::ReclaimsAnyTenure, Command::Acquire(acquire)) => {
                let holder = self.stored(&acquire.key).map(|(_, token)| token);
                op.command = Command::Acquire(Acquire {
                    reclaims: holder.map_or(acquire.reclaims, Reclaim::From),
                    ..acquire.clone()
                });
            }
            (
                Sabotage::RenewalsTake,
                Command::Renew(Renew {
                    key, lease, ttl, ..
                }),
            ) if time <= *not_after => {
                let spec = self.plan.spec(&mut self.random, host);
                op.command = Command::Acquire(Acquire {
                    key: key.clone(),
                    claim: Claim {
                        lease: *lease,
                        client: leasehold::protocol::ClientId(1),
                        owner: spec.owner.clone(),
                        counter: spec.counter,
                        ttl: *ttl,
                        window: *ttl,
                    },
                    waits: false,
                    reclaims: Reclaim::Never,
                });
                return match self.server_does(time, op) {
                    Ok(Reply::Held(held)) => Ok(Reply::Renewed {
                        expires: held.expires,
                    }),
                    _ => Ok(Reply::Taken),
                };
            }
            (Sabotage::ReleasesForgotten, Command::Release(_)) => return Ok(Reply::Released),
            (Sabotage::LastFirst, Command::Release(Release { key, claim, .. }))
                if self
                    .stored(key)
                    .is_some_and(|(holder, _)| holder == claim.lease) =>
            {
                let key = key.clone();
                return self.last_first(time, &key, op);
            }
            _ => {}
        }
        self.server_does(time, op)
    }

    fn server_does(&mut self, time: ServerTime, op: Op) -> Result<Reply, Error> {
        let server = op.command.key().map_or(0, |key| self.server_of(key));
        let store = &mut self.servers[server].store;
        store.execute(time, &[op]).replies.remove(0)
    }

    /// A release, while all but the last in line are away.
    fn last_first(&mut self, time: ServerTime, key: &LockKey, op: Op) -> Result<Reply, Error> {
        let mut claims = self.checks.lines.claims(key);
        claims.pop();
        let not_after = op.not_after;
        for claim in &claims {
            let (key, claim, token) = (key.clone(), claim.clone(), None);
            let command = Command::Release(Release { key, claim, token });
            let _ = self.server_does(time, Op { command, not_after });
        }
        let reply = self.server_does(time, op);
        for claim in claims {
            let acquire = Acquire {
                key: key.clone(),
                claim,
                waits: true,
                reclaims: Reclaim::Never,
            };
            let command = Command::Acquire(acquire);
            let _ = self.server_does(time, Op { command, not_after });
        }
        reply
    }
}

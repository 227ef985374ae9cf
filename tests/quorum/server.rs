//! One server: a store, a clock, and what it does with a batch.

use std::collections::{BTreeMap, VecDeque};

use leasehold::protocol::{
    Acquire, Claim, Command, ForceRelease, LeaseId, LockKey, Op, Reclaim, Release, Renew, Reply,
};
use leasehold::time::ServerTime;
use leasehold::{Error, MemoryServer};

use crate::book::Book;
use crate::clock::{Moment, ServerClock};
use crate::host::{Sent, SharedSent};
use crate::plan::Sabotage;
use crate::world::World;

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) store: MemoryServer,
    pub(crate) clock: ServerClock,
    /// How far its clock was set back, in all.
    pub(crate) behind: Moment,
    /// How far it is behind because it began late, in microseconds; that is set right soon.
    pub(crate) late_by: u64,
    /// Until when nobody can reach it.
    pub(crate) out_until: Moment,
    pub(crate) frozen: bool,
    /// What it would begin anew with.
    pub(crate) saved: Option<MemoryServer>,
    /// When it last forgot something.
    pub(crate) lost: Option<Moment>,
    /// It is known to have forgotten nothing since.
    pub(crate) is_known: bool,
    /// What came while it was frozen.
    pub(crate) inbox: VecDeque<SharedSent>,
    /// Of those that wait for a lock.
    claims: BTreeMap<LeaseId, Claim>,
}

impl Server {
    pub(crate) fn new(clock: ServerClock) -> Self {
        Self {
            store: MemoryServer::new(),
            clock,
            behind: 0,
            late_by: 0,
            out_until: 0,
            frozen: false,
            saved: None,
            lost: None,
            is_known: false,
            inbox: VecDeque::new(),
            claims: BTreeMap::new(),
        }
    }
}

/// The lease id of a claim as the store keeps it.
pub(crate) fn lease_of_claim(claim: &str) -> Option<LeaseId> {
    claim.get(27..59)?.parse().ok()
}

impl World {
    pub(crate) fn time_of(&self, server: usize) -> ServerTime {
        self.servers[server].clock.at(self.now)
    }

    /// Executes one operation, and looks what it did.
    pub(crate) fn execute(&mut self, sent: &Sent, op: &Op) -> Result<Reply, Error> {
        let (host, server) = (sent.host, sent.server);
        let time = self.time_of(server);
        let before = op.command.key().map(|key| {
            let last = self.servers[server].store.last_token(time, key);
            (self.stored(server, key), last)
        });
        let holder = op.command.key().and_then(|key| self.holder(server, key));
        let reply = self.sabotaged(time, server, op);
        if reply == Ok(Reply::Late) {
            self.checks.saw("came late");
            return reply;
        }
        self.check_in_time(sent, op, &reply);
        self.look_at_taking(server, (&op.command, &reply), holder);
        let (Some(key), Some((before, last))) = (op.command.key(), before) else {
            return reply;
        };
        match &op.command {
            Command::Enter(_) => {
                if let Ok(reply) = &reply {
                    self.look_at_entry(server, reply);
                }
            }
            Command::Acquire(Acquire { claim, waits, .. }) => {
                if *waits {
                    let claims = &mut self.servers[server].claims;
                    claims.insert(claim.lease, claim.clone());
                    self.checks.saw("stood in line");
                }
                let after = self.stored(server, key);
                let granted = before != after && after.is_some_and(|(by, _)| by == claim.lease);
                if granted {
                    self.is_given(server, key, claim.lease);
                    self.look_at_grant(host, claim.lease);
                }
            }
            Command::Renew(_) if self.servers[server].store.last_token(time, key) > last => {
                self.checks.saw("raised");
            }
            Command::Release(Release { claim, .. }) => {
                let had = before.is_some_and(|(by, _)| by == claim.lease);
                if had {
                    self.look_at_return(host, claim.lease);
                }
            }
            _ => {}
        }
        reply
    }

    /// I6: nothing is done once the host has given it up. A release frees what is its own lease's,
    /// however late: nobody counts on that any more.
    fn check_in_time(&mut self, sent: &Sent, op: &Op, reply: &Result<Reply, Error>) {
        let acts = match &op.command {
            Command::Acquire(acquire) => acquire.waits || matches!(reply, Ok(Reply::Held(_))),
            Command::Renew(_) => matches!(reply, Ok(Reply::Renewed { .. })),
            _ => false,
        };
        let now = self.hosts[sent.host].clock.at(self.now);
        let server = &self.servers[sent.server];
        let is_behind = server.behind > 0 || server.late_by > 0;
        let in_time = !acts || now <= sent.give_up || is_behind;
        self.checks.ensure("I6", in_time, || {
            let late = now.since(sent.give_up);
            format!("{late:?} after it was given up a server executed {op:?}")
        });
    }

    /// A server gave its lock to a host.
    fn look_at_grant(&mut self, host: usize, lease: LeaseId) {
        let book = &self.hosts[host].book;
        let Some(lease) = book.whole(lease) else {
            return;
        };
        let of = |lock: &crate::book::LockState| {
            let held = lock.held.as_ref();
            held.is_some_and(|held| held.lease == lease)
        };
        let contender = book.contender(lease).and_then(|id| book.locks.get(&id));
        let gave_up = book.left.iter().any(|(_, left)| *left == lease);
        if contender.is_some_and(of) {
            self.checks.saw("taken in again");
        } else if gave_up {
            self.checks.saw("cancelled in doubt");
        }
    }

    /// A server was given back what never was a lease.
    fn look_at_return(&mut self, host: usize, lease: LeaseId) {
        let book = &self.hosts[host].book;
        let Some(lease) = book.whole(lease) else {
            return;
        };
        let contender = book.contender(lease).and_then(|id| book.locks.get(&id));
        let is_used = contender.is_some_and(|lock| lock.held.is_some() || lock.releasing.is_some());
        if !is_used && !book.ended.contains(&lease) {
            self.checks.saw("short of a majority");
        }
    }
}

impl Book {
    /// The acquisition that a server knows by this id, of which half is the same.
    pub(crate) fn whole(&self, lease: LeaseId) -> Option<LeaseId> {
        let from = LeaseId(lease.0 >> 64 << 64);
        let mut from = self.attempts.range(from..).map(|(lease, _)| *lease);
        from.next().filter(|found| found.half() == lease.half())
    }
}

/// What a server does wrong on purpose.
impl World {
    fn sabotaged(&mut self, time: ServerTime, server: usize, op: &Op) -> Result<Reply, Error> {
        let sabotage = self.plan.sabotage;
        let mut op = op.clone();
        if sabotage == Sabotage::NotAfterIgnored {
            op.not_after = time;
        }
        match (sabotage, &op.command) {
            (_, Command::Enter(enter)) => {
                let enter = enter.clone();
                let reply = self.does(time, server, op)?;
                Ok(self.mistaken(&enter, reply))
            }
            (Sabotage::NothingRaised, Command::Renew(renew)) => {
                let renew = Renew {
                    floor: None,
                    ..renew.clone()
                };
                op.command = Command::Renew(renew);
                self.does(time, server, op)
            }
            (Sabotage::ReleasesMixedUp, Command::Release(release)) => {
                let mut release = release.clone();
                let stored = self.stored(server, &release.key).map(|(lease, _)| lease);
                let same = |lease: &LeaseId| lease.half() == release.claim.lease.half();
                release.claim.lease = stored.filter(same).unwrap_or(release.claim.lease);
                // It would save the tenure: it is of the one that was meant.
                release.token = None;
                op.command = Command::Release(release);
                self.does(time, server, op)
            }
            (Sabotage::ForcesAnyTenure, Command::ForceRelease(force)) => {
                let stored = self.stored(server, &force.key).map(|(_, token)| token);
                op.command = Command::ForceRelease(ForceRelease {
                    key: force.key.clone(),
                    token: stored.unwrap_or(force.token),
                });
                self.does(time, server, op)
            }
            (Sabotage::ReclaimsAnyTenure, Command::Acquire(acquire)) => {
                let holder = self.holder(server, &acquire.key);
                let mut acquire = acquire.clone();
                if acquire.claim.owner.is_reclaimable()
                    && let Some(holder) = holder
                {
                    acquire.claim.owner = holder.owner;
                    acquire.reclaims = Reclaim::From(holder.token);
                }
                op.command = Command::Acquire(acquire);
                self.does(time, server, op)
            }
            (Sabotage::ReleasesForgotten, Command::Release(_)) => Ok(Reply::Released),
            (Sabotage::LastFirst, Command::Release(Release { key, claim, .. }))
                if self
                    .stored(server, key)
                    .is_some_and(|(holder, _)| holder == claim.lease) =>
            {
                let key = key.clone();
                self.last_first(time, server, (&key, op))
            }
            _ => self.does(time, server, op),
        }
    }

    fn does(&mut self, time: ServerTime, server: usize, op: Op) -> Result<Reply, Error> {
        let store = &mut self.servers[server].store;
        store.execute(time, &[op]).replies.remove(0)
    }

    /// A release, while all but the last in line are away.
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
            let command = Command::Release(Release { key, claim, token });
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

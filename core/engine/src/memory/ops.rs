//! The operations, named as in `protocol/ops`. Each does what its Lua file there does.

use std::time::Duration;

use super::MemoryServer;
use super::keys::{StoredTenure, expiry};
use super::line::First;
use super::share;
use crate::error::{Error, ErrorKind};
use crate::protocol::{
    Accept, Acquire, AskYield, Claim, ClientId, Command, CompletedTick, ForceRelease, Grant,
    Inspect, Inspected, JobState, List, LockKey, News, Reclaim, Release, Renew, Reply, Retire,
    YieldRequest,
};
use crate::share::Sharing;
use crate::time::ServerTime;
use crate::token::FencingToken;

impl MemoryServer {
    pub(super) fn apply(&mut self, now: ServerTime, command: &Command) -> Result<Reply, Error> {
        if let Some(key) = command.key() {
            self.expire(now, key);
        }
        if let Some(sharing) = self.misused(now, command) {
            return Err(other_use_of_shared(sharing));
        }
        match command {
            Command::Acquire(acquire) => self.acquire(now, acquire),
            Command::Accept(accept) => self.accept(now, accept),
            Command::Renew(renew) => Ok(self.renew(now, renew)),
            Command::Release(release) => Ok(self.release(now, release)),
            Command::ForceRelease(force_release) => Ok(self.force_release(now, force_release)),
            Command::AskYield(ask_yield) => Ok(self.ask_yield(now, ask_yield)),
            Command::Inspect(inspect) => Ok(self.inspect(now, inspect)),
            Command::Enter(enter) => Ok(self.enter(now, enter)),
            Command::List(list) => Ok(self.list(now, list)),
            Command::Retire(retire) => Ok(self.retire(now, retire)),
            Command::Admit(admit) => self.admit(now, admit),
            Command::Extend(extend) => self.extend_shared(now, extend),
            Command::Vacate(vacate) => self.vacate(now, vacate),
            Command::Resize(resize) => self.resize(now, resize),
        }
    }

    /// Returns how a name is shared, if the command is only for names that are not.
    fn misused(&self, now: ServerTime, command: &Command) -> Option<Sharing> {
        let is_for_shared = matches!(
            command,
            Command::Admit(_)
                | Command::Extend(_)
                | Command::Vacate(_)
                | Command::Resize(_)
                | Command::Inspect(_)
                | Command::ForceRelease(_)
        );
        let hash = self.hash(now, command.key()?)?;
        let record = hash.share.as_ref().filter(|_| !is_for_shared)?;
        Some(record.sharing())
    }

    fn acquire(&mut self, now: ServerTime, acquire: &Acquire) -> Result<Reply, Error> {
        let Acquire { key, claim, .. } = acquire;
        let tick = claim.owner.tick();
        if let Some(hash) = self.hash(now, key) {
            if hash.job.is_some() != tick.is_some() {
                return Err(other_use(tick));
            }
            if hash.job.iter().flatten().any(|done| done.includes(claim)) {
                self.leave_line(key, claim);
                return Ok(Reply::Completed);
            }
        }
        if let Some(tenure) = self.tenure(now, key) {
            let (client, lease, token) = (tenure.client, tenure.lease, tenure.token);
            if lease == claim.lease {
                let expires = self.extend(now, key, (claim.counter, claim.ttl), false);
                return Ok(Reply::Held(Grant { token, expires }));
            }
            let yields = tenure.yields_to(claim);
            if yields && acquire.reclaims == Reclaim::Ask {
                return Ok(Reply::Reclaimable { token });
            }
            if yields && acquire.reclaims == Reclaim::From(token) {
                let grant = self.take(now, key, (claim, claim.ttl), None)?;
                self.publish(client, lease, News::Superseded { token });
                self.leave_line(key, claim);
                return Ok(Reply::Held(grant));
            }
        } else {
            match self.first_in_line(now, key, None) {
                First::Alive(first) if !first.is_same(claim) => {
                    self.remove_tenure(key);
                    self.grant(now, key, &first, None)?;
                }
                First::Unknown => {
                    let (expires, place) = (expiry(now, Duration::ZERO), None);
                    return Ok(Reply::Busy { expires, place });
                }
                first => {
                    let is_waiting = matches!(first, First::Alive(_));
                    if is_waiting {
                        self.remove_tenure(key);
                    }
                    let proposed = match acquire.reclaims {
                        Reclaim::Propose(token) => Some(token),
                        Reclaim::Ask | Reclaim::From(_) | Reclaim::Never => None,
                    };
                    let grant = self.take(now, key, (claim, claim.ttl), proposed)?;
                    if is_waiting {
                        self.leave_line(key, claim);
                    }
                    return Ok(Reply::Held(grant));
                }
            }
        }
        let mut place = None;
        if acquire.waits {
            match self.wait_in_line(now, key, claim) {
                Ok(own) => place = own,
                Err(waiting) => return Ok(Reply::Full { waiting }),
            }
        }
        let expires = self.tenure(now, key).map_or(now, |tenure| tenure.expires);
        Ok(Reply::Busy { expires, place })
    }

    fn accept(&mut self, now: ServerTime, accept: &Accept) -> Result<Reply, Error> {
        let Accept {
            key,
            lease,
            token,
            claim,
        } = accept;
        if self.hash(now, key).is_some_and(|hash| hash.job.is_some()) {
            return Err(other_use(None));
        }
        let tenure = self.tenure(now, key);
        let grant = match tenure.map(|tenure| (tenure.lease, tenure.token)) {
            None => return Ok(Reply::Gone),
            Some((held, token)) if held == claim.lease => {
                let expires = self.extend(now, key, (claim.counter, claim.ttl), false);
                Grant { token, expires }
            }
            Some(held) if held == (*lease, *token) => {
                let grant = self.take(now, key, (claim, claim.ttl), None)?;
                self.leave_line(key, claim);
                grant
            }
            Some(_) => return Ok(Reply::Taken),
        };
        Ok(Reply::Held(grant))
    }

    fn renew(&mut self, now: ServerTime, renew: &Renew) -> Reply {
        match self.tenure(now, &renew.key) {
            None => Reply::Gone,
            Some(tenure) if tenure.lease != renew.lease || tenure.token != renew.token => {
                Reply::Taken
            }
            Some(tenure) => {
                let Renew { key, floor, .. } = renew;
                let request = tenure.request.clone();
                if let Some(floor) = floor {
                    self.raise(key, *floor);
                }
                let (kept, is_common) = (
                    (renew.counter, renew.ttl),
                    floor.is_none() && request.is_none(),
                );
                let expires = self.extend(now, key, kept, is_common);
                match request {
                    Some(request) => Reply::Wanted { expires, request },
                    None => Reply::Renewed { expires },
                }
            }
        }
    }

    /// The token tells a repeated completion. Otherwise it only makes a release faster in Lua.
    fn release(&mut self, now: ServerTime, release: &Release) -> Reply {
        let Release { key, claim, .. } = release;
        let tick = claim.owner.running().filter(|_| release.completes);
        let tenure = self.hash(now, key).and_then(|hash| hash.tenure.as_deref());
        let own = tenure.filter(|tenure| tenure.lease == claim.lease);
        if let Some(StoredTenure { token, owner, .. }) = own {
            let done = tick.filter(|tick| owner.running() == Some(*tick));
            let done = done.map(|tick| CompletedTick {
                tick,
                token: *token,
                at: ServerTime::from_millis(now.millis()),
                by: owner.label().to_owned(),
            });
            if let Some(hash) = self.hash_mut(key).filter(|_| done.is_some()) {
                hash.job = Some(done);
            }
            return self.freed(now, key, claim.client);
        }
        self.leave_line(key, claim);
        let job = self.hash(now, key).and_then(|hash| hash.job.as_ref());
        let done = job.and_then(Option::as_ref).zip(tick);
        if let Some((done, _)) = done.filter(|(done, tick)| *tick <= done.tick) {
            let is_own = Some(done.token) == release.token;
            return if is_own {
                Reply::Released
            } else {
                Reply::Completed
            };
        }
        if self.tenure(now, key).is_some() {
            return Reply::Taken;
        }
        self.serve(now, key, None);
        Reply::Gone
    }

    /// Frees the lock for the next waiter, which the asking client learns if it is its own.
    fn freed(&mut self, now: ServerTime, key: &LockKey, asker: ClientId) -> Reply {
        match self.serve(now, key, Some(asker)) {
            Some((lease, grant)) => Reply::HandedOver {
                lease,
                grant,
                admission: None,
            },
            None => Reply::Released,
        }
    }

    fn retire(&mut self, now: ServerTime, retire: &Retire) -> Reply {
        let Retire {
            key, lease, token, ..
        } = retire;
        let tenure = self.tenure(now, key);
        match tenure.map(|tenure| (tenure.lease, tenure.token)) {
            None => return Reply::Gone,
            Some(held) if held == (Retire::NO_LEASE, *token) => {}
            Some(held) if held == (*lease, *token) => {
                self.keep_taken(now, key, (retire.counter, retire.ttl));
            }
            Some(_) => return Reply::Taken,
        }
        Reply::Released
    }

    fn force_release(&mut self, now: ServerTime, force_release: &ForceRelease) -> Reply {
        let ForceRelease { key, token } = force_release;
        if let Some(reply) = self.force_shared(now, key, *token) {
            return reply;
        }
        let holder = self.tenure(now, key);
        let holder = holder.map(|tenure| (tenure.client, tenure.lease, tenure.token));
        if holder.is_some_and(|(.., held)| held != *token) {
            return Reply::Taken;
        }
        if let Some((client, lease, token)) = holder {
            self.publish(client, lease, News::Revoked { token });
        }
        // Of a name without data nobody knows whether it is a lock. Waiters for a part of it must keep their places.
        if self.hash(now, key).is_some() {
            self.serve(now, key, None);
        }
        holder.map_or(Reply::Gone, |_| Reply::Released)
    }

    fn ask_yield(&mut self, now: ServerTime, ask_yield: &AskYield) -> Reply {
        let AskYield {
            key,
            token,
            within,
            by,
        } = ask_yield;
        let Some(tenure) = self.tenure(now, key) else {
            return Reply::Gone;
        };
        if tenure.token != *token {
            return Reply::Taken;
        }
        let (client, lease, until) = (tenure.client, tenure.lease, expiry(now, *within));
        let pending = tenure.wanted(now);
        if pending.is_none_or(|pending| until < pending.until) {
            let by = by.label().to_owned();
            if let Some(tenure) = self.hash_mut(key).and_then(|hash| hash.tenure.as_mut()) {
                tenure.request = Some(YieldRequest { until, by });
            }
            self.publish(client, lease, News::Wanted { token: *token });
        }
        Reply::Asked
    }

    fn inspect(&self, now: ServerTime, Inspect { key }: &Inspect) -> Reply {
        let tenure = self.tenure(now, key);
        let wanted = tenure.and_then(|tenure| tenure.wanted(now)).cloned();
        let holder = tenure.map(StoredTenure::holder);
        let last_token = match &holder {
            Some(holder) => Some(holder.token),
            None => self
                .last_token(now, key)
                .and_then(|last| FencingToken::new(last).ok()),
        };
        let job = self.hash(now, key).and_then(|hash| {
            let begun = hash.tenure.as_ref().and_then(|last| last.owner.running());
            let completed = hash.job.clone()?;
            Some(JobState { completed, begun })
        });
        let line = self.names.get(key).and_then(|keys| keys.line.as_ref());
        let (waiting, line) = line.map(|line| line.look(now)).unwrap_or_default();
        Reply::Inspected(Inspected {
            holder,
            last_token,
            job,
            shared: self.shared_state(now, key).map(Box::new),
            waiting,
            line,
            wanted,
        })
    }

    /// Lists all names in one step, so there is never a cursor to continue from.
    fn list(&self, now: ServerTime, List { pattern, cursor }: &List) -> Reply {
        let held = self
            .names
            .keys()
            .filter(|key| self.tenure(now, key).is_some() || self.has_holders(now, key));
        let names = held.filter_map(|key| pattern.name_of(key.lock()));
        let names = if *cursor == 0 {
            names.collect()
        } else {
            Vec::new()
        };
        Reply::Listed {
            cursor: None,
            names,
        }
    }
}

impl CompletedTick {
    /// Returns true if a runner claims this tick or an earlier one.
    pub(super) fn includes(&self, claim: &Claim) -> bool {
        claim.owner.running().is_some_and(|tick| tick <= self.tick)
    }
}

/// Returns the error for a shared name that is used as a lock or a job, as the script words it.
fn other_use_of_shared(sharing: Sharing) -> Error {
    share::other_use(Some(sharing), None)
}

/// Returns the error for a name that is used as a job and as a lock, as the script words it.
fn other_use(tick: Option<u64>) -> Error {
    let use_ = match tick {
        Some(_) => "a lock, not for a job",
        None => "a job, not for a lock",
    };
    Error::new(
        ErrorKind::WrongType,
        format!("WRONGTYPE the name is used for {use_}"),
    )
}

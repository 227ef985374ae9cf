//! The acts of the steps.

use std::future::pending;
use std::time::Duration;

use leasehold::{Error, FencingToken, MemoryStore};
use tokio::time::timeout;

use crate::format::{Act, Given, Outcome, Range};
use crate::handles::{Handle, Held};
use crate::world::{Unmet, World, expect};

pub(crate) type Met = Result<(), Unmet>;

impl World {
    pub(crate) async fn act(&mut self, act: &Act) -> Met {
        match act {
            Act::TryAcquire { .. }
            | Act::AcquireWithin { .. }
            | Act::Acquire { .. }
            | Act::Begin { .. }
            | Act::End { .. }
            | Act::Pending { .. }
            | Act::Abort { .. } => self.ask(act).await,
            Act::Release { .. }
            | Act::Resize { .. }
            | Act::Downgrade { .. }
            | Act::Permit { .. }
            | Act::Renew { .. }
            | Act::Pass { .. }
            | Act::Accept { .. }
            | Act::Held { .. }
            | Act::Lease { .. }
            | Act::Lost { .. }
            | Act::Run { .. }
            | Act::Wanted { .. }
            | Act::Tokens { .. } => self.have(act).await,
            Act::Inspect { .. }
            | Act::List { .. }
            | Act::ForceRelease { .. }
            | Act::RequestYield { .. }
            | Act::Yielded { .. }
            | Act::Stats { .. }
            | Act::Shutdown { .. } => self.manage(act).await,
            Act::Events { .. } | Act::Told { .. } | Act::Hold { .. } | Act::Next { .. } => {
                self.stream(act).await
            }
            Act::BadLocker(spec) => {
                self.locker(spec).await?;
                Ok(())
            }
            Act::BadLock(spec) => {
                self.handle(spec)?.try_acquire().await?;
                Ok(())
            }
            Act::Subscribed { count } => self.subscribed(*count).await,
            Act::Pause { ms } => {
                tokio::time::sleep(millis(*ms)).await;
                Ok(())
            }
            Act::CutOff { server } => {
                MemoryStore::named(self.store(*server)?).cut_off();
                Ok(())
            }
            Act::Redis { command, reply } => self.redis(command, reply).await,
        }
    }

    /// Acquires a lock, or gives up waiting for it.
    async fn ask(&mut self, act: &Act) -> Met {
        match act {
            Act::TryAcquire { lock, r#as, result } => {
                let lease = self.locks.get(lock)?.try_acquire().await?;
                self.acquired(lease, r#as.as_ref(), *result)
            }
            Act::AcquireWithin {
                lock,
                ms,
                r#as,
                result,
            } => {
                let lease = self.locks.get(lock)?.acquire_within(millis(*ms)).await?;
                self.acquired(lease, r#as.as_ref(), *result)
            }
            Act::Acquire { lock, r#as, result } => {
                let lease = self.locks.get(lock)?.acquire().await?;
                self.acquired(Some(lease), r#as.as_ref(), *result)
            }
            Act::Begin { lock, r#as, ms } => {
                let call = tokio::spawn(acquire(self.locks.get(lock)?.clone(), *ms));
                self.calls.add(r#as, call);
                Ok(())
            }
            Act::End { call, r#as, result } => self.end(call, r#as.as_ref(), *result).await,
            Act::Pending { calls } => self.pending(calls).await,
            Act::Abort { call } => self.abort(call).await,
            _ => unreachable!("the act has another handler"),
        }
    }

    /// Acts on leases.
    async fn have(&mut self, act: &Act) -> Met {
        match act {
            Act::Release { lease, names } => self.release(lease, names.as_ref()).await,
            Act::Resize {
                lock,
                capacity,
                epoch,
            } => {
                let is = self.locks.get(lock)?.resize(*capacity).await?;
                Ok(expect("the epoch", &is, epoch.as_ref().unwrap_or(&is))?)
            }
            Act::Downgrade { lease } => Ok(self.held(lease)?.permit()?.downgrade().await?),
            Act::Permit { .. } => Ok(self.permit(act)?),
            Act::Renew { lease, ttl: None } => Ok(self.held(lease)?.renew().await?),
            Act::Renew {
                lease,
                ttl: Some(ttl),
            } => Ok(self.lease(lease)?.renew_for(millis(*ttl)).await?),
            Act::Pass { lease, r#as } => {
                let taken = self.leases.get_mut(lease)?.take();
                let Some(Held::Lease(taken)) = taken else {
                    return Err(format!("the lease {lease:?} was released, or is no lock's").into());
                };
                self.tickets.add(r#as, taken.pass().await?.to_string());
                Ok(())
            }
            Act::Accept { .. } => self.accept(act).await,
            Act::Lease {
                lease,
                valid,
                remaining,
                hold_count,
            } => {
                if let Some(count) = hold_count {
                    let leases = self.lease(lease)?.hold_count();
                    expect("the number of leases of the tenure", &leases, count)?;
                }
                self.look(lease, *valid, *remaining)
            }
            Act::Held { lock, held } => {
                let is_held = self.locks.get(lock)?.lock()?.is_held();
                Ok(expect("whether it is held", &is_held, held)?)
            }
            Act::Lost {
                lease,
                reason,
                name,
            } => self.lost(lease, reason, name.as_deref()).await,
            Act::Wanted { lease } => Ok(self.lease(lease)?.wanted().await?),
            Act::Run { lease, reason } => self.run(lease, reason.as_deref()).await,
            Act::Tokens { rising, equal, are } => {
                self.ordered(rising, "less than", |one, next| one < next)?;
                self.ordered(equal, "equal to", |one, next| one == next)?;
                for (lease, token) in are {
                    expect(
                        format!("the token of {lease:?}"),
                        &self.kept.token(lease)?,
                        token,
                    )?;
                }
                Ok(())
            }
            _ => unreachable!("the act has another handler"),
        }
    }

    fn acquired(&mut self, lease: Option<Held>, name: Option<&String>, result: Outcome) -> Met {
        let outcome = lease.as_ref().map_or(Outcome::Busy, |_| Outcome::Held);
        expect("the lock", &outcome, &result)?;
        if let Some(lease) = lease {
            self.keep(name, lease);
        }
        Ok(())
    }

    async fn end(&mut self, call: &str, name: Option<&String>, result: Outcome) -> Met {
        let waiting = timeout(self.limit, self.calls.take(call)?).await;
        let answer = waiting.map_err(|_| format!("the call {call:?} was not answered"))?;
        self.acquired(answer.expect("no panic")?, name, result)
    }

    async fn pending(&self, calls: &[String]) -> Met {
        tokio::time::sleep(millis(50)).await;
        for call in calls {
            if self.calls.get(call)?.is_finished() {
                return Err(format!("the call {call:?} was answered").into());
            }
        }
        Ok(())
    }

    async fn abort(&mut self, call: &str) -> Met {
        let task = self.calls.take(call)?;
        task.abort();
        match task.await {
            Err(error) if error.is_cancelled() => Ok(()),
            _ => Err(format!("the call {call:?} was answered before").into()),
        }
    }

    async fn release(&mut self, lease: &str, names: Option<&Vec<String>>) -> Met {
        let taken = self.leases.get_mut(lease)?.take();
        let taken = taken.ok_or_else(|| format!("the lease {lease:?} was released"))?;
        let released = taken.release().await?;
        Ok(expect(
            "what was released",
            &released,
            names.unwrap_or(&released),
        )?)
    }

    async fn accept(&mut self, act: &Act) -> Met {
        let Act::Accept {
            locker,
            lock,
            ticket,
            text,
            r#as,
        } = act
        else {
            unreachable!("the act accepts a ticket");
        };
        let text = match (ticket, text) {
            (Some(ticket), None) => self.tickets.get(ticket)?,
            (None, Some(text)) => text,
            _ => return Err("accept takes a ticket or a text".to_owned().into()),
        };
        let ticket = text.parse()?;
        let lease = match (locker, lock) {
            (Some(locker), None) => self.lockers.get(locker)?.accept(&ticket).await?,
            (None, Some(lock)) => self.locks.get(lock)?.lock()?.accept(&ticket).await?,
            _ => return Err("a locker or a lock accepts".to_owned().into()),
        };
        self.keep(r#as.as_ref(), Held::Lease(lease));
        Ok(())
    }

    fn look(&self, lease: &str, valid: Option<bool>, remaining: Option<Range>) -> Met {
        let lease = self.leases.get(lease)?.as_ref();
        if let Some(valid) = valid {
            expect(
                "whether it is valid",
                &lease.is_some_and(Held::is_valid),
                &valid,
            )?;
        }
        if let Some(range) = remaining {
            within("what remains", lease.map(Held::remaining), range)?;
        }
        Ok(())
    }

    async fn lost(&self, lease: &str, reason: &str, name: Option<&str>) -> Met {
        let lease = self.held(lease)?;
        let lost = timeout(self.limit, lease.lost()).await;
        let lost = lost.map_err(|_| "the lease was not lost".to_owned())?;
        expect("the reason", lost.reason.code(), reason)?;
        if let Some(name) = name {
            expect("the name", lost.name.as_str(), name)?;
        }
        expect("whether it is valid", &lease.is_valid(), &false)?;
        Ok(expect("what remains", &lease.remaining(), &Duration::ZERO)?)
    }

    async fn run(&self, lease: &str, reason: Option<&str>) -> Met {
        let lease = self.held(lease)?;
        let Some(reason) = reason else {
            let done = lease.run(async { 6 * 7 }).await;
            return Ok(expect("the work", &done, &Ok(42))?);
        };
        let stopped = timeout(self.limit, lease.run(pending::<()>())).await;
        let stopped = stopped.map_err(|_| "the work was not stopped".to_owned())?;
        let reasons = stopped.map_err(|lost| lost.reason.code());
        Ok(expect("the work", &reasons, &Err(reason))?)
    }

    fn permit(&self, act: &Act) -> Result<(), String> {
        let Act::Permit {
            lease,
            slots,
            resource,
            capacity,
            epoch,
            generation,
        } = act
        else {
            unreachable!("the act is about a permit");
        };
        let permit = self.held(lease)?.permit()?;
        if let Some(slots) = slots {
            expect("the slots", permit.slots(), slots.as_slice())?;
            expect("the first slot", &permit.slot(), &slots.first().copied())?;
        }
        if let Some(resource) = resource {
            expect("the resource", &*permit.resource(), resource.as_str())?;
        }
        let number = |what: &str, is: u32, wanted: &Option<u32>| {
            expect(what, &is, wanted.as_ref().unwrap_or(&is))
        };
        number("the capacity", permit.capacity(), capacity)?;
        number("the epoch", permit.epoch(), epoch)?;
        let last = permit.generation().map(FencingToken::get);
        match generation {
            Given::LeftOut => Ok(()),
            Given::Nothing => expect("the last writer's token", &last, &None),
            Given::Is(lease) => {
                let token = self.kept.token(lease)?;
                expect("the last writer's token", &last, &Some(token))
            }
        }
    }

    fn ordered(
        &self,
        leases: &[String],
        word: &str,
        is: impl Fn(u64, u64) -> bool,
    ) -> Result<(), String> {
        for pair in leases.windows(2) {
            let (one, next) = (self.kept.token(&pair[0])?, self.kept.token(&pair[1])?);
            if !is(one, next) {
                return Err(format!(
                    "the token {one} of {:?} is not {word} {next}",
                    pair[0]
                ));
            }
        }
        Ok(())
    }
}

async fn acquire(lock: Handle, ms: Option<u64>) -> Result<Option<Held>, Error> {
    match ms {
        Some(ms) => lock.acquire_within(millis(ms)).await,
        None => lock.acquire().await.map(Some),
    }
}

pub(crate) fn within(
    what: &str,
    time: Option<Duration>,
    [least, most]: Range,
) -> Result<(), String> {
    let range = millis(least)..=millis(most);
    if time.is_some_and(|time| range.contains(&time)) {
        return Ok(());
    }
    Err(format!("{what} is {time:?}, not within {range:?}"))
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

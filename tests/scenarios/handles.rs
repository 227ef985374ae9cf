//! Handles of all kinds, and what they acquire: leases, permits and bundles.

use std::time::Duration;

use leasehold::{
    Bundle, Error, Lease, LeaseEvents, Lock, LockSet, Lost, Name, Permit, RwLock, RwPart, Semaphore,
};

use crate::acts::millis;
use crate::format::{Kind, LockSpec};
use crate::world::{Unmet, World};

/// Sets the options that semaphores and locks for readers and writers have in common.
macro_rules! shared_options {
    ($handle:expr, $spec:expr) => {{
        let (mut handle, spec) = ($handle, $spec);
        if let Some(ttl) = spec.ttl {
            handle = handle.ttl(millis(ttl));
        }
        if let Some(owner) = &spec.owner {
            handle = handle.owner(owner);
        }
        if let Some(most) = spec.max_line {
            handle = handle.max_line(most);
        }
        if spec.fixed {
            handle = handle.fixed();
        }
        handle
    }};
}

/// A handle of a scenario.
#[derive(Clone)]
pub(crate) enum Handle {
    Lock(Lock),
    /// A semaphore or quota, and the weight of its permits.
    Semaphore(Semaphore, u32),
    /// One side of a lock for readers and writers.
    Side(RwLock, RwPart),
    Set(LockSet),
}

/// A lease or permit that a handle acquired.
pub(crate) enum Held {
    Lease(Lease),
    Permit(Permit),
    Bundle(Bundle),
}

impl World {
    /// Returns a handle of this specification. A bad option of a lock causes an error only at the acquisition.
    pub(crate) fn handle(&self, spec: &LockSpec) -> Result<Handle, Unmet> {
        let locker = self.lockers.get(&spec.locker)?;
        let name = spec.name.as_deref().unwrap_or_default();
        Ok(match &spec.kind {
            Kind::Lock => Handle::Lock(self.lock(spec)?),
            Kind::Slots(slots) => semaphore(spec, locker.semaphore(name, *slots)?),
            Kind::Units(units) => semaphore(spec, locker.quota(name, *units)?),
            Kind::Reader | Kind::Writer => side(spec, locker.rw_lock(name)?),
            Kind::All(names) => set(spec, locker.all(names)?),
            Kind::AllAtOnce(names) => set(spec, locker.all_at_once(names)?),
        })
    }
}

fn set(spec: &LockSpec, mut set: LockSet) -> Handle {
    if let Some(ttl) = spec.ttl {
        set = set.ttl(millis(ttl));
    }
    if let Some(owner) = &spec.owner {
        set = set.owner(owner);
    }
    Handle::Set(set)
}

fn semaphore(spec: &LockSpec, handle: Semaphore) -> Handle {
    let handle = shared_options!(handle, spec);
    let handle = if spec.strict { handle.strict() } else { handle };
    Handle::Semaphore(handle, spec.weight.unwrap_or(1))
}

fn side(spec: &LockSpec, handle: RwLock) -> Handle {
    let both = shared_options!(handle, spec);
    let side = match spec.kind {
        Kind::Reader => both.read(),
        _ => both.write(),
    };
    Handle::Side(both, side)
}

impl Handle {
    pub(crate) async fn acquire(&self) -> Result<Held, Error> {
        Ok(match self {
            Self::Lock(lock) => Held::Lease(lock.acquire().await?),
            Self::Semaphore(semaphore, weight) => {
                Held::Permit(semaphore.acquire_many(*weight).await?)
            }
            Self::Side(_, side) => Held::Permit(side.acquire().await?),
            Self::Set(set) => Held::Bundle(set.acquire().await?),
        })
    }

    pub(crate) async fn try_acquire(&self) -> Result<Option<Held>, Error> {
        Ok(match self {
            Self::Lock(lock) => lock.try_acquire().await?.map(Held::Lease),
            Self::Semaphore(semaphore, weight) => {
                semaphore.try_acquire_many(*weight).await?.map(Held::Permit)
            }
            Self::Side(_, side) => side.try_acquire().await?.map(Held::Permit),
            Self::Set(set) => set.try_acquire().await?.map(Held::Bundle),
        })
    }

    pub(crate) async fn acquire_within(&self, time: Duration) -> Result<Option<Held>, Error> {
        Ok(match self {
            Self::Lock(lock) => lock.acquire_within(time).await?.map(Held::Lease),
            Self::Semaphore(semaphore, weight) => semaphore
                .acquire_many_within(*weight, time)
                .await?
                .map(Held::Permit),
            Self::Side(_, side) => side.acquire_within(time).await?.map(Held::Permit),
            Self::Set(set) => set.acquire_within(time).await?.map(Held::Bundle),
        })
    }

    pub(crate) fn lock(&self) -> Result<&Lock, String> {
        match self {
            Self::Lock(lock) => Ok(lock),
            _ => Err("only a lock can do this".into()),
        }
    }

    pub(crate) fn events(&self) -> Result<LeaseEvents, String> {
        match self {
            Self::Lock(lock) => Ok(lock.events()),
            Self::Semaphore(semaphore, _) => Ok(semaphore.events()),
            Self::Side(both, _) => Ok(both.events()),
            Self::Set(_) => Err("several names have no events of their own".into()),
        }
    }

    pub(crate) async fn resize(&self, capacity: u32) -> Result<u32, Unmet> {
        match self {
            Self::Semaphore(semaphore, _) => Ok(semaphore.resize(capacity).await?),
            _ => Err("only semaphores and quotas are resized".to_owned().into()),
        }
    }
}

impl Held {
    /// Returns the tokens, with the name that each has in the scenario if what is held has this one.
    pub(crate) fn tokens(&self, name: &str) -> Vec<(String, u64)> {
        match self {
            Self::Lease(lease) => vec![(name.to_owned(), lease.token().get())],
            Self::Permit(permit) => vec![(name.to_owned(), permit.token().get())],
            Self::Bundle(bundle) => {
                let tokens = bundle.tokens();
                let of = |of: &Name| format!("{name} {}", of.as_str());
                tokens
                    .map(|(name, token)| (of(name), token.get()))
                    .collect()
            }
        }
    }

    pub(crate) fn lease(&self) -> Result<&Lease, String> {
        match self {
            Self::Lease(lease) => Ok(lease),
            Self::Permit(permit) => Ok(permit),
            Self::Bundle(_) => Err("a bundle has several leases".into()),
        }
    }

    pub(crate) fn permit(&self) -> Result<&Permit, String> {
        match self {
            Self::Permit(permit) => Ok(permit),
            _ => Err("only a permit can do this".into()),
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Lease(lease) => lease.is_valid(),
            Self::Permit(permit) => permit.is_valid(),
            Self::Bundle(bundle) => bundle.is_valid(),
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        match self {
            Self::Lease(lease) => lease.remaining(),
            Self::Permit(permit) => permit.remaining(),
            Self::Bundle(bundle) => bundle.remaining(),
        }
    }

    pub(crate) async fn renew(&self) -> Result<(), Error> {
        match self {
            Self::Lease(lease) => lease.renew().await,
            Self::Permit(permit) => permit.renew().await,
            Self::Bundle(bundle) => bundle.renew().await,
        }
    }

    pub(crate) async fn lost(&self) -> Lost {
        match self {
            Self::Lease(lease) => lease.lost().await,
            Self::Permit(permit) => permit.lost().await,
            Self::Bundle(bundle) => bundle.lost().await,
        }
    }

    pub(crate) async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        match self {
            Self::Lease(lease) => lease.run(work).await,
            Self::Permit(permit) => permit.run(work).await,
            Self::Bundle(bundle) => bundle.run(work).await,
        }
    }

    /// Returns the names that were released.
    pub(crate) async fn release(self) -> Result<Vec<String>, Error> {
        let name = |name: &Name| name.as_str().to_owned();
        Ok(match self {
            Self::Lease(lease) => {
                let of = name(lease.name());
                lease.release().await?;
                vec![of]
            }
            Self::Permit(permit) => {
                let of = name(permit.name());
                permit.release().await?;
                vec![of]
            }
            Self::Bundle(bundle) => bundle.release().await?.iter().map(name).collect(),
        })
    }
}

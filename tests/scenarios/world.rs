//! Runs one scenario on one store.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{Debug, Display};
use std::time::{Duration, Instant};

use leasehold::{Error, Lease, LeaseEvents, Lock, Locker, Tenures};
use leasehold_tests::{Admin, RedisServer, unique_name};
use tokio::task::JoinHandle;

use crate::format::{Failure, LockSpec, LockerSpec, Scenario, Step, StoreKind};
use crate::handles::{Handle, Held};
use crate::text::Kept;

const MEMORY: &str = "memory://";

/// The reason why a step is not met.
#[derive(Debug)]
pub(crate) enum Unmet {
    /// A call failed, which may be what the step expects.
    Refused(Error),
    Wrong(String),
}

impl From<String> for Unmet {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

impl From<Error> for Unmet {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// The step that failed, counted from 1, and the reason.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) step: usize,
    pub(crate) why: String,
}

/// All that the steps of one scenario made so far, by the scenario's names.
pub(crate) struct World {
    /// The URL of its server, or of each server of a quorum.
    urls: Vec<String>,
    pub(crate) admin: Option<Admin>,
    pub(crate) limit: Duration,
    pub(crate) lockers: Named<Locker>,
    pub(crate) locks: Named<Handle>,
    /// `None` for a released lease.
    pub(crate) leases: Named<Option<Held>>,
    /// The texts of tickets.
    pub(crate) tickets: Named<String>,
    pub(crate) calls: Named<JoinHandle<Result<Option<Held>, Error>>>,
    pub(crate) requests: Named<JoinHandle<Result<bool, Error>>>,
    pub(crate) readers: Named<LeaseEvents>,
    pub(crate) tenures: Named<Tenures>,
    pub(crate) kept: Kept,
    _server: Option<RedisServer>,
}

/// Runs a scenario on a store of its own.
pub(crate) async fn run(scenario: &Scenario, store: StoreKind) -> Result<(), Failed> {
    let failed = |step, unmet| Failed {
        step,
        why: match unmet {
            Unmet::Refused(error) => format!("{}: {error}", error.kind().code()),
            Unmet::Wrong(why) => why,
        },
    };
    let mut world = World::new(store, Duration::from_millis(scenario.limit)).await;
    let made = world.make(&scenario.lockers, &scenario.locks).await;
    made.map_err(|unmet| failed(0, unmet))?;
    for (index, step) in scenario.steps.iter().enumerate() {
        let met = world.step(step).await;
        met.map_err(|unmet| failed(index + 1, unmet))?;
    }
    Ok(())
}

impl World {
    async fn new(store: StoreKind, limit: Duration) -> Self {
        let memory = || format!("{MEMORY}{}", unique_name("scenario"));
        let (server, admin, urls) = match store {
            StoreKind::Redis => {
                let server = RedisServer::start().await;
                let (admin, url) = (Admin::connect(&server).await, server.url());
                (Some(server), Some(admin), vec![url])
            }
            StoreKind::Memory => (None, None, vec![memory()]),
            StoreKind::Quorum => (None, None, (0..3).map(|_| memory()).collect()),
        };
        Self {
            urls,
            admin,
            limit,
            lockers: Named::new("locker"),
            locks: Named::new("lock"),
            leases: Named::new("lease"),
            tickets: Named::new("ticket"),
            calls: Named::new("call"),
            requests: Named::new("request"),
            readers: Named::new("reader"),
            tenures: Named::new("tenures"),
            kept: Kept::default(),
            _server: server,
        }
    }

    async fn make(
        &mut self,
        lockers: &BTreeMap<String, LockerSpec>,
        locks: &BTreeMap<String, LockSpec>,
    ) -> Result<(), Unmet> {
        for (name, spec) in lockers {
            let locker = self.locker(spec).await?;
            self.lockers.add(name, locker);
        }
        for (name, spec) in locks {
            let lock = self.handle(spec)?;
            self.locks.add(name, lock);
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), Unmet> {
        // The acts have the same limit themselves and a better message, so this limit is slightly longer.
        let limit = self.limit + Duration::from_secs(2);
        let met = tokio::time::timeout(limit, self.act(&step.act)).await;
        let met = met.unwrap_or_else(|_| Err(format!("the step takes more than {limit:?}").into()));
        match (met, &step.failure) {
            (met, None) => met,
            (Err(Unmet::Refused(error)), Some(failure)) => Ok(refusal(&error, failure)?),
            (Err(wrong), Some(_)) => Err(wrong),
            (Ok(()), Some(Failure { error, .. })) => {
                Err(format!("the step did not fail: {error}").into())
            }
        }
    }

    pub(crate) async fn locker(&self, spec: &LockerSpec) -> Result<Locker, Error> {
        let mut builder = Locker::builder();
        if let Some(namespace) = &spec.namespace {
            builder = builder.namespace(namespace);
        }
        if let Some(owner) = &spec.owner {
            builder = builder.owner(owner);
        }
        if let Some(timeout) = spec.connect_timeout {
            builder = builder.connect_timeout(Duration::from_millis(timeout));
        }
        if let Some(timeout) = spec.command_timeout {
            builder = builder.command_timeout(Duration::from_millis(timeout));
        }
        if let Some(patience) = spec.patience {
            builder = builder.patience(Duration::from_millis(patience));
        }
        if let Some(margin) = spec.drift_margin {
            builder = builder.drift_margin(margin);
        }
        if let Some(retention) = spec.token_retention {
            builder = builder.token_retention(Duration::from_millis(retention));
        }
        let alone = match &*self.urls {
            [url] => Some(url),
            urls => spec
                .server
                .and_then(|server| urls.get(server.wrapping_sub(1))),
        };
        match alone {
            Some(url) => builder.connect(url).await,
            None => builder.quorum(&self.urls).await,
        }
    }

    /// Returns the name of a server's in-memory store.
    pub(crate) fn store(&self, server: usize) -> Result<&str, String> {
        let url = self.urls.get(server.wrapping_sub(1));
        let name = url.and_then(|url| url.strip_prefix(MEMORY));
        name.ok_or_else(|| format!("there is no server {server} in memory"))
    }

    /// Returns a lock of this specification. A bad option causes an error only at the acquisition.
    pub(crate) fn lock(&self, spec: &LockSpec) -> Result<Lock, Unmet> {
        let lock = self.lockers.get(&spec.locker)?;
        let mut lock = lock.lock(spec.name.as_deref().unwrap_or_default())?;
        if let Some(ttl) = spec.ttl {
            lock = lock.ttl(Duration::from_millis(ttl));
        }
        if let Some(owner) = &spec.owner {
            lock = lock.owner(owner);
        }
        if spec.fixed {
            lock = lock.fixed();
        }
        if spec.reentrant {
            lock = lock.reentrant();
        }
        if spec.dense_tokens {
            lock = lock.dense_tokens();
        }
        if let Some(age) = spec.at_most {
            lock = lock.at_most(Duration::from_millis(age));
        }
        if let Some(age) = spec.at_least {
            lock = lock.at_least(Duration::from_millis(age));
        }
        Ok(lock)
    }

    /// Keeps a lease that a step acquired.
    pub(crate) fn keep(&mut self, name: Option<&String>, lease: Held) {
        // A lease without a name is kept, too: it must be held to the end of the scenario.
        let name = name.map_or_else(|| unique_name("lease"), String::clone);
        self.kept.tokens.extend(lease.tokens(&name));
        self.leases.add(&name, Some(lease));
    }

    /// Returns a lease that was not released.
    pub(crate) fn lease(&self, name: &str) -> Result<&Lease, String> {
        self.held(name)?.lease()
    }

    /// Returns what was acquired and not released.
    pub(crate) fn held(&self, name: &str) -> Result<&Held, String> {
        let lease = self.leases.get(name)?.as_ref();
        lease.ok_or_else(|| format!("the lease {name:?} was released"))
    }

    pub(crate) fn waiting(&self) -> Waiting {
        Waiting(Instant::now() + self.limit)
    }
}

/// The limit of a step that is retried until it is met.
pub(crate) struct Waiting(Instant);

impl Waiting {
    /// Waits a little before the next attempt. Fails with the mismatch once the limit is over.
    pub(crate) async fn again(&self, mismatch: String) -> Result<(), String> {
        if Instant::now() >= self.0 {
            return Err(mismatch);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok(())
    }
}

/// Things of one kind, by the names that the scenario gives them.
pub(crate) struct Named<T> {
    what: &'static str,
    all: HashMap<String, T>,
}

impl<T> Named<T> {
    fn new(what: &'static str) -> Self {
        let all = HashMap::new();
        Self { what, all }
    }

    pub(crate) fn add(&mut self, name: &str, value: T) {
        self.all.insert(name.to_owned(), value);
    }

    pub(crate) fn get(&self, name: &str) -> Result<&T, String> {
        self.all.get(name).ok_or_else(|| self.none(name))
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Result<&mut T, String> {
        let none = self.none(name);
        self.all.get_mut(name).ok_or(none)
    }

    pub(crate) fn take(&mut self, name: &str) -> Result<T, String> {
        self.all.remove(name).ok_or_else(|| self.none(name))
    }

    fn none(&self, name: &str) -> String {
        format!("there is no {} {name:?}", self.what)
    }
}

/// Fails with both values if they differ.
pub(crate) fn expect<T>(what: impl Display, is: &T, expected: &T) -> Result<(), String>
where
    T: PartialEq + Debug + ?Sized,
{
    if is == expected {
        return Ok(());
    }
    Err(format!("{what} is {is:?}, not {expected:?}"))
}

fn refusal(error: &Error, Failure { error: code, says }: &Failure) -> Result<(), String> {
    let message = error.to_string();
    expect(
        format!("the code of {message:?}"),
        error.kind().code(),
        code.as_str(),
    )?;
    match says.iter().find(|text| !message.contains(text.as_str())) {
        None => Ok(()),
        Some(text) => Err(format!("{message:?} does not contain {text:?}")),
    }
}

//! The parts of the test host that only the engine's own tests need: access to internals, and other programs.

use std::time::Duration;

use crate::engine::front::Front;
use crate::engine::single::Single;
use crate::engine::{Engine, Input, Kind, LockId, RequestId, ServerId};
use crate::error::Error;
use crate::name::Owner;
use crate::protocol::{
    Acquire, Admit, BatchReply, Claim, ClientId, Command, Counter, ForceRelease, LeaseId, Push,
    Reclaim, Release, Reply,
};
use crate::share::Share;
pub(super) use crate::testing::*;
use crate::token::FencingToken;

/// How long before its deadline a lease of half a second or more is lost.
pub(super) const LEAD: Duration = Duration::from_millis(50);
/// A time that is long enough for any renewal or retry.
pub(super) const SOON: Duration = Duration::from_millis(300);
/// The lease IDs of other programs, by number. The first one is the stranger's.
const STRANGERS: u128 = 0xdead << 64;

/// Access to internals.
impl Engine {
    /// Returns the number of contenders, and the number of contenders and releases.
    pub(super) fn tables(&self) -> (usize, usize) {
        match &self.0 {
            Kind::Single(single) => (single.locks.contenders.len(), single.locks.len()),
            #[cfg(feature = "quorum")]
            Kind::Quorum(quorum) => (quorum.locks.contenders.len(), quorum.locks.len()),
        }
    }

    pub(super) fn single(&self) -> &Front<Single> {
        match &self.0 {
            Kind::Single(single) => single,
            #[cfg(feature = "quorum")]
            Kind::Quorum(_) => panic!("this engine has several servers"),
        }
    }

    pub(super) fn single_mut(&mut self) -> &mut Front<Single> {
        match &mut self.0 {
            Kind::Single(single) => single,
            #[cfg(feature = "quorum")]
            Kind::Quorum(_) => panic!("this engine has several servers"),
        }
    }

    /// Returns the lease ID of a contender that is acquiring, if there is one.
    pub(super) fn acquiring(&self) -> Option<LeaseId> {
        let mut contenders = self.single().locks.contenders.values();
        let acquiring = contenders.find(|contender| contender.is_acquiring());
        acquiring.map(|contender| contender.lease.lease)
    }
}

/// Inputs about the only server.
impl Input {
    pub(super) const SUBSCRIBED: Self = Self::Subscribed {
        server: ServerId::ONLY,
    };
    pub(super) const UNSUBSCRIBED: Self = Self::Unsubscribed {
        server: ServerId::ONLY,
    };

    pub(super) const WATCHING: Self = Self::Watching {
        server: ServerId::ONLY,
    };

    pub(super) fn changed(lock: LockId) -> Self {
        let key = Some(key(lock));
        Self::Changed { key }
    }

    pub(super) fn reply(request: RequestId, result: Result<BatchReply, Error>) -> Self {
        Self::Reply {
            server: ServerId::ONLY,
            request,
            result,
        }
    }

    pub(super) fn push(push: Push) -> Self {
        let server = Some(ServerId::ONLY);
        Self::Push { server, push }
    }
}

/// Other programs.
impl Host {
    /// Lets another program ask for the lock without waiting.
    pub(super) fn stranger_acquires(&mut self, lock: LockId, ttl: Duration) -> Reply {
        self.ask(Command::Acquire(Acquire {
            key: key(lock),
            claim: Claim { ttl, ..stranger(0) },
            waits: false,
            reclaims: Reclaim::Never,
        }))
    }

    /// Lets one more program read a name for readers and writers, and crash.
    pub(super) fn stranger_reads(&mut self, lock: LockId, number: u128, ttl: Duration) {
        let owner = Owner::sharing("stranger", Share::reader()).expect("a short label is valid");
        let acquire = Acquire {
            key: key(lock),
            claim: Claim {
                owner,
                ttl,
                ..stranger(number)
            },
            waits: false,
            reclaims: Reclaim::Never,
        };
        let reply = self.ask(Command::Admit(Admit(acquire)));
        assert!(matches!(reply, Reply::Admitted(..)), "{reply:?}");
    }

    /// Lets another program release the lock that it holds.
    pub(super) fn stranger_releases(&mut self, lock: LockId) {
        let reply = self.ask(Command::Release(Release {
            key: key(lock),
            claim: stranger(0),
            token: None,
            completes: false,
        }));
        assert_eq!(reply, Reply::Released);
    }

    /// Lets one more program, which hears no pushes, join the line or confirm its place.
    pub(super) fn stranger_waits(&mut self, lock: LockId, number: u128) -> Reply {
        self.ask(Command::Acquire(Acquire {
            key: key(lock),
            claim: stranger(number),
            waits: true,
            reclaims: Reclaim::Never,
        }))
    }

    /// Lets that program leave the line, or release the lock that it was handed.
    pub(super) fn stranger_leaves(&mut self, lock: LockId, number: u128) -> Reply {
        self.ask(Command::Release(Release {
            key: key(lock),
            claim: stranger(number),
            token: None,
            completes: false,
        }))
    }

    /// Returns true if the first server has a holder for the lock.
    pub(super) fn is_taken(&self, lock: LockId) -> bool {
        self.servers[0]
            .tenure(self.server_now(), &key(lock))
            .is_some()
    }
}

impl Host {
    /// Lets another program free the lock by force.
    pub(super) fn stranger_force_releases(&mut self, lock: LockId) {
        let token = self.token_of(lock).expect("the lock has a holder");
        let key = key(lock);
        let reply = self.ask(Command::ForceRelease(ForceRelease { key, token }));
        assert_eq!(reply, Reply::Released);
    }

    /// Returns the token of the lock's holder at the first server.
    pub(super) fn token_of(&self, lock: LockId) -> Option<FencingToken> {
        let tenure = self.servers[0].tenure(self.server_now(), &key(lock))?;
        Some(tenure.token)
    }
}

pub(super) fn stranger(number: u128) -> Claim {
    Claim {
        lease: LeaseId(STRANGERS + number),
        client: ClientId(99),
        owner: Owner::labelled("stranger").expect("a short label is valid"),
        counter: Counter::Dense,
        ttl: TTL,
        window: Duration::from_secs(12),
    }
}

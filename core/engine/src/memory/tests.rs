//! Floors and forced releases, run through the encoded calls of the script. `tests/differential` compares
//! everything else with the script.

use std::time::Duration;

use super::MemoryServer;
use crate::name::{Name, Owner};
use crate::protocol::{
    Acquire, Admit, Claim, ClientId, Command, Counter, ForceRelease, Grant, LeaseId, LockKey, Op,
    Reclaim, Release, Renew, Reply, Vacate, decode, encode,
};
use crate::share::Share;
use crate::time::ServerTime;
use crate::token::FencingToken;

const HOUR: Duration = Duration::from_secs(3_600);
const TTL: Duration = Duration::from_secs(30);
const PLAIN: Counter = Counter::ClockFloor { retention: HOUR };
const BEGIN: ServerTime = ServerTime::from_micros(1_600_000_000_000_000);

struct Store {
    server: MemoryServer,
    key: LockKey,
    now: ServerTime,
    counter: Counter,
    ttl: Duration,
}

impl Store {
    fn new(counter: Counter) -> Self {
        let name = Name::new("n").expect("a short name is valid");
        Self {
            server: MemoryServer::new(),
            key: LockKey::new("ns", &name).expect("a short namespace is valid"),
            now: BEGIN,
            counter,
            ttl: TTL,
        }
    }

    /// Runs a command through both encodings.
    fn run(&mut self, command: Command) -> Reply {
        let not_after = self.now + TTL;
        let batch = [Op { command, not_after }];
        let call = encode(&batch);
        let returned = self.server.call(self.now, call.keys(), call.args());
        let reply = decode(&batch, &returned.expect("the call is well-formed"));
        let mut replies = reply.expect("the reply is well-formed").replies;
        replies.remove(0).expect("the command is not refused")
    }

    fn claim(&self, lease: u128) -> Claim {
        Claim {
            lease: LeaseId(lease),
            client: ClientId(1),
            owner: Owner::labelled("me").expect("a short label is valid"),
            counter: self.counter,
            ttl: self.ttl,
            window: TTL,
        }
    }

    fn acquire(&mut self, lease: u128) -> Reply {
        let (key, claim) = (self.key.clone(), self.claim(lease));
        let (waits, reclaims) = (true, Reclaim::Never);
        self.run(Command::Acquire(Acquire {
            key,
            claim,
            waits,
            reclaims,
        }))
    }

    /// Returns a claim to this many slots of a semaphore of this capacity.
    fn part(&self, lease: u128, (weight, capacity): (u32, u32)) -> Claim {
        let share = Share::slots(weight, capacity).expect("a share within the bounds");
        Claim {
            owner: Owner::sharing("me", share).expect("a short label is valid"),
            ..self.claim(lease)
        }
    }

    /// Asks for the only slot of a semaphore, and waits in line for it.
    fn admit(&mut self, lease: u128) -> Reply {
        self.admit_part(lease, (1, 1))
    }

    fn admit_part(&mut self, lease: u128, share: (u32, u32)) -> Reply {
        let (key, claim) = (self.key.clone(), self.part(lease, share));
        let (waits, reclaims) = (true, Reclaim::Never);
        self.run(Command::Admit(Admit(Acquire {
            key,
            claim,
            waits,
            reclaims,
        })))
    }

    fn take(&mut self, lease: u128) -> FencingToken {
        match self.acquire(lease) {
            Reply::Held(Grant { token, .. }) => token,
            reply => panic!("it is free: {reply:?}"),
        }
    }

    fn raise(&mut self, lease: u128, token: FencingToken, floor: u64) -> Reply {
        let floor = Some(FencingToken::new(floor).expect("a valid token"));
        self.run(Command::Renew(Renew {
            key: self.key.clone(),
            lease: LeaseId(lease),
            token,
            counter: self.counter,
            ttl: self.ttl,
            floor,
        }))
    }

    fn release(&mut self, lease: u128) -> Reply {
        let (key, claim) = (self.key.clone(), self.claim(lease));
        let token = None;
        self.run(Command::Release(Release {
            key,
            claim,
            token,
            completes: false,
        }))
    }

    fn last(&self) -> Option<u64> {
        self.server.last_token(self.now, &self.key)
    }
}

fn is_renewed(reply: &Reply) -> bool {
    matches!(reply, Reply::Renewed { .. })
}

#[test]
fn a_floor_raises_the_next_token_but_not_the_current_one() {
    for counter in [PLAIN, Counter::Dense] {
        let mut store = Store::new(counter);
        let own = store.take(1);
        let floor = own.get() + 1_000_000;
        assert!(is_renewed(&store.raise(1, own, floor)));
        assert_eq!(store.last(), Some(floor));
        assert_eq!(store.take(1), own, "a retry keeps its token");
        assert!(is_renewed(&store.raise(1, own, floor - 1)));
        assert_eq!(store.last(), Some(floor), "the last token is never lowered");
        assert!(matches!(store.acquire(2), Reply::Busy { .. }));
        let handed = store.release(1);
        let Reply::HandedOver { lease, grant, .. } = handed else {
            panic!("{handed:?}");
        };
        assert_eq!(
            (lease, grant.token.get()),
            (LeaseId(2), floor + 1),
            "{counter:?}"
        );
        assert_eq!(store.release(2), Reply::Released);
    }
}

/// Catches a raise for a lease that lost the lock. Quorums rely on a raise succeeding only while the lease
/// has the lock.
#[test]
fn a_lease_without_the_lock_raises_nothing() {
    let mut store = Store::new(PLAIN);
    let former = store.take(1);
    let floor = BEGIN.as_micros() * 2;
    store.now = store.now + TTL * 2;
    assert_eq!(
        store.raise(1, former, floor),
        Reply::Gone,
        "the lease expired"
    );
    let own = store.take(2);
    assert_eq!(store.raise(1, former, floor), Reply::Taken);
    assert_eq!(store.raise(2, former, floor), Reply::Taken);
    assert_eq!(store.last(), Some(own.get()));
    store.release(2);
    assert_eq!(store.raise(2, own, floor), Reply::Gone);
    assert_eq!(store.last(), Some(own.get()));
}

/// Catches a key whose expiry is assumed to have been set at the time that the token says.
#[test]
fn a_key_outlives_its_lease_though_the_token_was_ahead_of_the_clock() {
    let mut store = Store::new(PLAIN);
    let own = store.take(1);
    let ahead = HOUR * 3 / 2;
    store.raise(1, own, (BEGIN + ahead).as_micros());
    store.release(1);
    let next = store.take(2);
    assert!(next.get() > (BEGIN + ahead).as_micros());
    store.release(2);
    store.now = BEGIN + ahead + Duration::from_secs(1);
    store.ttl = HOUR;
    store.take(3);
    let (_, expires) = store
        .server
        .lock_value(store.now, &store.key)
        .expect("it is held");
    assert!(expires > Some(store.now + store.ttl), "{expires:?}");
}

/// Catches a forced release that takes a name without data for a lock, and sends the waiters for its parts away.
#[test]
fn a_forced_release_of_a_name_without_data_keeps_its_line() {
    let mut store = Store::new(PLAIN);
    let token = match store.admit(1) {
        Reply::Admitted(Grant { token, .. }, _) => token,
        reply => panic!("it is free: {reply:?}"),
    };
    assert!(matches!(store.admit(2), Reply::Busy { .. }));
    store.server.delete(&store.key);
    let key = store.key.clone();
    let forced = store.run(Command::ForceRelease(ForceRelease { key, token }));
    assert_eq!(forced, Reply::Gone);
    let newcomer = store.admit(3);
    assert!(matches!(newcomer, Reply::Busy { .. }), "{newcomer:?}");
    let first = store.admit(2);
    assert!(matches!(first, Reply::Admitted(..)), "{first:?}");
}

/// Catches a departure that decides the capacity of a name without data: its client may be of another version, and the
/// waiters that need more would lose their places.
#[test]
fn a_departure_from_a_name_without_data_keeps_its_line() {
    let mut store = Store::new(PLAIN);
    assert!(matches!(store.admit_part(1, (1, 4)), Reply::Admitted(..)));
    let waits = store.admit_part(2, (4, 4));
    assert!(matches!(waits, Reply::Busy { .. }), "{waits:?}");
    store.server.delete(&store.key);
    let vacate = Command::Vacate(Vacate(Release {
        key: store.key.clone(),
        claim: store.part(1, (1, 2)),
        token: None,
        completes: false,
    }));
    assert_eq!(store.run(vacate), Reply::Gone);
    let newcomer = store.admit_part(3, (1, 4));
    assert!(matches!(newcomer, Reply::Busy { .. }), "{newcomer:?}");
    let first = store.admit_part(2, (4, 4));
    assert!(matches!(first, Reply::Admitted(..)), "{first:?}");
}

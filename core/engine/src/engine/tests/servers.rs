//! Several servers, each with keys, a clock and a link of its own.

use std::sync::Arc;
use std::time::Duration;

use super::host::{CLIENT, TIMEOUT, key, ms};
use crate::engine::{
    Answer, CallId, Engine, Input, LockId, LockOptions, LockSpec, Output, RequestId, ServerId,
    Settings, Suspicion, Wait,
};
use crate::error::{Error, ErrorKind};
use crate::event::LeaseEvent;
use crate::name::{Name, Owner};
use crate::protocol::{
    BatchReply, Command, Counter, Grant, LeaseId, LockKey, News, Op, Push, Reply,
};
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;

const LEFT: ServerId = ServerId(1);
const RIGHT: ServerId = ServerId(2);
const TTL: Duration = Duration::from_secs(30);

/// What was sent where.
#[derive(Debug)]
struct Sent {
    server: ServerId,
    request: RequestId,
    batch: Vec<Op>,
}

/// A host of a cluster of two servers, which share the slots; one lock is at each.
struct Cluster {
    engine: Engine,
    now: Timestamp,
    sent: Vec<Sent>,
    events: Vec<LeaseEvent>,
    acquired: Vec<LeaseId>,
    subscribed: Vec<ServerId>,
    suspected: Vec<(ServerId, Suspicion)>,
}

fn lock_at(server: ServerId) -> LockId {
    let half = LockKey::SLOTS / 2;
    let is_there = |lock: &u64| (key(LockId(*lock)).slot() < half) == (server == LEFT);
    LockId((1..1_000).find(is_there).expect("each half has names"))
}

/// The servers' clocks are a minute apart.
fn clock(server: ServerId, now: Timestamp) -> ServerTime {
    let minutes = u64::from(server.0) * 60_000_000;
    ServerTime::from_micros(1_700_000_000_000_000 + minutes + now.as_nanos() / 1_000)
}

impl Cluster {
    fn new() -> Self {
        let settings = Settings {
            clustered: true,
            ..Settings::new(CLIENT)
        };
        let mut cluster = Self {
            engine: Engine::new(settings),
            now: Timestamp::from_nanos(5_000_000_000),
            sent: Vec::new(),
            events: Vec::new(),
            acquired: Vec::new(),
            subscribed: Vec::new(),
            suspected: Vec::new(),
        };
        let half = LockKey::SLOTS / 2;
        for (slots, server) in [(0..=half - 1, LEFT), (half..=LockKey::SLOTS - 1, RIGHT)] {
            cluster.input(Input::Slots { slots, server });
            cluster.input(Input::Connected { server });
        }
        cluster
    }

    fn input(&mut self, input: Input) {
        self.engine.handle(self.now, input);
        loop {
            match self.engine.poll() {
                Output::Wait { .. } => break,
                Output::Send {
                    server,
                    request,
                    batch,
                    ..
                } => self.sent.push(Sent {
                    server,
                    request,
                    batch,
                }),
                Output::Event { event, .. } => self.events.push(event),
                Output::Answer {
                    answer: Answer::Acquire(Ok(Some(acquired))),
                    ..
                } => self.acquired.push(acquired.lease),
                Output::Subscribe { server } => self.subscribed.push(server),
                Output::Watch { .. } => unreachable!("no server says what changes"),
                Output::Suspect { server, why } => self.suspected.push((server, why)),
                _ => {}
            }
        }
    }

    fn acquire(&mut self, lock: LockId, wait: Wait) -> LeaseId {
        let lease = LeaseId(u128::from(lock.0) << 64 | 1);
        let name = Name::new(format!("lock-{}", lock.0)).expect("a short name is valid");
        let options = Arc::new(LockOptions {
            ttl: TTL,
            fixed: false,
            reentrant: false,
            owner: Owner::labelled("host").expect("a short label is valid"),
            counter: Counter::Dense,
            durability: None,
        });
        let key = key(lock);
        let spec = Arc::new(LockSpec { name, key, options });
        let call = CallId(lock.0);
        self.input(Input::Acquire {
            call,
            lock,
            spec,
            lease,
            wait,
        });
        lease
    }

    /// The server of the oldest request answers it, or another one does in its place.
    fn answer(&mut self, by: Option<ServerId>, reply: &Reply) -> Sent {
        let sent = self.sent.remove(0);
        let server = by.unwrap_or(sent.server);
        let time = clock(server, self.now);
        let replies = sent.batch.iter().map(|_| Ok(reply.clone())).collect();
        self.input(Input::Reply {
            server,
            request: sent.request,
            result: Ok(BatchReply {
                time: Some(time),
                replies,
            }),
        });
        sent
    }

    fn held(&self, server: ServerId) -> Reply {
        Reply::Held(Grant {
            token: FencingToken::new(7).expect("a small number is a token"),
            expires: clock(server, self.now) + TTL,
        })
    }

    /// Holds the lock that is at a server.
    fn hold(&mut self, server: ServerId) -> LeaseId {
        let lease = self.acquire(lock_at(server), Wait::Never);
        if matches!(self.sent[0].batch[0].command, Command::Inspect(_)) {
            self.answer(None, &Reply::Late);
        }
        let held = self.held(server);
        self.answer(None, &held);
        assert_eq!(self.acquired.last(), Some(&lease));
        lease
    }
}

fn deadline(events: &[LeaseEvent]) -> Duration {
    match events.last() {
        Some(LeaseEvent::Acquired { remaining, .. }) => *remaining,
        other => panic!("{other:?} is no acquisition"),
    }
}

/// Catches an operation that is sent to a server that has not its keys, and one whose `not_after` is
/// by another server's clock: it might act long after it was given up.
#[test]
fn each_server_is_asked_for_its_own_clock_and_by_a_key_of_its_own() {
    let mut cluster = Cluster::new();
    assert!(cluster.sent.is_empty(), "nothing is asked for yet");
    for server in [LEFT, RIGHT] {
        let lock = lock_at(server);
        cluster.acquire(lock, Wait::Never);
        let asked = cluster.answer(None, &Reply::Late);
        assert_eq!(asked.server, server);
        assert_eq!(asked.batch[0].command.key(), Some(&key(lock)));
        assert_eq!(asked.batch[0].not_after, ServerTime::from_micros(0));
        let held = cluster.held(server);
        let sent = cluster.answer(None, &held);
        assert_eq!(sent.server, server);
        let latest = clock(server, cluster.now + TIMEOUT);
        let soonest = clock(server, cluster.now + TIMEOUT * 9 / 10);
        assert!((soonest..=latest).contains(&sent.batch[0].not_after));
        assert!(deadline(&cluster.events) + ms(100) > TTL);
    }
    assert_eq!(cluster.acquired.len(), 2);
    assert_eq!(cluster.subscribed, [LEFT, RIGHT]);
}

/// Catches a holder that hears of no forced release at the server that its lock's slot has moved to.
#[test]
fn a_holder_listens_at_the_server_that_renews_its_lease() {
    let mut cluster = Cluster::new();
    cluster.hold(LEFT);
    cluster.input(Input::Slots {
        slots: 0..=LockKey::SLOTS - 1,
        server: RIGHT,
    });
    assert_eq!(cluster.subscribed, [LEFT]);
    cluster.now = cluster.now + TTL / 2;
    cluster.input(Input::Tick);
    cluster.answer(None, &Reply::Late);
    let expires = clock(RIGHT, cluster.now) + TTL;
    let sent = cluster.answer(None, &Reply::Renewed { expires });
    assert!(
        matches!(sent.batch[0].command, Command::Renew(_)),
        "{sent:?}"
    );
    assert_eq!(cluster.subscribed, [LEFT, RIGHT]);
}

/// Catches a lease that is lost, warned of or renewed because of another server's link.
#[test]
fn a_link_that_breaks_concerns_the_locks_of_its_server_alone() {
    let mut cluster = Cluster::new();
    cluster.hold(LEFT);
    cluster.hold(RIGHT);
    cluster.events.clear();
    let error = Error::new(ErrorKind::Unavailable, "the cable was pulled");
    cluster.input(Input::Disconnected {
        server: RIGHT,
        error,
    });
    let names: Vec<_> = cluster.events.iter().map(LeaseEvent::name).collect();
    let at_risk = Name::new(format!("lock-{}", lock_at(RIGHT).0)).expect("a valid name");
    assert_eq!(names, [Some(&at_risk)]);
    cluster.input(Input::Connected { server: RIGHT });
    // Its clock is asked for anew, and then the lease is renewed.
    cluster.answer(None, &Reply::Late);
    assert_eq!(cluster.sent.len(), 1);
    assert_eq!(cluster.sent[0].server, RIGHT);
}

/// Catches a slot that moved and whose operations still go where it was, and an answer that is taken
/// for one by the clock of the server that was asked.
#[test]
fn a_slot_that_moves_takes_its_locks_along() {
    let mut cluster = Cluster::new();
    let lock = lock_at(LEFT);
    cluster.acquire(lock, Wait::Never);
    cluster.answer(None, &Reply::Late);
    // The client was redirected, and learnt of it.
    let slot = key(lock).slot();
    cluster.input(Input::Slots {
        slots: slot..=slot,
        server: RIGHT,
    });
    let held = cluster.held(RIGHT);
    cluster.answer(Some(RIGHT), &held);
    let left = deadline(&cluster.events);
    assert!(left + ms(100) > TTL && left < TTL, "{left:?}");
    // Another lock of the same server stays, and the renewal goes along.
    cluster.now = cluster.now + TTL / 3;
    cluster.input(Input::Tick);
    assert_eq!(cluster.sent.remove(0).server, RIGHT);
    let other = (1..1_000).map(LockId).find(|other| {
        let other = key(*other).slot();
        other < LockKey::SLOTS / 2 && other != slot
    });
    cluster.acquire(other.expect("there are more"), Wait::Never);
    assert_eq!(cluster.sent[0].server, LEFT);
}

/// Catches a grant whose deadline is by the clock of whichever server passed the message on.
#[test]
fn a_push_is_by_the_clock_of_the_server_that_has_the_lock() {
    let mut cluster = Cluster::new();
    cluster.hold(LEFT);
    let lease = cluster.acquire(lock_at(RIGHT), Wait::Forever);
    cluster.answer(None, &Reply::Late);
    let busy = Reply::Busy {
        expires: clock(RIGHT, cluster.now) + ms(5_000),
        place: std::num::NonZeroU32::new(1),
    };
    cluster.answer(None, &busy);
    cluster.now = cluster.now + ms(20);
    let time = clock(RIGHT, cluster.now);
    let grant = Grant {
        token: FencingToken::new(9).expect("a small number is a token"),
        expires: time + ms(5_000),
    };
    let push = Push::new(lease, News::Granted { grant, time });
    cluster.input(Input::Push { server: None, push });
    assert_eq!(cluster.acquired.last(), Some(&lease));
    let left = deadline(&cluster.events);
    assert!(left > ms(4_900) && left < ms(5_000), "{left:?}");
}

/// Catches a half-open link that nobody suspects because its host never answers at all.
#[test]
fn a_server_that_is_silent_is_suspected_and_the_others_are_not() {
    let mut cluster = Cluster::new();
    cluster.hold(LEFT);
    cluster.hold(RIGHT);
    for _ in 0..2 {
        cluster.sent.clear();
        let call = CallId(1_000 + u64::from(cluster.suspected.is_empty()));
        cluster.input(Input::Inspect {
            call,
            key: key(lock_at(RIGHT)),
        });
        cluster.now = cluster.now + TIMEOUT;
        cluster.input(Input::Tick);
    }
    assert_eq!(cluster.suspected.first(), Some(&(RIGHT, Suspicion::Silent)));
    assert!(cluster.suspected.iter().all(|(server, _)| *server == RIGHT));
}

/// Catches a server that is taken for silent because of what was asked of it just before a lease ended.
#[test]
fn who_had_hardly_time_to_answer_is_not_suspected() {
    let mut cluster = Cluster::new();
    cluster.hold(RIGHT);
    let mut inspect = |call, time| {
        let (call, key) = (CallId(call), key(lock_at(RIGHT)));
        cluster.input(Input::Inspect { call, key });
        let request = cluster.sent.last().expect("it was sent").request;
        cluster.now = cluster.now + ms(time);
        let (server, result) = (RIGHT, Err(Error::no_answer()));
        cluster.input(Input::Reply {
            server,
            request,
            result,
        });
        cluster.suspected.len()
    };
    assert_eq!((inspect(1_000, 3), inspect(1_001, 90)), (0, 0));
    assert_eq!(inspect(1_002, 20), 1);
}

#[test]
fn a_server_that_became_a_replica_is_suspected_at_once() {
    let mut cluster = Cluster::new();
    cluster.acquire(lock_at(LEFT), Wait::Never);
    cluster.answer(None, &Reply::Late);
    let sent = cluster.sent.remove(0);
    let refused = Error::new(ErrorKind::ReadOnly, "READONLY");
    let (server, time) = (sent.server, clock(LEFT, cluster.now));
    cluster.input(Input::Reply {
        server,
        request: sent.request,
        result: Ok(BatchReply {
            time: Some(time),
            replies: vec![Err(refused)],
        }),
    });
    assert_eq!(cluster.suspected, [(LEFT, Suspicion::Demoted)]);
}

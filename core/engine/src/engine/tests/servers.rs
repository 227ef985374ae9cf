//! Several servers, each with its own keys, clock and connection.

use std::ops::Range;
use std::time::Duration;

use super::cluster::clustered;
use super::host::{Host, Net, Sent, TIMEOUT, TTL, key, lease_of, ms, name_of, place};
use crate::engine::{Input, LockId, ServerId, Suspicion, Wait};
use crate::error::{Error, ErrorKind};
use crate::event::LeaseEvent;
use crate::protocol::{Command, Grant, LockKey, News, Push, Reply};
use crate::time::ServerTime;
use crate::token::FencingToken;

const LEFT: ServerId = ServerId(1);
const RIGHT: ServerId = ServerId(2);

fn lock_at(server: ServerId) -> LockId {
    let half = LockKey::SLOTS / 2;
    let is_there = |lock: &u64| (key(LockId(*lock)).slot() < half) == (server == LEFT);
    LockId(
        (1..1_000)
            .find(is_there)
            .expect("each half of the slots has names"),
    )
}

/// A host of a cluster of two servers, which share the slots, with one lock at each. Their clocks differ by a
/// minute.
fn cluster() -> Host {
    let mut cluster = Host::with(clustered(), 3);
    cluster.ahead = vec![0, 60_000_000, 120_000_000];
    (cluster.net, cluster.subscribes) = (Net::Hold, false);
    let half = LockKey::SLOTS / 2;
    for (slots, server) in [(0..=half - 1, LEFT), (half..=LockKey::SLOTS - 1, RIGHT)] {
        cluster.input(Input::Slots { slots, server });
        cluster.input(Input::Connected { server });
    }
    cluster
}

impl Host {
    /// Lets the server of the oldest request answer it.
    fn says(&mut self, reply: &Reply) -> Sent {
        self.answer_each(&Ok(reply.clone()))
    }

    fn clock(&self, server: ServerId) -> ServerTime {
        self.time(place(server))
    }

    fn held(&self, server: ServerId) -> Reply {
        Reply::Held(Grant {
            token: FencingToken::new(7).expect("a small number is a token"),
            expires: self.clock(server) + TTL,
        })
    }

    /// Acquires the lock that is at a server.
    fn hold_at(&mut self, server: ServerId) {
        let call = self.acquire(lock_at(server), Wait::Never);
        if matches!(self.pending[0].batch[0].command, Command::Inspect(_)) {
            self.says(&Reply::Late);
        }
        let held = self.held(server);
        self.says(&held);
        self.grant(call);
    }

    /// The remaining time of the last acquired lease.
    fn remaining(&self) -> Duration {
        match &self.last_told().event {
            LeaseEvent::Acquired { remaining, .. } => *remaining,
            other => panic!("{other:?} is no acquisition"),
        }
    }
}

/// Catches an operation that goes to a server without its keys, and one whose `not_after` uses another
/// server's clock: it might act long after it was given up.
#[test]
fn each_server_is_asked_for_its_clock_with_one_of_its_keys() {
    let mut cluster = cluster();
    assert!(
        cluster.pending.is_empty(),
        "the engine has not asked for anything yet"
    );
    for server in [LEFT, RIGHT] {
        let lock = lock_at(server);
        let call = cluster.acquire(lock, Wait::Never);
        let asked = cluster.says(&Reply::Late);
        assert_eq!(asked.server, server);
        assert_eq!(asked.batch[0].command.key(), Some(&key(lock)));
        assert_eq!(asked.batch[0].not_after, ServerTime::from_micros(0));
        let held = cluster.held(server);
        let sent = cluster.says(&held);
        assert_eq!(sent.server, server);
        let latest = cluster.clock(server) + TIMEOUT;
        let soonest = cluster.clock(server) + TIMEOUT * 9 / 10;
        assert!((soonest..=latest).contains(&sent.batch[0].not_after));
        cluster.grant(call);
        assert!(cluster.remaining() + ms(100) > TTL);
    }
    assert_eq!(cluster.asked_to_subscribe, [LEFT, RIGHT]);
}

/// Catches a holder that misses a forced release at the server to which its lock's slot has moved.
#[test]
fn a_holder_listens_at_the_server_that_renews_its_lease() {
    let mut cluster = cluster();
    cluster.hold_at(LEFT);
    cluster.input(Input::Slots {
        slots: 0..=LockKey::SLOTS - 1,
        server: RIGHT,
    });
    assert_eq!(cluster.asked_to_subscribe, [LEFT]);
    cluster.sleep(TTL / 2);
    cluster.tick();
    cluster.says(&Reply::Late);
    let expires = cluster.clock(RIGHT) + TTL;
    let sent = cluster.says(&Reply::Renewed { expires });
    assert!(
        matches!(sent.batch[0].command, Command::Renew(_)),
        "{sent:?}"
    );
    assert_eq!(cluster.asked_to_subscribe, [LEFT, RIGHT]);
}

/// Catches the same for a renewal that was asked of the former server, and redirected.
#[test]
fn a_holder_listens_at_the_server_to_which_its_renewal_was_redirected() {
    let mut cluster = cluster();
    cluster.hold_at(LEFT);
    cluster.sleep(TTL / 2);
    cluster.tick();
    cluster.input(Input::Slots {
        slots: 0..=LockKey::SLOTS - 1,
        server: RIGHT,
    });
    cluster.pending[0].server = RIGHT;
    let expires = cluster.clock(RIGHT) + TTL;
    cluster.says(&Reply::Renewed { expires });
    assert_eq!(cluster.told_last(), "renewed");
    assert_eq!(cluster.asked_to_subscribe, [LEFT, RIGHT]);
}

/// Catches a lease that is lost, warned of or renewed because of another server's connection.
#[test]
fn a_broken_connection_concerns_only_the_locks_of_its_server() {
    let mut cluster = cluster();
    cluster.hold_at(LEFT);
    cluster.hold_at(RIGHT);
    cluster.events.clear();
    cluster.cut(place(RIGHT));
    let names = cluster.events.iter().map(|told| told.event.name());
    let at_risk = name_of(lock_at(RIGHT));
    assert_eq!(names.collect::<Vec<_>>(), [Some(&at_risk)]);
    cluster.connect(place(RIGHT));
    // The engine asks for its clock again, and then renews the lease.
    cluster.says(&Reply::Late);
    assert_eq!(cluster.pending.len(), 1);
    assert_eq!(cluster.pending[0].server, RIGHT);
}

/// Catches operations that still go to the former server of a moved slot, and an answer that is interpreted
/// by the clock of the server that was asked.
#[test]
fn a_slot_that_moves_takes_its_locks_along() {
    let mut cluster = cluster();
    let lock = lock_at(LEFT);
    cluster.acquire(lock, Wait::Never);
    cluster.says(&Reply::Late);
    // The client was redirected, and learned the new route.
    let slot = key(lock).slot();
    cluster.input(Input::Slots {
        slots: slot..=slot,
        server: RIGHT,
    });
    let held = cluster.held(RIGHT);
    cluster.pending[0].server = RIGHT;
    cluster.says(&held);
    let left = cluster.remaining();
    assert!(left + ms(100) > TTL && left < TTL, "{left:?}");
    // Another lock of the same server stays, and the renewal goes to the new server.
    cluster.sleep(TTL / 3);
    cluster.tick();
    assert_eq!(cluster.take().server, RIGHT);
    let other = (1..1_000).map(LockId).find(|other| {
        let other = key(*other).slot();
        other < LockKey::SLOTS / 2 && other != slot
    });
    cluster.acquire(other.expect("the server has more locks"), Wait::Never);
    assert_eq!(cluster.pending[0].server, LEFT);
}

/// Catches a grant whose deadline uses the clock of the server that passed the message on.
#[test]
fn a_push_counts_by_the_clock_of_the_server_that_has_the_lock() {
    let mut cluster = cluster();
    cluster.hold_at(LEFT);
    let call = cluster.acquire(lock_at(RIGHT), Wait::Forever);
    cluster.says(&Reply::Late);
    let busy = Reply::Busy {
        expires: cluster.clock(RIGHT) + ms(5_000),
        place: std::num::NonZeroU32::new(1),
    };
    cluster.says(&busy);
    cluster.sleep(ms(20));
    let time = cluster.clock(RIGHT);
    let grant = Grant {
        token: FencingToken::new(9).expect("a small number is a token"),
        expires: time + ms(5_000),
    };
    let push = Push::new(lease_of(call), News::Granted { grant, time });
    cluster.input(Input::Push { server: None, push });
    cluster.grant(call);
    let left = cluster.remaining();
    assert!(left > ms(4_900) && left < ms(5_000), "{left:?}");
}

/// Catches a half-open connection that is never suspected because its host never reports a result.
#[test]
fn a_silent_server_is_suspected_and_the_others_are_not() {
    let mut cluster = cluster();
    cluster.hold_at(LEFT);
    cluster.hold_at(RIGHT);
    for _ in 0..2 {
        cluster.pending.clear();
        cluster.inspect(lock_at(RIGHT));
        cluster.sleep(TIMEOUT);
        cluster.tick();
    }
    assert_eq!(cluster.suspected.first(), Some(&(RIGHT, Suspicion::Silent)));
    assert!(cluster.suspected.iter().all(|(server, _)| *server == RIGHT));
}

/// Catches a server that counts as silent because of a request just before a lease ended.
#[test]
fn a_server_that_had_hardly_time_to_answer_is_not_suspected() {
    let mut cluster = cluster();
    cluster.hold_at(RIGHT);
    let mut inspect = |time| {
        cluster.inspect(lock_at(RIGHT));
        let sent = cluster.pending.pop_back().expect("the request was sent");
        cluster.sleep(ms(time));
        cluster.reply(&sent, Err(Error::no_answer()));
        cluster.suspected.len()
    };
    assert_eq!((inspect(3), inspect(90)), (0, 0));
    assert_eq!(inspect(20), 1);
}

#[test]
fn a_server_that_became_a_replica_is_suspected_at_once() {
    let mut cluster = cluster();
    cluster.acquire(lock_at(LEFT), Wait::Never);
    cluster.says(&Reply::Late);
    cluster.refuse_next(ErrorKind::ReadOnly);
    assert_eq!(cluster.suspected, [(LEFT, Suspicion::Demoted)]);
}

/// Catches a connection to a server that stays a replica, and is replaced with each refusal.
#[test]
fn a_server_that_stays_a_replica_is_suspected_ever_more_rarely() {
    let mut cluster = cluster();
    let mut refusals = |seconds: u64| {
        let before = cluster.suspected.len();
        for _ in 0..seconds * 20 {
            cluster.acquire(lock_at(LEFT), Wait::Never);
            cluster.refuse_next(ErrorKind::ReadOnly);
            cluster.sleep(ms(50));
        }
        cluster.suspected.len() - before
    };
    let first = refusals(2);
    assert!((4..=7).contains(&first), "{first} in the first two seconds");
    let later = refusals(60);
    assert!((11..=16).contains(&later), "{later} in a minute");
}

/// Catches a server that becomes a replica again long after the last time, and is suspected as rarely as one that
/// stayed one.
#[test]
fn a_server_that_becomes_a_replica_once_more_is_suspected_as_the_first_time() {
    let mut cluster = cluster();
    let mut suspicions = |pauses: Range<u64>| {
        let before = cluster.suspected.len();
        for seconds in pauses {
            cluster.acquire(lock_at(LEFT), Wait::Never);
            cluster.refuse_next(ErrorKind::ReadOnly);
            cluster.sleep(ms(seconds * 100));
        }
        cluster.suspected.len() - before
    };
    let first = suspicions(0..9);
    suspicions(9..30);
    suspicions(180..181);
    assert_eq!(suspicions(0..9), first);
}

/// Catches a command that is redirected and comes too late by the clock of its new server, or may act late.
#[test]
fn a_time_of_one_server_is_told_by_the_clock_of_another() {
    let mut cluster = cluster();
    let told = |cluster: &Host| {
        let time = cluster.clock(LEFT) + TIMEOUT;
        cluster.engine.no_later(time, LEFT, RIGHT)
    };
    cluster.hold_at(LEFT);
    assert_eq!(told(&cluster), None, "one of the clocks is not known");
    cluster.hold_at(RIGHT);
    let (bound, exact) = (told(&cluster), cluster.clock(RIGHT) + TIMEOUT);
    let bound = bound.expect("both clocks are known");
    assert!(bound <= exact && bound + ms(50) >= exact);
}

//! Pushes: losses, grants, and messages that concern no lease of this locker.

use super::host::{CLIENT, Host, LOCK, Net, Pushes, SOON, TIMEOUT, TTL, key, ms};
use super::line::in_line;
use crate::engine::{Input, LockId, Wait};
use crate::error::ErrorKind;
use crate::name::Owner;
use crate::protocol::{
    Acquire, Claim, ClientId, Command, Grant, LeaseId, News, Push, Reclaim, Reply,
};
use crate::token::FencingToken;

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("a small number is a token")
}

fn revoked(lease: LeaseId, token: FencingToken) -> Push {
    Push::new(lease, News::Revoked { token })
}

fn superseded(lease: LeaseId, token: FencingToken) -> Push {
    Push::new(lease, News::Superseded { token })
}

fn granted(host: &Host, lease: LeaseId) -> Push {
    let (token, time) = (token(9), host.server_now());
    let expires = time + ms(12_000);
    let grant = Grant { token, expires };
    Push::new(lease, News::Granted { grant, time })
}

#[test]
fn a_holder_that_is_revoked_or_superseded_loses_the_lock_at_once() {
    for (push, reason) in [
        (
            revoked as fn(LeaseId, FencingToken) -> Push,
            "lost: revoked",
        ),
        (superseded, "lost: superseded"),
    ] {
        let mut host = Host::new();
        let grant = host.hold(LOCK);
        host.forget();
        host.servers[0].delete(&key(LOCK));
        host.input(Input::push(push(grant.lease, grant.token)));
        assert_eq!(host.told(), [reason]);
        assert!(!host.is_held(LOCK));
        let release = host.release(grant.lease);
        assert_eq!(host.error(release), ErrorKind::NotHeld);
        host.advance(TTL);
        assert_eq!(host.ops(), ["release"], "the lost lease is not renewed");
        assert!(host.engine.is_idle());
    }
}

/// Catches a reported loss that leaves the lock in the store, where waiters would wait for the rest of its
/// time.
#[test]
fn a_lock_lost_by_a_push_is_given_back() {
    for overtakes in [false, true] {
        let (mut host, call) = Host::asking();
        let (sent, reply) = host.take_reply();
        let lease = host
            .engine
            .acquiring()
            .expect("an acquisition is in progress");
        let push = Input::push(revoked(lease, token(1)));
        host.net = Net::Up;
        if overtakes {
            host.input(push);
            host.reply(&sent, Ok(reply));
        } else {
            host.reply(&sent, Ok(reply));
            host.input(push);
        }
        host.grant(call);
        let lost = ["acquired 1", "lost: revoked"];
        assert_eq!(host.told(), lost);
        assert!(!host.is_taken(LOCK) && host.engine.is_idle());
        assert_eq!(host.ops(), ["acquire", "release"]);
    }
}

/// Catches a push that is trusted by half of a lease ID. A user with pub/sub rights but no key access knows
/// that half.
#[test]
fn a_strangers_message_is_not_trusted() {
    let mut host = Host::new();
    host.pushes = Pushes::Hold;
    let held = host.hold(LockId(2));
    let call = in_line(&mut host);
    let waits = host.engine.acquiring().expect("a waiter is in line");
    host.forget();
    let half = |lease: LeaseId| LeaseId(lease.0 + 1);
    for forged in [
        granted(&host, half(waits)),
        revoked(half(waits), token(1)),
        granted(&host, half(held.lease)),
        revoked(half(held.lease), held.token),
        superseded(half(held.lease), held.token),
    ] {
        host.input(Input::push(forged));
    }
    // A copied message with changed contents.
    let mut overheard = granted(&host, waits);
    if let News::Granted { grant, .. } = &mut overheard.news {
        grant.token = FencingToken::MAX;
    }
    host.input(Input::push(overheard));
    assert!(host.is_open(call) && host.is_held(LockId(2)));
    assert!(host.log.is_empty() && host.events.is_empty());
    // The control: the store's own message.
    host.stranger_releases(LOCK);
    host.push_next();
    host.grant(call);
}

/// Anybody may publish on the channel, and an old message may arrive late. Only the tenure with that lease
/// and token ends.
#[test]
fn a_loss_of_another_lease_or_another_token_is_ignored() {
    let mut host = Host::new();
    let grant = host.hold(LOCK);
    host.hold(LockId(2));
    host.forget();
    let other = LeaseId(grant.lease.0 + 1_000);
    for (lease, token) in [
        (grant.lease, token(2)),
        (other, grant.token),
        (other, token(2)),
    ] {
        host.input(Input::push(revoked(lease, token)));
        host.input(Input::push(superseded(lease, token)));
    }
    assert!(host.is_held(LOCK) && host.is_held(LockId(2)));
    assert!(host.log.is_empty() && host.events.is_empty() && host.done.is_empty());
}

/// A revocation ends the tenure of its own lock only.
#[test]
fn a_revocation_leaves_the_other_locks_alone() {
    let mut host = Host::new();
    let locks = [1, 2, 3].map(LockId);
    let grants = locks.map(|lock| host.hold(lock));
    let (lease, token) = (grants[1].lease, grants[1].token);
    host.input(Input::push(revoked(lease, token)));
    assert_eq!(locks.map(|lock| host.is_held(lock)), [true, false, true]);
}

/// A waiter does not know the token yet, and holds nothing.
#[test]
fn a_loss_does_not_concern_a_waiter() {
    let mut host = Host::new();
    let call = in_line(&mut host);
    let lease = host.engine.acquiring().expect("a waiter is in line");
    let token = token(1);
    host.input(Input::push(revoked(lease, token)));
    host.input(Input::push(superseded(lease, token)));
    assert!(host.is_open(call) && host.log.is_empty() && host.events.is_empty());
    host.stranger_releases(LOCK);
    host.grant(call);
}

/// The answer and the push use different connections. Catches a holder that learns of the loss only at its
/// next renewal, and one that loses a later tenure of the same acquisition.
#[test]
fn a_loss_that_overtakes_the_acquisitions_answer_is_reported_with_it() {
    for regained in [false, true] {
        let (mut host, call) = Host::asking();
        let sent = host.take();
        let mut reply = host.execute(&sent);
        host.stranger_force_releases(LOCK);
        let lease = host
            .engine
            .acquiring()
            .expect("an acquisition is in progress");
        let token = token(1);
        host.input(Input::push(revoked(lease, token)));
        assert!(host.is_open(call) && host.events.is_empty());
        if regained {
            reply = host.execute(&sent);
        }
        host.reply(&sent, Ok(reply));
        host.grant(call);
        let lost = ["acquired 1", "lost: revoked"];
        let told: &[_] = if regained { &["acquired 2"] } else { &lost };
        assert_eq!(host.told(), told);
        assert_eq!(host.is_held(LOCK), regained);
    }
}

/// Catches a grant without a waiter that makes a lock held, or that causes a request.
#[test]
fn a_grant_to_a_lease_that_does_not_wait_does_nothing() {
    let mut host = Host::new();
    let held = host.hold(LOCK);
    let released = host.hold(LockId(2));
    host.release(released.lease);
    host.forget();
    let deadline = host.held_until(LOCK);
    for lease in [LeaseId(12_345), held.lease, released.lease] {
        let push = granted(&host, lease);
        host.input(Input::push(push));
    }
    assert!(host.log.is_empty() && host.events.is_empty());
    assert_eq!(host.held_until(LOCK), deadline);
    assert!(!host.is_held(LockId(2)));
}

#[test]
fn pushes_mean_nothing_before_a_connection_and_after_a_shutdown() {
    let mut host = Host::unconnected();
    let (lease, token) = (LeaseId(1), token(1));
    let pushes = |host: &Host| {
        [
            granted(host, lease),
            revoked(lease, token),
            superseded(lease, token),
        ]
    };
    for push in pushes(&host) {
        host.input(Input::push(push));
    }
    assert!(host.engine.is_idle() && host.wake.is_none());
    host.connect(0);
    host.hold(LOCK);
    host.shutdown();
    host.forget();
    for push in pushes(&host) {
        host.input(Input::push(push));
    }
    assert!(host.log.is_empty() && host.events.is_empty());
    assert!(host.engine.is_idle());
}

/// The new holder is another process of the same owner, as after a restart.
#[test]
fn a_holder_whose_owner_reclaims_the_lock_elsewhere_is_told_at_once() {
    let mut host = Host::new();
    let owner = Owner::reclaimable("job-7").expect("a short owner is valid");
    host.owner = owner.clone();
    let claim = Claim {
        lease: LeaseId(1 << 100),
        client: ClientId(CLIENT.0 + 1),
        owner,
        counter: host.counter,
        ttl: TTL,
        window: ms(12_000),
    };
    let grant = host.hold(LOCK);
    let lease = grant.lease;
    let taken = host.ask(Command::Acquire(Acquire {
        key: key(LOCK),
        claim,
        waits: false,
        reclaims: Reclaim::From(grant.token),
    }));
    assert!(matches!(taken, Reply::Held(_)));
    assert_eq!(host.told(), ["acquired 1", "lost: superseded"]);
    let release = host.release(lease);
    assert_eq!(host.error(release), ErrorKind::NotHeld);
    assert!(host.is_taken(LOCK));
}

/// A renewal in flight must neither revive the tenure nor report the loss twice.
#[test]
fn the_answer_to_a_renewal_after_a_revocation_changes_nothing() {
    for executed_before in [true, false] {
        let (mut host, lease) = Host::holding();
        host.net = Net::Hold;
        let renewal = host.renew(lease);
        let sent = host.take();
        let early = executed_before.then(|| host.execute(&sent));
        host.stranger_force_releases(LOCK);
        assert_eq!(host.error(renewal), ErrorKind::NotHeld);
        let reply = early.unwrap_or_else(|| host.execute(&sent));
        host.reply(&sent, Ok(reply));
        assert_eq!(host.told(), ["acquired 1", "lost: revoked"]);
        host.answer_all();
        host.advance(TTL);
        assert_eq!(host.ops(), ["acquire", "renew", "release"]);
        assert!(host.engine.is_idle());
    }
}

/// A lock that is freed by force goes to the first waiter, which is another owner of the same locker here.
#[test]
fn a_force_release_hands_the_lock_to_the_first_waiter() {
    let (mut host, _) = Host::holding();
    let waiter = host.acquire_as(LockId(2), LOCK, Wait::Forever);
    host.force_release(LOCK);
    assert_eq!(host.grant(waiter).token.get(), 2);
    assert!(!host.is_held(LOCK) && host.is_held(LockId(2)));
    let mut told = host.told();
    told.sort();
    assert_eq!(
        told,
        [
            "acquired 1",
            "acquired 2",
            "lost: revoked",
            "renewed",
            "waiting 1"
        ]
    );
}

/// The first subscription comes a little after the first acquisition, and each later one after a gap. Catches
/// a holder that learns of earlier events only at its next renewal.
#[test]
fn a_holder_checks_its_lock_at_once_when_pushes_arrive_again() {
    for (taken, reason) in [(false, "lost: deleted"), (true, "lost: superseded")] {
        let mut host = Host::new();
        host.subscribes = false;
        host.hold(LOCK);
        host.advance(ms(10));
        host.stranger_force_releases(LOCK);
        if taken {
            host.stranger_acquires(LOCK, TTL);
        }
        assert!(host.is_held(LOCK), "no push reached the holder");
        host.subscribe();
        assert_eq!(host.told(), ["acquired 1", reason]);
        assert_eq!(host.ops(), ["acquire", "renew"]);
    }
}

#[test]
fn a_check_that_finds_the_lock_changes_nothing_for_the_program() {
    let mut host = Host::new();
    host.subscribes = false;
    host.hold(LOCK);
    let deadline = host.held_until(LOCK);
    let next = host.wake;
    host.advance(ms(1_000));
    host.subscribe();
    assert_eq!(host.ops(), ["acquire", "renew"]);
    assert_eq!(host.told(), ["acquired 1"]);
    assert_eq!((host.held_until(LOCK), host.wake), (deadline, next));
    // As for any renewal, a missing answer is reported as a risk and retried.
    host.net = Net::LoseReplies;
    host.subscribe();
    host.advance(TIMEOUT);
    assert_eq!(host.told(), ["acquired 1", "at risk"]);
    host.net = Net::Up;
    host.advance(SOON);
    assert_eq!(host.told(), ["acquired 1", "at risk", "renewed"]);
}

/// A manual renewal that joins a check counts as a renewal.
#[test]
fn a_renewal_that_joins_a_check_extends_the_lease() {
    let mut host = Host::new();
    host.subscribes = false;
    let lease = host.hold(LOCK).lease;
    let deadline = host.held_until(LOCK);
    host.advance(ms(1_000));
    host.net = Net::Hold;
    host.subscribe();
    let renewal = host.renew(lease);
    host.answer_next();
    assert!(host.outcome(renewal).error().is_none());
    assert!(host.held_until(LOCK) > deadline);
    assert_eq!(host.told(), ["acquired 1", "renewed"]);
    assert_eq!(host.ops(), ["acquire", "renew"]);
}

/// The server may have answered the renewal in flight before the subscription.
#[test]
fn a_renewal_in_flight_is_followed_by_a_check() {
    let mut host = Host::new();
    host.subscribes = false;
    let lease = host.hold(LOCK).lease;
    host.advance(ms(1_000));
    host.net = Net::Hold;
    host.renew(lease);
    let (sent, reply) = host.take_reply();
    host.stranger_force_releases(LOCK);
    host.subscribe();
    host.net = Net::Up;
    host.reply(&sent, Ok(reply));
    assert_eq!(host.told(), ["acquired 1", "renewed", "lost: deleted"]);
}

/// A fixed lease ends by itself, and a renewal would make waiters wait longer.
#[test]
fn a_fixed_lease_is_not_checked() {
    let mut host = Host::new();
    (host.subscribes, host.fixed) = (false, true);
    host.hold(LOCK);
    host.advance(ms(10));
    host.subscribe();
    assert_eq!(host.ops(), ["acquire"]);
}

/// A revocation after the lease has ended is not a second end.
#[test]
fn a_loss_is_reported_once() {
    let mut host = Host::new();
    host.pushes = Pushes::Hold;
    let grant = host.hold(LOCK);
    host.force_release(LOCK);
    host.advance(TTL / 3);
    let told = ["acquired 1", "lost: deleted"];
    assert_eq!(host.told(), told);
    host.push_next();
    let (lease, token) = (grant.lease, grant.token);
    host.input(Input::push(revoked(lease, token)));
    assert_eq!(host.told(), told);
    host.hold(LOCK);
    host.input(Input::push(revoked(lease, token)));
    assert!(
        host.is_held(LOCK),
        "the revocation does not concern the next tenure"
    );
}

/// An attempt that was never answered may take the lock again after the revocation.
#[test]
fn a_revoked_tenure_gives_back_what_a_doubted_attempt_may_take() {
    let mut host = Host::on(Net::Hold);
    host.acquire(LOCK, Wait::Forever);
    let ghost = host.take();
    host.net = Net::Up;
    host.connect(0);
    assert!(host.is_held(LOCK));
    host.force_release(LOCK);
    host.execute(&ghost);
    assert!(host.is_taken(LOCK));
    host.advance(ms(2_300));
    assert!(!host.is_taken(LOCK));
    assert!(host.engine.is_idle());
}

/// Catches a search through all held locks for each push. Otherwise anyone with publish rights could keep a
/// large locker busy, and a mass reclaim would never end.
#[test]
fn a_push_costs_the_same_however_much_is_held() {
    let cost = |held: u64| {
        let mut host = Host::new();
        for number in 1..=held {
            host.hold(LockId(number));
        }
        let round = |_| {
            let begin = std::time::Instant::now();
            for number in 0..1_000 {
                host.input(Input::push(revoked(LeaseId(number << 70 | 7), token(1))));
            }
            begin.elapsed()
        };
        // The least of several, because the machine may pause during the others.
        (0..10).map(round).min().expect("there were rounds")
    };
    let (few, many) = (cost(100), cost(20_000));
    assert!(
        many < few * 20,
        "{few:?} with 100 leases, {many:?} with 20,000"
    );
}

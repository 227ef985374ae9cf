//! Servers that forgot to whom they gave a lock.

use std::sync::Arc;
use std::time::Duration;

use super::world::{LONGEST, SOON, State, TIMEOUT, TTL, World, key, key_of};
use crate::engine::quorum::Quorum;
use crate::engine::{Answer, Input, Settings, Wait};
use crate::event::LeaseEvent;
use crate::memory::MemoryServer;
use crate::name::Name;
use crate::protocol::{ClientId, Command, Enter, Entered, Incarnation, Op, Reply, Terms};

/// How a server forgets.
#[derive(Copy, Clone, Debug)]
enum Loss {
    /// `FLUSHALL`, with all connections as they are.
    Flushed,
    /// It begins anew with nothing.
    Empty,
    /// It begins anew with what it had before the lock was taken.
    OldData,
}

const LOSSES: [Loss; 3] = [Loss::Flushed, Loss::Empty, Loss::OldData];

fn lose(world: &mut World, server: usize, (loss, before): (Loss, &MemoryServer)) {
    world.servers[server] = match loss {
        Loss::Flushed => {
            world.servers[server].flush();
            return;
        }
        Loss::Empty => MemoryServer::new(),
        Loss::OldData => before.clone(),
    };
    world.servers[server].begin_anew(u64::from(u32::MAX) + world.now.as_nanos());
    for host in 0..world.hosts.len() {
        world.cut(host, server);
        world.connect(host, server);
    }
}

fn notices(world: &World, host: usize) -> Vec<String> {
    let notices = world.hosts[host].notices.iter();
    let words = notices.map(|notice| match notice {
        LeaseEvent::Quarantined { server, .. } => format!("{server} is out"),
        LeaseEvent::Readmitted { server } => format!("{server} votes"),
        other => format!("{other:?}"),
    });
    words.collect()
}

/// What a server knows.
fn known(world: &mut World, server: usize) -> Entered {
    let terms = Some(Terms {
        longest: LONGEST,
        remember: Vec::new(),
        watch: Vec::new(),
        forget: Vec::new(),
    });
    let (key, incarnation) = (key().mark(), Incarnation(99));
    let command = Command::Enter(Enter {
        key,
        incarnation,
        terms,
    });
    let now = world.time(server);
    let not_after = now;
    let mut replies = world.servers[server]
        .execute(now, &[Op { command, not_after }])
        .replies;
    match replies.remove(0) {
        Ok(Reply::Entered(entered)) => entered,
        other => panic!("{other:?}"),
    }
}

/// Catches a second holder, by the vote of a server that does not know of the first any more.
#[test]
fn a_server_that_forgot_does_not_give_a_lock_twice() {
    for loss in LOSSES {
        let mut world = World::new(2, 3);
        let before = world.servers[1].clone();
        // Of the third the first host's lease is not, and the second host cannot reach the first.
        world.set(2, State::Away);
        let call = world.acquire(0, Wait::Never);
        world.advance(TIMEOUT + SOON);
        world.got(0, call);
        world.cut(1, 0);
        lose(&mut world, 1, (loss, &before));
        world.set(2, State::Up);
        for says in [
            "server 2:",
            "server 2: it came back",
            "may have forgotten locks, and votes again in 1",
        ] {
            let call = world.acquire(1, Wait::Never);
            world.advance(TIMEOUT + SOON);
            let error = world.error(1, call).to_string();
            assert!(error.contains(says), "{loss:?}: {error}");
        }
        assert_eq!(notices(&world, 1), ["2 is out"], "{loss:?}");
    }
}

/// Catches a second holder: the server that forgot begins with a clock that is behind, which is set right then.
#[test]
fn a_clock_that_is_set_forward_does_not_let_a_server_vote_sooner() {
    const HOUR: u64 = 3_600_000_000;
    for loss in LOSSES {
        let mut world = World::new(2, 3);
        world.ahead = vec![HOUR, HOUR, HOUR];
        let before = world.servers[1].clone();
        world.set(2, State::Away);
        let call = world.acquire(0, Wait::Never);
        world.advance(TIMEOUT + SOON);
        world.got(0, call);
        world.ahead[1] = 0;
        lose(&mut world, 1, (loss, &before));
        world.set(2, State::Up);
        let call = world.acquire(1, Wait::Never);
        world.advance(TIMEOUT + SOON);
        assert!(world.answer(1, call).is_some());
        world.cut(1, 0);
        world.ahead[1] = HOUR;
        let later = world.join(LONGEST);
        world.cut(later, 0);
        for host in [1, later, 1, later] {
            for server in [1, 2] {
                world.cut(host, server);
                world.connect(host, server);
            }
            let call = world.acquire(host, Wait::Never);
            world.advance(TIMEOUT + SOON);
            let answer = world.answer(host, call);
            let is_held = matches!(answer, Some(Answer::Acquire(Ok(Some(_)))));
            assert!(answer.is_some() && !is_held, "{loss:?}: {answer:?}");
            assert_eq!(notices(&world, host), ["2 is out"], "{loss:?}");
        }
    }
}

/// Catches a server that is said to be back before the held leases stand on it: the next one that restarts takes
/// them along. And a locker that asks for them so late that no rule by the time would do.
#[test]
fn servers_that_restart_one_after_another_take_no_lease_along() {
    for waits_for_event in [true, false] {
        let mut world = World::new(2, 3);
        let lease = world.hold(0);
        for restart in 0..6 {
            let server = restart % 3;
            lose(&mut world, server, (Loss::Empty, &MemoryServer::new()));
            let (says, begin) = (format!("{} votes", server + 1), world.now);
            let is_back = |world: &World| {
                let said = notices(world, 0);
                said.iter().filter(|said| **said == says).count() > restart / 3
            };
            // Holders ask as soon as they may, and not at the pace of renewals.
            let soon = LONGEST + LONGEST / 100 + SOON * 2;
            while waits_for_event && !is_back(&world) {
                world.advance(Duration::from_millis(10));
                assert!(world.now.since(begin) < soon, "at restart {restart}");
            }
            if !waits_for_event {
                world.advance(LONGEST * 3 / 2);
                assert!(is_back(&world));
            }
            assert!(!world.story(0).contains(&"lost"), "at restart {restart}");
        }
        assert_eq!(world.left().0, 3);
        world.release(0, lease.lease);
    }
}

/// Catches a waiter that takes the turn at a server that votes again before the holder has its lease there: with the
/// next server that restarts the lease is gone.
#[test]
fn a_server_that_votes_again_is_asked_by_holders_first() {
    for server in 0..3 {
        let mut world = World::new(2, 3);
        world.hold(1);
        lose(&mut world, server, (Loss::Empty, &MemoryServer::new()));
        // The holder connects last.
        world.cut(1, server);
        until_back(&mut world, 0, server);
        for wait in [Wait::Never, Wait::Forever] {
            world.acquire(0, wait);
            world.advance(SOON);
        }
        world.connect(1, server);
        until_back(&mut world, 1, server);
        lose(
            &mut world,
            (server + 1) % 3,
            (Loss::Empty, &MemoryServer::new()),
        );
        world.advance(TTL * 2);
        assert!(!world.story(1).contains(&"lost"), "server {server}");
    }
}

/// Catches a lock that cannot be had because a server is left to holders though it is needed.
#[test]
fn a_server_that_votes_again_is_asked_by_all_if_the_others_are_too_few() {
    let mut world = World::new(2, 3);
    lose(&mut world, 1, (Loss::Empty, &MemoryServer::new()));
    until_back(&mut world, 0, 1);
    let lease = world.hold(0);
    assert_eq!(world.left().0, 2);
    world.release(0, lease.lease);
    world.set(0, State::Away);
    world.cut(0, 0);
    world.hold(0);
    assert_eq!(world.left().0, 2);
}

/// Catches a server that is said to be back while a fixed lease lives that began without it, and never stands on it.
#[test]
fn a_server_is_back_once_fixed_leases_that_began_without_it_are_over() {
    let mut world = World::new(1, 3);
    lose(&mut world, 1, (Loss::Empty, &MemoryServer::new()));
    world.advance(LONGEST.saturating_sub(TTL / 2));
    let mut spec = world.spec(0);
    Arc::make_mut(&mut spec.options).fixed = true;
    let call = world.acquire_as(0, Wait::Never, spec);
    world.got(0, call);
    assert_eq!(world.left().0, 2);
    until_back(&mut world, 0, 1);
    assert_eq!(world.left().0, 0);
    // One that begins later stands on it at once, and is waited for by nobody.
    let mut spec = world.spec(0);
    Arc::make_mut(&mut spec.options).fixed = true;
    let call = world.acquire_as(0, Wait::Never, spec);
    world.got(0, call);
    assert_eq!(world.left().0, 3);
}

/// Lets time pass until a host says that this server is back.
fn until_back(world: &mut World, host: usize, server: usize) {
    let (says, begin) = (format!("{} votes", server + 1), world.now);
    while notices(world, host).last() != Some(&says) {
        world.advance(Duration::from_millis(10));
        assert!(world.now.since(begin) < LONGEST * 3 / 2, "{says}");
    }
}

/// Catches a server that is asked for all leases at once when it votes again.
#[test]
fn leases_are_asked_for_one_after_another_at_a_server_that_votes_again() {
    const LEASES: usize = 2_000;
    let mut world = World::new(1, 3);
    let name = |number| Name::new(format!("lock {number}")).expect("a short name is valid");
    let names: Vec<_> = (0..LEASES).map(name).collect();
    for name in &names {
        let call = world.acquire_named(0, name);
        world.got(0, call);
    }
    lose(&mut world, 1, (Loss::Empty, &MemoryServer::new()));
    let stand = |world: &World| {
        let time = world.time(1);
        let stands = |name: &&Name| world.servers[1].tenure(time, &key_of(name)).is_some();
        names.iter().filter(stands).count()
    };
    let tenth = Duration::from_millis(100);
    let (mut last, mut most, begin) = (0, 0, world.now);
    while notices(&world, 0) != ["2 is out", "2 votes"] {
        world.advance(tenth);
        let now = stand(&world);
        (last, most) = (now, most.max(now.saturating_sub(last)));
        assert!(
            world.now.since(begin) < LONGEST * 3 / 2,
            "{now} stand on it"
        );
    }
    assert_eq!(last, LEASES);
    assert!(most <= 110, "{most} within {tenth:?}");
    assert!(!world.story(0).contains(&"lost"));
}

/// Catches two holders: a server that forgot the longer leases of one votes too early for the other.
#[test]
fn a_locker_with_another_longest_time_to_live_is_refused() {
    for longest in [LONGEST / 2, LONGEST * 2] {
        let mut world = World::new(1, 3);
        let other = world.join(longest);
        // A server that forgot keeps nothing of it.
        lose(&mut world, 1, (Loss::Empty, &MemoryServer::new()));
        for _ in 0..2 {
            let call = world.acquire(other, Wait::Forever);
            world.advance(SOON);
            let error = world.error(other, call);
            assert!(error.is_config(), "{error}");
            assert_eq!(error.option(), Some("longest_ttl"));
            let text = error.to_string();
            let key = key().mark();
            let says = [
                format!("{longest:?}"),
                format!("{LONGEST:?}"),
                key.lock().into(),
            ];
            assert!(says.iter().all(|said| text.contains(said)), "{text}");
        }
        world.hold(0);
        world.advance(LONGEST + TTL);
        assert_eq!(world.left().0, 3, "it votes again");
        for server in 0..3 {
            assert_eq!(known(&mut world, server).longest, LONGEST);
        }
        // Once all is gone that servers kept of it, it may be another.
        world.servers.iter_mut().for_each(MemoryServer::flush);
        let call = world.next_call(0);
        world.input(0, Input::Shutdown { call });
        world.ttl = TTL / 2;
        world.advance(LONGEST);
        world.hold(other);
    }
}

/// Catches a locker that has its locks from the servers that forgot what the others still keep.
#[test]
fn one_server_that_keeps_another_longest_time_to_live_is_enough_to_refuse() {
    let mut world = World::new(1, 3);
    world.servers[..2].iter_mut().for_each(MemoryServer::flush);
    let other = world.join(LONGEST / 2);
    for _ in 0..2 {
        let call = world.acquire(other, Wait::Never);
        world.advance(SOON);
        let error = world.error(other, call);
        let text = error.to_string();
        assert!(error.is_config() && text.contains("server 3"), "{text}");
        for server in [0, 1] {
            world.cut(other, server);
            world.connect(other, server);
            world.advance(SOON);
        }
    }
    for server in [0, 1] {
        assert_eq!(known(&mut world, server).known, [], "none may vote by it");
    }
    assert_eq!(world.left(), (0, 0));
}

/// Catches a server that votes no more once it knows too many that are over, because one server was away for long.
#[test]
fn a_server_that_knows_too_many_incarnations_votes() {
    let mut world = World::fresh(1, 3);
    for (server, own) in (0..3).zip(1_u128..) {
        let over = |number: u128| Incarnation(number << 64 | 1);
        let terms = Terms {
            longest: LONGEST,
            remember: (1..=256).map(over).collect(),
            watch: Vec::new(),
            forget: Vec::new(),
        };
        let command = Command::Enter(Enter {
            key: key().mark(),
            incarnation: Incarnation(own),
            terms: Some(terms),
        });
        let not_after = world.time(server);
        world.servers[server].execute(not_after, &[Op { command, not_after }]);
        assert_eq!(known(&mut world, server).known.len(), 256);
    }
    let call = world.acquire(0, Wait::Never);
    world.advance(LONGEST + SOON);
    world.error(0, call);
    world.hold(0);
    assert_eq!(world.left().0, 3);
}

#[test]
fn it_votes_again_after_the_longest_time_to_live() {
    for loss in LOSSES {
        let mut world = World::new(1, 3);
        let before = world.servers[1].clone();
        lose(&mut world, 1, (loss, &before));
        // That it forgot shows when it is asked for a lock.
        let lease = world.hold(0);
        world.advance(SOON);
        assert_eq!(world.left().0, 2, "{loss:?}");
        assert_eq!(notices(&world, 0), ["2 is out"], "{loss:?}");
        world.advance(LONGEST.saturating_sub(SOON * 2));
        assert_eq!(world.left().0, 2, "{loss:?}");
        world.advance(TTL);
        assert_eq!(notices(&world, 0), ["2 is out", "2 votes"], "{loss:?}");
        assert_eq!(world.left().0, 3, "the lease is there, too: {loss:?}");
        world.release(0, lease.lease);
        // What it was before is known to nobody any more.
        for server in 0..3 {
            let known = known(&mut world, server).known;
            assert_eq!(known.len(), 3, "{loss:?}: {known:?}");
        }
    }
}

/// Catches a quorum that has to wait out a quarantine before its first lock.
#[test]
fn a_new_set_of_servers_begins_soon_though_a_minority_is_away() {
    for away in [State::Away, State::Frozen] {
        let mut world = World::fresh(2, 5);
        world.set(1, away);
        world.set(3, away);
        for host in [0, 1] {
            let call = world.acquire(host, Wait::Never);
            world.advance(Duration::from_millis(110));
            let lease = world.got(host, call);
            if host == 0 {
                world.release(host, lease.lease);
            }
        }
        assert!(notices(&world, 0).is_empty() && notices(&world, 1).is_empty());
        // Those that come later are let in at once.
        world.set(1, State::Up);
        world.set(3, State::Up);
        world.advance(TTL);
        assert_eq!(world.left().0, 5);
        assert!(notices(&world, 0).is_empty() && notices(&world, 1).is_empty());
    }
}

/// Catches a first lease that stands on those alone that were the first to vote, and that goes with one of them.
#[test]
fn the_first_lease_of_a_new_quorum_stands_on_all() {
    let mut world = World::fresh(1, 5);
    (3..5).for_each(|late| world.set(late, State::Frozen));
    let call = world.acquire(0, Wait::Never);
    world.advance(Duration::from_millis(5));
    assert!(world.answer(0, call).is_none());
    (3..5).for_each(|late| world.set(late, State::Up));
    world.got(0, call);
    assert_eq!(world.left().0, 5);
}

/// Catches a server that is taken for new though the others still know what it was.
#[test]
fn a_server_that_replaces_one_that_voted_is_not_let_in_at_once() {
    let mut world = World::new(2, 3);
    world.servers[2] = MemoryServer::new();
    world.cut(1, 2);
    world.connect(1, 2);
    let call = world.acquire(1, Wait::Never);
    world.got(1, call);
    world.advance(SOON);
    assert_eq!(
        (world.left().0, notices(&world, 1)),
        (2, vec!["3 is out".to_owned()])
    );
}

#[test]
fn who_waits_stands_in_line_at_a_server_that_votes() {
    let mut world = World::new(3, 3);
    let lease = world.hold(0);
    let first = world.acquire(1, Wait::Forever);
    let before = MemoryServer::new();
    lose(&mut world, 0, (Loss::Empty, &before));
    let second = world.acquire(2, Wait::Forever);
    world.advance(SOON);
    world.release(0, lease.lease);
    world.advance(SOON * 4);
    let served: Vec<_> = [(1, first), (2, second)]
        .into_iter()
        .filter(|(host, call)| world.answer(*host, *call).is_some())
        .collect();
    assert_eq!(served.len(), 1, "{served:?}");
    let (host, call) = served[0];
    let lease = world.got(host, call);
    assert_eq!(world.left().0, 2);
    world.release(host, lease.lease);
    world.advance(SOON * 4);
    for (host, call) in [(1, first), (2, second)] {
        world.got(host, call);
    }
}

/// Catches a link that breaks, and costs a vote.
#[test]
fn a_server_that_only_was_out_of_reach_votes_at_once() {
    let mut world = World::new(1, 3);
    for server in [0, 1] {
        world.cut(0, server);
        world.connect(0, server);
    }
    world.hold(0);
    world.advance(SOON);
    assert_eq!((world.left().0, notices(&world, 0).len()), (3, 0));
}

#[test]
fn leases_live_for_no_longer_than_a_server_is_silent() {
    let mut world = World::new(1, 3);
    let lease = world.hold(0);
    let call = world.next_call(0);
    let (id, longer) = (lease.lease, LONGEST + Duration::from_millis(1));
    world.input(
        0,
        Input::Renew {
            call,
            lease: id,
            ttl: Some(longer),
            floor: None,
        },
    );
    assert_eq!(world.error(0, call).option(), Some("longest_ttl"));
    let call = world.release(0, lease.lease);
    assert_eq!(world.answer(0, call), Some(&Answer::Release(Ok(()))));
    world.ttl = longer;
    let call = world.acquire(0, Wait::Never);
    let error = world.error(0, call);
    assert!(
        error.is_config() && error.option() == Some("longest_ttl"),
        "{error}"
    );
    let mut settings = Settings::new(ClientId(1));
    settings.longest_ttl = Duration::ZERO;
    assert!(
        settings
            .clone()
            .checked()
            .is_err_and(|error| error.option() == Some("longest_ttl"))
    );
    settings.longest_ttl = LONGEST;
    assert!(Quorum::new(settings, 3).is_ok());
}

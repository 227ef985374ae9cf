//! Servers that forgot who has a lock.

use std::time::Duration;

use super::world::{
    Host, LOCK, LONGEST, Net, SOON, TIMEOUT, TTL, fresh, key, key_of, ms, quorum, settings,
};
use crate::engine::quorum::Quorum;
use crate::engine::{Answer, Settings, Wait};
use crate::event::LeaseEvent;
use crate::memory::MemoryServer;
use crate::name::Name;
use crate::protocol::{ClientId, Command, Enter, Entered, Incarnation, Reply, Terms};

/// How a server loses its data.
#[derive(Copy, Clone, Debug)]
enum Loss {
    /// `FLUSHALL`, which keeps all connections.
    Flushed,
    /// A restart without data.
    Empty,
    /// A restart with the data from before the lock was taken.
    OldData,
}

const LOSSES: [Loss; 3] = [Loss::Flushed, Loss::Empty, Loss::OldData];

fn lose(world: &mut Host, server: usize, (loss, before): (Loss, &MemoryServer)) {
    world.servers[server] = match loss {
        Loss::Flushed => {
            world.servers[server].flush();
            return;
        }
        Loss::Empty => MemoryServer::new(),
        Loss::OldData => before.clone(),
    };
    world.servers[server].begin_anew(u64::from(u32::MAX) + world.now.as_nanos());
    for host in 0..world.lockers.len() {
        world.at(host).cut(server);
        world.at(host).connect(server);
    }
}

fn notices(world: &Host, host: usize) -> Vec<String> {
    let notices = world.lockers[host].notices.iter();
    let words = notices.map(|notice| match notice {
        LeaseEvent::Quarantined { server, .. } => format!("{server} is out"),
        LeaseEvent::Readmitted { server } => format!("{server} votes"),
        other => format!("{other:?}"),
    });
    words.collect()
}

/// Returns the incarnations that a server knows.
fn known(world: &mut Host, server: usize) -> Entered {
    let terms = Some(Terms {
        longest: LONGEST,
        remember: Vec::new(),
        watch: Vec::new(),
        forget: Vec::new(),
    });
    let (key, incarnation) = (key(LOCK).mark(), Incarnation(99));
    let command = Command::Enter(Enter {
        key,
        incarnation,
        terms,
    });
    match world.ask_at(server, command) {
        Reply::Entered(entered) => entered,
        other => panic!("{other:?}"),
    }
}

/// Catches a second holder, by the vote of a server that forgot the first holder.
#[test]
fn a_server_that_forgot_does_not_give_a_lock_twice() {
    for loss in LOSSES {
        let mut world = quorum(2, 3);
        let before = world.servers[1].clone();
        // The first host does not have the lock at server 3, and the second host cannot reach server 1.
        world.set(2, Net::LoseRequests);
        let call = world.acquire(LOCK, Wait::Never);
        world.advance(TIMEOUT + SOON);
        world.grant(call);
        world.at(1).cut(0);
        lose(&mut world, 1, (loss, &before));
        world.set(2, Net::Up);
        for says in [
            "server 2:",
            "server 2: it came back",
            "may have forgotten locks, and votes again in 1",
        ] {
            let call = world.at(1).acquire(LOCK, Wait::Never);
            world.advance(TIMEOUT + SOON);
            let error = world.failure(call).to_string();
            assert!(error.contains(says), "{loss:?}: {error}");
        }
        assert_eq!(notices(&world, 1), ["2 is out"], "{loss:?}");
    }
}

/// Catches a second holder: a server restarts with a clock that is behind, and then the clock is corrected.
#[test]
fn a_clock_that_is_set_forward_does_not_let_a_server_vote_sooner() {
    const HOUR: u64 = 3_600_000_000;
    for loss in LOSSES {
        let mut world = quorum(2, 3);
        world.ahead = vec![HOUR, HOUR, HOUR];
        let before = world.servers[1].clone();
        world.set(2, Net::LoseRequests);
        let call = world.acquire(LOCK, Wait::Never);
        world.advance(TIMEOUT + SOON);
        world.grant(call);
        world.ahead[1] = 0;
        lose(&mut world, 1, (loss, &before));
        world.set(2, Net::Up);
        let call = world.at(1).acquire(LOCK, Wait::Never);
        world.advance(TIMEOUT + SOON);
        assert!(!world.is_open(call));
        world.at(1).cut(0);
        world.ahead[1] = HOUR;
        let later = world.enter(settings(2));
        world.at(later).cut(0);
        for host in [1, later, 1, later] {
            for server in [1, 2] {
                world.at(host).cut(server);
                world.at(host).connect(server);
            }
            let call = world.at(host).acquire(LOCK, Wait::Never);
            world.advance(TIMEOUT + SOON);
            let answer = world.outcome(call);
            let is_held = matches!(answer, Answer::Acquire(Ok(Some(_))));
            assert!(!is_held, "{loss:?}: {answer:?}");
            assert_eq!(notices(&world, host), ["2 is out"], "{loss:?}");
        }
    }
}

/// Catches a server that is reported to be back before all held leases stand on it: then the next restart
/// loses them. Also catches a locker that asks for its leases too late for any waiting time to suffice.
#[test]
fn servers_that_restart_one_after_another_take_no_lease_along() {
    for waits_for_event in [true, false] {
        let mut world = quorum(2, 3);
        let lease = world.hold(LOCK);
        for restart in 0..6 {
            let server = restart % 3;
            lose(&mut world, server, (Loss::Empty, &MemoryServer::new()));
            let (says, begin) = (format!("{} votes", server + 1), world.now);
            let is_back = |world: &Host| {
                let said = notices(world, 0);
                said.iter().filter(|said| **said == says).count() > restart / 3
            };
            // Holders ask as soon as they may, not at the pace of renewals.
            let soon = LONGEST + LONGEST / 100 + SOON * 2;
            while waits_for_event && !is_back(&world) {
                world.advance(ms(10));
                assert!(world.now.since(begin) < soon, "at restart {restart}");
            }
            if !waits_for_event {
                world.advance(LONGEST * 3 / 2);
                assert!(is_back(&world));
            }
            assert!(!world.story(0).contains(&"lost"), "at restart {restart}");
        }
        assert_eq!(world.left().0, 3);
        world.release(lease.lease);
    }
}

/// Catches a waiter that takes a turn at a server that votes again before the holder has its lease there:
/// then the next restart loses the lease.
#[test]
fn a_server_that_votes_again_is_asked_by_holders_first() {
    for server in 0..3 {
        let mut world = quorum(2, 3);
        world.at(1).hold(LOCK);
        lose(&mut world, server, (Loss::Empty, &MemoryServer::new()));
        // The holder connects last.
        world.at(1).cut(server);
        until_back(&mut world, 0, server);
        for wait in [Wait::Never, Wait::Forever] {
            world.acquire(LOCK, wait);
            world.advance(SOON);
        }
        world.at(1).connect(server);
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

/// Catches a lock that nobody can get because a server that is needed is reserved for holders.
#[test]
fn a_server_that_votes_again_is_asked_by_all_if_the_others_are_too_few() {
    let mut world = quorum(2, 3);
    lose(&mut world, 1, (Loss::Empty, &MemoryServer::new()));
    until_back(&mut world, 0, 1);
    let lease = world.hold(LOCK);
    assert_eq!(world.left().0, 2);
    world.release(lease.lease);
    world.set(0, Net::LoseRequests);
    world.cut(0);
    world.hold(LOCK);
    assert_eq!(world.left().0, 2);
}

/// Catches a server that is reported to be back while a fixed lease lives that began without it.
#[test]
fn a_server_is_back_once_fixed_leases_that_began_without_it_are_over() {
    let mut world = quorum(1, 3);
    lose(&mut world, 1, (Loss::Empty, &MemoryServer::new()));
    world.advance(LONGEST.saturating_sub(TTL / 2));
    world.fixed = true;
    world.hold(LOCK);
    assert_eq!(world.left().0, 2);
    until_back(&mut world, 0, 1);
    assert_eq!(world.left().0, 0);
    // A fixed lease that begins later stands on the server at once, and delays nothing.
    world.fixed = true;
    world.hold(LOCK);
    assert_eq!(world.left().0, 3);
}

/// Lets time pass until a host reports that this server is back.
fn until_back(world: &mut Host, host: usize, server: usize) {
    let (says, begin) = (format!("{} votes", server + 1), world.now);
    while notices(world, host).last() != Some(&says) {
        world.advance(ms(10));
        assert!(world.now.since(begin) < LONGEST * 3 / 2, "{says}");
    }
}

/// Catches a server that is asked for all leases at once when it votes again.
#[test]
fn leases_are_asked_for_one_after_another_at_a_server_that_votes_again() {
    const LEASES: usize = 2_000;
    let mut world = quorum(1, 3);
    let name = |number| Name::new(format!("lock {number}")).expect("a short name is valid");
    let names: Vec<_> = (0..LEASES).map(name).collect();
    for name in &names {
        let call = world.acquire_name(name, Wait::Never);
        world.grant(call);
    }
    lose(&mut world, 1, (Loss::Empty, &MemoryServer::new()));
    let stand = |world: &Host| {
        let time = world.time(1);
        let stands = |name: &&Name| world.servers[1].tenure(time, &key_of(name)).is_some();
        names.iter().filter(stands).count()
    };
    let tenth = ms(100);
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

/// Catches two holders: a server that forgot long leases of one locker votes too early for another locker.
#[test]
fn a_locker_with_another_longest_time_to_live_is_refused() {
    for longest in [LONGEST / 2, LONGEST * 2] {
        let mut world = quorum(1, 3);
        let other = world.enter(Settings {
            longest_ttl: longest,
            ..settings(1)
        });
        // A server that forgot its data does not take the refused locker's value.
        lose(&mut world, 1, (Loss::Empty, &MemoryServer::new()));
        for _ in 0..2 {
            let call = world.at(other).acquire(LOCK, Wait::Forever);
            world.advance(SOON);
            let error = world.failure(call);
            assert!(error.is_config(), "{error}");
            assert_eq!(error.option(), Some("longest_ttl"));
            let text = error.to_string();
            let key = key(LOCK).mark();
            let says = [
                format!("{longest:?}"),
                format!("{LONGEST:?}"),
                key.lock().into(),
            ];
            assert!(says.iter().all(|said| text.contains(said)), "{text}");
        }
        world.hold(LOCK);
        world.advance(LONGEST + TTL);
        assert_eq!(world.left().0, 3, "the server votes again");
        for server in 0..3 {
            assert_eq!(known(&mut world, server).longest, LONGEST);
        }
        // Once all servers have lost the longest time to live, it may change.
        world.servers.iter_mut().for_each(MemoryServer::flush);
        world.shutdown();
        world.ttl = TTL / 2;
        world.advance(LONGEST);
        world.at(other).hold(LOCK);
    }
}

/// Catches a locker with another longest time to live that gets locks from servers that forgot the value of
/// the others.
#[test]
fn one_server_that_keeps_another_longest_time_to_live_is_enough_to_refuse() {
    let mut world = quorum(1, 3);
    world.servers[..2].iter_mut().for_each(MemoryServer::flush);
    let other = world.enter(Settings {
        longest_ttl: LONGEST / 2,
        ..settings(1)
    });
    for _ in 0..2 {
        let call = world.at(other).acquire(LOCK, Wait::Never);
        world.advance(SOON);
        let error = world.failure(call);
        let text = error.to_string();
        assert!(error.is_config() && text.contains("server 3"), "{text}");
        for server in [0, 1] {
            world.at(other).cut(server);
            world.at(other).connect(server);
            world.advance(SOON);
        }
    }
    for server in [0, 1] {
        assert_eq!(
            known(&mut world, server).known,
            [],
            "the refused locker lets no server vote"
        );
    }
    assert_eq!(world.left(), (0, 0));
}

/// Catches a server that stops voting because it knows too many ended incarnations, after one server was away
/// for long.
#[test]
fn a_server_that_knows_too_many_incarnations_votes() {
    let mut world = fresh(1, 3);
    for (server, own) in (0..3).zip(1_u128..) {
        let over = |number: u128| Incarnation(number << 64 | 1);
        let terms = Terms {
            longest: LONGEST,
            remember: (1..=256).map(over).collect(),
            watch: Vec::new(),
            forget: Vec::new(),
        };
        let command = Command::Enter(Enter {
            key: key(LOCK).mark(),
            incarnation: Incarnation(own),
            terms: Some(terms),
        });
        world.ask_at(server, command);
        assert_eq!(known(&mut world, server).known.len(), 256);
    }
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(LONGEST + SOON);
    world.failure(call);
    world.hold(LOCK);
    assert_eq!(world.left().0, 3);
}

#[test]
fn a_server_that_forgot_votes_again_after_the_longest_time_to_live() {
    for loss in LOSSES {
        let mut world = quorum(1, 3);
        let before = world.servers[1].clone();
        lose(&mut world, 1, (loss, &before));
        // The loss is found when the server is asked for a lock.
        let lease = world.hold(LOCK);
        world.advance(SOON);
        assert_eq!(world.left().0, 2, "{loss:?}");
        assert_eq!(notices(&world, 0), ["2 is out"], "{loss:?}");
        world.advance(LONGEST.saturating_sub(SOON * 2));
        assert_eq!(world.left().0, 2, "{loss:?}");
        world.advance(TTL);
        assert_eq!(notices(&world, 0), ["2 is out", "2 votes"], "{loss:?}");
        assert_eq!(world.left().0, 3, "the lease is there, too: {loss:?}");
        world.release(lease.lease);
        // No server knows the former incarnation any more.
        for server in 0..3 {
            let known = known(&mut world, server).known;
            assert_eq!(known.len(), 3, "{loss:?}: {known:?}");
        }
    }
}

/// Catches a quorum that has to wait out a quarantine before its first lock.
#[test]
fn a_new_set_of_servers_begins_soon_though_a_minority_is_away() {
    for away in [Net::LoseRequests, Net::Frozen] {
        let mut world = fresh(2, 5);
        world.set(1, away);
        world.set(3, away);
        for host in [0, 1] {
            let call = world.at(host).acquire(LOCK, Wait::Never);
            world.advance(ms(110));
            let lease = world.grant(call);
            if host == 0 {
                world.at(host).release(lease.lease);
            }
        }
        assert!(notices(&world, 0).is_empty() && notices(&world, 1).is_empty());
        // Servers that come later are admitted at once.
        world.set_all([1, 3], Net::Up);
        world.advance(TTL);
        assert_eq!(world.left().0, 5);
        assert!(notices(&world, 0).is_empty() && notices(&world, 1).is_empty());
    }
}

/// Catches a first lease that stands only on the first servers to vote, and is lost with one of them.
#[test]
fn the_first_lease_of_a_new_quorum_stands_on_all() {
    let mut world = fresh(1, 5);
    world.set_all(3..5, Net::Frozen);
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(ms(5));
    assert!(world.is_open(call));
    world.set_all(3..5, Net::Up);
    world.grant(call);
    assert_eq!(world.left().0, 5);
}

/// Catches a server that counts as new although the others know its former incarnation.
#[test]
fn a_server_that_replaces_one_that_voted_is_not_admitted_at_once() {
    let mut world = quorum(2, 3);
    world.servers[2] = MemoryServer::new();
    world.at(1).cut(2);
    world.at(1).connect(2);
    let call = world.at(1).acquire(LOCK, Wait::Never);
    world.grant(call);
    world.advance(SOON);
    assert_eq!(
        (world.left().0, notices(&world, 1)),
        (2, vec!["3 is out".to_owned()])
    );
}

#[test]
fn waiters_stand_in_line_at_servers_that_vote() {
    for lost in 0..3 {
        let mut world = quorum(3, 3);
        let lease = world.hold(LOCK).lease;
        let first = world.at(1).acquire(LOCK, Wait::Forever);
        lose(&mut world, lost, (Loss::Empty, &MemoryServer::new()));
        let second = world.at(2).acquire(LOCK, Wait::Forever);
        world.advance(SOON);
        world.release(lease);
        world.advance(SOON * 4);
        let mut served = vec![(1, first), (2, second)];
        served.retain(|(_, call)| !world.is_open(*call));
        assert_eq!(served.len(), 1, "{served:?} without {lost}");
        let (host, call) = served[0];
        let lease = world.grant(call).lease;
        assert_eq!(world.left().0, 2);
        world.at(host).release(lease);
        world.advance(SOON * 4);
        for call in [first, second] {
            world.grant(call);
        }
    }
}

/// Catches a broken link that costs a vote.
#[test]
fn a_server_that_was_only_unreachable_votes_at_once() {
    let mut world = quorum(1, 3);
    for server in [0, 1] {
        world.cut(server);
        world.connect(server);
    }
    world.hold(LOCK);
    world.advance(SOON);
    assert_eq!((world.left().0, notices(&world, 0).len()), (3, 0));
}

#[test]
fn no_lease_lives_longer_than_the_longest_time_to_live() {
    let mut world = quorum(1, 3);
    let lease = world.hold(LOCK);
    let longer = LONGEST + ms(1);
    let call = world.renew_for(lease.lease, longer);
    assert_eq!(world.failure(call).option(), Some("longest_ttl"));
    let call = world.release(lease.lease);
    assert_eq!(world.outcome(call), &Answer::Release(Ok(())));
    world.ttl = longer;
    let call = world.acquire(LOCK, Wait::Never);
    let error = world.failure(call);
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

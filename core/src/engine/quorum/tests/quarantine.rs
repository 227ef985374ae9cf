//! Servers that forgot to whom they gave a lock.

use std::time::Duration;

use super::world::{LONGEST, SOON, State, TIMEOUT, TTL, World, key};
use crate::engine::quorum::Quorum;
use crate::engine::{Answer, Input, Settings, Wait};
use crate::event::LeaseEvent;
use crate::memory::MemoryServer;
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
        longest: Duration::from_millis(10),
        remember: Vec::new(),
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

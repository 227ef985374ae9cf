//! Clusters, whose servers each have some of the keys and their own clock.

use super::host::{CLIENT, Host, LOCK, Net, key, ms};
use crate::engine::servers::MAX_ALONE_IN_FLIGHT;
use crate::engine::{Answer, CallId, Engine, Input, LockId, Output, ServerId, Settings, Wait};
use crate::protocol::{BatchReply, Command, Durability, LockKey, Pattern, Reply};
use crate::time::{ServerTime, Timestamp};

const OTHER: LockId = LockId(2);

pub(super) fn clustered() -> Settings {
    Settings {
        clustered: true,
        ..Settings::new(CLIENT)
    }
}

/// Catches a batch whose keys are on two servers, which would refuse it as a whole.
#[test]
fn operations_of_different_slots_leave_one_by_one() {
    for clustered in [true, false] {
        let mut host = Host::new();
        host.engine.single_mut().env.cx.settings.clustered = clustered;
        host.hold(LOCK);
        host.hold(OTHER);
        host.forget();
        // After a reconnect, all operations are retried at once.
        host.connect(0);
        host.advance(ms(100));
        let most = host.log.iter().map(|sent| sent.batch.len()).max();
        assert_eq!(most, Some(if clustered { 1 } else { 2 }));
    }
}

/// Catches a deadline that uses another server's clock.
#[test]
fn a_lock_that_was_handed_over_is_requested_again() {
    for clustered in [true, false] {
        let mut host = Host::new();
        host.engine.single_mut().env.cx.settings.clustered = clustered;
        host.stranger_acquires(LOCK, ms(60_000));
        host.acquire(LOCK, Wait::Forever);
        host.forget();
        host.stranger_releases(LOCK);
        host.advance(ms(50));
        let asked = usize::from(clustered);
        assert_eq!(host.count("acquire"), asked);
        assert!(host.is_held(LOCK));
    }
}

/// Catches a host with a thousand locks that sends a cluster a thousand calls at once.
#[test]
fn the_number_of_operations_in_flight_is_bounded() {
    let mut host = Host::new();
    host.engine.single_mut().env.cx.settings.clustered = true;
    host.net = Net::Hold;
    for lock in 1..=MAX_ALONE_IN_FLIGHT + 5 {
        host.acquire(LockId(lock as u64), Wait::Forever);
    }
    assert_eq!(host.pending.len(), MAX_ALONE_IN_FLIGHT);
    for _ in 0..MAX_ALONE_IN_FLIGHT + 5 {
        host.answer_next();
    }
    assert!(host.pending.is_empty());
    assert!(host.is_held(LOCK) && host.is_held(LockId(MAX_ALONE_IN_FLIGHT as u64 + 5)));
}

/// Catches locks of one slot that cost the cluster a call each.
#[test]
fn operations_of_one_slot_leave_together() {
    let mut host = Host::new();
    host.engine.single_mut().env.cx.settings.clustered = true;
    host.net = Net::Hold;
    for lock in 1..=MAX_ALONE_IN_FLIGHT {
        host.acquire(LockId(lock as u64), Wait::Forever);
    }
    let mut seen = std::collections::BTreeMap::new();
    let pair = (1_000..).find_map(|lock| {
        let before = seen.insert(key(LockId(lock)).slot(), lock);
        before.map(|before| [before, lock])
    });
    let [one, other] = pair.expect("there are fewer slots than names").map(LockId);
    for lock in [one, other, LockId(999)] {
        host.acquire(lock, Wait::Forever);
    }
    host.forget();
    host.answer_next();
    host.answer_next();
    let sizes = host.log.iter().map(|sent| sent.batch.len());
    assert_eq!(sizes.collect::<Vec<_>>(), [2, 1]);
}

/// Catches three faults: locks of several slots that cost a call each although the host could send them
/// together; a call of several slots that waits for copies, since such a call may use several connections;
/// and a partial reply that is taken for another part or for all of the request.
#[test]
fn a_batch_may_be_answered_in_parts() {
    let settings = Settings {
        mixed: true,
        ..clustered()
    };
    let mut host = Host::with(settings, 1);
    host.net = Net::Hold;
    let locks = [LOCK, OTHER, LockId(3), LockId(4)];
    let calls = locks.map(|lock| host.acquire(lock, Wait::Forever));
    // The request for the clock.
    host.answer_next();
    let sent = host.pending.pop_front().expect("the whole batch was sent");
    assert_eq!(sent.batch.len(), 4);
    assert!(host.pending.is_empty());
    let reply = host.execute(&sent);
    let part = |places: &[usize]| BatchReply {
        time: reply.time,
        replies: places.iter().map(|at| reply.replies[*at].clone()).collect(),
    };
    let (server, request) = (ServerId::ONLY, sent.request);
    for (all, of_left) in [(vec![0, 3], vec![0, 3]), (vec![2], vec![1])] {
        host.input(Input::Part {
            server,
            request,
            places: of_left,
            result: Ok(part(&all)),
        });
    }
    let held = locks.map(|lock| host.is_held(lock));
    assert_eq!(held, [true, false, true, true]);
    assert!(
        !host.done.contains_key(&calls[1]),
        "the call waits for its part of the reply"
    );
    host.input(Input::reply(request, Ok(part(&[1]))));
    assert!(host.is_held(OTHER));
    // All operations are answered by now.
    for places in [vec![0], vec![7]] {
        let result = Ok(part(&[0]));
        host.input(Input::Part {
            server,
            request,
            places,
            result,
        });
    }
    assert_eq!(host.count("release"), 0);

    host.durability = Some(Durability {
        replicas: 1,
        timeout: 100,
        ..Durability::NONE
    });
    host.copies = Ok([1, 1]);
    host.forget();
    for lock in [LockId(6), LockId(7), LockId(8)] {
        host.acquire(lock, Wait::Forever);
    }
    host.answer_next();
    let sizes = host.log.iter().map(|sent| sent.batch.len());
    assert_eq!(sizes.collect::<Vec<_>>(), [1, 1]);
}

/// Catches a first call to a node that has to wait for a request for the node's clock.
#[test]
fn a_server_that_can_be_asked_by_itself_is_asked_at_once() {
    for addressed in [true, false] {
        let settings = Settings {
            addressed,
            ..clustered()
        };
        let mut host = Host::with(settings, 4);
        host.net = Net::Hold;
        let server = ServerId(3);
        host.input(Input::Connected { server });
        let probes: Vec<_> = host.log.iter().map(|sent| sent.batch.len()).collect();
        assert_eq!(probes, if addressed { vec![0] } else { vec![] });
    }
}

/// Catches a walk that asks one server of the cluster for the locks of another, or starts over.
#[test]
fn a_walk_stays_at_its_server() {
    let (now, server) = (Timestamp::from_nanos(0), ServerId(3));
    let mut engine = Engine::new(Settings {
        addressed: true,
        ..clustered()
    });
    let mut feed = |input| {
        engine.handle(now, input);
        let outputs = std::iter::from_fn(|| match engine.poll() {
            Output::Wait { .. } => None,
            output => Some(output),
        });
        outputs.last()
    };
    let replied = |request, reply: Option<Reply>| Input::Reply {
        server,
        request,
        result: Ok(BatchReply {
            time: Some(ServerTime::from_millis(1_700_000_000_000)),
            replies: reply.map(Ok).into_iter().collect(),
        }),
    };
    let Some(Output::Send { request, .. }) = feed(Input::Connected { server }) else {
        panic!("the engine did not ask for the clock");
    };
    feed(replied(request, None));
    for (call, cursor) in [(CallId(1), server.walk()), (CallId(2), server.walk() + 77)] {
        let pattern = Pattern::new("ns", "*").expect("valid");
        let asked = feed(Input::List {
            call,
            pattern,
            cursor,
        });
        let Some(Output::Send {
            server: at,
            request,
            batch,
            ..
        }) = asked
        else {
            panic!("the engine did not ask the server: {asked:?}");
        };
        let Some(Command::List(list)) = batch.first().map(|op| &op.command) else {
            panic!("the batch is no walk: {batch:?}");
        };
        assert_eq!((at, list.cursor), (server, cursor - server.walk()));
        let cursor = Some(list.cursor + 1);
        let names = Vec::new();
        let answer = feed(replied(request, Some(Reply::Listed { cursor, names })));
        let Some(Output::Answer {
            answer: Answer::List(Ok(listing)),
            ..
        }) = answer
        else {
            panic!("the walk has no answer: {answer:?}");
        };
        assert_eq!(listing.cursor, cursor.map(|cursor| server.walk() + cursor));
    }
}

/// Catches operations that wait for a server which no longer has their keys. Also catches operations that are
/// lost on the way to another server, so that a lock is given back that no one can have.
#[test]
fn pending_operations_go_to_the_server_that_has_their_keys() {
    for given_up in [false, true] {
        let mut host = Host::with(clustered(), 4);
        host.net = Net::Hold;
        let call = host.acquire(LOCK, Wait::Forever);
        let (slots, server) = (0..=LockKey::SLOTS - 1, ServerId(3));
        host.input(Input::Slots { slots, server });
        let probes = host.log.iter().map(|sent| sent.batch.len());
        assert_eq!(
            probes.collect::<Vec<_>>(),
            [1, 1],
            "the engine asks for both clocks"
        );
        if given_up {
            host.cancel(call);
        }
        let probe = host.pending.pop_back().expect("the second probe");
        host.answer(&probe);
        assert_eq!(host.count("acquire"), usize::from(!given_up));
        assert_eq!(host.count("release"), 0);
    }
}

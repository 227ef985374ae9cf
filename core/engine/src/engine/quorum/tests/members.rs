//! One member and the calls to it, without the rest of a quorum.

use std::sync::Arc;
use std::time::Duration;

use super::world::{LOCK, fresh, id_of, key, settings};
use crate::engine::ctx::Ctx;
use crate::engine::quorum::members::{MemberNews, Members};
use crate::engine::{Input, Output, Wait};
use crate::error::Error;
use crate::memory::MemoryServer;
use crate::protocol::{LeaseId, Reclaim};
use crate::time::{ServerTime, Timestamp};

struct One {
    cx: Ctx,
    members: Members,
    server: MemoryServer,
}

impl One {
    fn new() -> Self {
        let mut cx = Ctx::new(settings(0));
        cx.now = Timestamp::from_nanos(5_000_000_000);
        let members = Members::new(&settings(0), 3);
        let server = MemoryServer::new();
        let mut one = Self {
            cx,
            members,
            server,
        };
        let server = id_of(0);
        let connected = Input::Connected { server };
        one.members.input(one.cx.now, server, connected);
        one.exchange();
        one
    }

    fn time(&self) -> ServerTime {
        ServerTime::from_micros(1_700_000_000_000_000 + self.cx.now.as_nanos() / 1_000)
    }

    /// Sends what is pending and delivers the answers. The member's reactions stay in its queue.
    fn exchange(&mut self) -> usize {
        self.exchange_after(Duration::ZERO)
    }

    /// Does the same as [`exchange`](Self::exchange), but requests take this long to arrive, by the server's
    /// clock.
    fn exchange_after(&mut self, way: Duration) -> usize {
        self.members.mark_all();
        while self.members.next_news_of_sending(&mut self.cx).is_some() {}
        let outputs: Vec<_> = std::iter::from_fn(|| self.cx.next_output()).collect();
        let mut sent = 0;
        for output in outputs {
            if let Output::Send { request, batch, .. } = output {
                sent += batch.len();
                let (server, time) = (id_of(0), self.time() + way);
                let result = Ok(self.server.execute(time, &batch));
                let reply = Input::Reply {
                    server,
                    request,
                    result,
                };
                self.members.input(self.cx.now, server, reply);
            }
        }
        sent
    }
}

/// Catches a tenure that nobody knows and that its member renews forever: its grant was in the member's queue
/// when the call was canceled.
#[test]
fn the_grant_of_a_canceled_call_is_given_back() {
    let mut one = One::new();
    let (lease, spec) = (LeaseId(7 << 64), Arc::new(fresh(1, 3).spec(LOCK)));
    let asked = (Wait::Never, Reclaim::Never);
    let call = one.members.acquire(&one.cx, 0, (LOCK, lease, &spec), asked);
    assert_eq!(one.exchange(), 1);
    assert!(one.server.tenure(one.time(), &key(LOCK)).is_some());
    one.members.cancel(&one.cx, 0, call, (LOCK, lease));
    assert_eq!(one.exchange(), 1, "a release");
    assert_eq!(one.server.tenure(one.time(), &key(LOCK)), None);
    for _ in 0..4 {
        one.cx.now = one.cx.now + Duration::from_secs(15);
        one.members.tick(one.cx.now);
        assert_eq!(one.exchange(), 0, "there is nothing to renew");
    }
    assert!(one.members.is_idle());
}

/// Catches waiters that move to another line because a request arrived too late to do anything.
#[test]
fn a_member_that_a_request_reached_too_late_is_able() {
    let mut one = One::new();
    let (lease, spec) = (LeaseId(7 << 64), Arc::new(fresh(1, 3).spec(LOCK)));
    let asked = (Wait::Never, Reclaim::Never);
    one.members.acquire(&one.cx, 0, (LOCK, lease, &spec), asked);
    // The first request tells the locker the server's clock.
    for seconds in [3, 6] {
        assert_eq!(one.exchange_after(Duration::from_secs(seconds)), 1);
    }
    let said = one.members.next_news(&mut one.cx);
    assert!(
        matches!(&said, Some((0, MemberNews::Answer(_, answer))) if answer.error().is_some_and(Error::is_timeout)),
        "{said:?}"
    );
    assert!(one.members.is_able(0));
}

/// Catches waiters that move to another line because a caller waited too briefly for an answer.
#[test]
fn a_member_that_had_no_time_to_answer_is_able() {
    let mut one = One::new();
    let (lease, spec) = (LeaseId(7 << 64), Arc::new(fresh(1, 3).spec(LOCK)));
    let until = one.cx.now + Duration::from_millis(5);
    let asked = (Wait::Until(until), Reclaim::Never);
    one.members.acquire(&one.cx, 0, (LOCK, lease, &spec), asked);
    while one.members.next_news_of_sending(&mut one.cx).is_some() {}
    one.cx.now = until;
    one.members.tick(one.cx.now);
    let said = one.members.next_news(&mut one.cx);
    assert!(
        matches!(&said, Some((0, MemberNews::Answer(_, answer))) if answer.error().is_some_and(Error::is_timeout)),
        "{said:?}"
    );
    assert!(one.members.is_able(0));
}

//! The network and the store of a host that is driven by hand.

use std::time::Duration;

use super::host::{Host, Net, Sent, Told};
use super::view::key;
use crate::engine::{Input, LockId, Output};
use crate::error::{Error, ErrorKind};
use crate::name::Owner;
use crate::protocol::{Acquire, BatchReply, ClientId, Command, Counter, LeaseId, Op, Reply};
use crate::time::ServerTime;

/// The lease of another program.
const STRANGER: LeaseId = LeaseId(0xdead << 64);

/// The network and the store.
impl Host {
    pub(super) fn drain(&mut self) {
        while let Some(output) = self.engine.poll() {
            match output {
                Output::Send {
                    request,
                    batch,
                    give_up,
                } => {
                    let sent = Sent {
                        at: self.now,
                        request,
                        batch,
                        give_up,
                    };
                    self.log.push(sent.clone());
                    self.carry(sent);
                }
                Output::Complete { call, result } => {
                    let twice = self.done.insert(call, (self.now, result));
                    assert!(twice.is_none(), "{call:?} was answered twice: {twice:?}");
                }
                Output::Event {
                    event, deadline, ..
                } => {
                    self.events.push(Told {
                        at: self.now,
                        event,
                        deadline,
                    });
                }
                Output::Closed { lock } => self.closed.push(lock),
            }
        }
    }

    fn carry(&mut self, sent: Sent) {
        match self.net {
            Net::Up => {
                let (request, reply) = (sent.request, self.execute(&sent));
                self.engine.handle(
                    self.now,
                    Input::Reply {
                        request,
                        result: Ok(reply),
                    },
                );
            }
            Net::Hold => self.pending.push_back(sent),
            Net::LoseRequests => self.lost.push((sent.give_up, sent.request)),
            Net::LoseReplies => {
                self.execute(&sent);
                self.lost.push((sent.give_up, sent.request));
            }
        }
    }

    pub(super) fn fail_lost(&mut self) {
        let now = self.now;
        let over: Vec<_> = self.lost.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, request) in over {
            let result = Err(Error::new(ErrorKind::Timeout, "no answer came"));
            self.input(Input::Reply { request, result });
        }
    }

    pub(super) fn server_now(&self) -> ServerTime {
        ServerTime::from_micros(self.epoch + self.now.as_nanos() / 1_000)
    }

    /// The batch arrives at the store.
    pub(super) fn execute(&mut self, sent: &Sent) -> BatchReply {
        self.server.execute(self.server_now(), &sent.batch)
    }

    /// The oldest batch that the test has not decided about.
    pub(super) fn take(&mut self) -> Sent {
        self.pending.pop_front().expect("a batch is under way")
    }

    pub(super) fn reply(&mut self, sent: &Sent, result: Result<BatchReply, Error>) {
        let request = sent.request;
        self.input(Input::Reply { request, result });
    }

    pub(super) fn answer_next(&mut self) {
        let sent = self.take();
        let reply = self.execute(&sent);
        self.reply(&sent, Ok(reply));
    }

    pub(super) fn answer_all(&mut self) {
        while !self.pending.is_empty() {
            self.answer_next();
        }
    }

    /// The whole batch fails.
    pub(super) fn fail_next(&mut self, kind: ErrorKind) {
        let sent = self.take();
        self.reply(&sent, Err(Error::new(kind, "the batch failed")));
    }

    /// Each operation of the batch is refused.
    pub(super) fn refuse_next(&mut self, kind: ErrorKind) {
        let sent = self.take();
        let replies = sent
            .batch
            .iter()
            .map(|_| Err(Error::new(kind, "it was refused")));
        let reply = BatchReply {
            time: self.server_now(),
            replies: replies.collect(),
        };
        self.reply(&sent, Ok(reply));
    }

    /// What the store answers to one command of somebody else's.
    pub(super) fn ask(&mut self, command: Command) -> Reply {
        let now = self.server_now();
        let op = Op {
            command,
            not_after: now,
        };
        let mut replies = self.server.execute(now, &[op]).replies;
        replies
            .pop()
            .expect("one reply per command")
            .expect("the memory store refuses nothing")
    }

    /// Another program asks for the lock.
    pub(super) fn stranger_acquires(&mut self, lock: LockId, ttl: Duration) -> Reply {
        self.ask(Command::Acquire(Acquire {
            key: key(lock),
            lease: STRANGER,
            ttl,
            client: ClientId(99),
            owner: Owner::labelled("stranger").expect("a short label is valid"),
            counter: Counter::Dense,
        }))
    }

    pub(super) fn stranger_releases(&mut self, lock: LockId) {
        let reply = self.ask(Command::Release {
            key: key(lock),
            lease: STRANGER,
        });
        assert_eq!(reply, Reply::Released);
    }

    /// Whether the store has the lock, whoever's it is.
    pub(super) fn is_taken(&self, lock: LockId) -> bool {
        self.server
            .lock_value(self.server_now(), &key(lock))
            .is_some()
    }
}

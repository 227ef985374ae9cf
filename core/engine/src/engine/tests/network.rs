//! The network and the store of a host that is driven by hand.

use std::time::Duration;

use super::host::{CLIENT, Host, Net, Pushes, Sent, TTL, Told};
use super::view::key;
use crate::engine::{Input, LockId, Output};
use crate::error::{Error, ErrorKind};
use crate::name::Owner;
use crate::protocol::{
    Acquire, BatchReply, Claim, ClientId, Command, Counter, ForceRelease, LeaseId, Op, Push,
    Reclaim, Release, Reply,
};
use crate::time::ServerTime;
use crate::token::FencingToken;

/// The leases of other programs, by number; the first of them is the stranger's.
const STRANGERS: u128 = 0xdead << 64;

/// The network and the store.
impl Host {
    pub(super) fn drain(&mut self) {
        while let Some(output) = self.next_output() {
            match output {
                Output::Send {
                    request,
                    batch,
                    durability,
                    give_up,
                    ..
                } => {
                    let sent = Sent {
                        at: self.now,
                        request,
                        batch,
                        durability,
                        give_up,
                    };
                    self.log.push(sent.clone());
                    self.carry(sent);
                }
                Output::Answer { call, answer } => {
                    let twice = self.done.insert(call, (self.now, answer.into()));
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
                Output::Notice { event } => self.notices.push(event),
                Output::Closed { lock } => self.closed.push(lock),
                Output::Suspect { why, .. } => self.suspected.push(why),
                Output::Watch { keys, .. } => self.reads.push((self.now, keys)),
                Output::Wait { .. } => unreachable!("it is not drained"),
                Output::Subscribe { .. } => {
                    self.asked_to_subscribe += 1;
                    if self.subscribes {
                        self.server.subscribe(CLIENT);
                        self.engine.handle(self.now, Input::SUBSCRIBED);
                    }
                }
            }
        }
    }

    /// What the engine wants next; the pushes that came meanwhile are told when it wants nothing.
    fn next_output(&mut self) -> Option<Output> {
        loop {
            match self.engine.poll() {
                Output::Wait { .. } => {}
                output => return Some(output),
            }
            if self.pushes != Pushes::Deliver {
                return None;
            }
            let push = self.heard.pop_front()?;
            self.engine.handle(self.now, Input::push(push));
        }
    }

    /// The channel is subscribed from now on, as after the host found a way.
    pub(super) fn subscribe(&mut self) {
        self.server.subscribe(CLIENT);
        self.input(Input::SUBSCRIBED);
    }

    /// The oldest push that is held back.
    pub(super) fn take_push(&mut self) -> Push {
        self.heard.pop_front().expect("a push is held back")
    }

    /// The oldest push that is held back arrives.
    pub(super) fn push_next(&mut self) {
        let push = self.take_push();
        self.input(Input::push(push));
    }

    /// Listens to what the server published.
    fn listen(&mut self) {
        let pushes = self.server.take_pushes().into_iter();
        let own = pushes.filter(|(client, _)| *client == CLIENT);
        if self.pushes != Pushes::Drop {
            self.heard.extend(own.map(|(_, push)| push));
        }
    }

    fn carry(&mut self, sent: Sent) {
        match self.net {
            Net::Up => {
                let (request, reply) = (sent.request, self.execute(&sent));
                self.sleep(self.back);
                self.engine
                    .handle(self.now, Input::reply(request, Ok(reply)));
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
            self.input(Input::reply(request, result));
        }
    }

    pub(super) fn server_now(&self) -> ServerTime {
        ServerTime::from_micros(self.epoch + self.now.as_nanos() / 1_000)
    }

    /// The batch arrives at the store.
    pub(super) fn execute(&mut self, sent: &Sent) -> BatchReply {
        let reply = self.server.execute(self.server_now(), &sent.batch);
        self.listen();
        let Some(durability) = sent.durability else {
            return reply;
        };
        durability
            .weigh(reply, self.copies.clone())
            .expect("the store says how many")
    }

    /// The oldest batch that the test has not decided about.
    pub(super) fn take(&mut self) -> Sent {
        self.pending.pop_front().expect("a batch is under way")
    }

    pub(super) fn reply(&mut self, sent: &Sent, result: Result<BatchReply, Error>) {
        let request = sent.request;
        self.input(Input::reply(request, result));
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
            time: Some(self.server_now()),
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
        self.listen();
        self.drain();
        replies
            .pop()
            .expect("one reply per command")
            .expect("the memory store refuses nothing")
    }

    /// Another program asks for the lock, and does not wait.
    pub(super) fn stranger_acquires(&mut self, lock: LockId, ttl: Duration) -> Reply {
        self.ask(Command::Acquire(Acquire {
            key: key(lock),
            claim: Claim { ttl, ..stranger(0) },
            waits: false,
            reclaims: Reclaim::Never,
        }))
    }

    /// Another program gives up the lock, which it has.
    pub(super) fn stranger_releases(&mut self, lock: LockId) {
        let reply = self.ask(Command::Release(Release {
            key: key(lock),
            claim: stranger(0),
            token: None,
        }));
        assert_eq!(reply, Reply::Released);
    }

    /// One more program, which is told nothing, takes its place in line or confirms it.
    pub(super) fn stranger_waits(&mut self, lock: LockId, number: u128) -> Reply {
        self.ask(Command::Acquire(Acquire {
            key: key(lock),
            claim: stranger(number),
            waits: true,
            reclaims: Reclaim::Never,
        }))
    }

    /// It does not wait any longer, or gives up the lock that it was handed.
    pub(super) fn stranger_leaves(&mut self, lock: LockId, number: u128) -> Reply {
        self.ask(Command::Release(Release {
            key: key(lock),
            claim: stranger(number),
            token: None,
        }))
    }

    /// Whether the store has the lock, whoever's it is.
    pub(super) fn is_taken(&self, lock: LockId) -> bool {
        self.server.tenure(self.server_now(), &key(lock)).is_some()
    }
}

impl Host {
    /// Another program frees the lock of whoever has it.
    pub(super) fn stranger_force_releases(&mut self, lock: LockId) {
        let token = self.token_of(lock).expect("somebody has it");
        let key = key(lock);
        let reply = self.ask(Command::ForceRelease(ForceRelease { key, token }));
        assert_eq!(reply, Reply::Released);
    }

    /// The token of whoever has the lock in the store.
    pub(super) fn token_of(&self, lock: LockId) -> Option<FencingToken> {
        let tenure = self.server.tenure(self.server_now(), &key(lock))?;
        Some(tenure.token)
    }
}

pub(super) fn stranger(number: u128) -> Claim {
    Claim {
        lease: LeaseId(STRANGERS + number),
        client: ClientId(99),
        owner: Owner::labelled("stranger").expect("a short label is valid"),
        counter: Counter::Dense,
        ttl: TTL,
        window: Duration::from_secs(12),
    }
}

//! Carries engines' batches to the servers of a host, and the servers' answers and pushes back.

use std::collections::VecDeque;

use super::{Error, ErrorKind, Host, Net, Pushes, Sent, Told};
use crate::engine::{Input, Output, ServerId};
use crate::protocol::{BatchReply, Command, Op, Push, Reply};
use crate::time::ServerTime;

impl Host {
    /// Executes the engines' outputs until all engines wait. Batches that leave together arrive before any of
    /// their answers, and pushes arrive after the answers.
    pub fn settle(&mut self) {
        self.drain(self.me);
        loop {
            if let Some(sent) = self.arriving.pop_front() {
                let result = Ok(self.execute(&sent));
                self.sleep(self.back);
                self.arrive(sent.locker, answer(&sent, result));
            } else if self.pushes == Pushes::Deliver
                && let Some((to, push)) = self.heard.pop_front()
            {
                self.arrive(to, push);
            } else {
                break;
            }
        }
        #[cfg(test)]
        for locker in &mut self.lockers {
            locker.look_at_counts();
        }
    }

    fn arrive(&mut self, at: usize, input: Input) {
        self.lockers[at].engine.handle(self.now, input);
        self.drain(at);
    }

    fn drain(&mut self, at: usize) {
        loop {
            let (now, locker) = (self.now, &mut self.lockers[at]);
            match locker.engine.poll() {
                Output::Wait { until } => {
                    locker.wake = until;
                    return;
                }
                Output::Send {
                    server,
                    request,
                    batch,
                    durability,
                    give_up,
                } => {
                    let sent = Sent {
                        at: now,
                        locker: at,
                        server,
                        request,
                        batch,
                        durability,
                        give_up,
                    };
                    self.log.push(sent.clone());
                    self.carry(sent);
                }
                Output::Answer { call, answer } => {
                    let twice = self.done.insert(call, (now, answer));
                    assert!(twice.is_none(), "{call:?} was answered twice: {twice:?}");
                }
                Output::Event {
                    event, deadline, ..
                } => locker.events.push(Told {
                    at: now,
                    event,
                    deadline,
                }),
                Output::Notice { event } => locker.notices.push(event),
                Output::Closed { lock } => self.closed.push(lock),
                Output::Suspect { server, why } => self.suspected.push((server, why)),
                Output::Watch { keys, .. } => self.reads.push((now, keys)),
                Output::Subscribe { server } => {
                    self.asked_to_subscribe.push(server);
                    if self.subscribes {
                        self.servers[place(server)].subscribe(locker.client);
                        locker.engine.handle(now, Input::Subscribed { server });
                    }
                }
            }
        }
    }

    fn carry(&mut self, sent: Sent) {
        match self.net_of(sent.server) {
            Net::Up => self.arriving.push_back(sent),
            Net::Hold => self.pending.push_back(sent),
            Net::LoseRequests => self.lost.push(sent),
            Net::LoseReplies => {
                self.execute(&sent);
                self.lost.push(sent);
            }
            Net::Frozen => {
                self.pending.push_back(sent.clone());
                self.lost.push(sent);
            }
        }
    }

    fn net_of(&self, server: ServerId) -> Net {
        *self.nets.get(&place(server)).unwrap_or(&self.net)
    }

    /// Sets the network of one server. When a frozen server resumes, it executes every batch that reached it,
    /// and answers those that the engine has not given up on.
    pub fn set(&mut self, server: usize, net: Net) {
        self.nets.insert(server, net);
        if net != Net::Up {
            return;
        }
        let here = |sent: &Sent| place(sent.server) == server;
        let pending = std::mem::take(&mut self.pending).into_iter();
        let (frozen, others): (VecDeque<_>, _) = pending.partition(here);
        self.pending = others;
        let replies: Vec<_> = frozen.iter().map(|sent| self.execute(sent)).collect();
        for (sent, reply) in frozen.iter().zip(replies) {
            let same = |lost: &Sent| {
                (lost.locker, lost.server, lost.request) == (sent.locker, sent.server, sent.request)
            };
            if let Some(at) = self.lost.iter().position(same) {
                self.lost.remove(at);
                self.reply(sent, Ok(reply));
            }
        }
        self.settle();
    }

    pub fn set_all(&mut self, servers: impl IntoIterator<Item = usize>, net: Net) {
        for server in servers {
            self.set(server, net);
        }
    }

    pub(super) fn fail_lost(&mut self) {
        let now = self.now;
        let over: Vec<_> = self
            .lost
            .extract_if(.., |sent| sent.give_up <= now)
            .collect();
        for sent in over {
            self.reply(&sent, Err(Error::no_answer()));
        }
    }

    /// Connects the link to a server.
    pub fn connect(&mut self, server: usize) {
        let server = id_of(server);
        self.input(Input::Connected { server });
    }

    /// Breaks the link to a server.
    pub fn cut(&mut self, server: usize) {
        let error = Error::new(ErrorKind::Unavailable, "the cable was pulled");
        self.disconnected(server, error);
    }

    pub fn disconnected(&mut self, server: usize, error: Error) {
        let server = id_of(server);
        self.input(Input::Disconnected { server, error });
    }

    pub fn disconnect(&mut self) {
        self.cut(0);
    }

    /// Subscribes to the first server's pushes.
    pub fn subscribe(&mut self) {
        let client = self.client;
        self.servers[0].subscribe(client);
        let server = ServerId::ONLY;
        self.input(Input::Subscribed { server });
    }

    /// Takes the oldest undelivered push.
    pub fn take_push(&mut self) -> Push {
        match self.heard.pop_front() {
            Some((_, Input::Push { push, .. })) => push,
            other => panic!("no push is pending: {other:?}"),
        }
    }

    /// Delivers the oldest undelivered push.
    pub fn push_next(&mut self) {
        let (to, input) = self.heard.pop_front().expect("a push is pending");
        self.at(to).input(input);
    }

    /// Collects what a server published.
    fn listen(&mut self, server: usize) {
        for (client, push) in self.servers[server].take_pushes() {
            let to = self.lockers.iter().position(|to| to.client == client);
            if let Some(to) = to.filter(|_| self.pushes != Pushes::Drop) {
                let server = Some(id_of(server));
                self.heard.push_back((to, Input::Push { server, push }));
            }
        }
    }

    pub fn server_now(&self) -> ServerTime {
        self.time(0)
    }

    /// Returns the time of a server's clock.
    pub fn time(&self, server: usize) -> ServerTime {
        let micros = self.epoch + self.ahead[server];
        ServerTime::from_micros(micros + self.now.as_nanos() / 1_000)
    }

    /// Executes a batch at its server.
    pub fn execute(&mut self, sent: &Sent) -> BatchReply {
        let server = place(sent.server);
        let time = self.time(server);
        let reply = self.servers[server].execute(time, &sent.batch);
        self.listen(server);
        let Some(durability) = sent.durability else {
            return reply;
        };
        durability
            .weigh(reply, self.copies.clone())
            .expect("the number of copies is known")
    }

    /// Takes the oldest pending batch.
    pub fn take(&mut self) -> Sent {
        self.pending.pop_front().expect("a batch is pending")
    }

    /// Executes the oldest pending batch without delivering its answer.
    pub fn take_reply(&mut self) -> (Sent, BatchReply) {
        let sent = self.take();
        let reply = self.execute(&sent);
        (sent, reply)
    }

    pub fn reply(&mut self, sent: &Sent, result: Result<BatchReply, Error>) {
        self.at(sent.locker).input(answer(sent, result));
    }

    /// Executes a batch and delivers the answer.
    pub fn answer(&mut self, sent: &Sent) {
        let reply = self.execute(sent);
        self.reply(sent, Ok(reply));
    }

    pub fn answer_next(&mut self) {
        let sent = self.take();
        self.answer(&sent);
    }

    pub fn answer_all(&mut self) {
        while !self.pending.is_empty() {
            self.answer_next();
        }
    }

    /// Fails the oldest batch as a whole.
    pub fn fail_next(&mut self, kind: ErrorKind) {
        let sent = self.take();
        self.reply(&sent, Err(Error::new(kind, "the batch failed")));
    }

    /// Refuses each operation of the oldest batch.
    pub fn refuse_next(&mut self, kind: ErrorKind) {
        self.answer_each(&Err(Error::new(kind, "the operation was refused")));
    }

    /// Gives this answer to each operation of the oldest batch.
    pub fn answer_each(&mut self, reply: &Result<Reply, Error>) -> Sent {
        let sent = self.take();
        let time = Some(self.time(place(sent.server)));
        let replies = vec![reply.clone(); sent.batch.len()];
        self.reply(&sent, Ok(BatchReply { time, replies }));
        sent
    }

    /// Executes another program's command at the first server.
    pub fn ask(&mut self, command: Command) -> Reply {
        self.ask_at(0, command)
    }

    /// Executes another program's command at a server.
    pub fn ask_at(&mut self, server: usize, command: Command) -> Reply {
        let not_after = self.time(server);
        let op = Op { command, not_after };
        let mut replies = self.servers[server].execute(not_after, &[op]).replies;
        self.listen(server);
        self.settle();
        replies
            .pop()
            .expect("one reply per command")
            .expect("the memory store refuses nothing")
    }
}

fn answer(sent: &Sent, result: Result<BatchReply, Error>) -> Input {
    Input::Reply {
        server: sent.server,
        request: sent.request,
        result,
    }
}

/// Returns the index of a server in [`Host::servers`].
pub fn place(server: ServerId) -> usize {
    usize::try_from(server.0).expect("the index is small")
}

/// Returns the ID of the server with this index.
pub fn id_of(server: usize) -> ServerId {
    ServerId(u32::try_from(server).expect("the index is small"))
}

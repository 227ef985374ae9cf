//! The programs: what they ask of their engines, and what they are told.

use std::sync::Arc;

use leasehold_engine::LeaseEvent;
use leasehold_engine::engine::{Acquired, Answer, CallId, Engine, Input, Settings, Wait};
use leasehold_engine::protocol::{ClientId, LeaseId};
use leasehold_engine::testing::{LOCK, Sent};
use leasehold_engine::time::Timestamp;

use crate::checks::{Held, Violation, lasts};
use crate::faults::Fault;
use crate::world::{CRASHES, TIMEOUT, TTL, World, name};

/// The program of one client. It has at most one acquisition or lease at a time.
#[derive(Debug, Default)]
pub(crate) struct Client {
    pub(crate) calls: u8,
    /// How often it crashed.
    pub(crate) lives: u64,
    pub(crate) asking: Option<(CallId, LeaseId)>,
    pub(crate) held: Option<Held>,
}

impl World {
    pub(crate) fn acquire(&mut self, client: usize, waits: bool) {
        let state = &mut self.clients[client];
        state.calls += 1;
        let number = client as u64 * 100 + state.lives * 10 + u64::from(state.calls);
        let lease = match self.plan.fault {
            Fault::LeaseIdsAgain => client as u128 + 1,
            _ => u128::from(number) + 1,
        };
        let (call, lease) = (CallId(number), LeaseId(lease << 64));
        state.asking = Some((call, lease));
        let how = if waits { "asks and waits" } else { "tries" };
        self.tell(|| format!("client {} {how}", name(client)));
        let wait = if waits { Wait::Forever } else { Wait::Never };
        let mut spec = self.host.at(client).spec(LOCK);
        if self.plan.fault == Fault::RenewsForLonger {
            let mut options = (*spec.options).clone();
            options.ttl = TTL * 2;
            spec.options = Arc::new(options);
        }
        let input = Input::Acquire {
            call,
            lock: LOCK,
            spec: Arc::new(spec),
            lease,
            wait,
        };
        self.input(client, input);
    }

    pub(crate) fn release(&mut self, client: usize) {
        let held = self.clients[client].held.take();
        let lease = held.expect("only a held lease is released").lease;
        self.tell(|| format!("client {} releases", name(client)));
        self.input(client, Input::Release { call: None, lease });
    }

    /// Replaces a client by another process, which knows nothing of it. Its requests are still under way.
    pub(crate) fn crash(&mut self, client: usize) {
        self.left[CRASHES] -= 1;
        self.tell(|| format!("client {} crashes and starts again", name(client)));
        let state = &mut self.clients[client];
        (state.asking, state.held) = (None, None);
        state.lives += 1;
        let id = client_id(client, state.lives);
        let locker = &mut self.host.lockers[client];
        for server in &mut self.host.servers {
            server.unsubscribe(locker.client);
        }
        let engine = engine(id, self.plan.servers);
        (locker.engine, locker.client, locker.wake) = (engine, id, None);
        let own = |sent: &Sent| sent.locker == client;
        for request in self.requests.iter_mut().filter(|one| own(&one.sent)) {
            request.orphan = true;
        }
        self.replies.retain(|(sent, _)| !own(sent));
        self.pushes.retain(|(to, ..)| *to != client);
        self.connect(client);
    }

    pub(crate) fn answered(&mut self, client: usize, answer: &Answer) -> Result<(), Violation> {
        let state = &mut self.clients[client];
        let (_, lease) = state.asking.take().expect("it asked");
        let Answer::Acquire(Ok(Some(Acquired {
            token, deadline, ..
        }))) = answer
        else {
            self.tell(|| format!("client {} does not get the lock", name(client)));
            return Ok(());
        };
        let (token, deadline, now) = (token.get(), *deadline, self.host.now);
        let until = match self.plan.fault {
            Fault::CountsFromReply => now + TTL,
            Fault::GoesOn => deadline + TTL,
            _ => deadline,
        };
        state.held = Some(Held {
            lease,
            token,
            deadline,
            until,
            lost: false,
        });
        self.tell(|| {
            let left = until.since(now).as_millis();
            format!("client {} holds the lock for {left} ms", name(client))
        });
        self.checks.acquired(now, token, deadline)
    }

    pub(crate) fn told(
        &mut self,
        client: usize,
        event: &LeaseEvent,
        deadline: Option<Timestamp>,
    ) -> Result<(), Violation> {
        let now = self.host.now;
        let fault = self.plan.fault;
        let Some(held) = &mut self.clients[client].held else {
            return Ok(());
        };
        match event {
            LeaseEvent::Renewed { .. } => {
                let deadline = deadline.unwrap_or(held.deadline);
                held.until = held.until.max(deadline);
                held.deadline = deadline;
                self.tell(|| format!("client {} renewed its lease", name(client)));
                lasts(now, deadline)?;
            }
            LeaseEvent::Lost { .. } if fault != Fault::LossesUntold => {
                held.lost = true;
                if !matches!(fault, Fault::CountsFromReply | Fault::GoesOn) {
                    self.clients[client].held = None;
                }
                self.tell(|| format!("client {} is told that its lease is lost", name(client)));
            }
            _ => {}
        }
        Ok(())
    }
}

pub(crate) fn engine(client: ClientId, servers: usize) -> Engine {
    let mut settings = Settings::new(client);
    (settings.command_timeout, settings.patience) = (TIMEOUT, TIMEOUT * 4);
    // So that the end of a quarantine is soon enough to be searched.
    settings.longest_ttl = TTL;
    let settings = settings.checked().expect("the settings are in bounds");
    match servers {
        1 => Engine::new(settings),
        _ => Engine::quorum(settings, servers).expect("the number of servers is valid"),
    }
}

pub(crate) fn client_id(client: usize, life: u64) -> ClientId {
    ClientId(client as u64 * 100 + life + 1)
}

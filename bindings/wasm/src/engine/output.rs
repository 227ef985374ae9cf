//! What the engine wants of its host, one thing at a time.

use leasehold::Error;
use leasehold::LeaseEvent;
use leasehold::engine::{Answer, CallId, Output, RequestId, Suspicion};
use leasehold::protocol::{self, LeaseId, LockKey};
use leasehold::time::Timestamp;
use wasm_bindgen::prelude::wasm_bindgen;

use super::Engine;
use crate::convert::{id, millis, number};
use crate::{json, text};

/// What to do.
#[wasm_bindgen]
impl Engine {
    /// Takes the next thing to do:
    ///
    /// |  | what | fields |
    /// |---|---|---|
    /// | 0 | nothing more: come back at the deadline, if nothing happens before | deadline |
    /// | 1 | execute a batch, which [`encode`](Self::encode) makes keys and arguments of | id |
    /// | 2 | a call acquired the lock | id, tenure, token, deadline, began, waited |
    /// | 3 | a call ended | id |
    /// | 4 | an acquisition did not get the lock | id |
    /// | 5 | a call is answered by JSON | id, text |
    /// | 6 | a call failed with an error in JSON | id, text |
    /// | 7 | a tenure was extended | id, deadline |
    /// | 8 | a tenure was lost for a reason | id, text |
    /// | 9 | a tenure was given up | id |
    /// | 10 | subscribe to the channel, so that a server is heard | id |
    /// | 11 | there is something for a reader | id |
    /// | 12 | the connection may be half-open | |
    /// | 13 | the server is a replica by now | |
    pub fn poll(&mut self) -> u32 {
        if let Some(reader) = self.awake.pop() {
            self.current.id = id(reader.0);
            return task::WAKE;
        }
        loop {
            let output = self.inner.poll();
            if let Output::Wait { until } = output {
                self.current.deadline = until.map_or(f64::INFINITY, millis);
                return task::NOTHING;
            }
            let task = self.task(output);
            if task != task::NOTHING {
                return task;
            }
            if !self.awake.is_empty() {
                return self.poll();
            }
        }
    }

    /// The call, tenure, request, server or reader that it is about.
    #[wasm_bindgen(getter)]
    pub fn id(&self) -> f64 {
        self.current.id
    }

    /// The number of the tenure that a call got: the same for all calls that share it.
    #[wasm_bindgen(getter)]
    pub fn tenure(&self) -> f64 {
        self.current.tenure
    }

    /// The tenure's token.
    #[wasm_bindgen(getter)]
    pub fn token(&self) -> f64 {
        self.current.token
    }

    /// When the lease ends unless it is renewed, or when to come back; infinity for never.
    #[wasm_bindgen(getter)]
    pub fn deadline(&self) -> f64 {
        self.current.deadline
    }

    /// When the tenure began.
    #[wasm_bindgen(getter)]
    pub fn began(&self) -> f64 {
        self.current.began
    }

    /// How long the call waited.
    #[wasm_bindgen(getter)]
    pub fn waited(&self) -> f64 {
        self.current.waited
    }

    /// A text; to be taken once.
    #[wasm_bindgen(js_name = takeText)]
    pub fn take_text(&mut self) -> String {
        std::mem::take(&mut self.current.text)
    }

    /// Where in the text each key and argument ends, in UTF-16 units; to be taken once.
    #[wasm_bindgen(js_name = takeEnds)]
    pub fn take_ends(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.current.ends)
    }

    /// How many of the parts are keys.
    #[wasm_bindgen(getter)]
    pub fn keys(&self) -> u32 {
        self.current.keys
    }

    /// Encodes a batch that was polled: its keys and arguments are parts of the text. Returns the
    /// slot that they are in, of a cluster; one past the last if that says nothing.
    pub fn encode(&mut self, request: f64) -> u16 {
        let Some(batch) = self.batches.get(RequestId(number(request))) else {
            return LockKey::SLOTS;
        };
        let call = protocol::encode(batch);
        self.current.keys = u32::try_from(call.keys().len()).unwrap_or(u32::MAX);
        (self.current.text, self.current.ends) = text::join(&call);
        let first = batch.first().filter(|_| self.clustered);
        let key = first.and_then(|op| op.command.key());
        key.map_or(LockKey::SLOTS, LockKey::slot)
    }
}

/// The fields of the output that was polled last.
#[derive(Default)]
pub(super) struct Current {
    id: f64,
    tenure: f64,
    token: f64,
    deadline: f64,
    began: f64,
    waited: f64,
    text: String,
    ends: Vec<u32>,
    keys: u32,
}

/// What there is to do; the numbers are an interface.
mod task {
    pub(super) const NOTHING: u32 = 0;
    pub(super) const SEND: u32 = 1;
    pub(super) const ACQUIRED: u32 = 2;
    pub(super) const DONE: u32 = 3;
    pub(super) const BUSY: u32 = 4;
    pub(super) const ANSWER: u32 = 5;
    pub(super) const FAILED: u32 = 6;
    pub(super) const RENEWED: u32 = 7;
    pub(super) const LOST: u32 = 8;
    pub(super) const RELEASED: u32 = 9;
    pub(super) const SUBSCRIBE: u32 = 10;
    pub(super) const WAKE: u32 = 11;
    pub(super) const SILENT: u32 = 12;
    pub(super) const DEMOTED: u32 = 13;
}

impl Engine {
    fn task(&mut self, output: Output) -> u32 {
        match output {
            Output::Send {
                request,
                batch,
                give_up,
                ..
            } => {
                self.batches.add(self.now, request, batch, give_up);
                self.current.id = id(request.0);
                task::SEND
            }
            Output::Answer { call, answer } => {
                self.current.id = id(call.0);
                self.answer(call, answer).unwrap_or_else(|error| {
                    self.current.text = json(&error);
                    task::FAILED
                })
            }
            Output::Event {
                lock,
                lease,
                event,
                deadline,
            } => {
                let woken = self.hub.publish(lock, lease, &event);
                self.awake.extend(woken);
                self.changed(lease, &event, deadline)
            }
            Output::Subscribe { server } => {
                self.current.id = f64::from(server.0);
                task::SUBSCRIBE
            }
            Output::Suspect { why, .. } => match why {
                Suspicion::Silent => task::SILENT,
                Suspicion::Demoted => task::DEMOTED,
            },
            Output::Notice { event } => {
                let woken = self.hub.notify(&event);
                self.awake.extend(woken);
                task::NOTHING
            }
            Output::Closed { .. } | Output::Wait { .. } => task::NOTHING,
        }
    }

    fn answer(&mut self, call: CallId, answer: Answer) -> Result<u32, Error> {
        let answer = match answer {
            Answer::Acquire(result) => {
                let Some(acquired) = result? else {
                    return Ok(task::BUSY);
                };
                let current = &mut self.current;
                current.tenure = self.tenures.acquired(call, &acquired);
                current.token = id(acquired.token.get());
                current.deadline = millis(acquired.deadline);
                current.began = millis(acquired.began);
                current.waited = acquired.waited.as_secs_f64() * 1_000.0;
                return Ok(task::ACQUIRED);
            }
            Answer::Renew(result) | Answer::Release(result) => {
                return result.map(|()| task::DONE);
            }
            Answer::Shutdown => return Ok(task::DONE),
            Answer::Inspect(result) => json(&result?),
            Answer::ForceRelease(result) => json(&result?),
            Answer::List(result) => {
                let listing = result?;
                json(&(
                    listing.cursor.map(|cursor| cursor.to_string()),
                    listing.names,
                ))
            }
        };
        self.current.text = answer;
        Ok(task::ANSWER)
    }

    fn changed(&mut self, lease: LeaseId, event: &LeaseEvent, deadline: Option<Timestamp>) -> u32 {
        let (tenure, task) = match event {
            LeaseEvent::Renewed { .. } => {
                self.current.deadline = deadline.map_or(0.0, millis);
                (self.tenures.number(lease), task::RENEWED)
            }
            LeaseEvent::Lost { reason, .. } => {
                reason.code().clone_into(&mut self.current.text);
                (self.tenures.ended(lease), task::LOST)
            }
            LeaseEvent::Released { .. } => (self.tenures.ended(lease), task::RELEASED),
            _ => (None, task::NOTHING),
        };
        let Some(tenure) = tenure else {
            return task::NOTHING;
        };
        self.current.id = tenure;
        task
    }
}

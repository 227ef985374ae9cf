use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold::engine::{
    CallId, Done, Hub, Input, LockId, LockSpec, Output, ReaderId, RequestId, Settings, Wait,
};
use leasehold::protocol::{
    self, BatchReply, ClientId, Counter, LeaseId, LockKey, Op, Pattern, Push,
};
use leasehold::time::Timestamp;
use leasehold::{Error, ErrorKind, FencingToken, LeaseEvent, Name, Owner};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::{Thrown, json, text, thrown};

/// One locker's engine.
#[wasm_bindgen]
pub struct Engine {
    client: ClientId,
    namespace: String,
    counter: Counter,
    inner: leasehold::engine::Engine,
    hub: Hub<ReaderId>,
    /// By the host's number of the lock.
    specs: BTreeMap<LockId, Arc<LockSpec>>,
    /// The tenures that are held.
    held: BTreeMap<LockId, (FencingToken, LeaseId)>,
    /// The locks that calls are to acquire.
    acquiring: BTreeMap<CallId, LockId>,
    /// What was sent and not answered yet.
    batches: BTreeMap<RequestId, Vec<Op>>,
    awake: Vec<ReaderId>,
    current: Current,
}

/// The fields of the output that was polled last.
#[derive(Default)]
struct Current {
    id: f64,
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
}

/// Settings, and the locks that the host defines.
#[wasm_bindgen]
impl Engine {
    /// An engine that is not connected yet. The client is 64 random bits; the times are in
    /// milliseconds.
    #[wasm_bindgen(constructor)]
    pub fn new(
        client_high: u32,
        client_low: u32,
        namespace: String,
        command_timeout: f64,
        patience: f64,
        token_retention: f64,
        clustered: bool,
    ) -> Result<Self, Thrown> {
        let client = ClientId(u64::from(client_high) << 32 | u64::from(client_low));
        let made = || {
            let settings = Settings {
                command_timeout: duration("command_timeout", command_timeout)?,
                patience: duration("patience", patience)?,
                clustered,
                ..Settings::new(client)
            };
            let retention = duration("token_retention", token_retention)?;
            let counter = Counter::ClockFloor { retention };
            counter.check()?;
            // Any name will do: this is for the namespace.
            LockKey::new(&namespace, &Name::new("n")?)?;
            Ok((settings.checked()?, counter))
        };
        let (settings, counter) = made().map_err(|error: Error| thrown(&error))?;
        Ok(Self {
            client,
            namespace,
            counter,
            inner: leasehold::engine::Engine::new(settings),
            hub: Hub::default(),
            specs: BTreeMap::new(),
            held: BTreeMap::new(),
            acquiring: BTreeMap::new(),
            batches: BTreeMap::new(),
            awake: Vec::new(),
            current: Current::default(),
        })
    }

    /// The channel on which the store tells this client something.
    pub fn channel(&self) -> String {
        protocol::channel(self.client)
    }

    /// Tells what a lock is, before it is acquired. The time to live is in milliseconds.
    // An object would cost more across the border.
    #[allow(clippy::too_many_arguments)]
    pub fn define(
        &mut self,
        lock: f64,
        name: &str,
        ttl: f64,
        fixed: bool,
        owner: &str,
        reclaimable: bool,
        dense: bool,
    ) -> Result<(), Thrown> {
        let spec = || {
            let name = Name::new(name)?;
            let key = LockKey::new(&self.namespace, &name)?;
            let owner = if reclaimable {
                Owner::reclaimable(owner)?
            } else {
                Owner::labelled(owner)?
            };
            let counter = if dense { Counter::Dense } else { self.counter };
            let ttl = duration("a lease's time to live", ttl)?;
            let spec = LockSpec {
                name,
                key,
                ttl,
                fixed,
                owner,
                counter,
            };
            spec.check().map(|()| spec)
        };
        let spec = spec().map_err(|error| thrown(&error))?;
        self.specs.insert(LockId(number(lock)), Arc::new(spec));
        Ok(())
    }

    /// Forgets what a lock is: one that is not held, and that nobody acquires or reads the events of.
    pub fn forget(&mut self, lock: f64) {
        self.specs.remove(&LockId(number(lock)));
    }
}

/// What happened.
#[wasm_bindgen]
impl Engine {
    /// The store can be reached: for the first time, or again.
    pub fn connected(&mut self, now: f64) {
        self.handle(now, Input::Connected);
    }

    /// The store cannot be reached any more.
    pub fn disconnected(&mut self, now: f64, code: &str, message: &str) {
        let error = error(code, message);
        self.handle(now, Input::Disconnected { error });
    }

    /// A call that acquires a defined lock, with 128 random bits. It waits so many milliseconds; 0
    /// for not at all, infinity for ever.
    #[allow(clippy::too_many_arguments)]
    pub fn acquire(
        &mut self,
        now: f64,
        call: f64,
        lock: f64,
        wait: f64,
        r0: u32,
        r1: u32,
        r2: u32,
        r3: u32,
    ) -> Result<(), Thrown> {
        let lock = LockId(number(lock));
        let Some(spec) = self.specs.get(&lock).cloned() else {
            let message = "a lock was acquired that was not defined";
            return Err(thrown(&Error::new(ErrorKind::Config, message)));
        };
        let random = [r0, r1, r2, r3];
        let bits = random
            .iter()
            .fold(0, |bits, part| bits << 32 | u128::from(*part));
        let wait = match Duration::try_from_secs_f64(wait / 1_000.0) {
            Ok(Duration::ZERO) => Wait::Never,
            Ok(wait) => Wait::Until(timestamp(now) + wait),
            Err(_) => Wait::Forever,
        };
        let call = CallId(number(call));
        self.acquiring.insert(call, lock);
        let input = Input::Acquire {
            call,
            lock,
            spec,
            lease: LeaseId(bits),
            wait,
        };
        self.handle(now, input);
        Ok(())
    }

    /// A call was given up; `lock` if it acquires or renews.
    pub fn cancel(&mut self, now: f64, call: f64, lock: Option<f64>) {
        let lock = lock.map(|lock| LockId(number(lock)));
        let call = CallId(number(call));
        self.acquiring.remove(&call);
        self.handle(now, Input::Cancel { lock, call });
    }

    /// A call that extends the lease with this token.
    pub fn renew(&mut self, now: f64, call: f64, lock: f64, token: f64) {
        let call = CallId(number(call));
        let (lock, lease) = self.tenure(lock, token);
        self.handle(now, Input::Renew { call, lock, lease });
    }

    /// A call that gives up the lease with this token.
    pub fn release(&mut self, now: f64, call: f64, lock: f64, token: f64) {
        let call = Some(CallId(number(call)));
        let (lock, lease) = self.tenure(lock, token);
        self.handle(now, Input::Release { call, lock, lease });
    }

    /// A call that asks who has a lock.
    pub fn inspect(&mut self, now: f64, call: f64, name: &str) -> Result<(), Thrown> {
        let key = self.key(name)?;
        let call = CallId(number(call));
        self.handle(now, Input::Inspect { call, key });
        Ok(())
    }

    /// A call that frees a lock, whoever has it.
    #[wasm_bindgen(js_name = forceRelease)]
    pub fn force_release(&mut self, now: f64, call: f64, name: &str) -> Result<(), Thrown> {
        let key = self.key(name)?;
        let call = CallId(number(call));
        self.handle(now, Input::ForceRelease { call, key });
        Ok(())
    }

    /// A call for one step of a walk through the locks that are held. The cursor is `0` to begin.
    pub fn list(&mut self, now: f64, call: f64, pattern: &str, cursor: &str) -> Result<(), Thrown> {
        let pattern = Pattern::new(&self.namespace, pattern).map_err(|error| thrown(&error))?;
        let input = Input::List {
            call: CallId(number(call)),
            pattern,
            cursor: cursor.parse().unwrap_or(0),
        };
        self.handle(now, input);
        Ok(())
    }

    /// The store's answer to a batch: its strings, each as its length in UTF-16 units, a colon and
    /// itself, all in one. Returns whether a server refused since it is a replica.
    pub fn reply(&mut self, now: f64, request: f64, fields: &str) -> bool {
        let request = RequestId(number(request));
        let Some(batch) = self.batches.remove(&request) else {
            return false;
        };
        let result = match text::split(fields) {
            Some(fields) => protocol::decode(&batch, &fields),
            None => Err(error("store", "the store's answer could not be read")),
        };
        let refused = |reply: &Result<_, Error>| {
            reply
                .as_ref()
                .is_err_and(|error| error.kind() == ErrorKind::ReadOnly)
        };
        let read_only = result
            .as_ref()
            .is_ok_and(|reply| reply.replies.iter().any(refused));
        self.handle(now, Input::Reply { request, result });
        read_only
    }

    /// The store gave no answer to a batch in time.
    #[wasm_bindgen(js_name = replyTimedOut)]
    pub fn reply_timed_out(&mut self, now: f64, request: f64) {
        self.no_reply(now, request, Error::no_answer());
    }

    /// There is no answer to a batch.
    #[wasm_bindgen(js_name = replyFailed)]
    pub fn reply_failed(&mut self, now: f64, request: f64, code: &str, message: &str) {
        self.no_reply(now, request, error(code, message));
    }

    /// A message came on the channel. Returns whether it is of the protocol.
    pub fn push(&mut self, now: f64, message: &str) -> bool {
        match protocol::decode_push(message.as_bytes()) {
            Ok(push) => self.pushed(now, push),
            Err(_) => return false,
        }
        true
    }

    /// The channel can be heard.
    pub fn subscribed(&mut self, now: f64) {
        self.handle(now, Input::Subscribed);
    }

    /// The channel cannot be heard.
    pub fn unsubscribed(&mut self, now: f64) {
        self.handle(now, Input::Unsubscribed);
    }

    /// A call that ends every tenure and refuses everything from now on.
    pub fn shutdown(&mut self, now: f64, call: f64) {
        let call = CallId(number(call));
        self.handle(now, Input::Shutdown { call });
    }

    /// Time passed.
    pub fn tick(&mut self, now: f64) {
        self.handle(now, Input::Tick);
    }
}

/// What to do.
#[wasm_bindgen]
impl Engine {
    /// Takes the next thing to do:
    ///
    /// |  | what | fields |
    /// |---|---|---|
    /// | 0 | nothing more | |
    /// | 1 | execute a batch until the deadline: keys and arguments are parts of the text | id, deadline, text, ends, keys |
    /// | 2 | a call acquired the lock | id, token, deadline, began, waited |
    /// | 3 | a call ended | id |
    /// | 4 | an acquisition did not get the lock | id |
    /// | 5 | a call is answered by JSON | id, text |
    /// | 6 | a call failed with an error in JSON | id, text |
    /// | 7 | a lock's lease was extended | id, token, deadline |
    /// | 8 | a lock's lease was lost for a reason | id, token, text |
    /// | 9 | a lock's lease was given up | id, token |
    /// | 10 | subscribe to the channel | |
    /// | 11 | there is something for a reader | id |
    pub fn poll(&mut self) -> u32 {
        if let Some(reader) = self.awake.pop() {
            self.current.id = id(reader.0);
            return task::WAKE;
        }
        while let Some(output) = self.inner.poll() {
            let task = self.task(output);
            if task != task::NOTHING {
                return task;
            }
            if !self.awake.is_empty() {
                return self.poll();
            }
        }
        task::NOTHING
    }

    /// The call, lock, request or reader that it is about.
    #[wasm_bindgen(getter)]
    pub fn id(&self) -> f64 {
        self.current.id
    }

    /// The tenure's token.
    #[wasm_bindgen(getter)]
    pub fn token(&self) -> f64 {
        self.current.token
    }

    /// When the lease ends unless it is renewed, or when nobody waits for the answer any more.
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

    /// Encodes the batch of the request that was polled last, for [`take_text`](Self::take_text).
    pub fn encode(&mut self, request: f64) {
        if let Some(batch) = self.batches.get(&RequestId(number(request))) {
            let call = protocol::encode(batch);
            self.current.keys = u32::try_from(call.keys().len()).unwrap_or(u32::MAX);
            (self.current.text, self.current.ends) = text::join(&call);
        }
    }

    /// When to come back, if nothing happens before; infinity for never.
    #[wasm_bindgen(js_name = wakeAt)]
    pub fn wake_at(&self) -> f64 {
        self.inner.wake_at().map_or(f64::INFINITY, millis)
    }

    /// Whether nothing is held, under way or waiting for an answer.
    #[wasm_bindgen(js_name = isIdle)]
    pub fn is_idle(&self) -> bool {
        self.inner.is_idle()
    }
}

/// Readers of events.
#[wasm_bindgen]
impl Engine {
    /// A new reader of the events of one lock, or of all.
    #[wasm_bindgen(js_name = addReader)]
    pub fn add_reader(&mut self, now: f64, reader: f64, lock: Option<f64>) {
        let lock = lock.map(|lock| LockId(number(lock)));
        let reader = ReaderId(number(reader));
        self.hub
            .subscribe(reader, lock, &self.inner, timestamp(now));
    }

    /// Forgets a reader.
    #[wasm_bindgen(js_name = removeReader)]
    pub fn remove_reader(&mut self, reader: f64) {
        self.hub.unsubscribe(ReaderId(number(reader)));
    }

    /// The reader's next event in JSON, empty at the end; none if there is none yet: the reader is
    /// woken then.
    #[wasm_bindgen(js_name = nextEvent)]
    pub fn next_event(&mut self, now: f64, reader: f64) -> Option<String> {
        let reader = ReaderId(number(reader));
        let mut waker = Some(reader);
        match self
            .hub
            .poll(reader, &self.inner, timestamp(now), &mut waker)
        {
            Poll::Ready(Some(event)) => Some(json(&event)),
            Poll::Ready(None) => Some(String::new()),
            Poll::Pending => None,
        }
    }

    /// No event will follow any more.
    #[wasm_bindgen(js_name = endReaders)]
    pub fn end_readers(&mut self) {
        let ended = self.hub.end_all();
        self.awake.extend(ended);
    }
}

/// For the store in memory.
impl Engine {
    pub(crate) fn client(&self) -> ClientId {
        self.client
    }

    pub(crate) fn take_batch(&mut self, request: f64) -> Option<Vec<Op>> {
        self.batches.remove(&RequestId(number(request)))
    }

    pub(crate) fn replied(&mut self, now: f64, request: f64, reply: BatchReply) {
        let request = RequestId(number(request));
        let result = Ok(reply);
        self.handle(now, Input::Reply { request, result });
    }

    pub(crate) fn pushed(&mut self, now: f64, push: Push) {
        self.handle(now, Input::Push(push));
    }
}

impl Engine {
    fn handle(&mut self, now: f64, input: Input) {
        self.inner.handle(timestamp(now), input);
    }

    fn no_reply(&mut self, now: f64, request: f64, error: Error) {
        let request = RequestId(number(request));
        self.batches.remove(&request);
        let result = Err(error);
        self.handle(now, Input::Reply { request, result });
    }

    fn key(&self, name: &str) -> Result<LockKey, Thrown> {
        let key = Name::new(name).and_then(|name| LockKey::new(&self.namespace, &name));
        key.map_err(|error| thrown(&error))
    }

    /// The tenure with this token. One that is over has an id that no tenure ever has.
    fn tenure(&self, lock: f64, token: f64) -> (LockId, LeaseId) {
        let lock = LockId(number(lock));
        let held = self.held.get(&lock);
        let held = held.filter(|(held, _)| held.get() == number(token));
        (lock, held.map_or(LeaseId(0), |(_, lease)| *lease))
    }

    fn task(&mut self, output: Output) -> u32 {
        match output {
            Output::Send {
                request,
                batch,
                give_up,
            } => {
                self.batches.insert(request, batch);
                self.current.id = id(request.0);
                self.current.deadline = millis(give_up);
                task::SEND
            }
            Output::Complete { call, result } => {
                self.current.id = id(call.0);
                let lock = self.acquiring.remove(&call);
                match result {
                    Ok(done) => self.done(done, lock),
                    Err(error) => {
                        self.current.text = json(&error);
                        task::FAILED
                    }
                }
            }
            Output::Event {
                lock,
                event,
                deadline,
            } => {
                let woken = self.hub.publish(lock, &event);
                self.awake.extend(woken);
                self.changed(lock, &event, deadline)
            }
            Output::Subscribe => task::SUBSCRIBE,
            Output::Closed { .. } => task::NOTHING,
        }
    }

    fn done(&mut self, done: Done, lock: Option<LockId>) -> u32 {
        let answer = match done {
            Done::Acquired(grant) => {
                if let Some(lock) = lock {
                    self.held.insert(lock, (grant.token, grant.lease));
                }
                let current = &mut self.current;
                current.token = id(grant.token.get());
                current.deadline = millis(grant.deadline);
                current.began = millis(grant.began);
                current.waited = grant.waited.as_secs_f64() * 1_000.0;
                return task::ACQUIRED;
            }
            Done::Busy => return task::BUSY,
            Done::Renewed | Done::Released | Done::ShutDown => return task::DONE,
            Done::Inspected(inspection) => json(&inspection),
            Done::ForceReleased(holder) => json(&holder),
            Done::Listed { cursor, names } => {
                json(&(cursor.map(|cursor| cursor.to_string()), names))
            }
        };
        self.current.text = answer;
        task::ANSWER
    }

    fn changed(&mut self, lock: LockId, event: &LeaseEvent, deadline: Option<Timestamp>) -> u32 {
        let Some(token) = event.token() else {
            return task::NOTHING;
        };
        self.current.id = id(lock.0);
        self.current.token = id(token.get());
        match event {
            LeaseEvent::Renewed { .. } => {
                self.current.deadline = deadline.map_or(0.0, millis);
                task::RENEWED
            }
            LeaseEvent::Lost { reason, .. } => {
                self.held.remove(&lock);
                reason.code().clone_into(&mut self.current.text);
                task::LOST
            }
            LeaseEvent::Released { .. } => {
                self.held.remove(&lock);
                task::RELEASED
            }
            _ => task::NOTHING,
        }
    }
}

/// A moment of the host's clock. What is not a time is its origin.
fn timestamp(millis: f64) -> Timestamp {
    Timestamp::from_nanos(number(millis * 1e6))
}

fn millis(at: Timestamp) -> f64 {
    id(at.as_nanos()) / 1e6
}

fn duration(what: &str, millis: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(millis / 1_000.0).map_err(|_| {
        let message = format!("{what} is a number of milliseconds from 0 up, not {millis}");
        Error::new(ErrorKind::Config, message)
    })
}

/// The host's numbers are whole, and far below 2^53.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn number(number: f64) -> u64 {
    number as u64
}

#[allow(clippy::cast_precision_loss)]
fn id(number: u64) -> f64 {
    number as f64
}

fn error(code: &str, message: &str) -> Error {
    let kind = ErrorKind::from_code(code).unwrap_or(ErrorKind::Store);
    Error::new(kind, message)
}

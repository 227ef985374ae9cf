mod batches;
mod output;
#[cfg(feature = "quorum")]
mod quorum;

use std::sync::Arc;
use std::task::Poll;

use leasehold_engine::engine::{
    Backlog, CallId, Hub, Input, LockId, LockOptions, LockSpec, ReaderId, RequestId, ServerId,
    Settings, Table, Wait,
};
use leasehold_engine::protocol::{
    self, BatchReply, ClientId, Counter, Durability, LeaseId, LockKey, Pattern,
};
use leasehold_engine::time::Timestamp;
use leasehold_engine::{Error, FencingToken, Name, Owner, Share, Tick, Ticket};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::convert::{duration, error, number, span, timestamp};
use crate::server::{Thrown, json, thrown};
use crate::text;
use batches::Batches;
use output::Outputs;

/// The engine of one locker.
#[wasm_bindgen]
pub struct Engine {
    client: ClientId,
    namespace: String,
    counter: Counter,
    inner: leasehold_engine::engine::Engine,
    hub: Hub<ReaderId>,
    locks: Table<LockId, Arc<LockSpec>>,
    /// The options that were set last.
    options: Vec<Arc<LockOptions>>,
    batches: Batches,
    awake: Vec<ReaderId>,
    outputs: Outputs,
    /// The time of the last input.
    now: Timestamp,
    /// True on a cluster, where there may be several servers.
    clustered: bool,
    /// True if the host wants batches as commands; false if as texts.
    command: bool,
}

fn lease_id(words: [i32; 4]) -> LeaseId {
    let words = words.iter().map(|word| word.cast_unsigned());
    LeaseId(words.fold(0, |bits, word| bits << 32 | u128::from(word)))
}

/// Returns whether the batch is on disk and how many replicas have it; or the error that `first` (a code) and
/// `second` (a message) describe.
fn copies(first: &str, second: &str) -> Result<[u64; 2], Error> {
    match (first.parse(), second.parse()) {
        (Ok(on_disk), Ok(replicas)) => Ok([on_disk, replicas]),
        _ => Err(error(first, second)),
    }
}

/// Returns the words of a lease id: the inverse of `lease_id`.
fn words(lease: LeaseId) -> [f64; 4] {
    #[allow(clippy::cast_possible_truncation)]
    [96, 64, 32, 0].map(|shift| f64::from((lease.0 >> shift) as i32))
}

fn settings(
    client: (u32, u32),
    namespace: &str,
    [command_timeout, patience, drift_margin, token_retention]: [f64; 4],
) -> Result<(Settings, Counter), Error> {
    let client = ClientId::new(u64::from(client.0) << 32 | u64::from(client.1));
    let settings = Settings {
        command_timeout: duration("command_timeout", command_timeout)?,
        patience: duration("patience", patience)?,
        drift_margin: u32::try_from(number(drift_margin)).unwrap_or(u32::MAX),
        ..Settings::new(client)
    };
    let retention = duration("token_retention", token_retention)?;
    let counter = Counter::ClockFloor { retention };
    counter.check()?;
    // Any name will do, because this checks the namespace.
    LockKey::new(namespace, &Name::new("n")?)?;
    Ok((settings.checked()?, counter))
}

/// Settings, and the locks that the host defines.
#[wasm_bindgen]
impl Engine {
    /// Makes an engine that is not connected yet.
    ///
    /// The client is 64 random bits. Times are in milliseconds, and the drift margin is in parts per million.
    /// With `command` the host gets each batch as a command that a client can send; otherwise it gets the
    /// batch's keys and arguments as texts.
    // An object would cost more across the border.
    #[allow(clippy::too_many_arguments)]
    #[wasm_bindgen(constructor)]
    pub fn new(
        client_high: u32,
        client_low: u32,
        namespace: String,
        command_timeout: f64,
        patience: f64,
        drift_margin: f64,
        token_retention: f64,
        clustered: bool,
        command: bool,
    ) -> Result<Self, Thrown> {
        let made = settings(
            (client_high, client_low),
            &namespace,
            [command_timeout, patience, drift_margin, token_retention],
        );
        let (settings, counter) = made.map_err(|error| thrown(&error))?;
        let settings = Settings {
            clustered,
            ..settings
        };
        let client = settings.client;
        let inner = leasehold_engine::engine::Engine::new(settings);
        Ok(Self::of(
            inner,
            (client, namespace, counter),
            clustered,
            command,
        ))
    }

    /// Returns the channel on which the store notifies this client.
    pub fn channel(&self) -> String {
        protocol::channel(&self.namespace, self.client)
    }

    /// Defines a lock before it is acquired. Times are in milliseconds: the time to live, the longest time of
    /// a lease (infinite without a limit), and the shortest time that the name stays taken (0 for none).
    ///
    /// A tick from 1 up makes it the lock on this tick of a job, whose completed ticks the store remembers for
    /// the retention if that is longer than the tokens'. The tick 0 stands for none. `missed` ticks from `first`
    /// on were missed before it, and it may have been begun before: `again`.
    // An object would cost more across the border.
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)]
    pub fn define(
        &mut self,
        lock: f64,
        name: &str,
        ttl: f64,
        fixed: bool,
        reentrant: bool,
        owner: &str,
        reclaimable: bool,
        dense: bool,
        replicas: u32,
        replicas_timeout: u32,
        fsynced: bool,
        at_most: f64,
        at_least: f64,
        tick: f64,
        retention: f64,
        first: f64,
        missed: f64,
        again: bool,
    ) -> Result<(), Thrown> {
        let mut spec = || {
            let (name, key) = LockKey::with_name(&self.namespace, name)?;
            let owner = if tick > 0.0 {
                Owner::runner(owner, Tick::new(number(tick))?)?
            } else if reclaimable {
                Owner::reclaimable(owner)?
            } else {
                Owner::labelled(owner)?
            };
            let counter = if dense { Counter::Dense } else { self.counter };
            let ttl = duration("a lease's time to live", ttl)?;
            let durability = Durability {
                replicas,
                fsynced,
                timeout: replicas_timeout,
            };
            let limited = at_most < f64::INFINITY;
            let options = LockOptions {
                ttl,
                fixed,
                reentrant,
                owner,
                counter,
                durability: (replicas > 0 || fsynced).then_some(durability),
                at_most: limited.then(|| duration("at_most", at_most)).transpose()?,
                at_least: (at_least > 0.0)
                    .then(|| duration("at_least", at_least))
                    .transpose()?,
                backlog: (missed > 0.0 || again).then(|| Backlog {
                    first: number(first),
                    missed: number(missed),
                    again,
                }),
                max_line: None,
                strict: false,
            };
            let options = options.shared(&mut self.options);
            let mut spec = LockSpec { name, key, options };
            spec.check()?;
            if tick > 0.0 {
                let job = duration("a job's retention", retention)?;
                let options = Arc::make_mut(&mut spec.options);
                if let Counter::ClockFloor { retention } = &mut options.counter {
                    *retention = job.max(*retention);
                }
            }
            Ok(spec)
        };
        let spec = Arc::new(spec().map_err(|error: Error| thrown(&error))?);
        self.locks.insert(LockId(number(lock)), spec);
        Ok(())
    }

    /// Defines a lock that is like another one. Returns false if the other one is not known.
    #[wasm_bindgen(js_name = defineLike)]
    pub fn define_like(&mut self, lock: f64, other: f64) -> bool {
        let spec = self.locks.get(&LockId(number(other))).cloned();
        spec.is_some_and(|spec| {
            self.locks.insert(LockId(number(lock)), spec);
            true
        })
    }

    /// Makes a defined lock a part of a shared name: of a semaphore (`slots`) or a quota (`units`), or its readers' or
    /// writers' side (`read`, `write`), which need no numbers. Acquisitions from now on ask for that part.
    ///
    /// A line that has `max_line` waiters (infinite without a limit) refuses more of them. `strict` refuses a name
    /// whose capacity is another one.
    pub fn share(
        &mut self,
        lock: f64,
        kind: &str,
        weight: f64,
        capacity: f64,
        max_line: f64,
        strict: bool,
    ) -> Result<(), Thrown> {
        let units = |number: f64| u32::try_from(self::number(number)).unwrap_or(u32::MAX);
        let spec = self.locks.get_mut(&LockId(number(lock)));
        let share = || {
            let share = match kind {
                "slots" => Share::slots(units(weight), units(capacity))?,
                "units" => Share::units(units(weight), units(capacity))?,
                "write" => Share::writer(),
                _ => Share::reader(),
            };
            let Some(spec) = spec else {
                return Ok(());
            };
            let options = Arc::make_mut(&mut Arc::make_mut(spec).options);
            options.owner = options.owner.with_share(share);
            options.max_line = (max_line < f64::INFINITY).then(|| units(max_line));
            options.strict = strict;
            spec.check()
        };
        share().map_err(|error: Error| thrown(&error))
    }

    /// Forgets a lock. It must not be held, and nobody may acquire it or read its events.
    pub fn forget(&mut self, lock: f64) {
        self.locks.take(&LockId(number(lock)));
    }
}

/// Inputs: calls, replies, pushes and time.
#[wasm_bindgen]
impl Engine {
    /// A server can be reached, for the first time or again. The only server of a store is number 0.
    pub fn connected(&mut self, now: f64, server: u32) {
        let server = ServerId(server);
        self.handle(now, Input::Connected { server });
    }

    /// A server can no longer be reached.
    pub fn disconnected(&mut self, now: f64, server: u32, code: &str, message: &str) {
        let (server, error) = (ServerId(server), error(code, message));
        self.handle(now, Input::Disconnected { server, error });
    }

    /// A server serves these slots of a cluster from now on.
    pub fn slots(&mut self, now: f64, first: u16, last: u16, server: u32) {
        let (slots, server) = (first..=last, ServerId(server));
        self.handle(now, Input::Slots { slots, server });
    }

    /// A call acquires a defined lock, with 128 random bits as its lease id. It waits this many milliseconds:
    /// 0 for not at all, infinity for forever. Returns false if the lock is not defined.
    #[allow(clippy::too_many_arguments)]
    pub fn acquire(
        &mut self,
        now: f64,
        call: u32,
        lock: f64,
        wait: f64,
        w0: i32,
        w1: i32,
        w2: i32,
        w3: i32,
    ) -> bool {
        let lock = LockId(number(lock));
        let Some(spec) = self.locks.get(&lock).cloned() else {
            return false;
        };
        let (call, lease) = (CallId(call.into()), lease_id([w0, w1, w2, w3]));
        let wait = match span(wait) {
            Some(wait) if wait.is_zero() => Wait::Never,
            Some(wait) => Wait::Until(timestamp(now) + wait),
            None => Wait::Forever,
        };
        let input = Input::Acquire {
            call,
            lock,
            spec,
            lease,
            wait,
        };
        self.handle(now, input);
        true
    }

    /// A call accepts a lease that was passed on, as the ticket says, with 128 random bits as its lease id.
    /// Returns false if the lock is not defined.
    #[allow(clippy::too_many_arguments)]
    pub fn accept(
        &mut self,
        now: f64,
        call: u32,
        lock: f64,
        ticket: &str,
        w0: i32,
        w1: i32,
        w2: i32,
        w3: i32,
    ) -> Result<bool, Thrown> {
        let lock = LockId(number(lock));
        let Some(spec) = self.locks.get(&lock).cloned() else {
            return Ok(false);
        };
        let ticket = ticket.parse::<Ticket>();
        let passed = ticket.and_then(|ticket| {
            let passed = ticket.passed(&self.namespace, Some(&spec.name))?;
            Ok(Box::new(passed.clone()))
        });
        let accept = Input::Accept {
            call: CallId(call.into()),
            lock,
            spec,
            lease: lease_id([w0, w1, w2, w3]),
            passed: passed.map_err(|error| thrown(&error))?,
        };
        self.handle(now, accept);
        Ok(true)
    }

    /// A call passes a tenure on. Its answer is the text of the ticket.
    pub fn pass(&mut self, now: f64, call: u32, w0: i32, w1: i32, w2: i32, w3: i32) {
        let call = CallId(call.into());
        let lease = lease_id([w0, w1, w2, w3]);
        self.handle(now, Input::Pass { call, lease });
    }

    /// A call that acquires this lock with this lease id was canceled.
    #[allow(clippy::too_many_arguments)]
    pub fn cancel(&mut self, now: f64, call: u32, lock: f64, w0: i32, w1: i32, w2: i32, w3: i32) {
        let call = CallId(call.into());
        let of = Some((LockId(number(lock)), lease_id([w0, w1, w2, w3])));
        self.handle(now, Input::Cancel { call, of });
    }

    /// A call extends a tenure, by `ttl` milliseconds from now on if that is given.
    #[allow(clippy::too_many_arguments)]
    pub fn renew(
        &mut self,
        now: f64,
        call: u32,
        w0: i32,
        w1: i32,
        w2: i32,
        w3: i32,
        ttl: Option<f64>,
    ) -> Result<(), Thrown> {
        let ttl = ttl.map(|ttl| duration("a lease's time to live", ttl));
        let ttl = ttl.transpose().map_err(|error| thrown(&error))?;
        let call = CallId(call.into());
        let lease = lease_id([w0, w1, w2, w3]);
        let renew = Input::Renew {
            call,
            lease,
            ttl,
            floor: None,
        };
        self.handle(now, renew);
        Ok(())
    }

    /// A call makes the writer of a shared name, which the program has checked it to be, a reader.
    pub fn downgrade(&mut self, now: f64, call: u32, w0: i32, w1: i32, w2: i32, w3: i32) {
        let (call, lease) = (CallId(call.into()), lease_id([w0, w1, w2, w3]));
        let renew = Input::Renew {
            call,
            lease,
            ttl: None,
            floor: FencingToken::new(1).ok(),
        };
        self.handle(now, renew);
    }

    /// A call gives up a lease of a tenure.
    pub fn release(&mut self, now: f64, call: u32, w0: i32, w1: i32, w2: i32, w3: i32) {
        let call = Some(CallId(call.into()));
        let lease = lease_id([w0, w1, w2, w3]);
        self.handle(now, Input::Release { call, lease });
    }

    /// A call gives up the lease of a turn, and completes its tick.
    pub fn complete(&mut self, now: f64, call: u32, w0: i32, w1: i32, w2: i32, w3: i32) {
        let call = CallId(call.into());
        let lease = lease_id([w0, w1, w2, w3]);
        self.handle(now, Input::Complete { call, lease });
    }

    /// A call changes the capacity of the shared name that this lock is a part of. Its answer is the capacity's epoch.
    /// Returns false if the lock is not defined as such a part.
    pub fn resize(&mut self, now: f64, call: u32, lock: f64, capacity: f64) -> bool {
        let spec = self.locks.get(&LockId(number(lock)));
        let Some((spec, share)) = spec.and_then(|spec| Some((spec, spec.owner.share()?))) else {
            return false;
        };
        let resize = Input::Resize {
            call: CallId(call.into()),
            key: spec.key.clone(),
            sharing: share.sharing(),
            capacity: u32::try_from(number(capacity)).unwrap_or(u32::MAX),
            counter: spec.counter,
        };
        self.handle(now, resize);
        true
    }

    /// A call asks who holds a lock.
    pub fn inspect(&mut self, now: f64, call: u32, name: &str) -> Result<(), Thrown> {
        let key = self.key(name)?;
        let call = CallId(call.into());
        self.handle(now, Input::Inspect { call, key });
        Ok(())
    }

    /// A call frees a lock. A token limits it to the tenure with that token; 0 stands for any.
    #[wasm_bindgen(js_name = forceRelease)]
    pub fn force_release(
        &mut self,
        now: f64,
        call: u32,
        name: &str,
        token: f64,
    ) -> Result<(), Thrown> {
        let key = self.key(name)?;
        let call = CallId(call.into());
        // A whole number that a double can hold, as JavaScript has checked.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let token = FencingToken::new(token as u64).ok();
        self.handle(now, Input::ForceRelease { call, key, token });
        Ok(())
    }

    /// A call asks the holder of a lock to yield within some milliseconds, for the owner `by`.
    #[wasm_bindgen(js_name = requestYield)]
    pub fn request_yield(
        &mut self,
        now: f64,
        call: u32,
        name: &str,
        by: &str,
        within: f64,
    ) -> Result<(), Thrown> {
        let key = self.key(name)?;
        let by = Owner::labelled(by).map_err(|error| thrown(&error))?;
        let within = duration("the time to yield within", within);
        let within = within.map_err(|error| thrown(&error))?;
        let call = CallId(call.into());
        let request = Input::RequestYield {
            call,
            key,
            by,
            within,
        };
        self.handle(now, request);
        Ok(())
    }

    /// A call makes one step of a scan of the held locks. The first cursor is `0`.
    pub fn list(&mut self, now: f64, call: u32, pattern: &str, cursor: &str) -> Result<(), Thrown> {
        let pattern = Pattern::new(&self.namespace, pattern).map_err(|error| thrown(&error))?;
        let input = Input::List {
            call: CallId(call.into()),
            pattern,
            // The cursor is one of ours, so it has only digits.
            cursor: cursor.bytes().fold(0, |number, digit| {
                let digit = u64::from(digit.wrapping_sub(b'0'));
                number.wrapping_mul(10).wrapping_add(digit)
            }),
        };
        self.handle(now, input);
        Ok(())
    }

    /// A server's reply to a batch in its most common form: only its time, as a number, or 0.
    pub fn reply(&mut self, now: f64, server: u32, request: f64, time: f64) {
        // A negative number, a fraction or NaN is not a time: it must not become 0.
        let text = if time >= 1.0 || time == 0.0 {
            number(time).to_string()
        } else {
            String::new()
        };
        self.decode(now, server, request, &[text.as_str()]);
    }

    /// A reply in any other form: all strings in one, each as its length in UTF-16 units, a colon and itself.
    /// If the batch waits for copies, two strings come first: whether it is on disk and how many replicas
    /// have it; or an error's code and message.
    #[wasm_bindgen(js_name = replyFields)]
    pub fn reply_fields(&mut self, now: f64, server: u32, request: f64, fields: &str) {
        match text::split(fields) {
            Some(fields) => self.decode(now, server, request, &fields),
            None => self.reply_failed(
                now,
                server,
                request,
                "store",
                "the store's answer could not be read",
            ),
        }
    }

    /// A batch got no reply.
    #[wasm_bindgen(js_name = replyFailed)]
    pub fn reply_failed(&mut self, now: f64, server: u32, request: f64, code: &str, message: &str) {
        let server = ServerId(server);
        let request = RequestId(number(request));
        self.batches.take(self.batch_id(server, request));
        self.replied(now, server, request, Err(error(code, message)));
    }

    /// A push arrived on a server's channel. Returns false if it is not part of the protocol.
    pub fn push(&mut self, now: f64, server: u32, message: &str) -> bool {
        match protocol::decode_push(message.as_bytes()) {
            Ok(push) => {
                // The servers of a cluster pass messages on, so the sender is unknown.
                let server = (!self.clustered).then_some(ServerId(server));
                self.handle(now, Input::Push { server, push });
                true
            }
            Err(_) => false,
        }
    }

    /// Pushes of a server on the channel arrive from now on if `hears` is true; otherwise they may be missed.
    pub fn hears(&mut self, now: f64, server: u32, hears: bool) {
        let server = ServerId(server);
        let input = if hears {
            Input::Subscribed { server }
        } else {
            Input::Unsubscribed { server }
        };
        self.handle(now, input);
    }

    /// A server reports changes of the keys that are read, from now on.
    pub fn watching(&mut self, now: f64, server: u32) {
        let server = ServerId(server);
        self.handle(now, Input::Watching { server });
    }

    /// Another client may have changed this key. An empty key stands for all keys.
    #[wasm_bindgen(js_name = changed)]
    pub fn others_changed(&mut self, now: f64, key: &str) {
        let lock = LockKey::of_lock(key);
        if key.is_empty() || lock.is_some() {
            self.handle(now, Input::Changed { key: lock });
        }
    }

    /// A call ends every tenure. The engine refuses everything from now on.
    pub fn shutdown(&mut self, now: f64, call: u32) {
        let call = CallId(call.into());
        self.handle(now, Input::Shutdown { call });
    }

    /// Time has passed.
    pub fn tick(&mut self, now: f64) {
        self.handle(now, Input::Tick);
    }
}

/// Readers of events.
#[wasm_bindgen]
impl Engine {
    /// Adds a reader of the events of one lock, or of all locks.
    #[wasm_bindgen(js_name = addReader)]
    pub fn add_reader(&mut self, now: f64, reader: f64, lock: Option<f64>) {
        let lock = lock.map(|lock| LockId(number(lock)));
        let reader = ReaderId(number(reader));
        self.hub
            .subscribe(reader, lock, &self.inner, timestamp(now));
    }

    /// Removes a reader.
    #[wasm_bindgen(js_name = removeReader)]
    pub fn remove_reader(&mut self, reader: f64) {
        self.hub.unsubscribe(ReaderId(number(reader)));
    }

    /// Returns the reader's next event as JSON; an empty string at the end; `None` if there is no event yet.
    /// In the last case the reader is woken later.
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

    /// Ends all readers: no event will follow.
    #[wasm_bindgen(js_name = endReaders)]
    pub fn end_readers(&mut self) {
        let ended = self.hub.end_all();
        self.awake.extend(ended);
    }
}

impl Engine {
    fn of(
        inner: leasehold_engine::engine::Engine,
        (client, namespace, counter): (ClientId, String, Counter),
        clustered: bool,
        command: bool,
    ) -> Self {
        Self {
            client,
            namespace,
            counter,
            inner,
            hub: Hub::default(),
            locks: Table::default(),
            options: Vec::new(),
            batches: Batches::default(),
            awake: Vec::new(),
            outputs: Outputs::default(),
            now: Timestamp::from_nanos(0),
            clustered,
            command,
        }
    }

    fn handle(&mut self, now: f64, input: Input) {
        self.now = timestamp(now);
        self.inner.handle(self.now, input);
    }

    fn decode(&mut self, now: f64, server: u32, request: f64, fields: &[&str]) {
        let server = ServerId(server);
        let request = RequestId(number(request));
        let asked = self.batches.take(self.batch_id(server, request));
        let Some((batch, durability)) = asked else {
            return;
        };
        let (copies, fields) = match (&durability, fields) {
            (Some(_), [first, second, rest @ ..]) => (copies(first, second), rest),
            _ => (Ok([0; 2]), fields),
        };
        let mut result = protocol::decode(&batch, fields);
        if let Some(durability) = durability {
            result = result.and_then(|reply| durability.weigh(reply, copies));
        }
        self.replied(now, server, request, result);
    }

    /// Returns the key of a batch. Each of up to 7 members of a quorum numbers its own batches, so the member
    /// is part of the key. On a cluster it is not, because another server than the batch was sent to may
    /// reply.
    fn batch_id(&self, server: ServerId, request: RequestId) -> RequestId {
        let several = cfg!(feature = "quorum") && !self.clustered;
        let member = if several { u64::from(server.0) } else { 0 };
        RequestId(request.0 << 3 | member)
    }

    fn replied(
        &mut self,
        now: f64,
        server: ServerId,
        request: RequestId,
        result: Result<BatchReply, Error>,
    ) {
        let input = Input::Reply {
            server,
            request,
            result,
        };
        self.handle(now, input);
    }

    fn key(&self, name: &str) -> Result<LockKey, Thrown> {
        let key = Name::new(name).and_then(|name| LockKey::new(&self.namespace, &name));
        key.map_err(|error| thrown(&error))
    }
}

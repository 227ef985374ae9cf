mod batches;
mod output;
#[cfg(feature = "quorum")]
mod quorum;

use std::sync::Arc;
use std::task::Poll;

use leasehold_engine::engine::{
    CallId, Hub, Input, LockId, LockOptions, LockSpec, ReaderId, RequestId, ServerId, Settings,
    Table, Wait,
};
use leasehold_engine::protocol::{
    self, BatchReply, ClientId, Counter, Durability, LeaseId, LockKey, Pattern,
};
use leasehold_engine::time::Timestamp;
use leasehold_engine::{Error, FencingToken, Name, Owner};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::convert::{duration, error, number, span, timestamp};
use crate::server::{Thrown, json, thrown};
use crate::text;
use batches::Batches;
use output::Outputs;

/// One locker's engine.
#[wasm_bindgen]
pub struct Engine {
    client: ClientId,
    namespace: String,
    counter: Counter,
    inner: leasehold_engine::engine::Engine,
    hub: Hub<ReaderId>,
    locks: Table<LockId, Arc<LockSpec>>,
    /// Those that were set last.
    options: Vec<Arc<LockOptions>>,
    batches: Batches,
    awake: Vec<ReaderId>,
    outputs: Outputs,
    /// When it was last fed anything.
    now: Timestamp,
    /// Whether there may be several servers.
    clustered: bool,
    /// Whether the host wants batches as commands, and not as texts.
    command: bool,
}

fn lease_id(words: [i32; 4]) -> LeaseId {
    let words = words.iter().map(|word| word.cast_unsigned());
    LeaseId(words.fold(0, |bits, word| bits << 32 | u128::from(word)))
}

/// Whether it is on the disk and how many replicas have it; or a code and why that is not known.
fn copies(first: &str, second: &str) -> Result<[u64; 2], Error> {
    match (first.parse(), second.parse()) {
        (Ok(on_disk), Ok(replicas)) => Ok([on_disk, replicas]),
        _ => Err(error(first, second)),
    }
}

/// The words that `lease_id` makes the same lease id of.
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
    // Any name will do: this is for the namespace.
    LockKey::new(namespace, &Name::new("n")?)?;
    Ok((settings.checked()?, counter))
}

/// Settings, and the locks that the host defines.
#[wasm_bindgen]
impl Engine {
    /// An engine that is not connected yet. The client is 64 random bits; the times are in
    /// milliseconds, the drift margin is in parts per million. The host gets of a batch the command as a
    /// client sends it, or otherwise its keys and arguments as texts.
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

    /// The channel on which the store tells this client something.
    pub fn channel(&self) -> String {
        protocol::channel(&self.namespace, self.client)
    }

    /// Tells what a lock is, before it is acquired. The time to live is in milliseconds.
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
    ) -> Result<(), Thrown> {
        let mut spec = || {
            let (name, key) = LockKey::with_name(&self.namespace, name)?;
            let owner = if reclaimable {
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
            let options = LockOptions {
                ttl,
                fixed,
                reentrant,
                owner,
                counter,
                durability: (replicas > 0 || fsynced).then_some(durability),
            };
            let options = options.shared(&mut self.options);
            let spec = LockSpec { name, key, options };
            spec.check().map(|()| spec)
        };
        let spec = Arc::new(spec().map_err(|error| thrown(&error))?);
        self.locks.insert(LockId(number(lock)), spec);
        Ok(())
    }

    /// The same of a lock that is like another one. Returns whether that is known.
    #[wasm_bindgen(js_name = defineLike)]
    pub fn define_like(&mut self, lock: f64, other: f64) -> bool {
        let spec = self.locks.get(&LockId(number(other))).cloned();
        spec.is_some_and(|spec| {
            self.locks.insert(LockId(number(lock)), spec);
            true
        })
    }

    /// Forgets what a lock is: one that is not held, and that nobody acquires or reads the events of.
    pub fn forget(&mut self, lock: f64) {
        self.locks.take(&LockId(number(lock)));
    }
}

/// What happened.
#[wasm_bindgen]
impl Engine {
    /// A server can be reached: for the first time, or again. One that is alone is number 0.
    pub fn connected(&mut self, now: f64, server: u32) {
        let server = ServerId(server);
        self.handle(now, Input::Connected { server });
    }

    /// A server cannot be reached any more.
    pub fn disconnected(&mut self, now: f64, server: u32, code: &str, message: &str) {
        let (server, error) = (ServerId(server), error(code, message));
        self.handle(now, Input::Disconnected { server, error });
    }

    /// A server serves these slots of a cluster from now on.
    pub fn slots(&mut self, now: f64, first: u16, last: u16, server: u32) {
        let (slots, server) = (first..=last, ServerId(server));
        self.handle(now, Input::Slots { slots, server });
    }

    /// A call that acquires a defined lock, with 128 random bits. It waits so many milliseconds; 0
    /// for not at all, infinity for ever. Returns whether the lock is defined.
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

    /// A call was given up that acquires this lock, with these random bits.
    #[allow(clippy::too_many_arguments)]
    pub fn cancel(&mut self, now: f64, call: u32, lock: f64, w0: i32, w1: i32, w2: i32, w3: i32) {
        let call = CallId(call.into());
        let of = Some((LockId(number(lock)), lease_id([w0, w1, w2, w3])));
        self.handle(now, Input::Cancel { call, of });
    }

    /// A call that extends a tenure; by so many milliseconds from now on, if they are given.
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

    /// A call that gives up a lease of a tenure.
    pub fn release(&mut self, now: f64, call: u32, w0: i32, w1: i32, w2: i32, w3: i32) {
        let call = Some(CallId(call.into()));
        let lease = lease_id([w0, w1, w2, w3]);
        self.handle(now, Input::Release { call, lease });
    }

    /// A call that asks who has a lock.
    pub fn inspect(&mut self, now: f64, call: u32, name: &str) -> Result<(), Thrown> {
        let key = self.key(name)?;
        let call = CallId(call.into());
        self.handle(now, Input::Inspect { call, key });
        Ok(())
    }

    /// A call that frees a lock, of the tenure with this token, or whoever has it if that is 0.
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
        // A whole number that a double can have; the JavaScript has checked it.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let token = FencingToken::new(token as u64).ok();
        self.handle(now, Input::ForceRelease { call, key, token });
        Ok(())
    }

    /// A call for one step of a walk through the locks that are held. The cursor is `0` to begin.
    pub fn list(&mut self, now: f64, call: u32, pattern: &str, cursor: &str) -> Result<(), Thrown> {
        let pattern = Pattern::new(&self.namespace, pattern).map_err(|error| thrown(&error))?;
        let input = Input::List {
            call: CallId(call.into()),
            pattern,
            // One of our own, and of digits alone.
            cursor: cursor.bytes().fold(0, |number, digit| {
                let digit = u64::from(digit.wrapping_sub(b'0'));
                number.wrapping_mul(10).wrapping_add(digit)
            }),
        };
        self.handle(now, input);
        Ok(())
    }

    /// A server's reply to a batch, of the commonest form: its time alone, as a number, or 0.
    pub fn reply(&mut self, now: f64, server: u32, request: f64, time: f64) {
        // What is negative, a fraction or no number is no time: it must not become 0.
        let text = if time >= 1.0 || time == 0.0 {
            number(time).to_string()
        } else {
            String::new()
        };
        self.decode(now, server, request, &[text.as_str()]);
    }

    /// A reply of another form: its strings, each as its length in UTF-16 units, a colon and itself, all
    /// in one. Of a batch that waits for copies the first two say whether it is on the disk and how many
    /// replicas have it; or a code, and why that is not known.
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

    /// There is no answer to a batch.
    #[wasm_bindgen(js_name = replyFailed)]
    pub fn reply_failed(&mut self, now: f64, server: u32, request: f64, code: &str, message: &str) {
        let server = ServerId(server);
        let request = RequestId(number(request));
        self.batches.take(self.batch_id(server, request));
        self.replied(now, server, request, Err(error(code, message)));
    }

    /// A message came on a server's channel. Returns whether it is of the protocol.
    pub fn push(&mut self, now: f64, server: u32, message: &str) -> bool {
        match protocol::decode_push(message.as_bytes()) {
            Ok(push) => {
                // The servers of a cluster pass messages on.
                let server = (!self.clustered).then_some(ServerId(server));
                self.handle(now, Input::Push { server, push });
                true
            }
            Err(_) => false,
        }
    }

    /// What a server sends on the channel can be heard from now on, or cannot.
    pub fn hears(&mut self, now: f64, server: u32, hears: bool) {
        let server = ServerId(server);
        let input = if hears {
            Input::Subscribed { server }
        } else {
            Input::Unsubscribed { server }
        };
        self.handle(now, input);
    }

    /// A server says from now on when a key changes that is read.
    pub fn watching(&mut self, now: f64, server: u32) {
        let server = ServerId(server);
        self.handle(now, Input::Watching { server });
    }

    /// Somebody else may have changed this key; without one, any.
    #[wasm_bindgen(js_name = changed)]
    pub fn others_changed(&mut self, now: f64, key: &str) {
        let lock = LockKey::of_lock(key);
        if key.is_empty() || lock.is_some() {
            self.handle(now, Input::Changed { key: lock });
        }
    }

    /// A call that ends every tenure and refuses everything from now on.
    pub fn shutdown(&mut self, now: f64, call: u32) {
        let call = CallId(call.into());
        self.handle(now, Input::Shutdown { call });
    }

    /// Time passed.
    pub fn tick(&mut self, now: f64) {
        self.handle(now, Input::Tick);
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

    /// What a batch is kept under: each member of a quorum numbers its own, and of those there are up to 7.
    /// At a cluster another server may reply than it was sent to.
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

//! Runs the engine natively: feeds it input and carries out what it asks for.
//!
//! A caller's own task locks the engine, takes out the batches to send, awaits the replies and feeds them
//! back. So an uncontended acquire involves no other task. One background task per locker drives the timers.

mod calls;
mod capacities;
mod cluster;
mod memory;
mod remote;
mod send_order;
mod shared_tenure;
mod sink;
mod store;
mod stores;
mod timer_task;
mod trace;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold_engine::engine::{
    Answer, CallId, Engine, Hub, Input, LockId, Output, ReaderId, RequestId, ServerId, Settings,
    Stats, Suspicion,
};
use leasehold_engine::protocol::{ClientId, Command, Durability, LeaseId, LockKey, Op, channel};
use leasehold_engine::time::Timestamp;
use leasehold_engine::{Error, Finding, LeaseEvent};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::Notify;

pub(crate) use self::memory::MemoryStore;
pub(crate) use calls::Pending;
pub(crate) use shared_tenure::{Share, SharedTenure};
pub(crate) use store::Store;
pub(crate) use stores::Stores;

use crate::clock::Clock;
use crate::rt::RandomSource;
use calls::{Calls, Delivery};
use capacities::Capacities;
use send_order::{SendOrder, Sending};
use shared_tenure::SharedTenures;
use timer_task::TimerTask;

/// The longest sleep of the background task while a timer is set. The runtime's timers stand still while the
/// machine is suspended, and `Lost` must not wait for them.
const LONGEST_NAP: Duration = Duration::from_millis(500);

/// A locker's engine, its store, and everyone who waits for either.
pub(crate) struct Driver {
    state: Mutex<State>,
    client: ClientId,
    namespace: String,
    clock: Clock,
    /// The channel on which the store notifies this client.
    channel: String,
    /// True if the store is to report changes by other clients.
    tracking: bool,
    stores: Stores,
    runtime: Handle,
    rearm: Notify,
    last_id: AtomicU64,
    /// The number of event readers.
    readers: AtomicUsize,
    random: Mutex<RandomSource>,
    /// How long pending work may take after the program is done with the locker.
    patience: Duration,
}

struct State {
    engine: Engine,
    calls: Calls,
    tenures: SharedTenures,
    hub: Hub<Waker>,
    capacities: Capacities,
    /// True if a task that lets others run first will send the pending operations.
    gathers: bool,
    order: SendOrder,
    /// When the engine needs the time next, and when the background task wakes.
    wake: Timestamp,
    armed: Timestamp,
    /// The time at which the program dropped its last handle or shut the locker down.
    closing: Option<Timestamp>,
    /// The reason why nothing is sent or timed any more, if the background task ended early.
    dead: Option<Error>,
}

/// A batch to be sent.
struct Batch {
    server: ServerId,
    request: RequestId,
    ops: Vec<Op>,
    durability: Option<Durability>,
    give_up: Timestamp,
    /// Keeps the send order until this batch is on its way. Only the last of the batches that were taken out
    /// together has it.
    sending: Option<Sending>,
}

impl Batch {
    /// Returns true if the batch has one operation, apart from the check of a quorum's member.
    fn is_of_one(&self) -> bool {
        let checks = |op: &&Op| matches!(op.command, Command::Enter(_));
        self.ops.len() - self.ops.iter().take(1).filter(checks).count() == 1
    }

    fn releases(&self) -> bool {
        let releases = |op: &Op| matches!(op.command, Command::Release(_) | Command::Vacate(_));
        self.ops.iter().any(releases)
    }
}

/// Usually one batch, which then needs no allocation.
type Batches = SmallVec<[Batch; 1]>;
type Deliveries = SmallVec<[Delivery; 1]>;

/// The work to do once the state is unlocked.
#[derive(Default)]
struct Effects {
    sends: Batches,
    deliveries: Deliveries,
    wakers: Vec<Waker>,
    traces: Vec<LeaseEvent>,
    over: Vec<Arc<SharedTenure>>,
    suspicions: Vec<(ServerId, Suspicion)>,
    watches: Vec<(ServerId, Vec<LockKey>)>,
    subscribes: Vec<ServerId>,
    /// True if a caller was refused its lock. If it has a place in line, a release gives that up now.
    refuses: bool,
    /// True if pending operations are to be sent after other tasks could run.
    gathers: bool,
}

impl Driver {
    /// Starts the engine on a store. If the store can be reached, the future asks for its clock, so that the
    /// first call is one round trip. With an in-memory store the future is ready at once.
    pub(crate) fn start(
        stores: Stores,
        mut settings: Settings,
        (namespace, tracking): (String, bool),
    ) -> Result<(Arc<Self>, impl Future<Output = ()> + Send), Error> {
        // On a runtime without timers, panic here and not in the background task.
        drop(tokio::time::sleep(Duration::ZERO));
        let (client, patience) = (settings.client, settings.patience);
        settings.clustered = stores.is_clustered();
        settings.addressed = stores.are_addressed();
        settings.mixed = settings.addressed;
        let engine = match stores.members() {
            Some(members) => Engine::quorum(settings, members)?,
            None => Engine::new(settings),
        };
        let driver = Arc::new(Self {
            client,
            channel: channel(&namespace, client),
            namespace,
            tracking,
            patience,
            state: Mutex::new(State {
                engine,
                calls: Calls::default(),
                tenures: SharedTenures::default(),
                hub: Hub::default(),
                capacities: Capacities::default(),
                gathers: false,
                order: SendOrder::default(),
                wake: Timestamp::NEVER,
                armed: Timestamp::NEVER,
                closing: None,
                dead: None,
            }),
            clock: stores.clock(),
            stores,
            runtime: Handle::current(),
            rearm: Notify::new(),
            last_id: AtomicU64::new(0),
            readers: AtomicUsize::new(0),
            random: Mutex::default(),
        });
        let mut sends = Batches::new();
        for input in driver.stores.opening() {
            sends.extend(driver.step(input));
        }
        driver.runtime.spawn(keep_time(TimerTask::of(&driver)));
        driver.stores.watch_links(&driver);
        let started = driver.clone();
        let ask_for_clock = async move {
            let asked = sends.into_iter().map(|batch| started.execute(batch));
            futures::future::join_all(asked).await;
        };
        Ok((driver, ask_for_clock))
    }

    /// Returns a number that this locker has not used before.
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns a unique ID that nobody can guess.
    pub(crate) fn new_lease(&self) -> Result<LeaseId, Error> {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.bits().map(LeaseId)
    }

    /// Returns the time by this locker's clock.
    pub(crate) async fn sleep(&self, time: Duration) {
        self.clock.sleep(time).await;
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the findings so far.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut findings = self.stores.findings();
        findings.extend(self.state().capacities.findings());
        findings
    }

    /// Returns the cursors at which a walk over all locks begins.
    pub(crate) fn walks(&self) -> Result<Vec<u64>, Error> {
        self.stores.walks()
    }

    /// Returns the engine's counters.
    pub(crate) fn stats(&self) -> Stats {
        let counts = self.state().engine.counts();
        counts.into()
    }

    /// Feeds the engine an input that no caller waits for.
    pub(crate) fn feed(self: &Arc<Self>, input: Input) {
        let sends = self.step(input);
        self.spawn_all(sends);
    }

    /// Ends the event streams of a handle that the program dropped, once its last tenure ends. Without
    /// readers there is no stream to end, and nobody can subscribe to this handle any more.
    pub(crate) fn close_lock(self: &Arc<Self>, lock: LockId) {
        if self.readers.load(Ordering::Acquire) > 0 {
            self.feed(Input::Close { lock });
        }
    }

    /// Finishes pending work and closes the link: the program has no handle left, or has shut the locker
    /// down.
    pub(crate) fn close(&self) {
        self.state().closing.get_or_insert_with(|| self.now());
        self.rearm.notify_one();
    }

    /// Returns true if a lease of this handle is held now.
    pub(crate) fn is_held(&self, lock: LockId) -> bool {
        let state = self.state();
        state.engine.held(self.now(), lock).next().is_some()
    }

    /// Adds a reader of the events of one lock, or of all.
    pub(crate) fn subscribe(&self, lock: Option<LockId>) -> ReaderId {
        let id = ReaderId(self.next_id());
        self.readers.fetch_add(1, Ordering::AcqRel);
        let state = &mut *self.state();
        state.hub.subscribe(id, lock, &state.engine, self.now());
        id
    }

    pub(crate) fn unsubscribe(&self, reader: ReaderId) {
        // Wakers run foreign code: drop them with nothing locked.
        let waker = self.state().hub.unsubscribe(reader);
        drop(waker);
        self.readers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Polls for a reader's next event; `None` at the end.
    pub(crate) fn poll_event(
        &self,
        reader: ReaderId,
        waker: &Waker,
    ) -> std::task::Poll<Option<LeaseEvent>> {
        let mut waker = Some(waker.clone());
        let polled = {
            let state = &mut *self.state();
            state
                .hub
                .poll(reader, &state.engine, self.now(), &mut waker)
        };
        // Drop the former waker with nothing locked.
        drop(waker);
        polled
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the engine between two inputs at worst.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Feeds the engine and does everything that it asks for, except sending.
    fn step(self: &Arc<Self>, input: Input) -> Batches {
        self.step_with(|_| input)
    }

    fn step_with(self: &Arc<Self>, input: impl FnOnce(&mut State) -> Input) -> Batches {
        let mut effects = Effects::default();
        let rearm = {
            let state = &mut *self.state();
            let mut input = input(state);
            self.place(&mut input);
            if let Input::Reply {
                result: Ok(batch), ..
            } = &input
            {
                effects.deliveries.reserve(batch.replies.len());
            }
            let gathers = self.stores.are_remote() && !matches!(input, Input::Tick);
            state.order.hear(&input);
            state.engine.handle(self.now(), input);
            let gathers = gathers && state.engine.expects_more();
            effects.gathers = gathers && !state.gathers;
            state.gathers |= gathers;
            let stays = gathers || state.order.hold_back();
            state.wake = loop {
                let output = if stays {
                    state.engine.poll_unsent()
                } else {
                    state.engine.poll()
                };
                match output {
                    Output::Wait { until } => break until.unwrap_or(Timestamp::NEVER),
                    output => self.apply(state, output, &mut effects),
                }
            };
            let releases = || effects.sends.iter().any(Batch::releases);
            if effects.refuses && (releases() || state.engine.has_unsent()) {
                state.order.hear_refusal();
            }
            state.refuse_if_dead(&mut effects);
            if let Some(last) = effects.sends.last_mut() {
                last.sending = state.order.begin(self);
            }
            let closes = state.closing.is_some() && state.engine.is_idle();
            state.wake < state.armed || closes
        };
        if rearm {
            self.rearm.notify_one();
        }
        effects.traces.iter().for_each(trace::write);
        effects.over.iter().for_each(|tenure| tenure.wake());
        effects.wakers.into_iter().for_each(Waker::wake);
        effects.deliveries.into_iter().for_each(Delivery::deliver);
        for server in effects.subscribes {
            let store = self.stores.of(server);
            store.subscribe(self, sink::ServerSink::new(self, server));
        }
        for (server, keys) in effects.watches {
            let store = self.stores.of(server);
            store.watch(keys, self, sink::ServerSink::new(self, server));
        }
        for (server, why) in effects.suspicions {
            self.stores.of(server).suspect(server, why, &self.runtime);
        }
        if effects.gathers {
            // In a task of its own: this may be a caller's task, and the pending operations may be of others.
            self.runtime.spawn(self.clone().gather());
        }
        effects.sends
    }

    /// Puts the namespace into errors that give advice on a user's rights.
    fn place(&self, input: &mut Input) {
        if let Input::Reply {
            result: Err(error), ..
        }
        | Input::Disconnected { error, .. } = input
        {
            *error = error.clone().in_namespace(&self.namespace);
        }
    }

    fn apply(self: &Arc<Self>, state: &mut State, output: Output, effects: &mut Effects) {
        match output {
            Output::Send {
                server,
                request,
                batch,
                durability,
                give_up,
            } => {
                effects.sends.push(Batch {
                    server,
                    request,
                    ops: batch,
                    durability,
                    give_up,
                    sending: None,
                });
            }
            Output::Answer { call, answer } => {
                effects.refuses |= matches!(answer, Answer::Acquire(Ok(None) | Err(_)));
                if matches!(answer, Answer::Shutdown) {
                    state.closing.get_or_insert_with(|| self.now());
                }
                let State {
                    calls,
                    tenures,
                    dead,
                    ..
                } = state;
                let share = |acquired| Share::of(acquired, tenures, self);
                let delivery = calls.answer(call, answer, dead.as_ref(), share);
                effects.deliveries.extend(delivery);
            }
            Output::Suspect { server, why } => effects.suspicions.push((server, why)),
            Output::Wait { .. } => {}
            Output::Event {
                lock,
                lease,
                event,
                deadline,
            } => {
                effects.traces.extend(trace::wanted(&event));
                state.capacities.follow(&event);
                let over = SharedTenure::follow(&mut state.tenures, lease, &event, deadline);
                effects.over.extend(over);
                effects
                    .wakers
                    .extend(state.hub.publish(lock, lease, &event));
            }
            Output::Notice { event } => {
                effects.traces.extend(trace::wanted(&event));
                effects.wakers.extend(state.hub.notify(&event));
            }
            Output::Subscribe { server } => effects.subscribes.push(server),
            Output::Watch { server, keys } => effects.watches.push((server, keys)),
            Output::Closed { lock } => effects.wakers.extend(state.hub.end(lock)),
        }
    }

    /// Sends batches that no caller waits for.
    ///
    /// On the locker's own runtime it polls them before it returns. So the same task's next request comes
    /// after them: the next acquire after a release by drop.
    fn spawn_all(self: &Arc<Self>, sends: impl IntoIterator<Item = Batch>) {
        for batch in sends {
            let mut execution = Box::pin(self.execute(batch));
            // On another thread there may be no runtime to poll on, or one that is shutting down.
            let at_home = self.is_at_home();
            let mut context = Context::from_waker(Waker::noop());
            if !at_home || execution.as_mut().poll(&mut context).is_pending() {
                self.runtime.spawn(execution);
            }
        }
    }

    /// Returns true on a thread of the locker's runtime.
    fn is_at_home(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.runtime.id())
    }

    /// Sends pending operations once the tasks that were just answered have run.
    async fn gather(self: Arc<Self>) {
        tokio::task::yield_now().await;
        let mut sends = self.step_with(|state| {
            state.gathers = false;
            Input::Tick
        });
        // This task is idle now, so it sends the last batch itself: no other task has to be created and
        // woken.
        let last = sends.pop();
        self.spawn_all(sends);
        if let Some(last) = last {
            Box::pin(self.execute(last)).await;
        }
    }

    /// Sends a batch and feeds back its reply. It must run to its end, whether or not a caller waits for it.
    fn execute(self: &Arc<Self>, batch: Batch) -> impl Future<Output = ()> + Send + 'static {
        let driver = self.clone();
        async move {
            // A loop, because an in-memory store answers at once and the next batch follows.
            let mut next = Some(batch);
            while let Some(mut batch) = next {
                let store = driver.stores.of(batch.server);
                let mut sending = batch.sending.take();
                let mut executed = pin!(store.execute(
                    (batch.server, batch.request),
                    (&batch.ops, batch.durability.as_ref()),
                    batch.give_up,
                ));
                let (server, result) = poll_fn(|context| {
                    let polled = executed.as_mut().poll(context);
                    // The first poll has sent the batch.
                    drop(sending.take());
                    polled
                })
                .await;
                let mut sends = driver.step(Input::Reply {
                    server,
                    request: batch.request,
                    result,
                });
                store.deliver_pushes();
                next = sends.pop();
                driver.spawn_all(sends);
            }
        }
    }
}

impl State {
    /// Fails all calls of a dead locker: nothing will answer them.
    fn refuse_if_dead(&mut self, effects: &mut Effects) {
        if let Some(error) = &self.dead {
            effects.sends.clear();
            effects.subscribes.clear();
            effects.suspicions.clear();
            effects.watches.clear();
            effects.deliveries.extend(self.calls.fail_all(error));
        }
    }
}

/// The background task: drives the timers until the locker is closed.
async fn keep_time(mut task: TimerTask) {
    let driver = task.driver.clone();
    loop {
        let now = driver.now();
        let wake = {
            let state = &mut *driver.state();
            let end = state.closing.map(|since| since + driver.patience);
            if end.is_some_and(|end| state.engine.is_idle() || end <= now) {
                break;
            }
            state.armed = state.wake.min(end.unwrap_or(Timestamp::NEVER));
            state.armed
        };
        if wake <= now {
            driver.feed(Input::Tick);
        } else if wake == Timestamp::NEVER {
            driver.rearm.notified().await;
        } else {
            let nap = wake.since(now).min(LONGEST_NAP);
            tokio::select! {
                () = driver.rearm.notified() => {}
                () = driver.clock.sleep(nap) => {}
            }
        }
    }
    let wakers = driver.state().hub.end_all();
    wakers.into_iter().for_each(Waker::wake);
    task.end();
    driver.stores.close(driver.client).await;
}

//! Joins the engine and the world: the only place that runs the engine natively.
//!
//! A caller's own task locks the engine, takes out what is to be sent, awaits the answer and
//! feeds it back, so an uncontended acquire hops through no other task. One background task per
//! locker owns the timers.

mod calls;
mod clock;
mod fred;
mod life;
mod listener;
mod memory;
mod store;
mod trace;
mod url;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

pub(crate) use self::fred::{Secrets, send_script};
pub(crate) use calls::{Answer as CallAnswer, Hold, HoldState};
pub(crate) use store::Store;

use crate::engine::{
    Answer, CallId, Engine, Hub, Input, LockId, Output, ReaderId, RequestId, ServerId, Settings,
};
use crate::error::Error;
use crate::event::LeaseEvent;
use crate::finding::Finding;
use crate::protocol::{ClientId, LeaseId, Op};
use crate::time::Timestamp;
use calls::{Calls, Delivery};
use clock::Clock;
use life::Life;

/// The longest nap of the background task while it has something to wake for: timers of the
/// runtime stand still while the machine is suspended, and `Lost` should not wait for them.
const LONGEST_NAP: Duration = Duration::from_millis(500);

/// One locker's engine, its store, and everyone who waits for something of it.
pub(crate) struct Shared {
    state: Mutex<State>,
    client: ClientId,
    clock: Clock,
    /// Where the store tells this client something.
    channel: String,
    store: Store,
    runtime: Handle,
    rearm: Notify,
    last_id: AtomicU64,
    /// How long what is under way may take once the program is done.
    patience: Duration,
}

struct State {
    engine: Engine,
    calls: Calls,
    holds: BTreeMap<LeaseId, Arc<HoldState>>,
    hub: Hub<Waker>,
    /// What the engine wants to be told next, and what the background task sleeps until.
    wake: Timestamp,
    armed: Timestamp,
    /// Since when the program has had no handle left, or has shut down.
    closing: Option<Timestamp>,
    /// Why nothing is sent or timed any more, if the background task ended before its time.
    dead: Option<Error>,
}

/// A batch that is to be sent.
struct Outgoing {
    request: RequestId,
    batch: Vec<Op>,
    give_up: Timestamp,
}

/// What has to happen once the state is unlocked.
#[derive(Default)]
struct Effects {
    sends: Vec<Outgoing>,
    deliveries: Vec<Delivery>,
    wakers: Vec<Waker>,
    traces: Vec<LeaseEvent>,
    over: Vec<Arc<HoldState>>,
    subscribes: bool,
}

impl Shared {
    /// Starts the engine on a store that can be reached. The future asks for the store's clock, so
    /// that the first call is one round trip; on a store in memory it is ready at once.
    pub(crate) fn start(
        store: Store,
        settings: Settings,
        channel: String,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send) {
        // Panics here, and not in the background task, on a runtime without timers.
        drop(tokio::time::sleep(Duration::ZERO));
        let (client, patience) = (settings.client, settings.patience);
        let shared = Arc::new(Self {
            client,
            channel,
            patience,
            state: Mutex::new(State {
                engine: Engine::new(settings),
                calls: Calls::default(),
                holds: BTreeMap::new(),
                hub: Hub::default(),
                wake: Timestamp::NEVER,
                armed: Timestamp::NEVER,
                closing: None,
                dead: None,
            }),
            clock: store.clock(),
            store,
            runtime: Handle::current(),
            rearm: Notify::new(),
            last_id: AtomicU64::new(0),
        });
        let sends = shared.step(Input::Connected {
            server: ServerId::ONLY,
        });
        shared.runtime.spawn(keep_time(Life::of(&shared)));
        shared.store.watch_link(&shared);
        let started = shared.clone();
        let ask_for_clock = async move {
            for outgoing in sends {
                started.execute(outgoing).await;
            }
        };
        (shared, ask_for_clock)
    }

    /// A number that was never used before in this locker.
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The time that this locker lives by.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// What connecting found at the store.
    pub(crate) fn findings(&self) -> &[Finding] {
        self.store.findings()
    }

    /// Tells the engine something that no caller waits for.
    pub(crate) fn feed(self: &Arc<Self>, input: Input) {
        let sends = self.step(input);
        self.spawn_all(sends);
    }

    /// The program has no handle left, or has shut down: what is under way is finished, and the
    /// link closed.
    pub(crate) fn close(&self) {
        self.state().closing.get_or_insert_with(|| self.now());
        self.rearm.notify_one();
    }

    /// Whether a lease of this handle is held now.
    pub(crate) fn is_held(&self, lock: LockId) -> bool {
        let state = self.state();
        state.engine.held(self.now(), lock).next().is_some()
    }

    /// A new reader of the events of one lock, or of all.
    pub(crate) fn subscribe(&self, lock: Option<LockId>) -> ReaderId {
        let id = ReaderId(self.next_id());
        let state = &mut *self.state();
        state.hub.subscribe(id, lock, &state.engine, self.now());
        id
    }

    pub(crate) fn unsubscribe(&self, reader: ReaderId) {
        // Dropped with nothing locked.
        let waker = self.state().hub.unsubscribe(reader);
        drop(waker);
    }

    /// The next event for a reader, or `None` at the end.
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
        // The former waker is dropped with nothing locked.
        drop(waker);
        polled
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the engine in a state between two inputs at worst.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Feeds the engine and does everything that it asks for but sending.
    fn step(self: &Arc<Self>, input: Input) -> Vec<Outgoing> {
        self.step_with(|_| input)
    }

    fn step_with(self: &Arc<Self>, input: impl FnOnce(&mut State) -> Input) -> Vec<Outgoing> {
        let mut effects = Effects::default();
        let rearm = {
            let state = &mut *self.state();
            let input = input(state);
            state.engine.handle(self.now(), input);
            state.wake = loop {
                match state.engine.poll() {
                    Output::Wait { until } => break until.unwrap_or(Timestamp::NEVER),
                    output => self.apply(state, output, &mut effects),
                }
            };
            state.refuse_if_dead(&mut effects);
            state.wake < state.armed || (state.closing.is_some() && state.engine.is_idle())
        };
        if rearm {
            self.rearm.notify_one();
        }
        effects.traces.iter().for_each(trace::write);
        effects.over.iter().for_each(|hold| hold.wake());
        effects.wakers.into_iter().for_each(Waker::wake);
        effects.deliveries.into_iter().for_each(Delivery::deliver);
        if effects.subscribes {
            self.store.subscribe(self);
        }
        effects.sends
    }

    fn apply(self: &Arc<Self>, state: &mut State, output: Output, effects: &mut Effects) {
        match output {
            Output::Send {
                request,
                batch,
                give_up,
                ..
            } => {
                effects.sends.push(Outgoing {
                    request,
                    batch,
                    give_up,
                });
            }
            Output::Answer { call, answer } => {
                if matches!(answer, Answer::Shutdown) {
                    state.closing.get_or_insert_with(|| self.now());
                }
                let State {
                    calls, holds, dead, ..
                } = state;
                let delivery = calls.finish(call, answer, holds, self);
                effects
                    .deliveries
                    .extend(delivery.map(|delivery| delivery.or_dead(dead.as_ref())));
            }
            // The store sees to it by itself.
            Output::Suspect { .. } | Output::Wait { .. } => {}
            Output::Event {
                lock,
                lease,
                event,
                deadline,
            } => {
                effects.traces.extend(trace::wanted(&event));
                let over = HoldState::follow(&mut state.holds, lease, &event, deadline);
                effects.over.extend(over);
                effects
                    .wakers
                    .extend(state.hub.publish(lock, lease, &event));
            }
            Output::Notice { event } => {
                effects.traces.extend(trace::wanted(&event));
                effects.wakers.extend(state.hub.notify(&event));
            }
            Output::Subscribe { .. } => effects.subscribes = true,
            Output::Closed { lock } => effects.wakers.extend(state.hub.end(lock)),
        }
    }

    /// Sends batches on behalf of nobody. On the locker's own runtime they are on their way when
    /// this returns, so what the same task sends next comes after them: a release that was
    /// dropped, before the next acquire.
    fn spawn_all(self: &Arc<Self>, sends: impl IntoIterator<Item = Outgoing>) {
        for outgoing in sends {
            let mut execution = Box::pin(self.execute(outgoing));
            // Elsewhere there may be no runtime to poll on, or one that is shutting down.
            let at_home = Handle::try_current().is_ok_and(|here| here.id() == self.runtime.id());
            let mut context = Context::from_waker(Waker::noop());
            if !at_home || execution.as_mut().poll(&mut context).is_pending() {
                self.runtime.spawn(execution);
            }
        }
    }

    /// Sends a batch and feeds its answer back. It must run to its end, whoever waits for it.
    fn execute(self: &Arc<Self>, outgoing: Outgoing) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.clone();
        async move {
            // A loop, since a store in memory answers at once and the next batch follows.
            let mut next = Some(outgoing);
            while let Some(outgoing) = next {
                let Outgoing {
                    request,
                    batch,
                    give_up,
                } = outgoing;
                let result = shared.store.execute(&batch, give_up).await;
                let mut sends = shared.step(Input::Reply {
                    server: ServerId::ONLY,
                    request,
                    result,
                });
                shared.store.deliver_pushes();
                next = sends.pop();
                shared.spawn_all(sends);
            }
        }
    }
}

impl State {
    /// What a dead locker did not answer at once it never would.
    fn refuse_if_dead(&mut self, effects: &mut Effects) {
        if let Some(error) = &self.dead {
            effects.sends.clear();
            effects.subscribes = false;
            effects.deliveries.extend(self.calls.fail_all(error));
        }
    }
}

/// The background task.
async fn keep_time(mut life: Life) {
    let shared = life.shared.clone();
    loop {
        let now = shared.now();
        let wake = {
            let state = &mut *shared.state();
            let end = state.closing.map(|since| since + shared.patience);
            if end.is_some_and(|end| state.engine.is_idle() || end <= now) {
                break;
            }
            state.armed = state.wake.min(end.unwrap_or(Timestamp::NEVER));
            state.armed
        };
        if wake <= now {
            shared.feed(Input::Tick);
        } else if wake == Timestamp::NEVER {
            shared.rearm.notified().await;
        } else {
            let nap = wake.since(now).min(LONGEST_NAP);
            tokio::select! {
                () = shared.rearm.notified() => {}
                () = shared.clock.sleep(nap) => {}
            }
        }
    }
    let wakers = shared.state().hub.end_all();
    wakers.into_iter().for_each(Waker::wake);
    life.end();
    shared.store.close(shared.client).await;
}

//! The readers of a host's events: one that keeps up, and one that is slow. Neither may miss a loss (I8),
//! however many arrive at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_engine::engine::{Engine, Hub, LockId, ReaderId, Wait};
use leasehold_engine::protocol::{LeaseId, LockKey};
use leasehold_engine::time::Timestamp;
use leasehold_engine::{FencingToken, LeaseEvent, Name};

use crate::book::Handle;
use crate::checks::Checks;
use crate::clock::{MILLI, SECOND};
use crate::faults::Faults;
use crate::plan::Plan;
use crate::random::Random;
use crate::sabotage::Sabotage;
use crate::stats::Stats;
use crate::world::World;

#[derive(Debug)]
pub(crate) struct Readers {
    hub: Hub<()>,
    prompt: Reader,
    slow: Reader,
}

#[derive(Debug)]
struct Reader {
    id: ReaderId,
    /// The losses that it still has to receive, in order.
    owed: VecDeque<(Name, FencingToken)>,
}

impl Readers {
    pub(crate) fn new(engine: &Engine) -> Self {
        let mut hub = Hub::default();
        let [prompt, slow] = [1, 2].map(|id| {
            let id = ReaderId(id);
            hub.subscribe(id, None, engine, Timestamp::from_nanos(0));
            let owed = VecDeque::new();
            Reader { id, owed }
        });
        Self { hub, prompt, slow }
    }

    pub(crate) fn publish(&mut self, lock: LockId, lease: LeaseId, event: &LeaseEvent) {
        self.hub.publish(lock, lease, event);
        if let LeaseEvent::Lost { name, token, .. } = event {
            for reader in [&mut self.prompt, &mut self.slow] {
                reader.owed.push_back((name.clone(), *token));
            }
        }
    }

    /// Reads everything that one input caused.
    pub(crate) fn keep_up(&mut self, checks: &mut Checks, engine: &Engine, now: Timestamp) {
        let Self { hub, prompt, .. } = self;
        prompt.read(hub, checks, (engine, now), usize::MAX);
        let missed = prompt.owed.len();
        checks.ensure("I8", missed == 0, || {
            format!("a reader that keeps up was not told of {missed} losses")
        });
    }

    pub(crate) fn read_some(
        &mut self,
        checks: &mut Checks,
        (engine, now): (&Engine, Timestamp),
        most: usize,
    ) {
        let Self { hub, slow, .. } = self;
        slow.read(hub, checks, (engine, now), most);
    }

    /// Lets the slow reader read all that there is.
    pub(crate) fn catch_up(&mut self, checks: &mut Checks, engine: &Engine, now: Timestamp) {
        self.read_some(checks, (engine, now), usize::MAX);
        let missed = self.slow.owed.len();
        checks.ensure("I8", missed == 0, || {
            format!("a slow reader was not told of {missed} losses")
        });
    }
}

impl Reader {
    fn read(
        &mut self,
        hub: &mut Hub<()>,
        checks: &mut Checks,
        (engine, now): (&Engine, Timestamp),
        most: usize,
    ) {
        for _ in 0..most {
            let Poll::Ready(Some(event)) = hub.poll(self.id, engine, now, &mut None) else {
                break;
            };
            match event {
                LeaseEvent::Lost { name, token, .. } => {
                    let owed = self.owed.pop_front();
                    let told = Some((name, token));
                    checks.ensure("I8", owed == told, || {
                        format!("a reader was told of the loss of {told:?} instead of {owed:?}")
                    });
                }
                LeaseEvent::Lagged { .. } => checks.saw("a reader lagged"),
                _ => {}
            }
        }
    }
}

const MANY: u64 = 2_000;
const EARLY: u64 = 20;

/// Catches a bound on losses that ignores the number of held leases: readers that kept up received half of
/// these losses, which are more than a reader may leave unread. Catches a full reader that drops losses,
/// whether they came before or after it was full.
#[test]
fn readers_receive_every_loss_of_a_mass_expiry() {
    let mut all = Stats::default();
    for seed in 0..2 {
        let mut world = quiet(seed);
        hold(&mut world, EARLY);
        for key in keys(&world) {
            let stored = world.stored(&key);
            world.checks.disturb(&key, stored);
            world.servers[0].store.delete(&key);
        }
        // Renewals find the locks deleted.
        world.advance(12 * SECOND);
        hold(&mut world, MANY);
        world.hosts[0].links[0].black_hole = u64::MAX;
        // The timer is so late that all leases are over when it fires.
        world.hosts[0].lateness = 40 * MILLI;
        world.advance(50 * SECOND);
        let now = world.hosts[0].clock.at(world.now);
        let World { hosts, checks, .. } = &mut world;
        let host = &mut hosts[0];
        host.readers.catch_up(checks, &host.engine, now);
        let result = world.result();
        all.merge(&result.unwrap_or_else(|broken| panic!("seed {seed}: {broken:?}")));
    }
    assert_eq!(all.count("lost: deleted"), 2 * EARLY);
    assert_eq!(all.count("lost: expired"), 2 * MANY);
    assert!(
        all.count("a reader lagged") > 0,
        "no reader's queue was full"
    );
}

/// Returns a world with one host, whose program does nothing by itself.
fn quiet(seed: u64) -> World {
    let mut random = Random::new(seed);
    let mut plan = Plan::single(&mut random, Sabotage::None);
    plan.faults = Faults::default();
    plan.names.clear();
    plan.ttls = vec![Duration::from_secs(30)];
    (plan.calm, plan.hosts, plan.chaos) = (false, 1, 0);
    let mut world = World::new(plan, random, false);
    world.hosts[0].lateness = 0;
    world.begin();
    world.advance(100 * MILLI);
    world
}

fn keys(world: &World) -> Vec<LockKey> {
    let handles = world.hosts[0].book.handles.values();
    handles.map(|handle| handle.spec.key.clone()).collect()
}

/// Acquires this many more locks.
fn hold(world: &mut World, count: u64) {
    let before = world.hosts[0].book.held().len();
    for _ in 0..count {
        world.last_id += 1;
        let name = Name::new(format!("n{}", world.last_id)).expect("the name is short");
        world.plan.names = vec![name];
        let mut spec = world.plan.spec(&mut world.random, 0, 0);
        let options = &mut Arc::make_mut(&mut spec).options;
        Arc::make_mut(options).fixed = false;
        let (handle, closing) = (LockId(world.last_id), false);
        let handles = &mut world.hosts[0].book.handles;
        handles.insert(handle, Handle { spec, closing });
        world.acquire_through(0, handle, Wait::Forever);
    }
    world.advance(world.now + SECOND);
    let held = world.hosts[0].book.held().len() - before;
    assert_eq!(held, usize::try_from(count).expect("a small number"));
}

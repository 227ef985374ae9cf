//! A writer among readers that come and go waits at most for those that read already.

use std::sync::Arc;
use std::time::Duration;

use leasehold_engine::engine::{LockId, LockSpec, Wait};
use leasehold_engine::{Owner, Share, Sharing};

use super::plan::Kind;
use crate::book::{Handle, LockState};
use crate::clock::{MILLI, Moment, SECOND};
use crate::faults::Faults;
use crate::plan::{Plan, Pushes};
use crate::random::Random;
use crate::sabotage::Sabotage;
use crate::world::World;

const READERS: u64 = 100;
const HOSTS: usize = 3;
/// The longest time for which a reader reads, and the longest pause between two reads.
const READ: Moment = 400 * MILLI;
const PAUSE: Moment = 200 * MILLI;
/// The time after which a writer gives up.
const GIVES_UP: Moment = 5 * READ;
/// The interval at which the programs look at their permits.
const PACE: Moment = 10 * MILLI;
/// The time for the last reader's release and the push that follows it.
const ON_ITS_WAY: Moment = 3 * PACE;

/// A program that takes a name again and again.
struct Program {
    host: usize,
    handle: LockId,
    doing: Doing,
}

enum Doing {
    Asking,
    Using(Moment),
    Resting(Moment),
}

impl Program {
    fn new(world: &mut World, host: usize, share: Share) -> Self {
        world.last_id += 1;
        let handle = LockId(world.last_id);
        let LockSpec { name, key, options } =
            LockSpec::clone(&world.plan.spec(&mut world.random, host, 0));
        let mut options = options;
        let own = Arc::make_mut(&mut options);
        own.owner = Owner::sharing("program", share).expect("the label is short");
        (own.fixed, own.strict) = (false, false);
        let spec = Arc::new(LockSpec { name, key, options });
        let closing = false;
        let handles = &mut world.hosts[host].book.handles;
        handles.insert(handle, Handle { spec, closing });
        let doing = Doing::Resting(world.random.below(PAUSE));
        Self {
            host,
            handle,
            doing,
        }
    }

    /// Does what is due.
    fn act(&mut self, world: &mut World, longest: Moment) {
        let now = world.now;
        match self.doing {
            Doing::Resting(until) if until <= now => {
                self.doing = Doing::Asking;
                world.acquire_through(self.host, self.handle, Wait::Forever);
            }
            Doing::Asking if self.held(world).is_some() => {
                let time = world.random.between(longest / 4, longest);
                self.doing = Doing::Using(now + time);
            }
            Doing::Using(until) if until <= now => {
                let held = self.held(world).expect("no permit is lost");
                world.release(self.host, held);
                self.doing = Doing::Resting(now + world.random.below(PAUSE));
            }
            _ => {}
        }
    }

    fn held(&self, world: &World) -> Option<LockId> {
        let mut locks = world.hosts[self.host].book.locks.iter();
        let is_held = |lock: &LockState| lock.handle == self.handle && lock.held.is_some();
        locks.find(|(_, lock)| is_held(lock)).map(|(id, _)| *id)
    }
}

/// Returns a world without faults in which nobody does anything by itself.
fn quiet(seed: u64, sabotage: Sabotage) -> World {
    let mut random = Random::new(seed);
    let mut plan = Plan::sharing(&mut random, sabotage);
    plan.faults = Faults::default();
    plan.names.truncate(1);
    let (sharing, capacity) = (Sharing::Access, 1);
    let kind = Kind { sharing, capacity };
    plan.kinds = plan.keys().into_iter().map(|key| (key, kind)).collect();
    plan.ttls = vec![Duration::from_secs(30)];
    (plan.hosts, plan.pushes, plan.chaos, plan.changes) = (HOSTS, Pushes::Come, 0, 0);
    plan.calm = true;
    let mut world = World::new(plan, random, false);
    world.begin();
    world.advance(SECOND);
    world
}

/// Returns how long a writer waits among the readers, or the time after which it gives up.
fn writer_waits(seed: u64, sabotage: Sabotage) -> Moment {
    let mut world = quiet(seed, sabotage);
    let reader = |number| usize::try_from(number).unwrap_or(0) % (HOSTS - 1);
    let mut readers: Vec<_> = (0..READERS)
        .map(|number| Program::new(&mut world, reader(number), Share::reader()))
        .collect();
    let mut writer = Program::new(&mut world, HOSTS - 1, Share::writer());
    let asks = world.now + SECOND;
    writer.doing = Doing::Resting(asks);
    while world.now < asks + GIVES_UP {
        for reader in &mut readers {
            reader.act(&mut world, READ);
        }
        if world.now == asks {
            let reading = readers
                .iter()
                .filter(|reader| reader.held(&world).is_some());
            assert!(reading.count() > 50, "few read when the writer asks");
        }
        writer.act(&mut world, READ);
        if let Doing::Using(_) = writer.doing {
            break;
        }
        world.advance(world.now + PACE);
        if sabotage != Sabotage::None {
            // Readers that overtake are noticed at once; here they go on.
            world.checks.violation = None;
        }
    }
    let waited = world.now - asks;
    let result = world.result();
    assert!(result.is_ok(), "seed {seed}: {result:?}");
    waited
}

/// Catches a line that lets readers in while a writer waits.
#[test]
fn a_writer_among_a_hundred_readers_waits_for_one_read_at_most() {
    let waited = writer_waits(0, Sabotage::None);
    assert!(
        waited <= READ + ON_ITS_WAY,
        "the writer waited for {waited} ns"
    );
}

/// Shows that this many readers leave no gap by themselves.
#[test]
fn readers_that_may_overtake_starve_a_writer() {
    let waited = writer_waits(0, Sabotage::ReadersOvertake);
    assert!(waited >= GIVES_UP, "the writer waited for {waited} ns");
}

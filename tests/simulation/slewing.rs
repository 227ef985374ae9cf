//! A server whose clock is slewed beyond the drift margin.
//!
//! Promises that were made before any host could notice may be broken, as the documentation of the margin
//! says. From then on exclusion holds again. While the clock still gets faster, no host can know by how much.

use std::time::Duration;

use crate::book::{Book, Tenure};
use crate::checks::Checks;
use crate::clock::{MILLI, SECOND, Slewing};
use crate::faults::Faults;
use crate::plan::{DRIFT_MARGIN, Plan};
use crate::random::Random;
use crate::sabotage::Sabotage;
use crate::stats::Stats;
use crate::world::World;

/// The rate at which chrony slews by default, and how quickly it may reach that rate.
const RATE: u64 = 83_333;
const FROM: u64 = 10 * SECOND;
const GRADUALLY: (u64, u64) = (100 * MILLI, 10 * SECOND);

/// The time by which every host must have noticed: three stretches, while answers are lost.
const NOTICED: u64 = 50 * SECOND;
const END: u64 = 90 * SECOND;

const TIMEOUT: Duration = Duration::from_millis(300);

impl Checks {
    /// True if a lease's deadline was told, or was in flight, before its host could know that it is too late.
    pub(crate) fn nobody_could_know(&self, book: &Book, lease: &Tenure) -> bool {
        let before = |at| lease.since <= at + TIMEOUT;
        self.slewed && (self.slews_faster || book.noticed.is_none_or(before))
    }
}

/// Catches an engine that always trusts its margin: two hosts would hold the lock again and again.
#[test]
fn slewing_is_noticed_and_then_does_no_harm() {
    let mut all = Stats::default();
    for seed in 0..200 {
        let (mut world, steady) = slewed(seed);
        world.advance(steady);
        world.checks.slews_faster = false;
        for host in &mut world.hosts {
            // An earlier notice was of a smaller drift.
            let now = host.clock.at(world.now);
            host.book.noticed = host.book.noticed.map(|_| now);
        }
        world.advance(NOTICED);
        for host in &world.hosts {
            let knows = host.book.noticed.is_some() || host.book.shutdown;
            assert!(knows, "seed {seed}: a host did not notice the drift");
        }
        world.advance(END);
        let result = world.result();
        all.merge(&result.unwrap_or_else(|broken| panic!("seed {seed}: {broken:?}")));
    }
    println!("{all:#?}");
    for what in [
        "two leases at once before slewing was noticed",
        "lost: expired",
        "handed over",
    ] {
        assert!(all.count(what) > 0, "never seen: {what}");
    }
}

/// Returns a world in which two or more hosts want one lock of four seconds and renewals fail now and then,
/// and the time at which the clock stops getting faster.
fn slewed(seed: u64) -> (World, u64) {
    let mut random = Random::new(seed);
    let mut plan = Plan::single(&mut random, Sabotage::None);
    plan.faults = Faults {
        black_holes: 4,
        lost_requests: 5,
        lost_replies: 5,
        ..Faults::default()
    };
    plan.names.truncate(1);
    plan.ttls = vec![Duration::from_secs(4)];
    plan.timeout = TIMEOUT;
    plan.drift_margin = DRIFT_MARGIN;
    (plan.calm, plan.drains, plan.reclaimable) = (false, false, 0);
    plan.jobs = false;
    (plan.chaos, plan.pace) = (END, 300 * MILLI);
    let gradually = random.between(GRADUALLY.0, GRADUALLY.1);
    plan.clocks[0].slewing = Some(Slewing {
        from: FROM,
        gradually,
        rate: RATE,
    });
    let mut world = World::new(plan, random, false);
    (world.checks.slewed, world.checks.slews_faster) = (true, true);
    world.begin();
    (world, FROM + gradually)
}

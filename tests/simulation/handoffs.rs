//! The cost of a handoff, counted in runs without faults.

use std::time::Duration;

use leasehold_engine::engine::Wait;

use crate::clock::MILLI;
use crate::faults::Faults;
use crate::plan::{Plan, Pushes};
use crate::random::Random;
use crate::sabotage::Sabotage;
use crate::world::World;

/// A handoff is at most three commands at the server, however many waiters there are, and only two engines
/// get an input. It takes two commands: the release, and the renewal by which the next holder takes the lock
/// up. Catches a stampede and polling.
#[test]
fn a_handoff_costs_three_commands_at_most_and_wakes_one_engine() {
    for seed in 0..300 {
        let mut world = crowd(seed);
        let hosts = world.hosts.len();
        for host in 0..hosts {
            let later = world.random.below(10) * MILLI;
            world.advance(world.now + later);
            world.acquire_now(host, Wait::Forever);
        }
        // By then every host has a place, has subscribed and has asked once more.
        world.advance(world.now + 1_500 * MILLI);
        for handoff in 1..hosts {
            let holder = one_holder(&world, seed);
            let lock = world.hosts[holder].book.held()[0];
            let (executed, fed) = (world.executed, fed(&world));
            world.release(holder, lock);
            world.advance(world.now + 20 * MILLI);
            let next = one_holder(&world, seed);
            let commands = world.executed - executed;
            assert!(
                commands <= 3,
                "seed {seed}, handoff {handoff}: {commands} commands"
            );
            let woken = fed.iter().zip(self::fed(&world)).enumerate();
            let woken = woken.filter(|(_, (before, after))| **before != *after);
            let mut woken: Vec<_> = woken.map(|(host, _)| host).collect();
            woken.retain(|host| ![holder, next].contains(host));
            assert!(
                woken.is_empty(),
                "seed {seed}, handoff {handoff}: {woken:?} were woken"
            );
        }
        let result = world.result();
        assert!(result.is_ok(), "seed {seed}: {result:?}");
    }
}

/// Returns a run of up to 20 hosts that want one lock, of 30 seconds so that no heartbeat interferes.
fn crowd(seed: u64) -> World {
    let mut random = Random::new(seed);
    let mut plan = Plan::single(&mut random, Sabotage::None);
    plan.faults = Faults::default();
    plan.names.truncate(1);
    plan.ttls = vec![Duration::from_secs(30)];
    plan.hosts = usize::try_from(random.between(2, 20)).unwrap_or(2);
    (plan.jobs, plan.reclaimable, plan.locks_per_host) = (false, 0, 1);
    (plan.calm, plan.pushes, plan.chaos, plan.changes) = (true, Pushes::Come, 0, 0);
    let mut world = World::new(plan, random, false);
    world.begin();
    world.advance(100 * MILLI);
    world
}

fn one_holder(world: &World, seed: u64) -> usize {
    let held = |host: &usize| !world.hosts[*host].book.held().is_empty();
    let holders: Vec<_> = (0..world.hosts.len()).filter(held).collect();
    assert_eq!(holders.len(), 1, "seed {seed}: {holders:?} hold the lock");
    holders[0]
}

fn fed(world: &World) -> Vec<u64> {
    world.hosts.iter().map(|host| host.fed).collect()
}

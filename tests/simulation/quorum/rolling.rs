//! Servers that restart one after another, as in an upgrade.

use leasehold_engine::MemoryServer;
use leasehold_engine::engine::Wait;

use crate::clock::{MILLI, SECOND};
use crate::drain::nanos;
use crate::plan::Plan;
use crate::random::Random;
use crate::seeds;
use crate::stats::{Stats, Violation};
use crate::world::World;

const SEEDS: u64 = 200;

/// The number of restarts: at most two of each server on average.
const RESTARTS: usize = 6;

impl World {
    /// Does one run and returns what it saw.
    fn roll(seed: u64, tracing: bool) -> Result<Stats, Violation> {
        let mut random = Random::new(seed);
        let plan = Plan::rolling(&mut random);
        let mut world = Self::new(plan, random, tracing);
        world.begin();
        world.advance(SECOND);
        for server in (0..world.servers.len()).cycle().take(RESTARTS) {
            for host in 0..world.hosts.len() {
                // If a lock has waiters, one of them may have its turn at some server.
                world.acquire_now(host, Wait::Never);
                world.acquire_now(host, Wait::Never);
            }
            world.advance(world.now + SECOND);
            if world.random.chance(50) {
                world.restart(server, "a server came back empty", MemoryServer::new());
            } else {
                world.restart_with_its_data(server);
            }
            world.wait_until_all_are_back();
        }
        // Losses count until here only: giving up at the end is no loss.
        let lost = ["lost: expired", "lost: deleted", "lost: superseded"];
        let lost = lost.map(|what| world.checks.stats.count(what));
        world.checks.ensure("I4", lost == [0; 3], || {
            format!("leases were lost though servers restarted one after another: {lost:?}")
        });
        world.end();
        world.result()
    }

    /// Waits until all hosts are connected and have reported the end of each quarantine.
    fn wait_until_all_are_back(&mut self) {
        let longest = nanos(self.plan.longest);
        let (begin, most) = (self.now, 3 * longest);
        while !self.failed() {
            self.advance(self.now + 5 * MILLI);
            let mut links = self.hosts.iter().flat_map(|host| &host.links);
            let are_up = links.all(|link| link.up);
            let [out, back] = ["told of a quarantine", "told that it is over"]
                .map(|what| self.checks.stats.count(what));
            if are_up && out == back && self.now >= begin + longest {
                return;
            }
            let (took, hosts) = (self.now - begin, self.hosts.len());
            self.checks.ensure("liveness", took < most, || {
                format!("{out} quarantines and {back} ends of one, of {hosts} hosts")
            });
        }
    }
}

/// Catches a lease that a rolling restart loses because a server was reported as back before it backed the
/// lease.
#[test]
fn no_lease_is_lost_when_servers_restart_one_after_another() {
    if let Some((seeds, stats)) = seeds::run_all(SEEDS, World::roll)
        && seeds >= SEEDS
    {
        for what in [
            "a server came back empty",
            "a server came back with its data",
            "renewed",
        ] {
            assert!(stats.count(what) > 0, "never seen: {what}");
        }
    }
}

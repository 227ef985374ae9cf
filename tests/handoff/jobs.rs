//! A fleet of runners in both languages, which are killed, stopped and cut off. Each tick is completed once, and none
//! is skipped while some runner lives.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use leasehold::Locker;
use leasehold_tests::{Admin, Child, RedisServer, RedisService, Resp, eventually, spawn_mixed};
use tokio::time::{Instant, sleep};

use crate::{LIMIT, millis};

const PERIOD: u64 = 200;
const TTL: u64 = 700;
/// How long a failover may take: sentinels whose votes miss a majority wait for six seconds.
const FAILOVER: Duration = Duration::from_secs(30);

/// The store of the job.
enum Locks {
    Server(RedisServer),
    /// Servers with sentinels, which replace the primary once it is dead.
    Service(RedisService),
}

impl Locks {
    fn url(&self) -> String {
        match self {
            Self::Server(server) => server.url(),
            Self::Service(service) => service.url(),
        }
    }

    /// Closes the connections of all clients at each server that lives.
    async fn cut(&self) {
        let servers = match self {
            Self::Server(server) => vec![server],
            Self::Service(service) => service.replicas.iter().collect(),
        };
        for server in servers {
            Admin::connect(server).await.kill_clients().await;
        }
    }

    /// Kills the primary, waits until a replica leads, and returns how long that took.
    async fn fail_over(&mut self) -> Option<Duration> {
        let Self::Service(service) = self else {
            return None;
        };
        let begin = Instant::now();
        service.primary.kill();
        let leads = async || {
            for replica in &service.replicas {
                let mut admin = Admin::connect(replica).await;
                if let Ok(Resp::Array(role)) = admin.try_command(&["ROLE"]).await
                    && role.first().and_then(Resp::as_string).as_deref() == Some("master")
                {
                    return true;
                }
            }
            false
        };
        eventually(FAILOVER, "a replica leads", leads).await;
        Some(begin.elapsed())
    }
}

struct Fleet {
    locks: Locks,
    guard: RedisServer,
    how: &'static str,
    runners: Vec<Child>,
    /// What runners said that are gone.
    said: Vec<String>,
}

impl Fleet {
    async fn start(locks: Locks, how: &'static str, count: usize) -> Self {
        let mut fleet = Self {
            locks,
            guard: RedisServer::start().await,
            how,
            runners: Vec::new(),
            said: Vec::new(),
        };
        fleet.add(count).await;
        fleet
    }

    async fn add(&mut self, count: usize) {
        let [locks, guard] = [self.locks.url(), self.guard.url()];
        let [period, ttl] = [PERIOD, TTL].map(|time| time.to_string());
        let args = [&*locks, &guard, "report", &period, &ttl, self.how];
        let rust = Path::new(env!("CARGO_BIN_EXE_runner"));
        let script = (self.how == "job").then_some("handoff/runner.mjs");
        let runners = spawn_mixed((rust, script), &args, count, 3 * LIMIT).await;
        self.runners.extend(runners);
    }

    /// Returns the runner that runs a tick now. The label of a turn ends with the process's ID.
    async fn holder(&self) -> usize {
        let end = Instant::now() + FAILOVER;
        while Instant::now() < end {
            // Soon after a failover, the sentinels may still name the dead primary.
            let Ok(locker) = Locker::connect(self.locks.url()).await else {
                continue;
            };
            let Ok(seen) = locker.inspect("report").await else {
                continue;
            };
            let label = seen.holder.map(|holder| holder.owner.label().to_owned());
            let pid = label.and_then(|label| label.rsplit('/').next()?.parse().ok());
            let holder = self
                .runners
                .iter()
                .position(|runner| Some(runner.pid()) == pid);
            if let Some(holder) = holder {
                return holder;
            }
        }
        panic!("nobody runs a tick within {FAILOVER:?}");
    }

    /// Kills the runner of a tick, stops it for longer than its lease lives, or cuts all connections.
    async fn trouble(&mut self, round: usize) {
        let one = self.holder().await;
        match round % 3 {
            0 => {
                self.runners[one].kill9();
                let mut gone = self.runners.swap_remove(one);
                self.said.append(&mut gone.unread_lines());
                self.add(1).await;
            }
            1 => {
                self.runners[one].pause();
                sleep(millis(TTL + 500)).await;
                self.runners[one].resume();
            }
            _ => self.locks.cut().await,
        }
    }

    /// Returns the ticks and tokens of the guarded writes, in the order of the guard's server.
    async fn written(&self) -> Vec<(u64, u64)> {
        let mut admin = Admin::connect(&self.guard).await;
        let Resp::Array(log) = admin.command(&["LRANGE", "log", "0", "-1"]).await else {
            panic!("LRANGE answers with an array");
        };
        let lines = log.iter().filter_map(Resp::as_string);
        lines.map(|line| two(&line)).collect()
    }

    /// Lets runners fail for this long, with a failover in the middle if the store has one. Then ends them. Returns
    /// the number of failures, the greatest tick that was told as completed before the failover, and how long that took.
    async fn live(&mut self, time: Duration) -> (usize, Option<(u64, Duration)>) {
        let (begin, mut round, mut failover) = (Instant::now(), 0, None);
        while begin.elapsed() < time {
            sleep(millis(700)).await;
            if failover.is_none() && begin.elapsed() >= time / 2 {
                self.listen();
                let last = self.completed().keys().next_back().copied();
                let took = self.locks.fail_over().await;
                failover = Some(last.zip(took));
            } else {
                self.trouble(round).await;
                round += 1;
            }
        }
        for runner in &mut self.runners {
            runner.write_line("");
        }
        for runner in &mut self.runners {
            runner.wait_exit(3 * LIMIT).await;
        }
        self.listen();
        (round, failover.flatten())
    }

    fn listen(&mut self) {
        for runner in &mut self.runners {
            self.said.append(&mut runner.unread_lines());
        }
    }

    /// Returns the tokens of the completions that runners told, by their ticks.
    fn completed(&self) -> BTreeMap<u64, Vec<u64>> {
        let done = self.said.iter().filter(|line| line.starts_with("done "));
        by_tick(done.map(|line| two(line)))
    }
}

fn by_tick(all: impl Iterator<Item = (u64, u64)>) -> BTreeMap<u64, Vec<u64>> {
    let mut ticks = BTreeMap::<u64, Vec<u64>>::new();
    for (tick, token) in all {
        ticks.entry(tick).or_default().push(token);
    }
    ticks
}

/// Returns the two numbers at the end of a line.
fn two(line: &str) -> (u64, u64) {
    let mut numbers = line
        .split(' ')
        .rev()
        .map(|word| word.parse().expect("a number"));
    let token = numbers.next().expect("a token");
    (numbers.next().expect("a tick"), token)
}

/// Checks the guard's record: each tick was completed once, and none was skipped. Only a completion that the old primary
/// had not replicated when it died may be lost, and its tick given again.
async fn completes_each_tick_once(locks: Locks, runners: usize, time: Duration) {
    let mut fleet = Fleet::start(locks, "job", runners).await;
    let (failures, failover) = fleet.live(time).await;
    let written = fleet.written().await;
    let (begun, completed) = (by_tick(written.iter().copied()), fleet.completed());
    let mut forgotten = Vec::new();
    for (tick, tokens) in &completed {
        let last = begun.get(tick).and_then(|tokens| tokens.last());
        if tokens.len() == 1 && last == tokens.first() {
            continue;
        }
        // Told within two periods before the failover, or between the last look and the primary's end.
        let is_near = failover.is_some_and(|(last, _)| tick.abs_diff(last) <= 2 * PERIOD);
        assert!(
            is_near,
            "tick {tick} was given again after it was completed: {tokens:?} in {written:?}"
        );
        forgotten.push(*tick);
    }
    let tokens: Vec<_> = written.iter().map(|(_, token)| token).collect();
    assert!(
        tokens.is_sorted(),
        "the guard let an older token pass: {written:?}"
    );
    let falls = written.windows(2).filter(|two| two[0].0 > two[1].0);
    assert!(
        falls.count() <= forgotten.len(),
        "a tick came back: {written:?}"
    );
    let (first, last) = (written[0].0, written[written.len() - 1].0);
    let all = (first..=last).step_by(usize::try_from(PERIOD).expect("it is short"));
    let skipped: Vec<_> = all.filter(|tick| !begun.contains_key(tick)).collect();
    assert!(skipped.is_empty(), "nobody ran {skipped:?}");
    let again = begun.values().filter(|tokens| tokens.len() > 1).count();
    println!(
        "jobs: {runners} runners, {} ticks, {} told as completed, {again} begun again after a failure, {failures} \
        failures; failover after {:?}, {} completions lost by it",
        begun.len(),
        completed.len(),
        failover.map(|(_, took)| took),
        forgotten.len()
    );
    assert!(
        begun.len() as u128 > time.as_millis() / u128::from(PERIOD) / 3 && again > 0,
        "{begun:?}"
    );
}

/// Returns the number of ticks that several processes ran, if they only share a lock.
async fn doubles_by_locks_alone(runners: usize, time: Duration) -> usize {
    let locks = Locks::Server(RedisServer::start().await);
    let mut fleet = Fleet::start(locks, "lock", runners).await;
    sleep(time).await;
    fleet.runners.iter_mut().for_each(Child::kill9);
    let ticks = by_tick(fleet.written().await.into_iter());
    let doubles = ticks.values().filter(|tokens| tokens.len() > 1).count();
    println!(
        "locks alone: {runners} processes, {} ticks, {doubles} of them by several",
        ticks.len()
    );
    doubles
}

#[tokio::test]
async fn each_tick_is_completed_once_whatever_happens_to_its_runners() {
    let locks = Locks::Server(RedisServer::start().await);
    completes_each_tick_once(locks, 8, Duration::from_secs(12)).await;
}

/// The same without jobs: a lock alone lets several processes run one tick.
#[tokio::test]
async fn locks_alone_run_ticks_twice() {
    assert!(doubles_by_locks_alone(4, millis(2_500)).await > 0);
}

#[tokio::test]
#[ignore = "takes more than a minute"]
async fn a_fleet_of_sixteen_runs_each_tick_once_through_a_failover() {
    let locks = Locks::Service(RedisService::start().await);
    completes_each_tick_once(locks, 16, Duration::from_secs(60)).await;
    assert!(doubles_by_locks_alone(16, Duration::from_secs(10)).await > 0);
}

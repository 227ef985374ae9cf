//! A fleet of runners in both languages, which are killed, stopped and cut off. Each tick is completed once, and none
//! is skipped while some runner lives.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use leasehold_tests::{Admin, Child, RedisServer, Resp, spawn_mixed};
use tokio::time::{Instant, sleep};

use crate::{LIMIT, connect, millis};

const RUNNERS: usize = 8;
const PERIOD: u64 = 200;
const TTL: u64 = 700;
const TIME: Duration = Duration::from_secs(12);

struct Fleet {
    locks: RedisServer,
    guard: RedisServer,
    how: &'static str,
    runners: Vec<Child>,
    /// What runners said that are gone.
    said: Vec<String>,
}

impl Fleet {
    async fn start(how: &'static str, count: usize) -> Self {
        let (locks, guard) = (RedisServer::start().await, RedisServer::start().await);
        let mut fleet = Self {
            locks,
            guard,
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
        let locker = connect(&self.locks).await;
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            let seen = locker.inspect("report").await.expect("an answer");
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
        panic!("nobody runs a tick within {LIMIT:?}");
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
            _ => {
                Admin::connect(&self.locks).await.kill_clients().await;
            }
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

#[tokio::test]
async fn each_tick_is_completed_once_whatever_happens_to_its_runners() {
    let mut fleet = Fleet::start("job", RUNNERS).await;
    let end = Instant::now() + TIME;
    let mut round = 0;
    while Instant::now() < end {
        sleep(millis(700)).await;
        fleet.trouble(round).await;
        round += 1;
    }
    for runner in &mut fleet.runners {
        runner.write_line("");
    }
    for runner in &mut fleet.runners {
        runner.wait_exit(3 * LIMIT).await;
        fleet.said.append(&mut runner.unread_lines());
    }
    let written = fleet.written().await;
    let mut ticks = BTreeMap::<u64, Vec<u64>>::new();
    for (tick, token) in &written {
        ticks.entry(*tick).or_default().push(*token);
    }
    let mut completed = BTreeMap::<u64, u64>::new();
    for line in fleet.said.iter().filter(|line| line.starts_with("done ")) {
        let (tick, token) = two(line);
        assert_eq!(
            completed.insert(tick, token),
            None,
            "tick {tick} was completed twice"
        );
        let last = ticks.get(&tick).and_then(|tokens| tokens.last());
        assert_eq!(
            last,
            Some(&token),
            "tick {tick} ran again after it was completed: {written:?}"
        );
    }
    assert!(
        written.windows(2).all(|two| two[0] <= two[1]),
        "a tick came back: {written:?}"
    );
    let (first, last) = (written[0].0, written[written.len() - 1].0);
    let skipped: Vec<_> = (first..=last)
        .step_by(200)
        .filter(|tick| !ticks.contains_key(tick))
        .collect();
    assert!(skipped.is_empty(), "nobody ran {skipped:?}");
    let again = ticks.values().filter(|tokens| tokens.len() > 1).count();
    println!(
        "jobs: {} ticks, {} told as completed, {again} begun again after a failure, {round} failures",
        ticks.len(),
        completed.len()
    );
    assert!(ticks.len() > 20 && again > 0, "{ticks:?}");
}

/// The same without jobs: a lock alone lets several processes run one tick.
#[tokio::test]
async fn locks_alone_run_ticks_twice() {
    let mut fleet = Fleet::start("lock", 4).await;
    sleep(millis(2_500)).await;
    fleet.runners.iter_mut().for_each(Child::kill9);
    let mut ticks = BTreeMap::<u64, usize>::new();
    for (tick, _) in fleet.written().await {
        *ticks.entry(tick).or_default() += 1;
    }
    assert!(ticks.values().any(|times| *times > 1), "{ticks:?}");
}

//! The sides that acquire and release by turns in `pairs`, `quorum` and `topologies`, and their results.
//!
//! The processor time of a pair in this process and in the servers shows which of them is the bottleneck. It
//! varies less than the rate.

use std::process::Command;
use std::time::Instant;

use fred::prelude::*;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use leasehold::Locker;
use leasehold_tests::Admin;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::Result;
use crate::batcher::Batcher;
use crate::peer::{Process, number};
use crate::stats::{context_switches, median, processor_time, ratios, server_time};

/// The script of the usual handwritten lock, beside `SET NX PX`.
const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                                             return redis.call('DEL', KEYS[1]) end return 0";
const PAIRS: usize = 5_120;
const REDIS_BENCHMARK: &str = "redis-benchmark";
const REQUESTS: u32 = 20_000;
/// How long a peer works in one round.
const PEER_MILLIS: u32 = 400;

/// A compared side. With several clients it asks a server through each, and waits for a majority.
pub(crate) enum Side {
    Lock(Locker),
    /// Callers that take turns among several lockers.
    Lockers(Vec<Locker>),
    /// Two bare round trips.
    Pings(Client),
    /// Two calls of a script that does nothing.
    Scripts(Vec<Client>, String),
    /// `SET NX PX`, and a script that compares and deletes.
    Sets(Vec<Client>, String),
    /// `SET NX PX` and that script, by callers that take turns among several clients of one server.
    SetsApart(Vec<Client>, String),
    /// The smallest possible lock whose callers share calls. Half of the callers share a call, which reads
    /// the time once and sets or deletes a field for each of them. No one is notified.
    Least(Client, [String; 2]),
    /// The script of the lock, by the smallest client whose callers are tasks of their own and share calls.
    Batcher(Batcher),
    /// A program in C with a connection for each caller and no pipelining, and the compare-and-delete that it calls.
    ///
    /// It knows no pairs of commands, so it runs many sets on random keys, and then as many deletes. A pair takes
    /// the time of one of each. About a third of the sets find their key taken, and more than a third of the
    /// deletes find none. That is less work than pairs that succeed, so the comparison favors it.
    RedisBenchmark(u16, String),
    /// A program in another language.
    Peer(Box<Mutex<Process>>),
}

/// The result of a side in a round.
pub(crate) struct Round {
    /// Thousands of pairs per second.
    pub(crate) rate: f64,
    /// Microseconds of processor time of a pair in this process, and in all servers.
    here: f64,
    servers: f64,
    /// Script calls of a pair.
    scripts: f64,
    /// Context switches of a pair in this process.
    switches: f64,
}

/// All rounds of a side.
#[derive(Default)]
pub(crate) struct Rounds(Vec<Round>);

impl Rounds {
    /// Returns the ratio of this side's speed to the other's, as the median of the rounds.
    pub(crate) fn ratio(&self, other: &Self) -> f64 {
        median(&ratios(
            &self.all(|round| round.rate),
            &other.all(|round| round.rate),
        ))
    }

    /// Prints a line below [`head`].
    pub(crate) fn show(&self, name: &str, ratio: f64) {
        let [rate, here, servers, scripts, switches] = [
            |round: &Round| round.rate,
            |round: &Round| round.here,
            |round: &Round| round.servers,
            |round: &Round| round.scripts,
            |round: &Round| round.switches,
        ]
        .map(|part| median(&self.all(part)));
        println!(
            "  {name:<34} {rate:>10.1} {ratio:>7.2}   {here:>6.1} + {servers:>6.1} {scripts:>14.2} \
             {switches:>10.2}"
        );
    }

    fn all(&self, part: fn(&Round) -> f64) -> Vec<f64> {
        self.0.iter().map(part).collect()
    }
}

/// Prints the head of a table with a line for each side.
pub(crate) fn head(callers: usize) {
    let what = crate::stats::callers(callers);
    println!(
        "{what:<36} {:>10} {:>7}   {:>15} {:>14} {:>10}",
        "thousand/s", "ratio", "µs here+servers", "script calls", "switches"
    );
}

/// Loads a script that does nothing and one that compares and deletes. Returns their hashes.
pub(crate) async fn scripts(clients: &[Client]) -> Result<[String; 2]> {
    let mut loaded = [String::new(), String::new()];
    for client in clients {
        loaded = [
            client.script_load("return ARGV[1]").await?,
            client.script_load(COMPARE_AND_DELETE).await?,
        ];
    }
    Ok(loaded)
}

/// Lets all sides take turns in rounds, of which the first warms up. Returns their results.
pub(crate) async fn take_turns<'a>(
    sides: impl Iterator<Item = &'a Side> + Clone,
    callers: usize,
    rounds: usize,
    admins: &mut [Admin],
) -> Result<Vec<Rounds>> {
    let mut reached: Vec<_> = sides.clone().map(|_| Rounds::default()).collect();
    for round in 0..=rounds {
        for (side, reached) in sides.clone().zip(&mut reached) {
            let measured = side.round(callers, admins).await?;
            reached.0.extend((round > 0).then_some(measured));
        }
    }
    Ok(reached)
}

/// Lets all sides take turns, and prints a table of them with the ratios of the first side to each.
pub(crate) async fn compare(
    all: &[(&str, Side)],
    callers: usize,
    rounds: usize,
    admins: &mut [Admin],
) -> Result<()> {
    let sides = all.iter().map(|(_, side)| side);
    let reached = take_turns(sides, callers, rounds, admins).await?;
    head(callers);
    for ((name, _), own) in all.iter().zip(&reached) {
        own.show(name, reached[0].ratio(own));
    }
    Ok(())
}

impl Side {
    /// Returns the smallest lock, and loads its scripts.
    pub(crate) async fn least(client: &Client) -> Result<Self> {
        let script = |command: &str| {
            format!(
                "local now = redis.call('TIME')
                for at = 1, #KEYS do redis.call('{command}', KEYS[at], 'field', ARGV[at]) end
                return now[1]"
            )
        };
        let scripts = [
            client.script_load(script("HSET")).await?,
            client.script_load(script("HDEL")).await?,
        ];
        Ok(Self::Least(client.clone(), scripts))
    }

    async fn round(&self, callers: usize, admins: &mut [Admin]) -> Result<Round> {
        let scripts = script_calls(admins).await;
        let (here, servers) = (processor_time(), servers_time(admins).await?);
        let switches = context_switches()?;
        let (count, seconds) = self.work(callers).await?;
        let each = |now: f64, before: f64| (now - before) / count;
        Ok(Round {
            rate: count / seconds / 1e3,
            here: each(processor_time(), here),
            servers: each(servers_time(admins).await?, servers),
            switches: each(context_switches()?, switches),
            scripts: each(script_calls(admins).await, scripts),
        })
    }

    /// Acquires and releases. Returns how often, and the seconds that it took.
    async fn work(&self, callers: usize) -> Result<(f64, f64)> {
        match self {
            Self::Lock(locker) => {
                let locker = locker.clone();
                pairs(callers, move |caller| {
                    let lock = locker.lock(format!("bench-{caller}"));
                    async move { Ok(lock?.acquire().await?.release().await?) }
                })
                .await
            }
            Self::Lockers(lockers) => {
                let lockers = lockers.clone();
                pairs(callers, move |caller| {
                    let lock = lockers[caller % lockers.len()].lock(format!("bench-{caller}"));
                    async move { Ok(lock?.acquire().await?.release().await?) }
                })
                .await
            }
            Self::Pings(client) => {
                let client = client.clone();
                pairs(callers, move |_| {
                    let client = client.clone();
                    async move {
                        client.ping::<()>(None).await?;
                        Ok(client.ping::<()>(None).await?)
                    }
                })
                .await
            }
            Self::Scripts(clients, script) => {
                let (clients, script) = (clients.clone(), script.clone());
                pairs(callers, move |caller| {
                    let (clients, script) = (clients.clone(), script.clone());
                    async move {
                        let key = format!("bare-{caller}");
                        for _ in 0..2 {
                            let calls = clients.iter();
                            let calls = calls.map(|client| client.evalsha(&script, &key, "a"));
                            majority(calls).await?;
                        }
                        Ok(())
                    }
                })
                .await
            }
            Self::Sets(clients, script) => {
                let (clients, script) = (clients.clone(), script.clone());
                pairs(callers, move |caller| {
                    let (clients, script) = (clients.clone(), script.clone());
                    async move { set_and_delete(&clients, &script, caller).await }
                })
                .await
            }
            Self::SetsApart(clients, script) => {
                let (clients, script) = (clients.clone(), script.clone());
                pairs(callers, move |caller| {
                    let client = [clients[caller % clients.len()].clone()];
                    let script = script.clone();
                    async move { set_and_delete(&client, &script, caller).await }
                })
                .await
            }
            Self::Batcher(batcher) => {
                let batcher = batcher.clone();
                pairs(callers, move |caller| {
                    let batcher = batcher.clone();
                    async move { batcher.pair(&format!("batched-{caller}")).await }
                })
                .await
            }
            Self::Least(client, scripts) => least(client, scripts, callers).await,
            Self::RedisBenchmark(port, script) => {
                let key = "plain-__rand_int__";
                let set =
                    redis_benchmark(*port, callers, &["SET", key, "id", "NX", "PX", "30000"])?;
                let delete = redis_benchmark(*port, callers, &["EVALSHA", script, "1", key, "id"])?;
                let count = f64::from(REQUESTS);
                Ok((count, count * (1.0 / set + 1.0 / delete)))
            }
            Self::Peer(process) => {
                let mut process = process.lock().await;
                let done = process
                    .tell(&format!("pairs {callers} {PEER_MILLIS}"))
                    .await?;
                let done = done.ok_or("a peer makes pairs")?;
                Ok((number(&done, "count")?, number(&done, "millis")? / 1e3))
            }
        }
    }
}

/// Lets `callers` tasks do the work `PAIRS` times in total. Returns that number, and the seconds that it
/// took.
async fn pairs<Pair>(
    callers: usize,
    work: impl Fn(usize) -> Pair + Clone + Send + 'static,
) -> Result<(f64, f64)>
where
    Pair: Future<Output = Result<()>> + Send,
{
    let tasks = (0..callers).map(|caller| {
        let work = work.clone();
        async move {
            for _ in 0..PAIRS / callers {
                work(caller).await?;
            }
            Result::Ok(())
        }
    });
    let seconds = all(tasks).await?;
    Ok(((PAIRS / callers * callers) as f64, seconds))
}

/// Runs all these tasks. Returns the seconds until the last one has ended.
pub(crate) async fn all<Task>(tasks: impl Iterator<Item = Task>) -> Result<f64>
where
    Task: Future<Output = Result<()>> + Send + 'static,
{
    let begin = Instant::now();
    let mut tasks: JoinSet<_> = tasks.collect();
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(begin.elapsed().as_secs_f64())
}

async fn set_and_delete(clients: &[Client], script: &str, caller: usize) -> Result<()> {
    let key = format!("plain-{caller}");
    let set = |client: &Client| {
        let (client, key) = (client.clone(), key.clone());
        let (expire, only) = (Some(Expiration::PX(30_000)), Some(SetOptions::NX));
        async move { client.set(key, "id", expire, only, false).await }
    };
    majority(clients.iter().map(set)).await?;
    let deletes = clients
        .iter()
        .map(|client| client.evalsha(script, &key, "id"));
    majority(deletes).await
}

async fn least(client: &Client, scripts: &[String; 2], callers: usize) -> Result<(f64, f64)> {
    let calls = callers.min(2);
    let tasks = (0..calls).map(|call| {
        let (client, scripts) = (client.clone(), scripts.clone());
        async move {
            let names = (0..callers / calls).map(|at| format!("least-{call}-{at}"));
            let names: Vec<_> = names.collect();
            for _ in 0..PAIRS / callers {
                for script in &scripts {
                    let (keys, args) = (names.clone(), names.clone());
                    client.evalsha::<(), _, _, _>(script, keys, args).await?;
                }
            }
            Result::Ok(())
        }
    });
    let seconds = all(tasks).await?;
    Ok(((PAIRS / callers * callers) as f64, seconds))
}

/// Returns true if redis-benchmark is installed.
pub(crate) fn has_redis_benchmark() -> bool {
    let version = Command::new(REDIS_BENCHMARK).arg("--version").output();
    version.is_ok_and(|version| version.status.success())
}

/// Returns how many of the command redis-benchmark runs per second.
fn redis_benchmark(port: u16, callers: usize, command: &[&str]) -> Result<f64> {
    let [port, callers, requests] = [port.to_string(), callers.to_string(), REQUESTS.to_string()];
    let output = Command::new(REDIS_BENCHMARK)
        .args(["-h", "127.0.0.1", "-p", &port, "--csv", "-P", "1"])
        .args(["-c", &callers, "-n", &requests, "-r", &requests])
        .args(command)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // "SET … PX 30000","81967.21","0.006",…
    let line = text.lines().rfind(|line| line.starts_with('"'));
    let rate = line.and_then(|line| line.split("\",\"").nth(1)?.parse().ok());
    let errors = String::from_utf8_lossy(&output.stderr);
    let unread = || format!("{REDIS_BENCHMARK} {command:?} gave no rate: {text}{errors}").into();
    rate.filter(|_| output.status.success()).ok_or_else(unread)
}

/// Waits until more than half have answered; the other answers are dropped.
async fn majority<Asked>(mut all: impl ExactSizeIterator<Item = Asked>) -> Result<()>
where
    Asked: Future<Output = std::result::Result<(), fred::error::Error>>,
{
    let most = all.len() / 2 + 1;
    if most == 1 {
        // Without the cost of waiting for several.
        return Ok(all.next().ok_or("there is a server")?.await?);
    }
    let mut asked: FuturesUnordered<_> = all.collect();
    for _ in 0..most {
        asked.next().await.ok_or("more than half were asked")??;
    }
    Ok(())
}

async fn servers_time(admins: &mut [Admin]) -> Result<f64> {
    let mut sum = 0.0;
    for admin in admins {
        sum += server_time(admin).await?;
    }
    Ok(sum)
}

async fn script_calls(admins: &mut [Admin]) -> f64 {
    let mut sum = 0;
    for admin in admins {
        sum += admin.script_calls().await;
    }
    sum as f64
}

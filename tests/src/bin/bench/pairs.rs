//! Acquire and release on distinct names by 1 to 256 callers, as a ratio to three others:
//!
//! - two calls of a script that does nothing, on the same connection through fred
//! - what people write themselves, on that connection too: `SET NX PX`, and a script that
//!   compares and deletes
//! - the same two commands by `redis-benchmark`, a C program with a connection for each caller
//!   and no pipelining; see [`plain`]
//! - the least that a lock can be which sends what many callers want in one call: half of them a call, of
//!   which the script asks for the time once and sets or deletes a field for each, and nobody is told
//!
//! And the time on a processor that a pair takes in this process and in the server, for the lock and for
//! what people write themselves: it says which of the two is the bound, and varies less than the pace.

use std::time::Instant;

use fred::prelude::*;
use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer};
use tokio::task::JoinSet;

use crate::options::Options;
use crate::plain::Plain;
use crate::stats::{median, micros, processor_time};
use crate::{Result, plain};

pub(crate) const PAIRS: usize = 5_120;

const LEAST: &str = "local now = redis.call('TIME')
for at = 1, #KEYS do redis.call('DO', KEYS[at], 'field', ARGV[at]) end
return now[1]";

struct Bench {
    server: RedisServer,
    client: Client,
    locker: Locker,
    nothing: String,
    compare_and_delete: String,
    plain: Option<Plain>,
    /// Scripts that take and give back a field of each key.
    least: [String; 2],
    alone: bool,
}

/// Thousands of pairs in a second, by round.
#[derive(Default)]
struct Rounds {
    nothing: Vec<f64>,
    sets: Vec<f64>,
    plain: Vec<f64>,
    least: Vec<f64>,
    leases: Vec<f64>,
    packed: Vec<f64>,
    /// Microseconds on a processor for a pair: here, and in the server.
    sets_cpu: Vec<(f64, f64)>,
    leases_cpu: Vec<(f64, f64)>,
    least_cpu: Vec<(f64, f64)>,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let server = RedisServer::start().await;
    let client = crate::bare_client(&server).await?;
    let compare_and_delete: String = client.script_load(plain::COMPARE_AND_DELETE).await?;
    let bench = Bench {
        locker: Locker::with_fred(client.clone()).await?,
        nothing: client.script_load("return ARGV[1]").await?,
        plain: Plain::find(server.port(), &compare_and_delete),
        compare_and_delete,
        least: [
            client.script_load(LEAST.replace("DO", "HSET")).await?,
            client.script_load(LEAST.replace("DO", "HDEL")).await?,
        ],
        client,
        server,
        alone: options.alone,
    };
    println!(
        "pairs: thousands in a second, medians of {} rounds, and the lock's ratios to the others",
        options.rounds
    );
    if bench.plain.is_none() {
        println!(
            "!! redis-benchmark is missing: install redis-tools (apt-get install redis-tools).\n\
             !! There is NO comparison with it below."
        );
    }
    println!(
        "{:>7}  {:>7}  {:>13}  {:>13}  {:>18}  {:>13}  {:>12}  {:>19}  {:>19}  {:>19}",
        "callers",
        "lock",
        "bare scripts",
        "SET NX+delete",
        "redis-benchmark",
        "least batches",
        "ops per call",
        "us here + server",
        "SET NX+delete's",
        "least batches'"
    );
    let all = [1, 16, 64, 256];
    for callers in options.callers.map_or(all.to_vec(), |one| vec![one]) {
        let mut rounds = Rounds::default();
        for round in 0..=options.rounds {
            // The first round warms up.
            let mut warm_up = Rounds::default();
            let into = if round > 0 { &mut rounds } else { &mut warm_up };
            bench.round(callers, into).await?;
        }
        rounds.show(callers);
    }
    Ok(())
}

impl Bench {
    async fn round(&self, callers: usize, rounds: &mut Rounds) -> Result<()> {
        let mut admin = Admin::connect(&self.server).await;
        if !self.alone {
            self.round_of_others(callers, &mut admin, rounds).await?;
        }
        let before = admin.script_calls().await;
        let locker = self.locker.clone();
        let leases = thousand_per_second(callers, move |caller| {
            let lock = locker.lock(format!("bench-{caller}"));
            async move { Ok(lock?.acquire().await?.release().await?) }
        });
        let begin = Cpu::now(&mut admin).await?;
        rounds.leases.push(leases.await?);
        rounds.leases_cpu.push(begin.each(&mut admin).await?);
        let scripts = admin.script_calls().await - before;
        rounds.packed.push(2.0 * PAIRS as f64 / scripts as f64);
        Ok(())
    }

    async fn round_of_others(
        &self,
        callers: usize,
        admin: &mut Admin,
        rounds: &mut Rounds,
    ) -> Result<()> {
        let (client, script) = (self.client.clone(), self.nothing.clone());
        let calls = thousand_per_second(callers, move |caller| {
            let (client, script) = (client.clone(), script.clone());
            async move {
                for _ in 0..2 {
                    let key = format!("bench-{caller}");
                    client.evalsha::<(), _, _, _>(&script, key, "a").await?;
                }
                Ok(())
            }
        });
        rounds.nothing.push(calls.await?);

        let (client, script) = (self.client.clone(), self.compare_and_delete.clone());
        let sets = thousand_per_second(callers, move |caller| {
            let (client, script) = (client.clone(), script.clone());
            async move {
                let key = format!("plain-{caller}");
                let (expire, only) = (Some(Expiration::PX(30_000)), Some(SetOptions::NX));
                client
                    .set::<(), _, _>(&key, "id", expire, only, false)
                    .await?;
                Ok(client.evalsha::<(), _, _, _>(script, key, "id").await?)
            }
        });
        let begin = Cpu::now(admin).await?;
        rounds.sets.push(sets.await?);
        rounds.sets_cpu.push(begin.each(admin).await?);

        if let Some(plain) = &self.plain {
            rounds.plain.push(plain.thousand_pairs_per_second(callers)?);
        }

        let begin = Cpu::now(admin).await?;
        rounds.least.push(self.least(callers).await?);
        rounds.least_cpu.push(begin.each(admin).await?);
        Ok(())
    }

    async fn least(&self, callers: usize) -> Result<f64> {
        let batches = callers.min(2);
        let each = callers / batches;
        let begin = Instant::now();
        let mut tasks = JoinSet::new();
        for batch in 0..batches {
            let (client, scripts) = (self.client.clone(), self.least.clone());
            tasks.spawn(async move {
                let names = (0..each).map(|at| format!("least-{batch}-{at}"));
                let names: Vec<_> = names.collect();
                for _ in 0..PAIRS / callers {
                    for script in &scripts {
                        let (keys, args) = (names.clone(), names.clone());
                        client.evalsha::<(), _, _, _>(script, keys, args).await?;
                    }
                }
                Result::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok((PAIRS / callers * callers) as f64 / begin.elapsed().as_secs_f64() / 1e3)
    }
}

impl Rounds {
    fn show(&self, callers: usize) {
        let other = |rounds: &[f64]| {
            if rounds.is_empty() {
                return "-".to_owned();
            }
            // The rounds took turns, so each is compared with its neighbour.
            let ratios = self
                .leases
                .iter()
                .zip(rounds)
                .map(|(own, other)| own / other);
            let ratio = median(&ratios.collect::<Vec<_>>());
            format!("{:.1} ({ratio:.2})", median(rounds))
        };
        let cpu = |rounds: &[(f64, f64)]| {
            if rounds.is_empty() {
                return "-".to_owned();
            }
            let (here, server): (Vec<_>, Vec<_>) = rounds.iter().copied().unzip();
            format!("{:.1} + {:.1}", median(&here), median(&server))
        };
        println!(
            "{callers:>7}  {:>7.1}  {:>13}  {:>13}  {:>18}  {:>13}  {:>12.1}  {:>19}  {:>19}  {:>19}",
            median(&self.leases),
            other(&self.nothing),
            other(&self.sets),
            other(&self.plain),
            other(&self.least),
            median(&self.packed),
            cpu(&self.leases_cpu),
            cpu(&self.sets_cpu),
            cpu(&self.least_cpu),
        );
    }
}

/// Time on a processor since the start, of this process and of the server.
pub(crate) struct Cpu {
    /// Nanoseconds.
    here: i64,
    /// Seconds.
    server: f64,
}

impl Cpu {
    pub(crate) async fn now(admin: &mut Admin) -> Result<Self> {
        let server = crate::many::server_cpu(admin).await?;
        let here = processor_time();
        Ok(Self { here, server })
    }

    /// Microseconds for each of the pairs since: here, and in the server.
    pub(crate) async fn each(&self, admin: &mut Admin) -> Result<(f64, f64)> {
        let now = Self::now(admin).await?;
        let server = (now.server - self.server) * 1e6;
        let here = micros(now.here - self.here);
        Ok((here / PAIRS as f64, server / PAIRS as f64))
    }
}

/// Lets `callers` tasks do the work `PAIRS` times in all; returns how many thousand times a second that was.
pub(crate) async fn thousand_per_second<Pair>(
    callers: usize,
    work: impl Fn(usize) -> Pair + Clone + Send + 'static,
) -> Result<f64>
where
    Pair: Future<Output = Result<()>> + Send,
{
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let work = work.clone();
        tasks.spawn(async move {
            for _ in 0..PAIRS / callers {
                work(caller).await?;
            }
            Result::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok((PAIRS / callers * callers) as f64 / begin.elapsed().as_secs_f64() / 1e3)
}

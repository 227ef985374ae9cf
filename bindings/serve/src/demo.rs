//! A few invented contenders on an in-memory store, so that there is something to see.

use std::time::Duration;

use futures::TryStreamExt;
use leasehold::{Error, Locker};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::options::Options;

type Range = (u64, u64);

const TTL: Duration = Duration::from_secs(6);
const SITES: [&str; 3] = ["berlin", "lisbon", "oslo"];

/// The locks, each with the number of its contenders, and the least and the most milliseconds for which one of them
/// holds it, and pauses after that.
const SCENES: [(&str, usize, Range, Range); 9] = [
    ("billing/invoice-run", 6, (1_500, 6_000), (500, 4_000)),
    ("cache/warm-up", 3, (300, 1_200), (600, 2_500)),
    ("catalog/import/shop-17", 2, (4_000, 9_000), (1_000, 7_000)),
    ("media/transcode-queue", 12, (700, 2_800), (200, 3_000)),
    ("migrations/schema", 1, (30_000, 90_000), (2_000, 4_000)),
    ("orders/42", 2, (500, 2_000), (900, 4_000)),
    ("orders/nightly-export", 4, (5_000, 15_000), (1_000, 9_000)),
    ("reports/weekly", 3, (2_000, 5_500), (1_500, 4_000)),
    ("search/reindex", 3, (9_000, 20_000), (2_000, 9_000)),
];
/// The jobs, each with the number of its runners, its period in seconds, and the least and the most milliseconds that a
/// turn takes.
const JOBS: [(&str, usize, u64, Range); 2] = [
    ("invoices/send", 3, 5, (600, 3_500)),
    ("stock/roll-up", 2, 3, (900, 2_200)),
];
/// A lock of two processes with one identity, which take it over from one another.
const LEADER: &str = "leader/scheduler";

/// Starts the contenders, each as a task.
pub(crate) async fn play(options: &Options, tasks: &mut JoinSet<()>) -> Result<(), Error> {
    let url = &options.urls[0];
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    for (name, contenders, holds, pauses) in SCENES {
        for at in 0..contenders {
            let service = name.split('/').next().unwrap_or_default();
            let owner = format!("{service}-{}@{}", at + 1, SITES[at % SITES.len()]);
            let locker = options.builder().owner(owner).connect(url).await?;
            seed = u64::wrapping_add(seed, 0x632b_e59b_d9b4_e019);
            let rng = Rng(seed);
            tasks.spawn(async move {
                let _ = contend(locker, name, (holds, pauses), rng).await;
            });
        }
    }
    for (name, runners, period, takes) in JOBS {
        for at in 0..runners {
            let owner = format!("worker-{}@{}", at + 1, SITES[at % SITES.len()]);
            let locker = options.builder().owner(owner).connect(url).await?;
            let rng = Rng(seed + at as u64);
            tasks.spawn(async move {
                let _ = run(locker, name, (period, takes), rng).await;
            });
        }
    }
    for turn in 0..2 {
        let locker = options
            .builder()
            .owner("scheduler-blue")
            .connect(url)
            .await?;
        tasks.spawn(async move {
            let _ = lead(locker, turn).await;
        });
    }
    Ok(())
}

async fn contend(
    locker: Locker,
    name: &str,
    (holds, pauses): (Range, Range),
    mut rng: Rng,
) -> Result<(), Error> {
    let lock = locker.lock(name)?.ttl(TTL);
    sleep(rng.millis((0, 2_000))).await;
    loop {
        let lease = lock.acquire().await?;
        sleep(rng.millis(holds)).await;
        // It fails if the lock was released by force on the page.
        let _ = lease.release().await;
        sleep(rng.millis(pauses)).await;
    }
}

async fn run(
    locker: Locker,
    name: &str,
    (period, takes): (u64, Range),
    mut rng: Rng,
) -> Result<(), Error> {
    let job = locker.job(name)?.every(Duration::from_secs(period));
    let mut turns = job.ttl(TTL).turns();
    while let Some(turn) = turns.try_next().await? {
        sleep(rng.millis(takes)).await;
        // It fails if the turn was ended by force on the page.
        let _ = turn.done().await;
    }
    Ok(())
}

async fn lead(locker: Locker, turn: u64) -> Result<(), Error> {
    let lock = locker.lock(LEADER)?.ttl(TTL);
    sleep(Duration::from_secs(11) * u32::try_from(turn).unwrap_or(0)).await;
    loop {
        let lease = lock.acquire().await?;
        // The other process takes the lock over.
        lease.lost().await;
        sleep(Duration::from_secs(11)).await;
    }
}

/// A random number generator with a fixed seed.
struct Rng(u64);

impl Rng {
    fn millis(&mut self, (least, most): Range) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_millis(least + self.0 % (most - least + 1))
    }
}

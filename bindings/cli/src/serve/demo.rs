//! A few invented contenders on a store in memory, so that there is something to see.

use std::time::Duration;

use leasehold::{Error, Locker};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::connect::StoreArgs;

const TTL: Duration = Duration::from_secs(6);
const SITES: [&str; 3] = ["berlin", "lisbon", "oslo"];

/// How those who want one lock behave.
struct Scene {
    name: &'static str,
    contenders: usize,
    /// How long they have it, and how long they do without, in milliseconds.
    has: (u64, u64),
    rests: (u64, u64),
}

const fn scene(name: &'static str, contenders: usize, has: (u64, u64), rests: (u64, u64)) -> Scene {
    Scene {
        name,
        contenders,
        has,
        rests,
    }
}

const SCENES: [Scene; 9] = [
    scene("billing/invoice-run", 6, (1_500, 6_000), (500, 4_000)),
    scene("cache/warm-up", 3, (300, 1_200), (600, 2_500)),
    scene("catalog/import/shop-17", 2, (4_000, 9_000), (1_000, 7_000)),
    scene("media/transcode-queue", 12, (700, 2_800), (200, 3_000)),
    scene("migrations/schema", 1, (30_000, 90_000), (2_000, 4_000)),
    scene("orders/42", 2, (500, 2_000), (900, 4_000)),
    scene("orders/nightly-export", 4, (5_000, 15_000), (1_000, 9_000)),
    scene("reports/weekly", 3, (2_000, 5_500), (1_500, 4_000)),
    scene("search/reindex", 3, (9_000, 20_000), (2_000, 9_000)),
];
/// Two processes with one identity: the one takes the lock over from the other.
const LEADER: &str = "leader/scheduler";

/// Plays for ever, until the set is dropped.
pub(super) async fn play(store: &StoreArgs, url: &str) -> Result<JoinSet<()>, Error> {
    let mut players = JoinSet::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    for scene in &SCENES {
        for at in 0..scene.contenders {
            let service = scene.name.split('/').next().unwrap_or_default();
            let owner = format!("{service}-{}@{}", at + 1, SITES[at % SITES.len()]);
            let locker = store.builder().owner(owner).connect(url).await?;
            seed = u64::wrapping_add(seed, 0x632b_e59b_d9b4_e019);
            let dice = Dice(seed);
            players.spawn(async move {
                let _ = contend(locker, scene, dice).await;
            });
        }
    }
    for turn in 0..2 {
        let locker = store.builder().owner("scheduler-blue").connect(url).await?;
        players.spawn(async move {
            let _ = lead(locker, turn).await;
        });
    }
    Ok(players)
}

async fn contend(locker: Locker, scene: &Scene, mut dice: Dice) -> Result<(), Error> {
    let lock = locker.lock(scene.name)?.ttl(TTL);
    sleep(dice.throw((0, 2_000))).await;
    loop {
        let lease = lock.acquire().await?;
        sleep(dice.throw(scene.has)).await;
        // It may have been taken away on the page.
        let _ = lease.release().await;
        sleep(dice.throw(scene.rests)).await;
    }
}

async fn lead(locker: Locker, turn: u64) -> Result<(), Error> {
    let lock = locker.lock(LEADER)?.ttl(TTL);
    sleep(Duration::from_secs(11) * u32::try_from(turn).unwrap_or(0)).await;
    loop {
        let lease = lock.acquire().await?;
        // Until the other one takes it.
        lease.lost().await;
        sleep(Duration::from_secs(11)).await;
    }
}

/// Numbers that look random, and are the same each time.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, (least, most): (u64, u64)) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_millis(least + self.0 % (most - least + 1))
    }
}

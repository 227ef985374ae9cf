//! A reward that a family may take once, and five who take it at the same moment.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use leasehold::{FencingToken, Locker};
use leasehold_examples::cli::{self, Interrupt, Outcome, promise};
use leasehold_examples::screen::Screen;
use leasehold_guard_examples::database::{Database, Fence};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

const FAMILY: [&str; 5] = ["Ada", "Ben", "Cleo", "Dan", "Eve"];
/// How long giving the reward takes, say a call of another service.
const GIVING: Duration = Duration::from_millis(50);

/// The five of a family want a reward at the same moment, which may be taken once. Each looks whether it
/// was taken, and takes it: five times if nothing keeps them apart; once with a lock, and a guard in the
/// database in case a lease was lost. Exits with 1 if it came otherwise.
#[derive(Parser, Clone, Debug)]
#[command(version)]
struct Args {
    #[command(flatten)]
    store: cli::StoreArgs,
    #[arg(
        long,
        default_value = "sqlite::memory:",
        help = "The database: postgres://…, mysql://…, sqlite:file or sqlite::memory:. Nothing \
                is left in it but the guard's table, leasehold_fence"
    )]
    database: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    cli::exit(run(Args::parse()).await)
}

async fn run(args: Args) -> Outcome {
    let mut interrupt = Interrupt::catch()?;
    let screen = Screen::new();
    // Before it connects, which may take long.
    screen.say(format!(
        "{} of one family want a reward. The lock is {}.",
        FAMILY.len(),
        args.store.shown()
    ))?;
    let locker = interrupt.or(args.store.connect("reward")).await?;
    let database = interrupt.or(Database::connect(&args.database)).await?;
    screen.say(format!("Who took it is noted in {}.", database.shown()))?;
    let rewards = Rewards::new(database.clone())?;
    let outcome = interrupt.or(acts(screen, &locker, &rewards)).await;
    // A second interruption ends this too.
    let dropped = interrupt.or(rewards.remove()).await;
    database.close().await;
    interrupt.shut_down(&locker).await;
    outcome.and(dropped)
}

async fn acts(screen: Screen, locker: &Locker, rewards: &Rewards) -> Outcome {
    rewards.prepare().await?;
    screen.title("Act 1: each looks whether it was taken, and takes it")?;
    let taken = without_lock(screen, rewards).await?;
    promise(taken == FAMILY.len(), || {
        format!("act 1 was to go wrong, and the reward was taken {taken} times")
    })?;

    screen.title("Act 2: each does the same with a lease, and its token for the database")?;
    rewards.forget().await?;
    let taken = with_lock(screen, locker, rewards).await?;
    promise(taken == 1, || {
        format!("act 2: the reward was taken {taken} times")
    })?;
    Ok(screen.say("\nOne reward, one record, whoever comes first.")?)
}

/// Nobody takes it before all have looked. Without the barrier that would happen by chance.
async fn without_lock(screen: Screen, rewards: &Rewards) -> Outcome<usize> {
    let all_have_looked = Arc::new(Barrier::new(FAMILY.len()));
    let mut family = JoinSet::new();
    for (number, name) in (1..).zip(FAMILY) {
        let (rewards, all_have_looked) = (rewards.clone(), all_have_looked.clone());
        family.spawn(async move {
            let taken = rewards.taken(None).await?;
            all_have_looked.wait().await;
            sleep(GIVING).await;
            if taken == 0 {
                rewards.take(None, number).await?;
                screen.step(name, "took it", None, "because nobody had")?;
            }
            Outcome::Ok(())
        });
    }
    finish(screen, family, rewards).await
}

async fn with_lock(screen: Screen, locker: &Locker, rewards: &Rewards) -> Outcome<usize> {
    let mut family = JoinSet::new();
    for (number, name) in (1..).zip(FAMILY) {
        let (rewards, lock) = (rewards.clone(), locker.lock(&rewards.resource)?);
        family.spawn(async move {
            let lease = lock.acquire().await?;
            let token = lease.token();
            let times = rewards.taken(Some(token)).await?;
            if times == 0 {
                // If the lease is lost meanwhile, this is dropped.
                lease.run(sleep(GIVING)).await?;
                rewards.take(Some(token), number).await?;
                screen.step(name, "took it", Some(token), "because nobody had")?;
            } else {
                screen.step(name, "too late", Some(token), "somebody has it")?;
            }
            lease.release().await?;
            Outcome::Ok(())
        });
    }
    finish(screen, family, rewards).await
}

async fn finish(screen: Screen, mut family: JoinSet<Outcome>, rewards: &Rewards) -> Outcome<usize> {
    while let Some(done) = family.join_next().await {
        done??;
    }
    let records = rewards.taken(None).await?;
    let plural = if records == 1 { "" } else { "s" };
    screen.say(format!("=> {records} record{plural}"))?;
    Ok(usize::try_from(records)?)
}

/// A table of who took it.
#[derive(Clone)]
struct Rewards {
    database: Database,
    table: String,
    /// What is locked, and what the guard keeps the token of.
    resource: String,
}

impl Rewards {
    fn new(database: Database) -> Outcome<Self> {
        let resource = cli::namespace("reward")?;
        let run = resource.rsplit('/').next().unwrap_or_default();
        Ok(Self {
            table: format!("leasehold_example_reward_{}", run.replace('-', "_")),
            database,
            resource,
        })
    }

    async fn prepare(&self) -> Outcome {
        self.database.prepare_guard().await?;
        let create = format!("CREATE TABLE {} (taker BIGINT NOT NULL)", self.table);
        self.database.write(None, &[create]).await
    }

    /// How often it was taken. With a token this also shuts out whoever has an older one, who could
    /// otherwise still change what was read.
    async fn taken(&self, token: Option<FencingToken>) -> Outcome<i64> {
        let count = format!("SELECT COUNT(*) FROM {}", self.table);
        self.database.read(self.fence(token), count).await
    }

    async fn take(&self, token: Option<FencingToken>, taker: u8) -> Outcome {
        let note = format!("INSERT INTO {} VALUES ({taker})", self.table);
        self.database.write(self.fence(token), &[note]).await
    }

    async fn forget(&self) -> Outcome {
        let forget = format!("DELETE FROM {}", self.table);
        self.database.write(None, &[forget]).await
    }

    async fn remove(&self) -> Outcome {
        self.database.settled().await;
        let drop = format!("DROP TABLE IF EXISTS {}", self.table);
        self.database.write(None, &[drop]).await?;
        self.database.forget(&self.resource).await
    }

    fn fence(&self, token: Option<FencingToken>) -> Option<Fence<'_>> {
        token.map(|token| (self.resource.as_str(), token))
    }
}

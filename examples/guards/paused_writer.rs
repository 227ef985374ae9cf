//! A writer that was paused past its lease, and what each kind of storage does with its late write.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use leasehold::{Error, Locker};
use leasehold_examples::cli::{self, Interrupt, Outcome, promise};
use leasehold_examples::screen::{Screen, time};
use leasehold_guard_examples::database::Database;
use leasehold_guard_examples::page::{Page, refused};
use leasehold_guard_examples::redis::Locks;
use leasehold_guard_examples::table::Table;

/// Of the first client's lease; the second client waits for its end.
const TTL: Duration = Duration::from_millis(500);

/// Lets client 1 get a lock and its token and be paused; client 2 gets a greater token when the
/// lease has ended, and writes; then client 1 goes on and writes. Once without a guard, which
/// undoes what client 2 wrote, and once with each guard, which refuses. Exits with 1 if it came
/// otherwise.
#[derive(Parser, Clone, Debug)]
#[command(version)]
struct Args {
    #[arg(
        long,
        help = "The server of the locks and of FencedRedis, redis://host:port or \
                unix:///path/to/socket; without it a redis-server is started. memory:// does \
                without, and without FencedRedis"
    )]
    url: Option<String>,
    #[arg(
        long,
        default_value = "sqlite::memory:",
        help = "The database: postgres://…, mysql://…, sqlite:file or sqlite::memory:. Nothing \
                is left in it but the guard's table, leasehold_fence"
    )]
    database: String,
}

/// Two clients that want to write; really they would be two programs.
struct Clients {
    screen: Screen,
    first: Locker,
    second: Locker,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    cli::exit(run(Args::parse()).await)
}

async fn run(args: Args) -> Outcome {
    let mut interrupt = Interrupt::catch()?;
    let screen = Screen::new();
    // Before servers are started or connected to, which may take long.
    screen.say(format!(
        "Client 1 has a lease of {}, and is paused for longer.",
        time(TTL)
    ))?;
    let locks = interrupt.or(Locks::open(args.url.as_deref())).await?;
    let outcome = with_locks(screen, &locks, &args, &mut interrupt).await;
    locks.stop().await.and(outcome)
}

async fn with_locks(
    screen: Screen,
    locks: &Locks,
    args: &Args,
    interrupt: &mut Interrupt,
) -> Outcome {
    let namespace = cli::namespace("paused_writer")?;
    let clients = Clients {
        screen,
        first: interrupt.or(locks.connect(&namespace)).await?,
        second: interrupt.or(locks.connect(&namespace)).await?,
    };
    screen.say(format!("The locks are in {}.", locks.shown()))?;
    let database = interrupt.or(Database::connect(&args.database)).await?;
    let mut pages = vec![Page::unguarded(), Page::gate(), Page::http()];
    pages.push(Page::sql(database.clone(), &namespace));
    if let Locks::Redis(redis) = locks {
        let client = interrupt.or(redis.client()).await?;
        pages.push(Page::redis(client, &namespace));
    }
    pages.push(Page::object());

    // All that is made is made from here on, and removed below.
    // The databases' clients make it large.
    let outcome = interrupt.or(Box::pin(clients.write_all(&pages))).await;
    let mut removed = Ok(());
    for page in &pages {
        // A second interruption ends this too.
        removed = removed.and(interrupt.or(page.remove()).await);
    }
    database.close().await;
    for locker in [&clients.first, &clients.second] {
        interrupt.shut_down(locker).await;
    }
    outcome.and(removed)
}

impl Clients {
    async fn write_all(&self, pages: &[Page]) -> Outcome {
        let screen = self.screen;
        let columns = ["", "client 1, when it goes on", "what is written"];
        let mut table = Table::new(&columns);
        for page in pages {
            page.prepare().await?;
            screen.title(page.title())?;
            let refusal = self.write(page).await?;
            let writer = page.read().await?;
            let answer = refusal.map_or("writes", |_| "is refused");
            let by = format!("by client {writer}");
            screen.say(format!("=> what is written is {by}"))?;
            table.row(&[&page.title(), &answer, &by]);
            let right = if page.is_guarded() { 2 } else { 1 };
            promise(writer == right, || format!("{}: {by}", page.title()))?;
        }
        screen.title("All came as it should")?;
        for line in table.lines() {
            screen.say(line)?;
        }
        Ok(())
    }

    /// The whole story on one page; returns the error of client 1, if it was refused.
    async fn write(&self, page: &Page) -> Outcome<Option<Error>> {
        let screen = self.screen;
        let name = page.title();
        let stale = self.first.lock(&name)?.ttl(TTL).fixed().acquire().await?;
        let offered = stale.token();
        screen.step("client 1", "acquired", Some(offered), "and is paused")?;

        // It waits in line until the first lease has ended.
        let lease = self.second.lock(&name)?.acquire().await?;
        let highest = lease.token();
        screen.step("client 2", "acquired", Some(highest), "")?;
        page.write(highest, 2).await?;
        screen.step("client 2", "wrote", Some(highest), "")?;
        lease.release().await?;

        let valid = stale.is_valid();
        let details = format!("its lease says valid: {valid}, but it does not look");
        screen.step("client 1", "goes on", Some(offered), details)?;
        promise(!valid, || "two leases were valid".to_owned())?;
        let refusal = refused(page.write(offered, 1).await)?;
        match &refusal {
            None => screen.step("client 1", "wrote", Some(offered), "")?,
            Some(error) => {
                let details = error
                    .stale_token()
                    .map(|stale| (stale.offered, stale.highest));
                promise(details == Some((offered, highest)), || error.to_string())?;
                let details = format!("{highest} was seen");
                screen.step("client 1", "refused", Some(offered), details)?;
            }
        }
        promise(refusal.is_some() == page.is_guarded(), || {
            format!("{name}: the older token was to be refused if there is a guard")
        })?;
        Ok(refusal)
    }
}

//! Five servers of which three decide: two go, one forgets everything, and the lock lives on.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use leasehold::fence::Gate;
use leasehold::{ErrorKind, LeaseEvent, Lock, Locker, MemoryStore};
use leasehold_examples::cli::{self, Interrupt, Outcome, promise};
use leasehold_examples::screen::Screen;
use tokio::time::sleep;

const SERVERS: [&str; 5] = ["one", "two", "three", "four", "five"];
const TTL: Duration = Duration::from_secs(1);
/// In which a lease is renewed more than once.
const A_WHILE: Duration = Duration::from_millis(900);

/// Keeps a lock at five servers in the program's own memory, and takes two of them away, and the data of one,
/// while it is held. A guard at the storage refuses whoever comes with an old token. Exits with 1 if it came
/// otherwise.
#[derive(Parser, Clone, Debug)]
#[command(version)]
struct Args {}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Args {} = Args::parse();
    cli::exit(run().await)
}

async fn run() -> Outcome {
    let mut interrupt = Interrupt::catch()?;
    let screen = Screen::new();
    screen
        .say("Five servers in this program's memory; three of them decide who has the lock.\n")?;
    let urls = SERVERS.map(|name| format!("memory://{name}"));
    // Each would be a process of its own, with the same servers in the same order.
    let (ada, bob) = (Locker::quorum(&urls).await?, Locker::quorum(&urls).await?);
    let outcome = interrupt.or(play(screen, &ada, &bob)).await;
    interrupt.shut_down(&ada).await;
    interrupt.shut_down(&bob).await;
    outcome
}

async fn play(screen: Screen, ada: &Locker, bob: &Locker) -> Outcome {
    let [one, two, .., five] = SERVERS.map(MemoryStore::named);
    let events = tokio::spawn(screen.show(ada.events()));
    let (of_ada, of_bob) = (account(ada)?, account(bob)?);
    let (gate, mut balance) = (Gate::new(), 100);

    let lease = of_ada.acquire().await?;
    let old = lease.token();
    gate.guard("account/7", old, || balance -= 30)?;
    screen.let_events_show().await;
    screen.title("Two servers go. Three are left, and renew the lease.")?;
    one.cut_off();
    two.cut_off();
    sleep(A_WHILE).await;
    promise(lease.is_valid(), || {
        "the lease did not outlive two servers".to_owned()
    })?;

    screen.title(
        "They come back, and are given the lease again. Then another one forgets everything.",
    )?;
    one.reconnect();
    two.reconnect();
    sleep(A_WHILE).await;
    five.clear();
    sleep(A_WHILE).await;
    promise(lease.is_valid(), || {
        "the lease did not outlive the loss of data".to_owned()
    })?;

    screen.title("Bob gets the lock. His token is greater, whatever the servers forgot.")?;
    let bobs = tokio::spawn(async move { of_bob.acquire().await });
    lease.release().await?;
    screen.let_events_show().await;
    let lease = bobs.await??;
    gate.guard("account/7", lease.token(), || balance -= 50)?;
    screen.step("bob", "writes", Some(lease.token()), "")?;
    // Ada was paused, say, and comes with what she had read before.
    let late = gate.guard("account/7", old, || balance = 70);
    let refused = late.is_err_and(|error| error.kind() == ErrorKind::StaleToken);
    screen.step(
        "ada",
        "refused",
        Some(old),
        "the guard has seen a greater one",
    )?;
    promise(lease.token() > old && refused && balance == 20, || {
        format!("a write with an old token passed: the balance is {balance}")
    })?;
    lease.release().await?;
    // This also ends the stream of events.
    ada.shutdown().await;
    check(&events.await??)
}

fn account(locker: &Locker) -> Outcome<Lock> {
    Ok(locker.lock("account/7")?.ttl(TTL))
}

fn check(events: &[LeaseEvent]) -> Outcome {
    let has = |is: fn(&LeaseEvent) -> bool| events.iter().any(is);
    let as_shown = has(|event| matches!(event, LeaseEvent::AtRisk { .. }))
        && has(|event| matches!(event, LeaseEvent::Renewed { .. }))
        && !has(|event| matches!(event, LeaseEvent::Lost { .. }));
    promise(as_shown, || {
        "the lease was to be at risk, renewed, and not lost".to_owned()
    })
}

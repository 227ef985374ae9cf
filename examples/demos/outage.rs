//! The events of a lock while its server is killed and comes back with no data: renewed, at risk, lost
//! before the deadline, and acquired again with a greater token.
//!
//! It exits with 1 if the story ends otherwise.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::StreamExt;
use leasehold::{LeaseEvent, LeaseEvents, Locker};
use leasehold_demos::{Outcome, Server, log, promise, run};

const TTL: Duration = Duration::from_secs(3);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(play()).await
}

async fn play() -> Outcome {
    println!("It holds a lock on a redis-server of its own, which it kills and starts again.");
    let mut server = Server::start().await?;
    let locker = Locker::connect(server.url()).await?;
    let lock = locker.lock("outage")?.ttl(TTL);
    let mut events = lock.events();
    let lease = lock.acquire().await?;
    for _ in 0..2 {
        until(&mut events, |event| {
            matches!(event, LeaseEvent::Renewed { .. })
        })
        .await?;
    }

    server.kill().await?;
    log("the server was killed");
    let mut deadline = Instant::now() + lease.remaining();
    until(&mut events, |event| {
        let now = Instant::now();
        if let LeaseEvent::Renewed { remaining, .. } | LeaseEvent::AtRisk { remaining, .. } = event
        {
            deadline = now + *remaining;
        }
        matches!(event, LeaseEvent::Lost { .. })
    })
    .await?;
    promise(
        Instant::now() <= deadline,
        "the loss came after the deadline",
    )?;

    server.restart().await?;
    log("the server was started again, on the same port and with no data");
    let again = lock.acquire().await?;
    until(&mut events, |event| {
        matches!(event, LeaseEvent::Renewed { .. })
    })
    .await?;
    let (first, second) = (lease.token(), again.token());
    again.release().await?;
    until(&mut events, |event| {
        matches!(event, LeaseEvent::Released { .. })
    })
    .await?;
    promise(second > first, "the token did not grow")?;
    println!(
        "\nThe loss came before the deadline. The new server knew of no token, and still gave a"
    );
    println!("greater one: {second} after {first}.");
    Ok(())
}

/// Shows the events up to and including this one.
async fn until(events: &mut LeaseEvents, mut wanted: impl FnMut(&LeaseEvent) -> bool) -> Outcome {
    loop {
        let event = events.next().await.ok_or("the events ended")?;
        log(&event);
        if wanted(&event) {
            return Ok(());
        }
    }
}

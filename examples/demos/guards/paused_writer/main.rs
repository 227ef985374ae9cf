//! Client 1 gets a token and is paused. When its lease has ended, client 2 gets a greater token and writes.
//! Then client 1 resumes and writes. Without a guard this undoes what client 2 wrote; each guard refuses it.
//!
//! It exits with 1 if the story ends otherwise.

mod page;

use std::process::ExitCode;
use std::time::Duration;

use leasehold::Locker;
use leasehold_demos::{Outcome, Server, log, print_table, promise, run};
use page::Page;

/// The life of the first client's lease, whose end the second client waits for.
const TTL: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // The databases' clients make it large.
    run(Box::pin(play())).await
}

async fn play() -> Outcome {
    println!("Client 1 has a lease of {TTL:?}, and is paused for longer.");
    let server = Server::start().await?;
    // In reality they are two programs.
    let first = Locker::connect(server.url()).await?;
    let second = Locker::connect(server.url()).await?;
    let headings = ["", "client 1, when it resumes", "what is written"];
    let mut table = vec![headings.map(str::to_owned)];
    for page in Page::all(&server.url()).await? {
        println!("\n{}", page.title());
        let refused = write(&page, &first, &second).await?;
        let writer = page.read().await?;
        promise(
            writer == if page.is_guarded() { 2 } else { 1 },
            page.title(),
        )?;
        let answer = if refused { "is refused" } else { "writes" };
        table.push([page.title(), answer, &format!("by client {writer}")].map(str::to_owned));
    }
    println!("\nEverything went as expected");
    print_table(&table);
    Ok(())
}

/// Plays the story on one page, and returns whether client 1 was refused.
async fn write(page: &Page, first: &Locker, second: &Locker) -> Outcome<bool> {
    let stale = first.lock(page.title())?.ttl(TTL).fixed().acquire().await?;
    log(format_args!(
        "client 1 has token {}, and is paused",
        stale.token()
    ));
    // It waits in line until the first lease has ended.
    let lease = second.lock(page.title())?.acquire().await?;
    page.write(lease.token(), 2).await?;
    log(format_args!(
        "client 2 has token {}, and writes",
        lease.token()
    ));

    promise(!stale.is_valid(), "two leases were valid")?;
    log("client 1 resumes, and does not check its lease, which has ended");
    let written = page.write(stale.token(), 1).await;
    promise(written.is_err() == page.is_guarded(), page.title())?;
    if let Err(error) = &written {
        let refusal = error
            .downcast_ref::<leasehold::Error>()
            .and_then(leasehold::Error::stale_token);
        let tokens = refusal.map(|refusal| (refusal.offered, refusal.highest));
        promise(tokens == Some((stale.token(), lease.token())), error)?;
        log(format_args!("client 1 is refused: {error}"));
    }
    lease.release().await?;
    Ok(written.is_err())
}

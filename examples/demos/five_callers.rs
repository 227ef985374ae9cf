//! Five callers ask for one lock at once, work for 2.1 s when they have it, and wait in line for 6 s at
//! most: exactly three get it, one after the other, in the order in which they asked.
//!
//! It exits with 1 if the story ends otherwise. With `LEASEHOLD_URL=redis://…` the lock is on a server.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use leasehold::{FencingToken, Lock};
use leasehold_demos::{Outcome, connect, log, promise, run};
use tokio::task::JoinSet;
use tokio::time::sleep;

const CALLERS: usize = 5;
const SERVED: usize = 3;
const PATIENCE: Duration = Duration::from_secs(6);
/// Somewhat more than a third of the patience. So the third caller still works when the fourth loses
/// patience, however fast the lock goes from one to the next.
const WORK: Duration = Duration::from_millis(2_100);

/// The times of one caller.
struct Seen {
    number: usize,
    asked: Instant,
    /// Its token, and from when on it had the lock; `None` if it gave up.
    got: Option<(FencingToken, Instant)>,
    /// When it was done, before it released; or when it gave up.
    end: Instant,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(play()).await
}

async fn play() -> Outcome {
    // The line comes before the connection, which may take long.
    println!(
        "{CALLERS} callers ask at once, work for {WORK:?} each, and wait for {PATIENCE:?} at most."
    );
    let locker = connect().await?;
    let lock = locker.lock("five_callers")?;
    let mut callers = JoinSet::new();
    for number in 1..=CALLERS {
        callers.spawn(call(lock.clone(), number));
    }
    let mut seen = Vec::new();
    while let Some(caller) = callers.join_next().await {
        seen.push(caller??);
    }
    locker.shutdown().await;
    seen.sort_by_key(|caller| caller.asked);
    println!("\nWho held the lock when (. waits, # works, x gives up; one character is 0.1 s)");
    seen.iter().for_each(show);
    check(&seen)?;
    println!(
        "\n{SERVED} of {CALLERS} got it, one after the other as they had asked, with growing tokens."
    );
    Ok(())
}

async fn call(lock: Lock, number: usize) -> Outcome<Seen> {
    let asked = Instant::now();
    let lease = lock.acquire_within(PATIENCE).await?;
    let got = lease.as_ref().map(|lease| (lease.token(), Instant::now()));
    if let Some(lease) = &lease {
        log(format_args!(
            "caller {number} works with token {}",
            lease.token()
        ));
        // If the lease were lost, the work would be dropped at that moment.
        lease.run(sleep(WORK)).await?;
    }
    let end = Instant::now();
    log(format_args!(
        "caller {number} {}",
        if got.is_some() { "is done" } else { "gives up" }
    ));
    if let Some(lease) = lease {
        lease.release().await?;
    }
    Ok(Seen {
        number,
        asked,
        got,
        end,
    })
}

fn show(caller: &Seen) {
    let millis = |from, to: Instant| to.duration_since(from).as_millis();
    let tenths = |from, to| usize::try_from(millis(from, to) / 100).unwrap_or(0);
    let Seen {
        number,
        asked,
        got,
        end,
    } = *caller;
    let bar = match got {
        Some((_, from)) => ".".repeat(tenths(asked, from)) + &"#".repeat(tenths(from, end)),
        None => ".".repeat(tenths(asked, end)) + "x",
    };
    println!("  caller {number}  {bar}");
}

/// Checks the callers, which are sorted by when they asked.
fn check(seen: &[Seen]) -> Outcome {
    let (served, others) = seen.split_at(SERVED);
    let tenures: Vec<_> = served
        .iter()
        .filter_map(|caller| Some((caller.got?, caller.end)))
        .collect();
    promise(
        tenures.len() == SERVED,
        "the first to ask were to get the lock",
    )?;
    promise(
        others.iter().all(|caller| caller.got.is_none()),
        "too many got the lock",
    )?;
    let apart = |one: &(_, Instant), next: &((_, Instant), _)| one.1 <= next.0.1;
    promise(
        tenures.is_sorted_by(apart),
        "two callers had the lock at the same time",
    )?;
    promise(
        tenures.is_sorted_by(|one, next| one.0.0 < next.0.0),
        "a token did not grow",
    )?;
    let waited = |caller: &Seen| caller.end.duration_since(caller.asked);
    promise(
        others.iter().all(|caller| waited(caller) >= PATIENCE),
        "a caller gave up early",
    )
}

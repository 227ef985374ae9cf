//! Five callers want one lock at the same moment, wait in line for it, and none waits for ever.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use leasehold::{FencingToken, Locker};
use leasehold_examples::cli::{self, Interrupt, Outcome, StoreArgs, promise};
use leasehold_examples::screen::{Screen, time};
use tokio::task::JoinSet;
use tokio::time::sleep;

const CALLERS: usize = 5;
const SERVED: usize = 3;
const PATIENCE: Duration = Duration::from_secs(6);
/// Somewhat more than a third of the patience. So the third caller still works when the fourth loses
/// patience, however fast the lock goes from one to the next.
const WORK: Duration = Duration::from_millis(2_100);

/// Lets five callers ask for one lock at once, work for 2.1 s when they have it, and wait in line
/// for 6 s at most: exactly three get it, one after the other, in the order in which they asked.
/// Exits with 1 if it came otherwise.
#[derive(Parser, Clone, Debug)]
#[command(version)]
struct Args {
    #[command(flatten)]
    store: StoreArgs,
}

/// What one caller saw.
struct Seen {
    number: usize,
    asked: Instant,
    /// Its token, and from when on it had the lock; `None` if it gave up.
    got: Option<(FencingToken, Instant)>,
    /// When it was done, or gave up.
    end: Instant,
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
        "{CALLERS} callers ask at once, work for {} each, and wait for {} at most.",
        time(WORK),
        time(PATIENCE)
    ))?;
    screen.say(format!("The lock is {}.\n", args.store.shown()))?;
    let locker = interrupt.or(args.store.connect("five_callers")).await?;
    let outcome = interrupt.or(play(screen, &locker)).await;
    interrupt.shut_down(&locker).await;
    outcome
}

async fn play(screen: Screen, locker: &Locker) -> Outcome {
    let events = tokio::spawn(screen.show(locker.events()));
    let mut callers = JoinSet::new();
    for number in 1..=CALLERS {
        let locker = locker.clone();
        callers.spawn(async move { call(screen, &locker, number).await });
    }
    let mut seen = Vec::new();
    while let Some(caller) = callers.join_next().await {
        seen.push(caller??);
    }
    // This also ends the stream of events.
    locker.shutdown().await;
    events.await??;

    seen.sort_by_key(|caller| caller.number);
    screen.title("Who had it when (. waits, # works, x gives up; one sign for 0.1 s)")?;
    for caller in &seen {
        screen.say(timeline(caller))?;
    }
    check(&seen)?;
    screen.say(format!(
        "\n{SERVED} of {CALLERS} got it, one after the other as they had asked, with growing tokens; \
         the others\ngave up after {}.",
        time(PATIENCE)
    ))?;
    Ok(())
}

async fn call(screen: Screen, locker: &Locker, number: usize) -> Outcome<Seen> {
    let who = format!("caller {number}");
    let lock = locker.lock("desk")?;
    let asked = Instant::now();
    let lease = lock.acquire_within(PATIENCE).await?;
    let Some(lease) = lease else {
        let end = Instant::now();
        let details = format!("after {}", time(end.duration_since(asked)));
        screen.step(&who, "gave up", None, details)?;
        return Ok(Seen {
            number,
            asked,
            got: None,
            end,
        });
    };
    let (token, from) = (lease.token(), Instant::now());
    screen.let_events_show().await;
    screen.step(&who, "works", Some(token), "")?;
    // If the lease were lost, the work would be dropped at that moment.
    lease.run(sleep(WORK)).await?;
    let end = Instant::now();
    screen.step(&who, "done", Some(token), "")?;
    lease.release().await?;
    Ok(Seen {
        number,
        asked,
        got: Some((token, from)),
        end,
    })
}

fn timeline(caller: &Seen) -> String {
    let asked = caller.asked;
    let got = caller.got.map(|(_, got)| got.duration_since(asked));
    let end = caller.end.duration_since(asked);
    let tenths = |time: Duration| usize::try_from(time.as_millis() / 100).unwrap_or(0);
    let (bar, words) = match got {
        Some(got) => (
            ".".repeat(tenths(got)) + &"#".repeat(tenths(end) - tenths(got)),
            format!("got it after {}, done after {}", time(got), time(end)),
        ),
        None => (
            ".".repeat(tenths(end)) + "x",
            format!("gave up after {}", time(end)),
        ),
    };
    format!("  caller {}  {bar:<36}  {words}", caller.number)
}

fn check(seen: &[Seen]) -> Outcome {
    let mut tenures: Vec<_> = seen
        .iter()
        .filter_map(|caller| caller.got.map(|(token, from)| (from, caller.end, token)))
        .collect();
    tenures.sort_by_key(|(from, _, _)| *from);
    let served = tenures.len();
    promise(served == SERVED, || {
        format!("{served} callers got the lock, not {SERVED}")
    })?;
    promise(tenures.is_sorted_by(|one, next| one.1 <= next.0), || {
        "two callers had the lock at the same time".to_owned()
    })?;
    let waited = |caller: &Seen| caller.end.duration_since(caller.asked);
    let mut gave_up = seen.iter().filter(|caller| caller.got.is_none());
    promise(gave_up.all(|caller| waited(caller) >= PATIENCE), || {
        format!("a caller gave up before {}", time(PATIENCE))
    })?;
    promise(tenures.is_sorted_by(|one, next| one.2 < next.2), || {
        "a token was not greater than the one before".to_owned()
    })?;
    let mut line: Vec<_> = seen.iter().collect();
    line.sort_by_key(|caller| caller.asked);
    let served_first = line.iter().take(SERVED).all(|caller| caller.got.is_some());
    let in_order = line.iter().filter_map(|caller| caller.got);
    promise(served_first && in_order.is_sorted(), || {
        "a caller was served before one that had asked earlier".to_owned()
    })
}

//! Ten buyers, five articles: without a lock, with one, and with a buyer that comes back late.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use leasehold::{FencingToken, LeaseEvent, Locker};
use leasehold_examples::cli::{self, Interrupt, Outcome, StoreArgs, promise};
use leasehold_examples::screen::{Screen, time};
use leasehold_examples::shop::Shop;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

const BUYERS: u32 = 10;
const STOCK: u32 = 5;
const NAME: &str = "article";
/// How long a buyer thinks between reading the stock and writing it.
const THINKING: Duration = Duration::from_millis(20);
const SHORT_TTL: Duration = Duration::from_millis(300);

/// Ten buyers at once want an article of which there are five: without a lock (too many are sold), with
/// leases whose tokens the shop checks (exactly five), and with a buyer that is paused past its lease.
/// Exits with 1 if it came otherwise.
#[derive(Parser, Clone, Debug)]
#[command(version)]
struct Args {
    #[command(flatten)]
    store: StoreArgs,
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
        "{BUYERS} buyers, {STOCK} in stock. The locks are {}.",
        args.store.shown()
    ))?;
    let locker = interrupt.or(args.store.connect("oversell")).await?;
    let outcome = interrupt.or(acts(screen, &locker)).await;
    interrupt.shut_down(&locker).await;
    outcome
}

async fn acts(screen: Screen, locker: &Locker) -> Outcome {
    let events = tokio::spawn(screen.show(locker.events()));

    without_a_lock(screen).await?;
    let second = with_leases(screen, locker).await?;
    let third = paused(screen, locker).await?;

    // This also ends the stream of events.
    locker.shutdown().await;
    let tokens = acquired(&events.await??);
    summary(screen, second + third, &tokens)
}

/// Act 1. The barrier makes sure of the worst case, which otherwise comes by chance.
async fn without_a_lock(screen: Screen) -> Outcome {
    screen.title("Act 1: without a lock")?;
    screen.say(
        "Each buyer reads the stock, thinks, and writes one less. Nobody writes before all have read:",
    )?;
    screen.say("that could happen by chance, and so it certainly does.")?;
    let shop = Arc::new(Shop::with_stock(STOCK));
    let all_have_read = Arc::new(Barrier::new(BUYERS as usize));
    let mut buyers = JoinSet::new();
    for number in 1..=BUYERS {
        let (shop, all_have_read) = (shop.clone(), all_have_read.clone());
        buyers.spawn(async move {
            let seen = shop.stock();
            sleep(THINKING).await;
            all_have_read.wait().await;
            if seen > 0 {
                shop.write(seen - 1);
                let did = format!("read {seen}, wrote {}", seen - 1);
                screen.step(&buyer(number), "bought", None, did)?;
            }
            io::Result::Ok(())
        });
    }
    while let Some(bought) = buyers.join_next().await {
        bought??;
    }
    let (sold, left) = (shop.sold(), shop.stock());
    screen.say(format!(
        "=> sold {sold} of {STOCK}, and the shop believes that {left} are left"
    ))?;
    promise(sold > STOCK, || {
        format!("act 1 was to sell more than {STOCK}, and sold {sold}")
    })
}

/// Act 2. Returns how often the lock was acquired.
async fn with_leases(screen: Screen, locker: &Locker) -> Outcome<usize> {
    screen.title("Act 2: with leases, and a shop that checks tokens")?;
    screen.say(
        "Each buyer does the same while it holds a lease on the article. They wait in line for it,",
    )?;
    screen.say("and whoever releases it hands it to the next.")?;
    let shop = Arc::new(Shop::with_stock(STOCK));
    let mut buyers = JoinSet::new();
    for number in 1..=BUYERS {
        buyers.spawn(buy(screen, locker.clone(), shop.clone(), buyer(number)));
    }
    while let Some(bought) = buyers.join_next().await {
        bought??;
    }
    screen.let_events_show().await;
    let (sold, left) = (shop.sold(), shop.stock());
    screen.say(format!("=> sold {sold} of {STOCK}, {left} left"))?;
    promise(sold == STOCK && left == 0, || {
        format!("act 2 was to sell {STOCK}, and sold {sold} with {left} left")
    })?;
    Ok(BUYERS as usize)
}

/// Buys one, if there is one, under a lease.
async fn buy(screen: Screen, locker: Locker, shop: Arc<Shop>, who: String) -> Outcome {
    let lease = locker.lock(NAME)?.acquire().await?;
    let token = lease.token();
    let seen = shop.stock();
    sleep(THINKING).await;
    if seen > 0 {
        shop.write_fenced(token, seen - 1)?;
        let did = format!("read {seen}, wrote {}", seen - 1);
        screen.step(&who, "bought", Some(token), did)?;
    } else {
        screen.step(&who, "too late", Some(token), "read 0, wrote nothing")?;
    }
    lease.release().await?;
    Ok(())
}

/// Act 3. Returns how often the lock was acquired.
async fn paused(screen: Screen, locker: &Locker) -> Outcome<usize> {
    screen.title("Act 3: a buyer that is paused for longer than its lease lasts")?;
    screen.say(format!(
        "Buyer 1 takes a lease of {}, reads the stock and is paused. Buyers 2 and 3 buy meanwhile.",
        time(SHORT_TTL)
    ))?;
    screen.say(
        "Then buyer 1 goes on where it was. (The loss is among the events, because the rest of this",
    )?;
    screen.say(
        "program is not paused; but buyer 1 does not look.) A second shop, which checks no tokens,",
    )?;
    screen.say("gets the same writes.")?;
    let (guarded, unguarded) = (Shop::with_stock(STOCK), Shop::with_stock(STOCK));

    let lease = locker.lock(NAME)?.ttl(SHORT_TTL).fixed().acquire().await?;
    let stale = lease.token();
    let seen = guarded.stock();
    screen.let_events_show().await;
    screen.step(&buyer(1), "paused", Some(stale), format!("read {seen}"))?;
    let mut newest = stale;
    for number in 2..=3 {
        newest = buy_from_both(screen, locker, &guarded, &unguarded, number).await?;
    }
    let did = format!("its lease says valid: {}", lease.is_valid());
    screen.step(&buyer(1), "goes on", Some(stale), did)?;
    promise(!lease.is_valid(), || {
        "act 3: a lease said that it was valid after another buyer got the lock".to_owned()
    })?;

    let answer = guarded.write_fenced(stale, seen - 1);
    unguarded.write(seen - 1);
    let (sold, left) = (guarded.sold(), guarded.stock());
    let (bad_sold, bad_left) = (unguarded.sold(), unguarded.stock());
    match answer {
        Ok(()) => screen.step(&buyer(1), "bought", Some(stale), "which must not be")?,
        Err(refused) => screen.step(&buyer(1), "refused", Some(stale), refused)?,
    }
    screen.say(format!(
        "=> with the check:    sold {sold}, {left} left: {} of {STOCK}",
        sold + left
    ))?;
    screen.say(format!(
        "=> without the check: sold {bad_sold}, {bad_left} left: {} of {STOCK}",
        bad_sold + bad_left
    ))?;
    promise(
        answer.is_err_and(|refused| refused.greatest == newest),
        || "act 3: the shop took the write of a buyer that had lost its lease".to_owned(),
    )?;
    promise(sold + left == STOCK, || {
        format!("act 3: {sold} sold and {left} left are not {STOCK}")
    })?;
    promise(bad_sold + bad_left != STOCK, || {
        "act 3: the shop without a check was to go wrong, and did not".to_owned()
    })?;
    Ok(3)
}

/// Buys one from either shop under one lease; returns its token.
async fn buy_from_both(
    screen: Screen,
    locker: &Locker,
    guarded: &Shop,
    unguarded: &Shop,
    number: u32,
) -> Outcome<FencingToken> {
    let lease = locker.lock(NAME)?.acquire().await?;
    let token = lease.token();
    let seen = guarded.stock();
    sleep(THINKING).await;
    guarded.write_fenced(token, seen - 1)?;
    unguarded.write(seen - 1);
    let did = format!("read {seen}, wrote {}", seen - 1);
    screen.step(&buyer(number), "bought", Some(token), did)?;
    lease.release().await?;
    screen.let_events_show().await;
    Ok(token)
}

fn summary(screen: Screen, acquisitions: usize, tokens: &[FencingToken]) -> Outcome {
    promise(tokens.len() == acquisitions, || {
        let shown = tokens.len();
        format!("the lock was acquired {acquisitions} times, and the events show {shown}")
    })?;
    promise(tokens.is_sorted_by(|one, next| one < next), || {
        "a token was not greater than the one before".to_owned()
    })?;
    screen.title("All came as it should")?;
    screen.say(format!("  without a lock, more than {STOCK} were sold"))?;
    screen.say(format!("  with leases, {STOCK} of {STOCK} were sold"))?;
    screen.say("  the buyer that came back late was refused by its token")?;
    screen.say(format!(
        "  each of {acquisitions} leases had a greater token than the one before"
    ))?;
    Ok(())
}

/// The tokens, in the order in which the leases were acquired.
fn acquired(events: &[LeaseEvent]) -> Vec<FencingToken> {
    let token = |event: &LeaseEvent| match event {
        LeaseEvent::Acquired { token, .. } => Some(*token),
        _ => None,
    };
    events.iter().filter_map(token).collect()
}

fn buyer(number: u32) -> String {
    format!("buyer {number}")
}

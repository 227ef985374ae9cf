//! The time from a holder's release to the next waiter's lease, as a ratio to one PING and to one message
//! through fred.
//!
//! Contenders form a ring, each with its own locker: each takes the lock, waits until all others are in line,
//! and hands it on. Their turns, sorted by token, show each handoff.

use std::time::{Duration, Instant};

use fred::prelude::*;
use fred::types::{ClusterHash, CustomCommand};
use futures::future::try_join_all;
use leasehold::{Locker, Name};
use leasehold_engine::protocol::LockKey;
use leasehold_tests::{Admin, RedisServer, Resp, eventually};

use crate::Result;
use crate::stats::{line, median, percentile, ratios};

const NAME: &str = "handoff";
const PINGS: usize = 1_000;
const HANDOFFS: usize = 800;
/// The limit for connecting, for a line to form, and for lockers to end.
const LIMIT: Duration = Duration::from_secs(20);

/// One tenure of a contender.
struct Turn {
    token: u64,
    /// When its `acquire` returned, and when it called `release`.
    acquired: Instant,
    released: Instant,
}

pub(crate) async fn run(rounds: usize) -> Result<()> {
    let server = RedisServer::start().await;
    let (client, listener) = (
        crate::bare_client(&server).await?,
        crate::bare_client(&server).await?,
    );
    listener.subscribe("bench").await?;
    listener.ping::<()>(None).await?;
    let mut admin = Admin::connect(&server).await;
    println!("handoff: medians of {rounds} rounds of about {HANDOFFS} handoffs");
    for contenders in [2, 16] {
        let [mut pings, mut messages, mut handoffs] = [const { [const { Vec::new() }; 2] }; 3];
        let mut scripts = Vec::new();
        for round in 0..=rounds {
            let ping = async || Ok(client.ping::<()>(None).await?);
            let (ping, message) = (times(ping).await?, message(&client, &listener).await?);
            let (handoff, calls) = ring(&server, contenders, &mut admin).await?;
            // The first round warms up.
            if round > 0 {
                for (into, times) in [
                    (&mut pings, ping),
                    (&mut messages, message),
                    (&mut handoffs, handoff),
                ] {
                    into[0].push(median(&times));
                    into[1].push(percentile(&times, 99));
                }
                scripts.push(calls);
            }
        }
        println!("{contenders} contenders");
        for (what, [p50, p99]) in [
            ("one PING", &pings),
            ("PUBLISH until its message is read", &messages),
            ("release called until acquired", &handoffs),
        ] {
            let figure = format!("p50 {:.1} p99 {:.1} µs", median(p50), median(p99));
            line(what, &figure, "");
        }
        let ratio = |others: &[Vec<f64>; 2], at: usize| median(&ratios(&handoffs[at], &others[at]));
        line(
            "ratio to one PING",
            &format!("p50 {:.2}", ratio(&pings, 0)),
            "< 1.5",
        );
        line(
            "ratio to one PING",
            &format!("p99 {:.2}", ratio(&pings, 1)),
            "",
        );
        line(
            "ratio to a message",
            &format!("p50 {:.2}", ratio(&messages, 0)),
            "",
        );
        line(
            "script calls per handoff",
            &format!("{:.2}", median(&scripts)),
            "<= 3",
        );
    }
    Ok(())
}

/// Returns how many microseconds the work takes, each time.
async fn times(mut work: impl AsyncFnMut() -> Result<()>) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let begin = Instant::now();
        work().await?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

/// Measures from the call that publishes a message until another connection's reader has it.
async fn message(client: &Client, listener: &Client) -> Result<Vec<f64>> {
    let mut messages = listener.message_rx();
    times(async || {
        let publish = CustomCommand::new_static("PUBLISH", ClusterHash::FirstKey, false);
        let publish = client.custom::<(), _>(publish, vec!["bench", "message"]);
        let (published, message) = futures::join!(publish, messages.recv());
        published?;
        message?;
        Ok(())
    })
    .await
}

/// Lets the contenders hand the lock on. Returns the microseconds of each handoff of a full ring, and the
/// script calls of a turn.
async fn ring(
    server: &RedisServer,
    contenders: usize,
    admin: &mut Admin,
) -> Result<(Vec<f64>, f64)> {
    let mut lockers = Vec::new();
    for index in 0..contenders {
        let locker = Locker::connect(server.url()).await?;
        // A locker subscribes to pushes after its first acquisition.
        let own = locker.lock(format!("{NAME}/{index}"))?;
        own.acquire().await?.release().await?;
        lockers.push(locker);
    }
    let channels = ["PUBSUB", "CHANNELS", "leasehold:*"];
    until(admin, &channels, contenders).await?;

    let before = admin.script_calls().await;
    let each = HANDOFFS / contenders;
    let tasks = lockers.iter().map(|locker| {
        let (locker, port) = (locker.clone(), server.port());
        async move { tokio::spawn(contend(locker, port, contenders, each)).await? }
    });
    let turns = try_join_all(tasks).await?;
    let mut turns: Vec<_> = turns.into_iter().flatten().collect();
    let calls = (admin.script_calls().await - before) as f64 / turns.len() as f64;
    for locker in lockers {
        locker.shutdown().await;
    }
    // The next ring counts its own subscribers.
    eventually(LIMIT, "the lockers end", async || {
        admin.command(&channels).await == Resp::Array(Vec::new())
    })
    .await;

    turns.sort_by_key(|turn| turn.token);
    // In the first lap a line forms, and in the last two it shrinks.
    let full = &turns[contenders..turns.len() - 2 * contenders];
    let handoffs = full.windows(2).map(|pair| {
        let handoff = pair[1].acquired.saturating_duration_since(pair[0].released);
        handoff.as_secs_f64() * 1e6
    });
    Ok((handoffs.collect(), calls))
}

async fn contend(locker: Locker, port: u16, contenders: usize, each: usize) -> Result<Vec<Turn>> {
    let mut admin = Admin::connect_port(port).await;
    let key = LockKey::new("leasehold", &Name::new(NAME)?)?.line();
    let lock = locker.lock(NAME)?;
    let mut turns = Vec::with_capacity(each);
    for turn in 1..=each {
        let lease = lock.acquire().await?;
        let acquired = Instant::now();
        // Contenders that have had all their turns do not return: in the last lap the line shrinks.
        if turn < each {
            // Each waiter has two entries in the set.
            until(&mut admin, &["ZCARD", &key], 2 * (contenders - 1)).await?;
        }
        let (token, released) = (lease.token().get(), Instant::now());
        lease.release().await?;
        turns.push(Turn {
            token,
            acquired,
            released,
        });
    }
    Ok(turns)
}

/// Asks the server until it counts that many, in a loop that keeps the machine awake.
async fn until(admin: &mut Admin, command: &[&str], count: usize) -> Result<()> {
    let end = Instant::now() + LIMIT;
    loop {
        let counted = match admin.command(command).await {
            Resp::Integer(number) => usize::try_from(number)?,
            Resp::Array(items) => items.len(),
            other => return Err(format!("{command:?}: {other:?}").into()),
        };
        if counted >= count {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(
                format!("{command:?}: {counted} instead of {count} after {LIMIT:?}").into(),
            );
        }
    }
}

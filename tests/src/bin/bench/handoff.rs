//! From a holder's release to the next waiter's lease, as a ratio to one PING through fred.
//!
//! Rounds of PINGs, of messages published through fred and read from another connection, and of
//! handoffs take turns. Within a round of handoffs a holder releases as soon as all others stand
//! in line; see [`ring`](crate::ring).

use std::time::Duration;

use fred::prelude::*;
use fred::types::{ClusterHash, CustomCommand};
use leasehold_tests::{Admin, RedisServer, Resp, eventually};

use crate::Result;
use crate::options::Options;
use crate::ring::{Ring, Turn};
use crate::stats::{line, median, micros, percentile, times};

const PINGS: usize = 1_000;
const LIMIT: Duration = Duration::from_secs(10);
/// Of each contender. The first lap and the last two are not measured; this leaves enough between them.
const FEWEST_TURNS: usize = 8;

/// What was measured, one value for each round.
#[derive(Default)]
struct Rounds {
    ping: Spread,
    message: Spread,
    from_call: Spread,
    from_return: Spread,
    scripts: Vec<f64>,
}

#[derive(Default)]
struct Spread {
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Spread {
    fn add(&mut self, times: &[f64]) {
        self.p50.push(median(times));
        self.p99.push(percentile(times, 99));
    }

    fn text(&self) -> String {
        let (p50, p99) = (median(&self.p50), median(&self.p99));
        format!("p50 {p50:.1} p99 {p99:.1} µs")
    }

    /// The medians of the rounds' ratios.
    fn ratio(&self, to: &Self) -> (f64, f64) {
        let of = |ours: &[f64], theirs: &[f64]| {
            let ratios = ours.iter().zip(theirs).map(|(one, other)| one / other);
            median(&ratios.collect::<Vec<_>>())
        };
        (of(&self.p50, &to.p50), of(&self.p99, &to.p99))
    }
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let server = RedisServer::start().await;
    let bare = Bare::connect(&server).await?;
    println!(
        "handoff: medians of {} rounds of about {} handoffs",
        options.rounds, options.turns
    );
    for (contenders, processes) in [(2, 1), (16, 1), (2, 2), (16, 2)] {
        let ring = Ring {
            port: server.port(),
            contenders,
            turns: (options.turns / contenders).max(FEWEST_TURNS),
        };
        let rounds = bare
            .measure(&server, ring, processes, options.rounds)
            .await?;
        let (p50, p99) = rounds.from_call.ratio(&rounds.ping);
        let (over_message, _) = rounds.from_call.ratio(&rounds.message);
        println!("{contenders} contenders in {processes} process(es)");
        line("one PING", &rounds.ping.text(), "");
        line(
            "PUBLISH until its message is read",
            &rounds.message.text(),
            "",
        );
        line(
            "release called until acquired",
            &rounds.from_call.text(),
            "",
        );
        line(
            "release returned until acquired",
            &rounds.from_return.text(),
            "",
        );
        line("ratio to one PING", &format!("p50 {p50:.2}"), "< 1.5");
        line("ratio to one PING", &format!("p99 {p99:.2}"), "");
        line("ratio to a message", &format!("p50 {over_message:.2}"), "");
        let scripts = format!("{:.2}", median(&rounds.scripts));
        line("script calls per handoff", &scripts, "<= 3");
    }
    Ok(())
}

/// Two connections that know nothing of locks.
struct Bare {
    client: Client,
    listener: Client,
}

impl Bare {
    async fn connect(server: &RedisServer) -> Result<Self> {
        let (client, listener) = (
            crate::bare_client(server).await?,
            crate::bare_client(server).await?,
        );
        listener.subscribe("bench").await?;
        listener.ping::<()>(None).await?;
        Ok(Self { client, listener })
    }

    async fn ping(&self) -> Result<Vec<f64>> {
        times(PINGS, async || Ok(self.client.ping::<()>(None).await?)).await
    }

    /// From the call that publishes a message until another connection's reader has it.
    async fn message(&self) -> Result<Vec<f64>> {
        let mut messages = self.listener.message_rx();
        times(PINGS, async || {
            let publish = CustomCommand::new_static("PUBLISH", ClusterHash::FirstKey, false);
            let publish = self
                .client
                .custom::<(), _>(publish, vec!["bench", "message"]);
            let (published, message) = futures::join!(publish, messages.recv());
            published?;
            message?;
            Ok(())
        })
        .await
    }

    async fn measure(
        &self,
        server: &RedisServer,
        ring: Ring,
        processes: usize,
        count: usize,
    ) -> Result<Rounds> {
        let mut admin = Admin::connect(server).await;
        let mut rounds = Rounds::default();
        for round in 0..=count {
            let (pings, messages) = (self.ping().await?, self.message().await?);
            let turns = ring.run(processes).await?;
            // The first round warms up.
            if round > 0 {
                rounds.ping.add(&pings);
                rounds.message.add(&messages);
                rounds.add(&turns, ring.contenders);
            }
            // Waits until this round's subscribers are gone, because the next round counts its own.
            eventually(LIMIT, "the end of the lockers", async || {
                let channels = admin.command(&["PUBSUB", "CHANNELS", "leasehold:*"]).await;
                (channels == Resp::Array(Vec::new())).then_some(())
            })
            .await;
        }
        Ok(rounds)
    }
}

impl Rounds {
    fn add(&mut self, turns: &[Turn], contenders: usize) {
        // In the first lap a line forms, and in the last two it shrinks.
        let full = &turns[contenders..turns.len() - 2 * contenders];
        let handoffs = |from: fn(&Turn) -> i64| -> Vec<f64> {
            let pairs = full.windows(2);
            pairs
                .map(|pair| micros(pair[1].acquired - from(&pair[0])))
                .collect()
        };
        self.from_call.add(&handoffs(|turn| turn.called));
        self.from_return.add(&handoffs(|turn| turn.returned));
        let mut counted = turns
            .iter()
            .enumerate()
            .filter_map(|(place, turn)| Some((place, turn.scripts?)));
        if let (Some((first, before)), Some((last, after))) = (counted.next(), counted.next_back())
        {
            self.scripts
                .push((after - before) as f64 / (last - first) as f64);
        }
    }
}

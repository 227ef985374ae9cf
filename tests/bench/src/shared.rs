//! A semaphore of 10, readers of one name, and three names at once, beside Redisson and redis-semaphore.

use crate::languages::{self, IN_NODE};
use crate::peer::{Peer, number};
use crate::stats::{median, ratios, spread};
use crate::{Options, Result};

/// The works that the programs of all sides know, and what they measure.
const KINDS: [(&str, &str); 3] = [
    ("semaphore", "a semaphore of 10, shared by all callers"),
    ("readers", "readers of one name"),
    ("several", "three names at once, each caller its own"),
];
/// The sides: each peer is compared with the Leasehold of its language, or in Rust.
const SIDES: [&str; 4] = ["leasehold", "Redisson RLock", IN_NODE, "redis-semaphore"];
/// How long a side works in a round, in milliseconds.
const TURN: u32 = 400;

pub(crate) async fn run(options: &Options) -> Result<()> {
    let (programs, skipped) = languages::make(&["Rust", "Java", "Node"]);
    let mut peers = Vec::new();
    for program in programs
        .iter()
        .filter(|program| SIDES.contains(&program.name))
    {
        peers.push(Peer::start(program).await?);
    }
    let callers = options.callers.unwrap_or(64);
    println!(
        "shared: {callers} callers, medians of {} rounds; ratios are Leasehold's pairs to those of the peer",
        options.rounds()
    );
    for (work, what) in KINDS {
        let sides = take_turns(&mut peers, &format!("{work} {callers} {TURN}"), options).await?;
        println!("\n{what}");
        for (peer, own) in peers.iter().zip(&sides) {
            show(peer, own, &peers, &sides);
        }
    }
    for why in skipped {
        println!("!! NOT MEASURED: {why}");
    }
    Ok(())
}

/// The measurements of a side, one of each kind per round. They are empty if the side cannot do the work.
#[derive(Default)]
struct Rounds {
    /// Thousands of pairs per second.
    rates: Vec<f64>,
    /// The commands of a pair at the server.
    commands: Vec<f64>,
    /// The server's processor time of a pair, in microseconds.
    server: Vec<f64>,
}

/// Lets each side work in each round, after one that warms up.
async fn take_turns(peers: &mut [Peer], work: &str, options: &Options) -> Result<Vec<Rounds>> {
    let mut sides: Vec<Rounds> = peers.iter().map(|_| Rounds::default()).collect();
    for round in 0..=options.rounds() {
        for (peer, side) in peers.iter_mut().zip(&mut sides) {
            let (commands, [_, server]) = (peer.commands().await?, peer.processor()?);
            let Some(done) = peer.tell(work).await else {
                continue;
            };
            let pairs = number(&done, "count")?;
            if round > 0 {
                side.rates.push(pairs / number(&done, "millis")?);
                side.commands
                    .push((peer.commands().await? - commands) / pairs);
                side.server
                    .push((peer.processor()?[1] - server) * 1e6 / pairs);
            }
        }
    }
    Ok(sides)
}

/// Prints what a side did, and the ratio of Leasehold's pairs to its own if it is a peer.
fn show(peer: &Peer, own: &Rounds, peers: &[Peer], sides: &[Rounds]) {
    let program = &peer.program;
    if own.rates.is_empty() {
        return println!("  {:<24} cannot do this", program.name);
    }
    let mut others = peers.iter().zip(sides);
    let base = others
        .find(|(other, _)| other.program.name == program.base && program.base != program.name);
    let ratio = base.map_or(String::new(), |(_, base)| {
        spread(&ratios(&base.rates, &own.rates))
    });
    let (rate, commands, server) = (
        median(&own.rates),
        median(&own.commands),
        median(&own.server),
    );
    println!(
        "  {:<24} {rate:>6.1} thousand/s  {commands:>5.1} commands, {server:>4.0} µs of the server  {ratio}",
        program.name
    );
}

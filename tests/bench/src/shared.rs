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
        let rates = take_turns(&mut peers, &format!("{work} {callers} {TURN}"), options).await?;
        println!("\n{what}");
        for (peer, own) in peers.iter().zip(&rates) {
            show(peer, own, &peers, &rates);
        }
    }
    for why in skipped {
        println!("!! NOT MEASURED: {why}");
    }
    Ok(())
}

/// Returns the rates of each side in each round after one that warms up; 0 if a side cannot do the work.
async fn take_turns(peers: &mut [Peer], work: &str, options: &Options) -> Result<Vec<Vec<f64>>> {
    let mut rates = vec![Vec::new(); peers.len()];
    for round in 0..=options.rounds() {
        for (peer, rates) in peers.iter_mut().zip(&mut rates) {
            let done = peer.tell(work).await;
            let rate = match done {
                Some(done) => number(&done, "count")? / number(&done, "millis")?,
                None => 0.0,
            };
            rates.extend((round > 0).then_some(rate));
        }
    }
    Ok(rates)
}

/// Prints the thousands of pairs per second of a side, and the ratio of Leasehold to it if it is a peer.
fn show(peer: &Peer, own: &[f64], peers: &[Peer], rates: &[Vec<f64>]) {
    let program = &peer.program;
    let mut sides = peers.iter().zip(rates);
    let base =
        sides.find(|(other, _)| other.program.name == program.base && program.base != program.name);
    let ratio = base.map_or(String::new(), |(_, base)| spread(&ratios(base, own)));
    let rate = median(own);
    let rate = if rate > 0.0 {
        format!("{rate:.1}")
    } else {
        "-".to_owned()
    };
    println!("  {:<28} {rate:>8} thousand/s   {ratio}", program.name);
}

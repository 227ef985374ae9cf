//! Acquire and release at 3 and 5 servers, as a ratio to the same at one of them, by 1 and 64 callers: of the
//! lock, and of bare calls that wait for a majority, below which no lock can get; and beside other locks on the
//! same five servers.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use leasehold_tests::{Admin, RedisServer};
use serde_json::Value;

use crate::Result;
use crate::options::Options;
use crate::quorum_sides::{Rounds, Side};
use crate::stats::median;

/// How long a peer works in one round.
const PEER_MILLIS: u32 = 400;
/// What is beside it, as the programs of the peers know it, and whether that is in Node.
const PEERS: [(&str, &str, bool); 3] = [
    ("Leasehold in Node", "leasehold", true),
    ("redlock in Node", "redlock 5 beta", true),
    ("redsync in Go", "redsync", false),
];

pub(crate) async fn run(options: &Options) -> Result<()> {
    let servers: Vec<_> = futures::future::join_all((0..5).map(|_| RedisServer::start())).await;
    let mut admins = futures::future::join_all(servers.iter().map(Admin::connect)).await;
    let (one, three, five) = (
        Side::all(&servers[..1]).await?,
        Side::all(&servers[..3]).await?,
        Side::all(&servers).await?,
    );
    let mut peers = Peer::start_all(options, &servers)?;
    println!(
        "quorum: thousands of pairs in a second, medians of {} rounds, and the ratios to one server;\n\
         and the processor's time that a pair took here and in the servers",
        options.rounds
    );
    for callers in options.callers.map_or(vec![1, 64], |one| vec![one]) {
        let mut own = <[[Rounds; 3]; 3]>::default();
        let mut of_peers = vec![Vec::new(); peers.len()];
        for round in 0..=options.rounds {
            if round == 1 {
                // That warmed up.
                own = Default::default();
                of_peers.iter_mut().for_each(Vec::clear);
            }
            for (sides, rounds) in [&one, &three, &five].into_iter().zip(&mut own) {
                let sides = if options.alone {
                    &sides[..1]
                } else {
                    &sides[..]
                };
                for (side, rounds) in sides.iter().zip(rounds) {
                    side.round(callers, &mut admins, rounds).await?;
                }
            }
            for (peer, rates) in peers.iter_mut().zip(&mut of_peers) {
                rates.push(peer.pairs(callers)?);
            }
        }
        beside_one(callers, &one, &own);
        for (peer, of_peer) in peers.iter().zip(&of_peers) {
            // The rounds took turns, so each is compared with its neighbour.
            let lock = &own[2][0].rates;
            let ratios = lock.iter().zip(of_peer).map(|(own, peer)| own / peer);
            let ratio = median(&ratios.collect::<Vec<_>>());
            println!(
                "         {:<18} at 5 servers {:>7.2}; Leasehold in Rust {ratio:.2} times that",
                peer.name,
                median(of_peer)
            );
        }
        in_node(&peers, &of_peers);
    }
    Ok(())
}

/// What each loses by asking more than one server.
fn beside_one(callers: usize, sides: &[Side], own: &[[Rounds; 3]; 3]) {
    println!(
        "{:<18}  {:>22}  {:>28}  {:>28}",
        format!("{callers} callers"),
        "one server",
        "3 servers",
        "5 servers"
    );
    for (at, side) in sides.iter().enumerate() {
        if own[0][at].rates.is_empty() {
            continue;
        }
        let [one, three, five] = own.each_ref().map(|sides| {
            let rounds = &sides[at];
            format!("{}  {}", rounds.show(&own[0][at]), rounds.show_time())
        });
        println!("{:<18}  {one:>22}  {three:>28}  {five:>28}", side.name());
    }
    if own[0][2].rates.is_empty() {
        return;
    }
    // The least that anybody could do with so many servers.
    let times = own.each_ref().map(|sides| {
        let [lock, .., bare] = sides.each_ref().map(Rounds::time);
        format!("{:.2}", lock / bare)
    });
    println!(
        "         of the processor's time of SET NX and DEL the lock takes {} times at one, 3 and 5 servers",
        times.join(", ")
    );
}

/// The two in Node beside each other.
fn in_node(peers: &[Peer], rates: &[Vec<f64>]) {
    let both: Vec<_> = peers
        .iter()
        .zip(rates)
        .filter(|(peer, _)| peer.in_node)
        .collect();
    if let [(_, own), (_, peer)] = both[..] {
        let ratios: Vec<_> = own.iter().zip(peer).map(|(own, peer)| own / peer).collect();
        println!(
            "         in Node Leasehold {:.2} times redlock",
            median(&ratios)
        );
    }
}

/// A program that acquires and releases as it is told: see tests/peers/README.md.
struct Peer {
    name: &'static str,
    in_node: bool,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Those whose programs are there.
    fn start_all(options: &Options, servers: &[RedisServer]) -> Result<Vec<Self>> {
        let ports: Vec<_> = servers
            .iter()
            .map(|server| server.port().to_string())
            .collect();
        let ports = ports.join(",");
        let mut started = Vec::new();
        for (name, side, in_node) in PEERS {
            let program = if in_node { &options.node } else { &options.go };
            let Some(program) = program else {
                println!("!! {name} is NOT MEASURED: its program was not given");
                continue;
            };
            let mut command = if in_node {
                let mut node = Command::new("node");
                node.arg(program);
                node
            } else {
                Command::new(program)
            };
            let mut child = command
                .args([&*ports, side])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let (input, output) = (child.stdin.take(), child.stdout.take());
            let (input, output) = input.zip(output).ok_or("its streams are piped")?;
            let mut peer = Self {
                name,
                in_node,
                child,
                input,
                output: BufReader::new(output),
            };
            let ready = peer.line()?;
            println!("{name}: {}", ready["ready"].as_str().unwrap_or_default());
            started.push(peer);
        }
        Ok(started)
    }

    /// How many thousand times a second it acquires and releases.
    fn pairs(&mut self, callers: usize) -> Result<f64> {
        writeln!(self.input, "pairs {callers} {PEER_MILLIS}")?;
        let done = self.line()?;
        let figure = |name: &str| done[name].as_f64().ok_or(format!("{}: {done}", self.name));
        Ok(figure("count")? / figure("millis")?)
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let value = serde_json::from_str(&line);
        Ok(value.map_err(|error| format!("{}: {line:?}: {error}", self.name))?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may be at its end already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

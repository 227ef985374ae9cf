//! Acquire and release at 3 and 5 servers, as a ratio to the same at one of them, by 1 and 64 callers; and
//! beside other locks on the same five servers.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use leasehold::Locker;
use leasehold_tests::RedisServer;
use serde_json::Value;

use crate::Result;
use crate::options::Options;
use crate::pairs::thousand_per_second;
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
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let one = Locker::connect(&urls[0]).await?;
    let lockers = [
        one,
        Locker::quorum(&urls[..3]).await?,
        Locker::quorum(&urls).await?,
    ];
    let mut peers = Peer::start_all(options, &servers)?;
    println!(
        "quorum: thousands of pairs in a second, medians of {} rounds, and the ratios to one server",
        options.rounds
    );
    println!(
        "{:>7}  {:>10}  {:>13}  {:>13}",
        "callers", "one server", "3 servers", "5 servers"
    );
    for callers in [1, 64] {
        let mut rates = [const { Vec::new() }; 3];
        let mut of_peers = vec![Vec::new(); peers.len()];
        for round in 0..=options.rounds {
            for (locker, rates) in lockers.iter().zip(&mut rates) {
                rates.push(own(callers, locker.clone()).await?);
            }
            for (peer, rates) in peers.iter_mut().zip(&mut of_peers) {
                rates.push(peer.pairs(callers)?);
            }
            if round == 0 {
                // That warmed up.
                rates.iter_mut().chain(&mut of_peers).for_each(Vec::clear);
            }
        }
        let [one, three, five] = rates.each_ref().map(|rates| median(rates));
        let beside = |rate: f64| format!("{rate:.1} ({:.2})", rate / one);
        println!(
            "{callers:>7}  {one:>10.1}  {:>13}  {:>13}",
            beside(three),
            beside(five)
        );
        for (peer, of_peer) in peers.iter().zip(&of_peers) {
            // The rounds took turns, so each is compared with its neighbour.
            let ratios = rates[2].iter().zip(of_peer).map(|(own, peer)| own / peer);
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

async fn own(callers: usize, locker: Locker) -> Result<f64> {
    let pairs = thousand_per_second(callers, move |caller| {
        let lock = locker.lock(format!("quorum-{caller}"));
        async move { Ok(lock?.acquire().await?.release().await?) }
    });
    pairs.await
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

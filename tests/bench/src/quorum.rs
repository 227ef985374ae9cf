//! Acquire and release at 3 and 5 servers, as ratios to one of these servers. The same for bare calls that wait for a
//! majority, which bound any lock, and for other locks on the same five servers.

use futures::future::join_all;
use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer};
use tokio::sync::Mutex;

use crate::languages::{self, IN_NODE, REDLOCK, REDSYNC};
use crate::peer::Process;
use crate::sides::{self, Side};
use crate::{Options, Result};

const KINDS: [&str; 3] = ["lock", "two bare scripts", "SET NX + CAD"];
const SERVERS: [usize; 3] = [1, 3, 5];
/// The peers that support several independent servers.
const PEERS: [&str; 3] = [IN_NODE, REDLOCK, REDSYNC];

/// A side, with the side that its rate is compared with.
struct Row {
    name: String,
    side: Side,
    base: usize,
    is_peer: bool,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let servers = join_all((0..5).map(|_| RedisServer::start())).await;
    let mut admins = join_all(servers.iter().map(Admin::connect)).await;
    let kinds = if options.alone { 1 } else { KINDS.len() };
    let mut rows = Vec::new();
    for count in SERVERS {
        let sides = at(&servers[..count]).await?.into_iter();
        for (base, (side, kind)) in sides.zip(KINDS).enumerate().take(kinds) {
            let name = format!("{kind}, {count} servers");
            rows.push(Row {
                name,
                side,
                base,
                is_peer: false,
            });
        }
    }
    if !options.alone {
        add_peers(&mut rows, &servers).await?;
    }
    println!(
        "quorum: medians of {} rounds; the ratios are those to one server, of peers those of Leasehold to them",
        options.rounds()
    );
    for callers in options.callers.map_or(vec![1, 64], |one| vec![one]) {
        let sides = rows.iter().map(|row| &row.side);
        let reached = sides::take_turns(sides, callers, options.rounds(), &mut admins).await?;
        sides::head(callers);
        for (row, own) in rows.iter().zip(&reached) {
            let base = &reached[row.base];
            let ratio = if row.is_peer {
                base.ratio(own)
            } else {
                own.ratio(base)
            };
            own.show(&row.name, ratio);
        }
    }
    Ok(())
}

/// Returns a side of each kind at these servers.
async fn at(servers: &[RedisServer]) -> Result<[Side; 3]> {
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let locker = match &urls[..] {
        [one] => Locker::connect(one).await?,
        several => Locker::quorum(several).await?,
    };
    let mut clients = Vec::new();
    for server in servers {
        clients.push(crate::bare_client(server).await?);
    }
    let [nothing, delete] = sides::scripts(&clients).await?;
    let scripts = Side::Scripts(clients.clone(), nothing);
    Ok([Side::Lock(locker), scripts, Side::Sets(clients, delete)])
}

/// Adds the peers whose programs can be built, each compared with the Leasehold of its language, or in Rust.
async fn add_peers(rows: &mut Vec<Row>, servers: &[RedisServer]) -> Result<()> {
    let ports: Vec<_> = servers
        .iter()
        .map(|server| server.port().to_string())
        .collect();
    let in_rust = rows.len() - KINDS.len();
    let in_node = rows.len();
    let (programs, _) = languages::make(&["Node", "Go"]);
    for program in programs
        .iter()
        .filter(|program| PEERS.contains(&program.name))
    {
        let process = Process::start(program, &ports.join(",")).await?;
        let base = if program.name == REDLOCK {
            in_node
        } else {
            in_rust
        };
        rows.push(Row {
            name: format!(
                "{} ({}; {}), 5 servers",
                program.name, program.language, process.version
            ),
            side: Side::Peer(Box::new(Mutex::new(process))),
            base,
            is_peer: true,
        });
    }
    Ok(())
}

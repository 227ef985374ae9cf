//! The instructions of the engine and the codec. For each kind of work valgrind runs this program once more
//! and counts only the functions of these names.

use std::path::Path;
use std::time::Duration;

use leasehold_tests::RedisServer;

use crate::callgrind::Counted;
use crate::client::Client;
use crate::host::Host;
use crate::stores::{Memory, Redis};
use crate::{Figures, Result};

/// The first argument of this program when valgrind runs it.
pub(crate) const WORK: &str = "work";

/// The text before the number that the program then prints.
const OPERATIONS: &str = "operations: ";

const ROUNDS: usize = 32;
const LOCKS: usize = 64;
const HELD: usize = 2_000;
const TTL: Duration = Duration::from_secs(30);
/// A kind of work to count.
struct Work {
    name: &'static str,
    figure: &'static str,
    /// The functions that do the work.
    functions: &'static str,
}

const WORKS: &[Work] = &[
    Work {
        name: "pairs",
        figure: "engine: instructions of a pair, one caller",
        functions: "*counted_engine*",
    },
    Work {
        name: "many-pairs",
        figure: "engine: instructions of a pair, 64 callers",
        functions: "*counted_engine*",
    },
    Work {
        name: "renewals",
        figure: "engine: instructions of a renewal, 2000 leases",
        functions: "*counted_engine*",
    },
    Work {
        name: "codec",
        figure: "codec: instructions of a pair, 64 a call",
        functions: "*counted_codec*",
    },
];

pub(crate) fn measure(figures: &mut Figures) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let server = runtime.block_on(RedisServer::config().unix_socket().start());
    let (program, socket) = (std::env::current_exe()?, server.socket_path());
    let socket = socket.to_string_lossy();
    for Work {
        name,
        figure,
        functions,
    } in WORKS
    {
        let counted = Counted::start(&program, &[WORK, name, &socket], Some(functions))?;
        let (instructions, printed) = counted.instructions()?;
        let operations = printed
            .lines()
            .find_map(|line| line.strip_prefix(OPERATIONS));
        let operations: f64 = operations.ok_or("the work printed no number")?.parse()?;
        figures.insert((*figure).to_owned(), instructions / operations);
    }
    Ok(())
}

/// Does the work. Prints how many operations or pairs it was.
pub(crate) fn work(name: &str, socket: &str) -> Result<()> {
    let operations = match name {
        "pairs" => pairs(Host::new(Memory::new(), LOCKS, TTL, 1)?)?,
        "many-pairs" => pairs(Host::new(Memory::new(), LOCKS, TTL, LOCKS)?)?,
        "codec" => {
            let store = Redis::new(Client::connect(Path::new(socket))?)?;
            let mut host = Host::new(store, LOCKS, TTL, LOCKS)?;
            host.pairs(ROUNDS)?;
            LOCKS * ROUNDS
        }
        "renewals" => {
            let mut host = Host::new(Memory::new(), HELD, TTL, LOCKS)?;
            host.acquire(0..HELD)?;
            host.hold(TTL)?;
            let before = host.renewals;
            host.counted = true;
            host.hold(TTL)?;
            host.renewals - before
        }
        other => return Err(format!("there is no work {other:?}").into()),
    };
    println!("{OPERATIONS}{operations}");
    Ok(())
}

fn pairs(mut host: Host<Memory>) -> Result<usize> {
    host.pairs(1)?;
    host.counted = true;
    host.pairs(ROUNDS)?;
    Ok(LOCKS * ROUNDS)
}

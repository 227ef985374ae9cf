//! The server's work for a pair of acquire and release, for a renewal, and for a handed-over tenure:
//! instructions, and commands that the script calls.
//!
//! Instructions are relative to those of the usual handwritten lock, `SET NX PX` and a script that compares
//! and deletes, with one command per call. So they hold for other versions of the server, too.

use std::path::Path;
use std::time::{Duration, Instant};

use leasehold::{FencingToken, Name, Owner};
use leasehold_engine::protocol::{
    Acquire, BatchReply, Claim, ClientId, Command, Counter, Grant, LeaseId, LockKey, Op, Reclaim,
    Release, Reply,
};
use leasehold_engine::time::ServerTime;
use leasehold_tests::Resp;

use crate::callgrind::Counted;
use crate::client::Client;
use crate::host::{Host, RETENTION, Store};
use crate::stores::Redis;
use crate::{Figures, Result};

const LOCKS: usize = 64;
/// How often each lock is acquired and released, or renewed. The first time costs more.
const ROUNDS: usize = 16;
/// The number of pairs or renewals.
const OPERATIONS: f64 = (LOCKS * ROUNDS) as f64;
const TTL: Duration = Duration::from_secs(3_600);
/// How long a waiting claim is alive.
const WINDOW: Duration = Duration::from_secs(12);
const START_LIMIT: Duration = Duration::from_secs(30);
const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                                  return redis.call('DEL', KEYS[1]) end return 0";
/// Commands that the script does not call.
const OTHER_COMMANDS: &[&str] = &["info", "evalsha", "script|load", "ping"];

pub(crate) fn measure(figures: &mut Figures) -> Result<()> {
    // One-time costs of a program, such as loading the script, are no part of a pair.
    let none = count(|client| plain_pairs(client, 0))?;
    let plain = count(|client| plain_pairs(client, ROUNDS))?.without(&none);
    let plain = plain.instructions / OPERATIONS;
    eprintln!("SET NX PX + CAD: {plain:.0} instructions of the server a pair");
    let mut add = |what: &str, cost: &Cost| {
        let commands = format!("server: commands of a {what} a call");
        figures.insert(commands, cost.commands as f64 / OPERATIONS);
        let instructions = format!("server: instructions of a {what} a call, to SET NX + CAD");
        figures.insert(instructions, cost.instructions / OPERATIONS / plain);
    };
    for per_call in [1, 16, 64] {
        let pairs =
            |client, rounds| Host::new(Redis::new(client)?, LOCKS, TTL, per_call)?.pairs(rounds);
        let none = count(|client| pairs(client, 0))?;
        let cost = count(|client| pairs(client, ROUNDS))?.without(&none);
        add(&format!("pair, {per_call}"), &cost);
    }
    let held = count(|client| renewals(client, 0))?;
    let renewed = count(|client| renewals(client, ROUNDS))?;
    add(&format!("renewal, {LOCKS}"), &renewed.without(&held));
    for (to, clients) in [("its client", 1), ("another client", 2)] {
        let none = count(|client| handovers(client, clients, 0))?;
        let cost = count(|client| handovers(client, clients, ROUNDS))?.without(&none);
        add(&format!("tenure handed over to {to}, 1"), &cost);
    }
    Ok(())
}

fn plain_pairs(mut client: Client, rounds: usize) -> Result<()> {
    let sha = client.command(&["SCRIPT", "LOAD", COMPARE_AND_DELETE])?;
    let sha = sha.as_string().ok_or("SCRIPT LOAD answers with a text")?;
    for round in 0..rounds {
        for number in 0..LOCKS {
            let (key, value) = (format!("orders/{number:06}"), format!("{round:032}"));
            client.command(&["SET", &key, &value, "NX", "PX", "3600000"])?;
            let deleted = client.command(&["EVALSHA", &sha, "1", &key, &value])?;
            if deleted != Resp::Integer(1) {
                return Err(format!("compare-and-delete: {deleted:?}").into());
            }
        }
    }
    Ok(())
}

fn renewals(client: Client, rounds: usize) -> Result<()> {
    let mut host = Host::new(Redis::new(client)?, LOCKS, TTL, LOCKS)?;
    let leases = host.acquire(0..LOCKS)?;
    (0..rounds).try_for_each(|_| host.renew(&leases))
}

/// Hands each lock from one holder to the next waiter, one operation per call: the next one joins the empty
/// line, and the holder releases. No client hears a push.
fn handovers(client: Client, clients: u64, rounds: usize) -> Result<()> {
    let mut store = Redis::new(client)?;
    let claim = |number: usize| -> Result<Claim> {
        Ok(Claim {
            lease: LeaseId(number as u128),
            client: ClientId(number as u64 % clients),
            owner: Owner::labelled("a-host/4711")?,
            counter: Counter::ClockFloor {
                retention: RETENTION,
            },
            ttl: TTL,
            window: WINDOW,
        })
    };
    for lock in 0..LOCKS {
        let name = Name::new(format!("orders/{lock:06}"))?;
        let key = LockKey::new("leasehold", &name)?;
        let ask = |number| -> Result<Command> {
            let (key, claim) = (key.clone(), claim(number)?);
            let (waits, reclaims) = (true, Reclaim::Ask);
            let acquire = Acquire {
                key,
                claim,
                waits,
                reclaims,
            };
            Ok(Command::Acquire(acquire))
        };
        let (Reply::Held(mut held), _) = alone(&mut store, ask(0)?)? else {
            return Err("a free lock was not acquired".into());
        };
        for number in 0..rounds {
            alone(&mut store, ask(number + 1)?)?;
            let release = Release {
                key: key.clone(),
                claim: claim(number)?,
                token: Some(held.token),
                completes: false,
            };
            held = match alone(&mut store, Command::Release(release))? {
                (Reply::HandedOver { grant, .. }, _) => grant,
                // The token is the time.
                (Reply::Released, Some(time)) => Grant {
                    token: FencingToken::new(time.as_micros())?,
                    ..held
                },
                other => return Err(format!("the lock was not handed over: {other:?}").into()),
            };
        }
    }
    Ok(())
}

fn alone(store: &mut Redis, command: Command) -> Result<(Reply, Option<ServerTime>)> {
    let not_after = ServerTime::from_micros(FencingToken::MAX.get());
    let BatchReply { time, mut replies } = store.execute(&[Op { command, not_after }])?;
    Ok((replies.remove(0)?, time))
}

struct Cost {
    instructions: f64,
    commands: u64,
}

impl Cost {
    fn without(self, other: &Self) -> Self {
        Self {
            instructions: self.instructions - other.instructions,
            commands: self.commands - other.commands,
        }
    }
}

/// Returns the cost of this work on a server of its own, with the server's start and end.
fn count(work: impl FnOnce(Client) -> Result<()>) -> Result<Cost> {
    let program = std::env::var_os("LEASEHOLD_REDIS_SERVER").unwrap_or("redis-server".into());
    let args = [
        ["--port", "0"],
        ["--unixsocket", "socket"],
        ["--save", ""],
        ["--appendonly", "no"],
        // Once a second, the minimum: the server's periodic work would count as part of the measured work.
        ["--hz", "1"],
        ["--dynamic-hz", "no"],
    ];
    let mut server = Counted::start(program, &args.concat(), None)?;
    let socket = server.path("socket");
    let mut admin = connect(&mut server, &socket)?;
    let before = commands(&mut admin)?;
    work(Client::connect(&socket)?)?;
    let commands = commands(&mut admin)? - before;
    admin.last_command(&["SHUTDOWN", "NOSAVE"])?;
    Ok(Cost {
        instructions: server.instructions()?.0,
        commands,
    })
}

fn connect(server: &mut Counted, socket: &Path) -> Result<Client> {
    let end = Instant::now() + START_LIMIT;
    while server.is_running()? && Instant::now() < end {
        if let Ok(client) = Client::connect(socket) {
            return Ok(client);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!(
        "redis-server did not start under valgrind: {}",
        server.log()
    )
    .into())
}

/// Returns how many commands scripts have called.
fn commands(admin: &mut Client) -> Result<u64> {
    let stats = admin.command(&["INFO", "commandstats"])?;
    let stats = stats.as_string().ok_or("INFO answers with a text")?;
    let mut sum = 0;
    for line in stats.lines() {
        let Some((name, rest)) = line
            .strip_prefix("cmdstat_")
            .and_then(|line| line.split_once(":calls="))
        else {
            continue;
        };
        let (calls, _) = rest.split_once(',').ok_or("INFO names no calls")?;
        if !OTHER_COMMANDS.contains(&name) {
            sum += calls.parse::<u64>()?;
        }
    }
    Ok(sum)
}

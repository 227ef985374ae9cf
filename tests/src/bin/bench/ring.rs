//! Contenders in a ring: each takes the lock, waits until all others stand in line, and hands it on. The
//! turns of all contenders, sorted by their tokens, show each handoff, also between processes.

use std::time::Duration;

use leasehold::protocol::LockKey;
use leasehold::{Locker, Name};
use leasehold_tests::{Admin, Child, Resp};
use tokio::time::Instant;

use crate::Result;
use crate::stats::now;

const NAME: &str = "handoff";
/// For connecting, and for a line to form.
const LIMIT: Duration = Duration::from_secs(20);

/// A ring of contenders on the server at a port, each with the same number of turns.
#[derive(Copy, Clone)]
pub(crate) struct Ring {
    pub(crate) port: u16,
    pub(crate) contenders: usize,
    pub(crate) turns: usize,
}

/// One tenure of a contender; times in nanoseconds of the machine's clock.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) token: u64,
    /// When its `acquire` returned.
    pub(crate) acquired: i64,
    /// When it called `release`.
    pub(crate) called: i64,
    /// When that returned.
    pub(crate) returned: i64,
    /// How many scripts the server had run by then, in some turns.
    pub(crate) scripts: Option<u64>,
}

impl Ring {
    /// All turns, in order of their tokens; half of the contenders in another process, if wanted.
    pub(crate) async fn run(self, processes: usize) -> Result<Vec<Turn>> {
        let others = if processes > 1 {
            self.contenders / 2
        } else {
            0
        };
        let program = std::env::current_exe()?;
        let mut child = (others > 0).then(|| {
            let numbers = [self.contenders, self.turns, others].map(|number| number.to_string());
            let args = ["contend".to_owned(), self.port.to_string()];
            Child::spawn(&program, args.into_iter().chain(numbers))
        });
        let mut turns = self.contend(self.contenders - others).await?;
        if let Some(child) = &mut child {
            for _ in 0..others * self.turns {
                turns.push(Turn::read(&child.wait_line("turn ", LIMIT).await)?);
            }
        }
        turns.sort_by_key(|turn| turn.token);
        Ok(turns)
    }

    /// Runs some of the contenders in this process, each with a locker of its own.
    async fn contend(self, count: usize) -> Result<Vec<Turn>> {
        let contenders = (0..count).map(|index| tokio::spawn(self.take_turns(index)));
        let mut turns = Vec::new();
        for contender in futures::future::join_all(contenders).await {
            turns.extend(contender??);
        }
        Ok(turns)
    }

    async fn take_turns(self, index: usize) -> Result<Vec<Turn>> {
        let mut admin = Admin::connect_port(self.port).await;
        let locker = Locker::connect(format!("redis://127.0.0.1:{}", self.port)).await?;
        let key = LockKey::new("leasehold", &Name::new(NAME)?)?.line();
        // A locker subscribes to pushes after its first acquisition.
        let own = locker.lock(format!("{NAME}/{}/{index}", std::process::id()))?;
        own.acquire().await?.release().await?;
        let channels = ["PUBSUB", "CHANNELS", "leasehold:*"];
        until(&mut admin, &channels, self.contenders).await?;

        let lock = locker.lock(NAME)?;
        let mut turns = Vec::with_capacity(self.turns);
        for turn in 0..self.turns {
            let lease = lock.acquire().await?;
            let acquired = now();
            // Those who have had all their turns do not come back: in the last lap the line shrinks.
            if turn + 1 < self.turns {
                // Each has two places in the set.
                until(&mut admin, &["ZCARD", &key], 2 * (self.contenders - 1)).await?;
            }
            let scripts = if turn == 1 || turn + 2 == self.turns {
                Some(admin.script_calls().await)
            } else {
                None
            };
            let token = lease.token().get();
            let called = now();
            lease.release().await?;
            turns.push(Turn {
                token,
                acquired,
                called,
                returned: now(),
                scripts,
            });
        }
        locker.shutdown().await;
        Ok(turns)
    }
}

/// The program of another process: `contend PORT CONTENDERS TURNS COUNT`.
pub(crate) async fn child(args: &[&str]) -> Result<()> {
    let &[port, contenders, turns, count] = args else {
        return Err("contend PORT CONTENDERS TURNS COUNT".into());
    };
    let ring = Ring {
        port: port.parse()?,
        contenders: contenders.parse()?,
        turns: turns.parse()?,
    };
    for turn in ring.contend(count.parse()?).await? {
        let Turn {
            token,
            acquired,
            called,
            returned,
            scripts,
        } = turn;
        let scripts = scripts.map_or(String::new(), |scripts| scripts.to_string());
        println!("turn {token} {acquired} {called} {returned} {scripts}");
    }
    Ok(())
}

impl Turn {
    fn read(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (&["turn", token, acquired, called, returned], scripts) = words
            .split_first_chunk::<5>()
            .ok_or_else(|| format!("not a turn: {line:?}"))?
        else {
            return Err(format!("not a turn: {line:?}").into());
        };
        Ok(Self {
            token: token.parse()?,
            acquired: acquired.parse()?,
            called: called.parse()?,
            returned: returned.parse()?,
            scripts: scripts.first().map(|count| count.parse()).transpose()?,
        })
    }
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

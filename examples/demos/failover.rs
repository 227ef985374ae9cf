//! Three processes of which one leads. The leader is killed: the next in line leads when the lease has
//! ended. Then a leader steps down, and hands the lock to the next at once.
//!
//! It exits with 1 if the story ends otherwise.

use std::collections::BTreeMap;
use std::env;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use leasehold::Locker;
use leasehold_demos::{Outcome, Server, log, promise, run};
use tokio::io::{AsyncReadExt, stdin};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

const NAME: &str = "leader";
const TTL: Duration = Duration::from_secs(5);
/// The limit of each wait.
const LIMIT: Duration = Duration::from_secs(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match env::args().nth(1) {
        Some(member) => run(lead_in_turn(&member)).await,
        None => run(play()).await,
    }
}

/// Leads in turn, as one of the processes, until standard input ends. A real leader would work within
/// `lease.run`, and send the token with each write.
async fn lead_in_turn(member: &str) -> Outcome {
    // An inspection shows the owner. A process that restarts with the same owner while its lease still
    // lives leads again at once.
    let builder = Locker::builder().owner(member);
    let locker = builder.connect(env::var("LEASEHOLD_URL")?).await?;
    let mut tenures = locker.lock(NAME)?.ttl(TTL).hold();
    let lead = async {
        while let Some(lease) = tenures.try_next().await? {
            println!("            {member} leads with token {}", lease.token());
            println!("            {member}: {}", lease.lost().await);
        }
        Outcome::Ok(())
    };
    let mut orders = stdin();
    let ended = tokio::select! {
        ended = lead => ended,
        _ = orders.read_u8() => Ok(()),
    };
    locker.shutdown().await;
    ended
}

async fn play() -> Outcome {
    println!(
        "One of three processes leads: the one that holds a lock on a redis-server of its own."
    );
    let server = Server::start().await?;
    let locker = Locker::connect(server.url()).await?;
    let mut group = Group {
        url: server.url(),
        locker,
        members: BTreeMap::new(),
    };

    println!("\nAll start, and one of them leads");
    (1..=3).try_for_each(|number| group.start(number))?;
    let [first, second] = group.complete().await?;

    println!("\nThe leader is killed (kill -9), so that it can release nothing");
    let killed = Instant::now();
    group.remove(&first)?.kill().await?;
    log(format_args!("{first} was killed"));
    group.leads(&second).await?;
    let took = killed.elapsed();
    log(format_args!(
        "{second} took over {took:.2?} after the kill, when the lease had ended"
    ));
    // A time to live would be enough; the rest is for a slow machine.
    promise(took < TTL * 2, "that took too long")?;
    group.start(4)?;
    let [_, third] = group.complete().await?;

    println!("\nThe leader steps down");
    let asked = Instant::now();
    let mut leader = group.remove(&second)?;
    drop(leader.stdin.take());
    group.leads(&third).await?;
    let took = asked.elapsed();
    log(format_args!(
        "{third} took over {took:.2?} after the order, by handoff"
    ));
    // Without a handoff the next in line would notice only at its heartbeat, each half time to live.
    promise(took < TTL / 2, "that took too long")?;
    end(leader).await?;

    println!("\nAll end, and shut their lockers down");
    for child in std::mem::take(&mut group.members).into_values() {
        end(child).await?;
    }
    let left = group.locker.inspect(NAME).await?;
    promise(
        left.holder.is_none() && left.waiting == 0,
        "somebody holds the lock or waits",
    )?;
    println!("\nThe next in line took over each time, and nobody is left in line.");
    Ok(())
}

/// The processes, by their names. Dropping it kills them.
struct Group {
    url: String,
    locker: Locker,
    members: BTreeMap<String, Child>,
}

impl Group {
    /// Starts this program once more.
    fn start(&mut self, number: u8) -> Outcome {
        let member = format!("member {number}");
        let child = Command::new(env::current_exe()?)
            .arg(&member)
            .env("LEASEHOLD_URL", &self.url)
            .stdin(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        log(format_args!("{member} starts"));
        self.members.insert(member, child);
        Ok(())
    }

    fn remove(&mut self, member: &str) -> Outcome<Child> {
        self.members
            .remove(member)
            .ok_or(format!("{member} does not run").into())
    }

    /// Waits until one leads and two wait, and returns who leads and who is next in line.
    async fn complete(&self) -> Outcome<[String; 2]> {
        self.until(|holder, line| match (holder, line) {
            (Some(holder), [next, _]) => Some([holder, next].map(String::clone)),
            _ => None,
        })
        .await
    }

    async fn leads(&self, member: &str) -> Outcome {
        self.until(|holder, _| (holder? == member).then_some(()))
            .await
    }

    /// Polls who leads and who waits, until `found` returns something.
    async fn until<T>(
        &self,
        found: impl Fn(Option<&String>, &[String]) -> Option<T>,
    ) -> Outcome<T> {
        let look = async {
            loop {
                let seen = self.locker.inspect(NAME).await?;
                let label = |owner: &leasehold::Owner| owner.label().to_owned();
                let holder = seen.holder.map(|holder| label(&holder.owner));
                let line: Vec<_> = seen
                    .line
                    .iter()
                    .map(|waiter| label(&waiter.owner))
                    .collect();
                if let Some(found) = found(holder.as_ref(), &line) {
                    return Ok(found);
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LIMIT, look)
            .await
            .map_err(|_| format!("nothing more within {LIMIT:?}"))?
    }
}

/// Makes a process end, and waits for its end.
async fn end(mut child: Child) -> Outcome {
    // The process ends when its standard input does, which also closes when the parent dies.
    drop(child.stdin.take());
    let ended = timeout(LIMIT, child.wait()).await;
    let status = ended.map_err(|_| "a process does not end")??;
    promise(
        status.success(),
        format_args!("a process ended with {status}"),
    )
}

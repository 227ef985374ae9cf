//! One of several processes leads; when it dies or steps down, the next in line takes over.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use futures::{StreamExt, TryStreamExt};
use leasehold::{FencingToken, LeaseEvent, Locker};
use leasehold_examples::cli::{self, Interrupt, Outcome, promise};
use leasehold_examples::processes::{Processes, orders, tell};
use leasehold_examples::screen::{Screen, time};
use leasehold_examples::server::Server;
use tokio::sync::mpsc;
use tokio::time::timeout;

const NAME: &str = "leader";
const TTL: Duration = Duration::from_secs(5);
/// How long a member may take to say anything.
const LIMIT: Duration = Duration::from_secs(20);

/// Starts several processes of which one leads, kills the leader, and lets the next one step down.
/// It shows how long it takes until the next in line leads: after a kill as long as the lease had left,
/// else nearly no time. Exits with 1 if it came otherwise.
#[derive(Parser, Clone, Debug)]
#[command(version)]
struct Args {
    #[arg(
        long,
        help = "The server of the lock, redis://host:port or unix:///path/to/socket; without it a \
                redis-server is started"
    )]
    url: Option<String>,
    /// How many processes there are
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=20))]
    processes: u16,
    /// Be the member with this number: the program starts itself with it
    #[arg(long, hide = true, requires_all = ["namespace", "url"])]
    member: Option<u16>,
    #[arg(long, hide = true, requires = "member")]
    namespace: Option<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    cli::exit(run(Args::parse()).await)
}

async fn run(args: Args) -> Outcome {
    let mut interrupt = Interrupt::catch()?;
    match (args.url, args.member, args.namespace) {
        (Some(url), Some(number), Some(namespace)) => {
            member(&url, &who(number), namespace, &mut interrupt).await
        }
        (Some(url), ..) if url.starts_with("memory:") => Err(
            "the memory of one process is of no use to several: give --url redis://host:port, or \
             none"
                .into(),
        ),
        (url, ..) => demonstrate(url, args.processes, &mut interrupt).await,
    }
}

/// The parent: on the server of that URL, or else on a new one.
async fn demonstrate(url: Option<String>, processes: u16, interrupt: &mut Interrupt) -> Outcome {
    let screen = Screen::new();
    let place = match url {
        Some(_) => "the server of --url",
        None => "a redis-server of its own",
    };
    screen.say(format!(
        "One of {processes} processes leads: the one that holds a lock on {place}."
    ))?;
    let Some(url) = url else {
        let mut server = interrupt.or(Server::start()).await?;
        let outcome = watch(screen, server.url(), processes, interrupt).await;
        server.kill().await?;
        return outcome;
    };
    watch(screen, url, processes, interrupt).await
}

/// What each of the processes does.
async fn member(url: &str, name: &str, namespace: String, interrupt: &mut Interrupt) -> Outcome {
    // An inspection shows the owner. A process that restarts with the same owner while its lease still
    // lives leads again at once.
    let connect = async { Ok(cli::builder(namespace).owner(name).connect(url).await?) };
    let locker = interrupt.or(connect).await?;
    let outcome = interrupt.or(lead_in_turn(&locker)).await;
    interrupt.shut_down(&locker).await;
    outcome
}

/// Leads whenever it is this process's turn, until the parent ends.
async fn lead_in_turn(locker: &Locker) -> Outcome {
    let lock = locker.lock(NAME)?.ttl(TTL);
    let mut events = lock.events();
    let mut tenures = lock.hold();
    let mut orders = orders();
    loop {
        let lease = tokio::select! {
            lease = tenures.try_next() => lease?,
            Some(event) = events.next() => {
                if let LeaseEvent::Waiting { position: Some(place), .. } = event {
                    tell(&format!("waits {place}"));
                }
                continue;
            }
            order = orders.recv() => match order {
                Some(()) => continue,
                None => return Ok(()),
            },
        };
        let Some(lease) = lease else { return Ok(()) };
        match lease.run(lead(lease.token(), &mut orders)).await {
            Ok(Some(())) => {
                let released = lease.release().await;
                let _ = released.inspect_err(|error| tell(&format!("failed {error}")));
            }
            Ok(None) => return Ok(()),
            Err(lost) => tell(&format!("lost {}", lost.reason)),
        }
    }
}

/// A leader's work, which is dropped if the lease is lost. A real one would send the token with all that it
/// writes. It ends by an order to step down, or when the parent ends (`None`).
async fn lead(token: FencingToken, orders: &mut mpsc::Receiver<()>) -> Option<()> {
    tell(&format!("leads {token}"));
    orders.recv().await
}

/// Lets the processes play, and shows what they do.
async fn watch(screen: Screen, url: String, processes: u16, interrupt: &mut Interrupt) -> Outcome {
    let namespace = cli::namespace(NAME)?;
    let mut group = Group {
        screen,
        locker: interrupt.or(cli::connect(&url, &namespace)).await?,
        url,
        namespace,
        processes: Processes::new(),
        in_line: BTreeSet::new(),
        leader: None,
        token: None,
    };
    let outcome = interrupt.or(group.demonstrate(processes)).await;
    let mut outcome = outcome.and(interrupt.or(group.end()).await);
    if outcome.is_ok() {
        outcome = interrupt.or(group.sum_up()).await;
    }
    interrupt.shut_down(&group.locker).await;
    outcome
}

/// The processes, as the parent knows them.
struct Group {
    screen: Screen,
    locker: Locker,
    url: String,
    namespace: String,
    processes: Processes,
    in_line: BTreeSet<u16>,
    leader: Option<u16>,
    /// The last leader's token.
    token: Option<FencingToken>,
}

impl Group {
    async fn demonstrate(&mut self, processes: u16) -> Outcome {
        let screen = self.screen;
        screen.title("All start, and one of them leads")?;
        for number in 1..=processes {
            self.start(number)?;
        }
        let others = usize::from(processes - 1);
        let all_are_there = |group: &Self| group.leader.is_some() && group.in_line.len() == others;
        self.until(all_are_there).await?;

        screen.title("The leader is killed (kill -9), so that it can release nothing")?;
        let (dead, next, left) = self.look().await?;
        let killed = Instant::now();
        self.processes.kill(dead).await?;
        let details = format!("its lease has {} left of {}", time(left), time(TTL));
        screen.step(&who(dead), "killed", None, details)?;
        // A time to live would be enough; the rest is for a slow machine.
        self.next_leader(
            &next,
            killed,
            TTL * 2,
            "after the kill, when the lease had ended",
        )
        .await?;
        self.start(processes + 1)?;
        self.until(all_are_there).await?;

        screen.title("The leader steps down")?;
        let (old, next, _) = self.look().await?;
        let ordered = Instant::now();
        self.processes.order(old).await?;
        screen.step(&who(old), "resigns", None, "it goes to the end of the line")?;
        // Without a handoff the next in line would notice only at its heartbeat, each half time to live.
        self.next_leader(&next, ordered, TTL / 2, "after the order, by handoff")
            .await?;
        self.until(all_are_there).await
    }

    /// Ends all processes: those who wait come first, so that none of them leads for a moment.
    async fn end(&mut self) -> Outcome {
        let screen = self.screen;
        screen.title("All end, and shut their lockers down")?;
        let mut order = self.processes.running();
        order.sort_by_key(|number| self.leader == Some(*number));
        for number in order {
            self.processes.end(number).await?;
            screen.step(&who(number), "ended", None, "")?;
        }
        Ok(())
    }

    async fn sum_up(&self) -> Outcome {
        let left = self.locker.inspect(NAME).await?;
        promise(left.holder.is_none() && left.waiting == 0, || {
            format!("somebody holds the lock or waits for it: {left:?}")
        })?;
        let well = "\nThe next in line took over each time, and nobody is left in line.";
        Ok(self.screen.say(well)?)
    }

    fn start(&mut self, number: u16) -> Outcome {
        let text = number.to_string();
        let (url, namespace) = (&self.url, &self.namespace);
        let args = ["--url", url, "--namespace", namespace, "--member", &text];
        let id = self.processes.start(number, &args)?;
        let details = format!("process {id}");
        Ok(self.screen.step(&who(number), "starts", None, details)?)
    }

    /// Asks the store: who leads, who is next, and how long the leader's lease would still live.
    async fn look(&self) -> Outcome<(u16, String, Duration)> {
        let seen = self.locker.inspect(NAME).await?;
        let leader = self.leader.ok_or("nobody leads")?;
        let holder = seen.holder.ok_or("the leader does not hold the lock")?;
        let next = seen.line.first().ok_or("nobody waits in line")?;
        let left = holder.remaining;
        Ok((leader, next.owner.label().to_owned(), left))
    }

    /// Waits until the next in line leads, and checks that it came within the limit.
    async fn next_leader(
        &mut self,
        next: &str,
        since: Instant,
        limit: Duration,
        when: &str,
    ) -> Outcome {
        self.leader = None;
        self.until(|group| group.leader.is_some()).await?;
        let took = since.elapsed();
        let leader = self.leader.map(who).unwrap_or_default();
        self.screen
            .say(format!("=> {leader} took over {} {when}", time(took)))?;
        promise(leader == next, || format!("{next} was next in line"))?;
        promise(took < limit, || {
            format!("that was to come within {}", time(limit))
        })
    }

    /// Shows what the members say, until the condition holds.
    async fn until(&mut self, done: impl Fn(&Self) -> bool) -> Outcome {
        let heard = async {
            while !done(self) {
                let (number, line) = self.processes.hear().await?;
                self.hear(number, &line)?;
            }
            Ok(())
        };
        let heard = timeout(LIMIT, heard).await;
        heard.unwrap_or_else(|_| {
            let (limit, waiting) = (time(LIMIT), self.in_line.len());
            Err(format!("nothing more in {limit}; {waiting} wait in line").into())
        })
    }

    fn hear(&mut self, number: u16, line: &str) -> Outcome {
        let screen = self.screen;
        let (did, what) = line.split_once(' ').unwrap_or((line, ""));
        match did {
            "waits" => {
                self.in_line.insert(number);
                let details = format!("number {what} in line");
                screen.step(&who(number), did, None, details)?;
            }
            "leads" => {
                let token = FencingToken::new(what.parse()?)?;
                self.in_line.remove(&number);
                self.leader = Some(number);
                screen.step(&who(number), did, Some(token), "")?;
                let before = self.token.replace(token);
                promise(before.is_none_or(|before| before < token), || {
                    "the token is not greater than the one before".to_owned()
                })?;
            }
            _ => screen.step(&who(number), did, None, what)?,
        }
        Ok(())
    }
}

fn who(number: u16) -> String {
    format!("member {number}")
}

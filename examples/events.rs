//! The events of one lock, while its server goes and comes back.

use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use futures::StreamExt;
use leasehold::protocol::LockKey;
use leasehold::{Error, FencingToken, Lease, LeaseEvent, LeaseEvents, Lock, Locker, Name};
use leasehold_examples::cli::{self, Interrupt, Outcome, promise};
use leasehold_examples::screen::{Screen, time};
use leasehold_examples::server::Server;
use tokio::time::{sleep, timeout};

const NAMESPACE: &str = "leasehold";
const TTL: Duration = Duration::from_secs(3);
/// Before the next try while the store does not reply.
const PAUSE: Duration = Duration::from_secs(1);

/// Prints what happens to a lock while its server is killed and started again. It starts a
/// redis-server of its own for that; with --url it watches a lock on yours, which you may disturb.
/// Exits with 1 if a loss came after the deadline, or if a token did not grow.
#[derive(Parser, Clone, Debug)]
#[command(version)]
struct Args {
    #[arg(
        long,
        help = "Hold a lock on this server, redis://host:port or unix:///path/to/socket, and take \
                it again whenever it is lost"
    )]
    url: Option<String>,
    /// The lock's name
    #[arg(long, default_value = "example")]
    name: String,
    /// Stop after this many seconds instead of at Ctrl-C
    #[arg(long, requires = "url")]
    seconds: Option<u32>,
    /// Print the events as JSON lines; all else goes to standard error
    #[arg(long)]
    json: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    cli::exit(run(Args::parse()).await)
}

async fn run(args: Args) -> Outcome {
    let name = Name::new(&args.name)?;
    let mut interrupt = Interrupt::catch()?;
    let screen = if args.json {
        Screen::json()
    } else {
        Screen::new()
    };
    if let Some(url) = &args.url {
        screen.say("It holds a lock on the server of --url.")?;
        return watch(
            url,
            &name,
            screen,
            Source::User(args.seconds),
            &mut interrupt,
        )
        .await;
    }
    screen.say("It holds a lock on a redis-server of its own, which it kills and starts again.")?;
    let mut server = interrupt.or(Server::start()).await?;
    let url = server.url();
    let outcome = watch(
        &url,
        &name,
        screen,
        Source::Own(&mut server),
        &mut interrupt,
    )
    .await;
    server.kill().await?;
    outcome
}

/// Whose the server is. On the user's the lock is watched, for some seconds or for ever; the example's own
/// is killed and restarted.
enum Source<'a> {
    User(Option<u32>),
    Own(&'a mut Server),
}

async fn watch(
    url: &str,
    name: &Name,
    screen: Screen,
    source: Source<'_>,
    interrupt: &mut Interrupt,
) -> Outcome {
    let locker = interrupt.or(cli::connect(url, NAMESPACE)).await?;
    let mut watch = Watch::new(&locker, name, screen)?;
    let outcome = match source {
        Source::Own(server) => interrupt.or(watch.demonstrate(server)).await,
        Source::User(seconds) => interrupt.or(watch.go_on(seconds)).await,
    };
    // If a lease is still held, because of an interruption, its end is shown.
    let mut shutdown = pin!(interrupt.shut_down(&locker));
    loop {
        tokio::select! {
            biased;
            Some(event) = watch.events.next() => watch.see(&event)?,
            () = &mut shutdown => break,
        }
    }
    outcome
}

/// One lock, its events, and what they are checked against.
struct Watch {
    screen: Screen,
    lock: Lock,
    events: LeaseEvents,
    lease: Option<Lease>,
    /// The token of the present tenure, or of the last one.
    token: Option<FencingToken>,
    /// The deadline of the present lease, or a moment before it.
    deadline: Option<Instant>,
}

impl Watch {
    fn new(locker: &Locker, name: &Name, screen: Screen) -> Outcome<Self> {
        let lock = locker.lock(name.as_str())?.ttl(TTL);
        Ok(Self {
            screen,
            events: lock.events(),
            lock,
            lease: None,
            token: None,
            deadline: None,
        })
    }

    /// Kills the server under a held lock, and starts it again when the lock is lost.
    async fn demonstrate(&mut self, server: &mut Server) -> Outcome {
        let (url, process) = (server.url(), server.id().unwrap_or_default());
        self.screen.say(format!(
            "A redis-server was started: process {process}, {url}."
        ))?;
        self.screen.say(format!(
            "A lease lives for {} and is renewed at about a third of that.",
            time(TTL)
        ))?;
        self.acquire().await?;
        for _ in 0..2 {
            self.until(|event| matches!(event, LeaseEvent::Renewed { .. }))
                .await?;
        }
        server.kill().await?;
        self.screen.step("server", "killed", None, "")?;
        let lost = self.until(|event| matches!(event, LeaseEvent::Lost { .. }));
        timeout(TTL * 2, lost)
            .await
            .unwrap_or_else(|_| Err("a promise was broken: no loss was seen".into()))?;
        server.restart().await?;
        self.screen.step(
            "server",
            "restarted",
            None,
            "on the same port, with no data",
        )?;
        let first = self.token;
        self.acquire().await?;
        self.until(|event| matches!(event, LeaseEvent::Renewed { .. }))
            .await?;
        self.release().await?;
        let tokens = first.zip(self.token);
        let (first, second) = tokens.expect("the lock was acquired twice");
        self.screen.say(format!(
            "\nThe loss came before the deadline. The new server knew of no token, and still gave a\n\
             greater one: {second} after {first}."
        ))?;
        Ok(())
    }

    /// Takes the lock again and again, for these seconds or for ever.
    async fn go_on(&mut self, seconds: Option<u32>) -> Outcome {
        let key = LockKey::new(NAMESPACE, self.lock.name())?;
        self.screen.say(format!(
            "The lock is the key {key:?}.\nIts lease lives for {} and is renewed at about a third of \
             that. Delete the key, stop the server,\nor run this a second time, and see.",
            time(TTL)
        ))?;
        let Some(seconds) = seconds else {
            self.screen.say("Ctrl-C ends it.")?;
            return self.for_ever().await;
        };
        match timeout(Duration::from_secs(seconds.into()), self.for_ever()).await {
            Ok(outcome) => outcome,
            Err(_) => self.release().await,
        }
    }

    async fn for_ever(&mut self) -> Outcome {
        loop {
            match self.acquire().await {
                Ok(()) => {
                    self.until(|event| matches!(event, LeaseEvent::Lost { .. }))
                        .await?;
                }
                Err(error) if is_transient(&*error) => {
                    let details = format!("{error}; trying again");
                    self.screen.step("store", "silent", None, details)?;
                    sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for the lock, and shows what happens meanwhile.
    async fn acquire(&mut self) -> Outcome {
        self.lease = None;
        let lock = self.lock.clone();
        let mut acquired = pin!(lock.acquire());
        let lease = loop {
            tokio::select! {
                lease = &mut acquired => break lease?,
                event = self.events.next() => self.see(&event.ok_or("the events ended")?)?,
            }
        };
        let (old, new) = (self.token.replace(lease.token()), lease.token());
        self.lease = Some(lease);
        self.look_at_deadline();
        let Some(old) = old else { return Ok(()) };
        promise(new > old, || {
            format!("token {new} is not greater than the one before, {old}")
        })
    }

    /// Releases the lock, if it is held.
    async fn release(&mut self) -> Outcome {
        let Some(lease) = self.lease.take().filter(Lease::is_valid) else {
            return Ok(());
        };
        lease.release().await?;
        self.until(|event| matches!(event, LeaseEvent::Released { .. }))
            .await
    }

    /// Shows the events up to and including this one.
    async fn until(&mut self, wanted: impl Fn(&LeaseEvent) -> bool) -> Outcome {
        loop {
            let event = self.events.next().await.ok_or("the events ended")?;
            self.see(&event)?;
            if wanted(&event) {
                return Ok(());
            }
        }
    }

    fn see(&mut self, event: &LeaseEvent) -> Outcome {
        let now = Instant::now();
        self.screen.event(event)?;
        match event {
            LeaseEvent::Acquired { .. } | LeaseEvent::Renewed { .. } => self.look_at_deadline(),
            LeaseEvent::Lost { .. } => {
                let late = self
                    .deadline
                    .take()
                    .map(|deadline| now.saturating_duration_since(deadline));
                let late = late.unwrap_or_default();
                promise(late.is_zero(), || {
                    format!(
                        "the loss came {} after the deadline (which is right only if this program was \
                         suspended itself)",
                        time(late)
                    )
                })?;
            }
            _ => {}
        }
        Ok(())
    }

    fn look_at_deadline(&mut self) {
        let now = Instant::now();
        let left = self.lease.as_ref().map(Lease::remaining);
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            self.deadline = Some(now + left);
        }
    }
}

fn is_transient(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    error
        .downcast_ref::<Error>()
        .is_some_and(Error::is_transient)
}

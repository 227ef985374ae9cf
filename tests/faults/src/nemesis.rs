//! Faults at random times, which follow from a seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use leasehold::Locker;
use leasehold_tests::{Direction, Mode, Proxy, Random, Resp};
use tokio::time::{Instant, sleep, timeout};

use crate::client::LONGEST_TTL;
use crate::fault::{Fault, Injected};
use crate::fleet::Client;
use crate::history::now;
use crate::topology::{Servers, Topology};
use crate::usage::{CAPACITY, Use};

/// How long the nemesis waits for what it asks for.
const LIMIT: Duration = Duration::from_secs(2);
/// How much faster a slewed clock runs, in parts per million. It is less than half of the default drift margin.
const SLEW: f64 = 800.0;

/// The end of a fault.
#[derive(Clone, Copy, Debug)]
enum Undo {
    ResumeClient(usize),
    LaunchClient(usize),
    PassStore(usize),
    Heal(usize, usize),
    Speed(usize, usize),
    ResumeServer(usize),
    RestartServer(usize),
    GiveMemory(usize),
    EndPause(usize),
    Slew {
        server: usize,
        left: u32,
    },
    /// The fault ends by itself.
    Nothing,
}

#[derive(Debug)]
struct Pending {
    at: Instant,
    /// The place of the fault in the list.
    fault: usize,
    undo: Undo,
}

/// Injects faults into servers, clients and links.
#[derive(Debug)]
pub struct Nemesis<'a> {
    /// The servers.
    pub servers: &'a mut Servers,
    /// The clients.
    pub clients: &'a mut [Client],
    /// The link of each client to the guarded store.
    pub store_links: &'a [Proxy],
    /// A locker that releases by force.
    pub locker: Locker,
    /// The names of the locks.
    pub names: &'a [String],
    /// True if clocks can be set.
    pub clocks: bool,
    usage: Use,
    seed: u64,
    state: State,
}

#[derive(Debug)]
struct State {
    random: Random,
    pending: Vec<Pending>,
    injected: Vec<Injected>,
    /// The clients and servers that have a fault.
    client_is_bad: Vec<bool>,
    server_is_bad: Vec<bool>,
    link_is_bad: Vec<bool>,
    /// How far each clock is ahead, in seconds.
    ahead: Vec<f64>,
}

impl<'a> Nemesis<'a> {
    /// Makes a nemesis, whose choices follow from the seed.
    pub fn new(
        servers: &'a mut Servers,
        clients: &'a mut [Client],
        store_links: &'a [Proxy],
        locker: Locker,
        names: &'a [String],
        (usage, clocks, seed): (Use, bool, u64),
    ) -> Self {
        let (count, links) = (servers.count(), servers.count() * clients.len());
        let state = State {
            random: Random::new(seed),
            pending: Vec::new(),
            injected: Vec::new(),
            client_is_bad: vec![false; clients.len()],
            server_is_bad: vec![false; count],
            link_is_bad: vec![false; links],
            ahead: vec![0.0; count],
        };
        Self {
            servers,
            clients,
            store_links,
            locker,
            names,
            clocks,
            usage,
            seed,
            state,
        }
    }

    /// Injects faults for this long, and then ends all of them and gives semaphores their first capacity. Returns the
    /// faults in order.
    pub async fn run(mut self, time: Duration) -> Vec<Injected> {
        let end = Instant::now() + time;
        let (mut first, kinds) = match self.usage {
            Use::Locks => {
                let kinds = Fault::of(self.servers.topology, self.clocks, self.seed);
                (Vec::new(), kinds)
            }
            shared => (Fault::first_of_shared(shared), Fault::of_shared(shared)),
        };
        let mut next = Instant::now() + self.pause();
        while next < end {
            self.undo(|pending, now| pending.at <= now).await;
            if Instant::now() < next {
                sleep(Duration::from_millis(20)).await;
                continue;
            }
            next = Instant::now() + self.pause();
            let kind = first.pop().or_else(|| self.state.random.pick(&kinds));
            if let Some(kind) = kind {
                self.inject(kind).await;
            }
        }
        while !self.state.pending.is_empty() {
            self.undo(|_, _| true).await;
            sleep(Duration::from_millis(5)).await;
        }
        if self.usage == Use::Semaphore {
            for name in self.names {
                self.resize(name.clone(), CAPACITY).await;
            }
        }
        self.state.injected
    }

    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.state.random.between(100, 700))
    }

    async fn inject(&mut self, kind: Fault) {
        let begin = now();
        let random = &mut self.state.random;
        let below = |random: &mut Random, count: usize| {
            usize::try_from(random.below(count as u64)).unwrap_or(0)
        };
        let client = below(random, self.clients.len());
        let server = below(random, self.servers.count());
        let name = self.names[below(random, self.names.len())].clone();
        let millis = random.between(200, 2_500);
        let extra = random.number();
        if kind == Fault::Resize {
            if !self.state.server_is_bad.contains(&true) {
                let capacity = 1 + u32::try_from(extra % u64::from(CAPACITY + 2)).unwrap_or(0);
                self.resize(name, capacity).await;
            }
            return;
        }
        let done = caught(
            kind,
            self.apply(kind, client, server, &name, (millis, extra)),
        )
        .await;
        let Some(Some((target, undo))) = done else {
            return;
        };
        let of_name = matches!(kind, Fault::Del | Fault::ForceRelease);
        let fault = self.state.injected.len();
        self.state.injected.push(Injected {
            kind,
            target,
            name: of_name.then_some(name),
            capacity: None,
            at: begin,
            until: now(),
        });
        let at = Instant::now() + Duration::from_millis(millis);
        if !matches!(undo, Undo::Nothing) {
            self.state.pending.push(Pending { at, fault, undo });
        }
    }

    /// Changes the capacity of a semaphore. Without an answer it may happen at any later time.
    async fn resize(&mut self, name: String, capacity: u32) {
        let at = now();
        let semaphore = self.locker.semaphore(&name, CAPACITY);
        let semaphore = semaphore.expect("a valid name and capacity");
        let answer = timeout(LIMIT, semaphore.resize(capacity)).await;
        let is_done = matches!(answer, Ok(Ok(_)));
        self.state.injected.push(Injected {
            kind: Fault::Resize,
            target: format!("semaphore {name}"),
            name: Some(name),
            capacity: Some(capacity),
            at,
            until: if is_done { now() } else { u64::MAX },
        });
    }

    /// Begins a fault. Returns its target and its end, or `None` if it cannot be injected now.
    async fn apply(
        &mut self,
        kind: Fault,
        client: usize,
        server: usize,
        name: &str,
        (millis, extra): (u64, u64),
    ) -> Option<(String, Undo)> {
        let of_client = self.clients[client].name().to_owned();
        let of_server = format!("server {}", server + 1);
        let of_link = format!("{of_client} to {of_server}");
        match kind {
            Fault::KillClient | Fault::StopClient | Fault::HoldStoreLink => {
                let undo = self.client_fault(kind, client)?;
                Some((of_client, undo))
            }
            Fault::CutLink
            | Fault::BlackHole
            | Fault::LoseAnswers
            | Fault::HoldLink
            | Fault::SlowLink => {
                let undo = self.link_fault(kind, client, server, millis).await?;
                Some((of_link, undo))
            }
            Fault::ForceRelease => {
                let work = self.locker.force_release(name);
                // Whether or not it was in time, it may have happened.
                drop(timeout(LIMIT, work).await);
                Some((format!("lock {name}"), Undo::Nothing))
            }
            Fault::Del => {
                let key = format!("{{leasehold:{name}}}");
                let mut deleted = false;
                for at in self.some_or_all(server) {
                    let answer = self.servers.command(at, &["DEL", &key]).await;
                    // Without an answer it may have happened.
                    deleted |= matches!(answer, None | Some(Resp::Integer(1)));
                }
                deleted.then(|| (format!("lock {name}"), Undo::Nothing))
            }
            Fault::FailOver => self.fail_over(server, extra).await,
            Fault::MoveSlot => {
                if self.state.server_is_bad.contains(&true) {
                    return None;
                }
                let key = format!("{{leasehold:{name}}}");
                let shift = usize::from(!extra.is_multiple_of(2));
                let moved = self.servers.move_slot(&key, shift).await;
                moved.then(|| (format!("lock {name}"), Undo::Nothing))
            }
            _ => {
                let undo = self.server_fault(kind, server, millis, extra).await?;
                Some((of_server, undo))
            }
        }
    }

    fn client_fault(&mut self, kind: Fault, client: usize) -> Option<Undo> {
        if self.state.client_is_bad[client] {
            return None;
        }
        let undo = match kind {
            Fault::KillClient => self.clients[client]
                .kill()
                .then_some(Undo::LaunchClient(client))?,
            Fault::StopClient => self.clients[client]
                .pause()
                .then_some(Undo::ResumeClient(client))?,
            _ => {
                self.store_links[client].set_both(Mode::Hold);
                Undo::PassStore(client)
            }
        };
        self.state.client_is_bad[client] = true;
        Some(undo)
    }

    async fn link_fault(
        &mut self,
        kind: Fault,
        client: usize,
        server: usize,
        millis: u64,
    ) -> Option<Undo> {
        let place = client * self.servers.count() + server;
        if self.state.link_is_bad[place] {
            return None;
        }
        let link = self.servers.link(client, server)?;
        let heal = Undo::Heal(client, server);
        let undo = match kind {
            Fault::CutLink => {
                link.cut().await;
                return Some(Undo::Nothing);
            }
            Fault::BlackHole => {
                link.set_both(Mode::BlackHole);
                heal
            }
            Fault::LoseAnswers => {
                link.set(Direction::Down, Mode::BlackHole);
                heal
            }
            Fault::HoldLink => {
                link.set_both(Mode::Hold);
                heal
            }
            _ => {
                link.latency(Duration::from_millis(millis / 8));
                Undo::Speed(client, server)
            }
        };
        self.state.link_is_bad[place] = true;
        Some(undo)
    }

    /// Returns the servers that may have a lock's key: this one, or all if only one of them leads.
    /// A server that is stopped would do later what it is told now.
    fn some_or_all(&self, server: usize) -> Vec<usize> {
        let all = 0..self.servers.count();
        let has = |at: &usize| self.servers.topology.fails_over() || *at == server;
        all.filter(|at| has(at) && !self.state.server_is_bad[*at])
            .collect()
    }

    async fn server_fault(
        &mut self,
        kind: Fault,
        server: usize,
        millis: u64,
        extra: u64,
    ) -> Option<Undo> {
        let bad = self.state.server_is_bad.iter().filter(|bad| **bad).count();
        // A majority of a quorum is up for most of the time.
        let most = if self.servers.count() == 1 || extra.is_multiple_of(8) {
            3
        } else {
            2
        };
        if self.state.server_is_bad[server] || bad >= most {
            return None;
        }
        let undo = match kind {
            Fault::StopServer => {
                self.servers.server(server).pause();
                Undo::ResumeServer(server)
            }
            Fault::RestartServer => {
                self.servers.server(server).kill();
                Undo::RestartServer(server)
            }
            Fault::WipeServer => {
                self.servers.wipe(server).await;
                return Some(Undo::Nothing);
            }
            Fault::FillMemory => {
                self.config(server, "noeviction", "1").await.begun()?;
                Undo::GiveMemory(server)
            }
            Fault::Evict => {
                self.config(server, "allkeys-random", "1").await.begun()?;
                // Any write evicts.
                self.servers
                    .command(server, &["SET", "{evicts}", "1", "PX", "1"])
                    .await;
                Undo::GiveMemory(server)
            }
            Fault::StepClock => {
                let seconds: f64 = [1.0, 2.5, 20.0][usize::try_from(extra % 3).unwrap_or(0)];
                let seconds = seconds.min(self.most_ahead(server));
                if seconds <= 0.0 {
                    return None;
                }
                self.set_ahead(server, seconds);
                return Some(Undo::Nothing);
            }
            Fault::SlewClock => Undo::Slew {
                server,
                left: u32::try_from(millis / 50).unwrap_or(1),
            },
            Fault::ClientPause => {
                let pause = ["CLIENT", "PAUSE", &millis.to_string(), "ALL"];
                self.servers.command(server, &pause).await.begun()?;
                Undo::EndPause(server)
            }
            _ => return self.one_command(kind, server).await,
        };
        self.state.server_is_bad[server] = true;
        Some(undo)
    }

    /// Injects a fault that is a single command.
    async fn one_command(&mut self, kind: Fault, server: usize) -> Option<Undo> {
        let args: &[&str] = match kind {
            Fault::FlushAll => &["FLUSHALL"],
            Fault::ScriptFlush => &["SCRIPT", "FLUSH"],
            _ => &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
        };
        self.servers.command(server, args).await.begun()?;
        if kind == Fault::ClientKill {
            let listeners = ["CLIENT", "KILL", "TYPE", "pubsub"];
            self.servers.command(server, &listeners).await;
        }
        Some(Undo::Nothing)
    }

    async fn config(&mut self, server: usize, policy: &str, memory: &str) -> Option<Resp> {
        let set = ["CONFIG", "SET", "maxmemory-policy", policy];
        let set = [&set[..], &["maxmemory", memory]].concat();
        self.servers.command(server, &set).await
    }

    /// Sets a clock further ahead. A clock that went back could be behind the last token of a server that forgets.
    fn set_ahead(&mut self, server: usize, by: f64) {
        self.state.ahead[server] += by;
        let ahead = self.state.ahead[server];
        self.servers.server(server).set_clock_off(ahead);
    }

    /// Returns by how many seconds a clock may be set ahead. The tokens of a quorum grow only while its clocks are closer
    /// together than the longest time to live.
    fn most_ahead(&self, server: usize) -> f64 {
        if self.servers.topology != Topology::Quorum {
            return f64::INFINITY;
        }
        let least = self
            .state
            .ahead
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min);
        // Slewing adds a little.
        least + LONGEST_TTL.as_secs_f64() * 0.8 - self.state.ahead[server]
    }

    async fn fail_over(&mut self, server: usize, extra: u64) -> Option<(String, Undo)> {
        if self.servers.topology == Topology::Sentinel {
            let done = self.servers.sentinel_failover().await;
            return done.then(|| ("mymaster".to_owned(), Undo::Nothing));
        }
        if self.servers.leads(server).await {
            return None;
        }
        let mut args = vec!["CLUSTER", "FAILOVER"];
        if extra.is_multiple_of(2) {
            args.push("FORCE");
        }
        let answer = self.servers.command(server, &args).await;
        matches!(answer, Some(Resp::Simple(_)))
            .then(|| (format!("server {}", server + 1), Undo::Nothing))
    }

    /// Ends the faults that are due.
    async fn undo(&mut self, is_due: impl Fn(&Pending, Instant) -> bool) {
        let at = Instant::now();
        let (due, later) = std::mem::take(&mut self.state.pending)
            .into_iter()
            .partition::<Vec<_>, _>(|pending| is_due(pending, at));
        self.state.pending = later;
        for pending in due {
            let kind = self.state.injected[pending.fault].kind;
            caught(kind, self.undo_one(pending.fault, pending.undo)).await;
            self.state.injected[pending.fault].until = now();
        }
    }

    async fn undo_one(&mut self, fault: usize, undo: Undo) {
        let count = self.servers.count();
        match undo {
            Undo::ResumeClient(client) => {
                self.clients[client].resume();
                self.state.client_is_bad[client] = false;
            }
            Undo::LaunchClient(client) => {
                self.state.client_is_bad[client] = false;
                if let Err(error) = self.clients[client].launch() {
                    eprintln!("a client cannot be started: {error}");
                }
            }
            Undo::PassStore(client) => {
                self.store_links[client].set_both(Mode::Pass);
                self.state.client_is_bad[client] = false;
            }
            Undo::Heal(client, server) | Undo::Speed(client, server) => {
                self.state.link_is_bad[client * count + server] = false;
                if let Some(link) = self.servers.link(client, server) {
                    link.latency(Duration::ZERO);
                    link.heal();
                }
            }
            Undo::ResumeServer(server) => {
                self.state.server_is_bad[server] = false;
                self.servers.server(server).resume();
            }
            Undo::RestartServer(server) => {
                self.state.server_is_bad[server] = false;
                self.servers.server(server).restart().await;
            }
            Undo::EndPause(server) => {
                self.state.server_is_bad[server] = false;
                // The command is served during a pause.
                self.servers.command(server, &["CLIENT", "UNPAUSE"]).await;
            }
            Undo::GiveMemory(server) => {
                if !matches!(
                    self.config(server, "noeviction", "0").await,
                    Some(Resp::Simple(_))
                ) {
                    // It is paused; without this it would refuse writes for the rest of the round.
                    let at = Instant::now() + Duration::from_millis(200);
                    self.state.pending.push(Pending { at, fault, undo });
                    return;
                }
                self.state.server_is_bad[server] = false;
            }
            Undo::Slew { server, left } => {
                const STEP: Duration = Duration::from_millis(50);
                self.set_ahead(server, STEP.as_secs_f64() * SLEW / 1e6);
                if left == 0 {
                    self.state.server_is_bad[server] = false;
                    return;
                }
                let undo = Undo::Slew {
                    server,
                    left: left - 1,
                };
                self.state.pending.push(Pending {
                    at: Instant::now() + STEP,
                    fault,
                    undo,
                });
            }
            Undo::Nothing => {}
        }
    }
}

/// The answer of a server to a command.
trait Answer {
    /// Returns `None` if the server refused the command. Without an answer it may have executed it.
    fn begun(self) -> Option<()>;
}

impl Answer for Option<Resp> {
    fn begun(self) -> Option<()> {
        (!matches!(self, Some(Resp::Error(_)))).then_some(())
    }
}

/// Awaits work of the test helpers, which panic on failure. A fault that cannot be injected is reported, and the round
/// goes on.
async fn caught<T>(kind: Fault, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let done = std::future::poll_fn(|context| {
        let poll = AssertUnwindSafe(|| work.as_mut().poll(context).map(Some));
        catch_unwind(poll).unwrap_or(Poll::Ready(None))
    });
    let done = done.await;
    if done.is_none() {
        eprintln!("the fault {} failed: see the panic above", kind.name());
    }
    done
}

//! A TCP proxy that loses, delays and cuts, as a network does.

mod link;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// One of the two directions through a [`Proxy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server: requests.
    Up,
    /// From the server to the client: replies and pushes.
    Down,
}

/// The treatment of bytes in one direction of a [`Proxy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Bytes are passed on.
    #[default]
    Pass,
    /// Bytes are read and vanish; so do the ends of connections.
    ///
    /// TCP never goes on after a gap. So a connection that lost bytes in a direction loses all later
    /// bytes of that direction too, in any mode: it is half-open until it is cut, for example by
    /// [`Proxy::heal`].
    BlackHole,
    /// Bytes, and the ends of connections, are kept in order until the mode is [`Mode::Pass`].
    Hold,
}

#[derive(Clone, Copy, Debug, Default)]
struct Control {
    modes: [Mode; 2],
    /// The one connection to which the modes apply; all, if `None`.
    only: Option<u64>,
    latency: Duration,
    refuse: bool,
    cuts: u64,
    heals: u64,
}

impl Control {
    fn mode(&self, direction: Direction, connection: u64) -> Mode {
        match self.only {
            Some(only) if only != connection => Mode::Pass,
            _ => self.modes[direction as usize],
        }
    }
}

#[derive(Debug)]
struct Shared {
    target: u16,
    control: watch::Sender<Control>,
    open: watch::Sender<BTreeSet<u64>>,
    accepted: AtomicU64,
    bytes: [AtomicU64; 2],
    held: [AtomicU64; 2],
    fault: OnceLock<String>,
}

/// Keeps a connection in the set of open ones until it ends.
struct Registration {
    id: u64,
    shared: Arc<Shared>,
}

impl Registration {
    fn new(id: u64, shared: Arc<Shared>) -> Self {
        shared.open.send_modify(|open| {
            open.insert(id);
        });
        Self { id, shared }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.open.send_modify(|open| {
            open.remove(&self.id);
        });
    }
}

/// A proxy on a loopback port of its own in front of another loopback port.
///
/// All controls act at once on present and new connections. Dropping the proxy closes everything.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy that passes everything to `target_port`, which need not listen yet.
    pub async fn start(target_port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .unwrap_or_else(|error| panic!("binding a proxy: {error}"));
        let port = listener
            .local_addr()
            .expect("a bound listener has an address")
            .port();
        let shared = Arc::new(Shared {
            target: target_port,
            control: watch::Sender::default(),
            open: watch::Sender::default(),
            accepted: AtomicU64::new(0),
            bytes: Default::default(),
            held: Default::default(),
            fault: OnceLock::new(),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { port, shared, task }
    }

    /// Returns the URL `redis://127.0.0.1:port` of the proxy.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the port of the proxy.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the mode of one direction.
    pub fn set(&self, direction: Direction, mode: Mode) {
        self.change(|control| control.modes[direction as usize] = mode);
    }

    /// Sets the mode of both directions at the same moment.
    pub fn set_both(&self, mode: Mode) {
        self.change(|control| control.modes = [mode; 2]);
    }

    /// Applies the modes to one connection only, counted from 0 in the order of acceptance; all others pass.
    pub fn only(&self, connection: u64) {
        self.change(|control| control.only = Some(connection));
    }

    /// Drops replies (`true`): requests are executed and seem not to be. After `false`, connections that lost
    /// replies go on losing them: see [`Mode::BlackHole`].
    pub fn discard_replies(&self, discard: bool) {
        self.set(
            Direction::Down,
            if discard { Mode::BlackHole } else { Mode::Pass },
        );
    }

    /// Passes both directions again, and resets the connections that lost bytes, as their peers would.
    pub fn heal(&self) {
        self.change(|control| {
            control.modes = [Mode::Pass; 2];
            control.only = None;
            control.heals += 1;
        });
    }

    /// Closes all present connections abruptly on both sides, and waits until they are closed. Bytes in
    /// transit or held are lost.
    pub async fn cut(&self) {
        let present = self.shared.open.borrow().clone();
        self.change(|control| control.cuts += 1);
        let mut open = self.shared.open.subscribe();
        open.wait_for(|open| open.is_disjoint(&present))
            .await
            .expect("the sender is in `self.shared`");
        self.check();
    }

    /// Resets new connections as soon as they are accepted (`true`), or accepts them again. The client sees
    /// the reset when it connects or when it first reads.
    pub fn refuse(&self, refuse: bool) {
        self.change(|control| control.refuse = refuse);
    }

    /// Delays bytes that arrive from now on by this time, in each direction.
    pub fn latency(&self, latency: Duration) {
        self.change(|control| control.latency = latency);
    }

    /// Returns how many connections were accepted so far, without the refused ones.
    pub fn connections(&self) -> u64 {
        self.check();
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Returns how many connections are open now.
    pub fn open_connections(&self) -> usize {
        self.check();
        self.shared.open.borrow().len()
    }

    /// Returns how many bytes arrived so far in that direction, whether they were passed on or not.
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.check();
        self.shared.bytes[direction as usize].load(Ordering::SeqCst)
    }

    /// Returns how many bytes the proxy has now in that direction: held, or delayed by the latency. A
    /// positive number shows that a request is in flight.
    pub fn held(&self, direction: Direction) -> u64 {
        self.check();
        self.shared.held[direction as usize].load(Ordering::SeqCst)
    }

    fn change(&self, change: impl FnOnce(&mut Control)) {
        self.check();
        self.shared.control.send_modify(change);
    }

    /// Panics if a task noted a fault here. A panic of the task itself would not fail the test.
    fn check(&self) {
        if let Some(fault) = self.shared.fault.get() {
            panic!("{fault}");
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        if !thread::panicking() {
            self.check();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // The set aborts the connections when it is dropped, which happens with this task.
    let mut links = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let control = shared.control.subscribe();
        let Control { refuse, cuts, .. } = *control.borrow();
        if refuse {
            link::reset(&client);
            continue;
        }
        let id = shared.accepted.fetch_add(1, Ordering::SeqCst);
        // The connection has read the count of cuts before it registers, so a cut that waits for it also
        // reaches it.
        let registration = Registration::new(id, Arc::clone(&shared));
        links.spawn(link::carry(client, control, cuts, registration));
        while links.try_join_next().is_some() {}
    }
}

#[cfg(test)]
mod tests;

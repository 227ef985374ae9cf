//! One connection through the proxy.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Control, Direction, Mode, Registration, Shared};

/// How many bytes one direction buffers while it passes. Beyond that the sender has to wait, as with any slow
/// link.
const PASS_LIMIT: usize = 1 << 20;
/// How many bytes a connection may hold in one direction.
const HOLD_LIMIT: usize = 16 << 20;
const READ_SIZE: usize = 64 << 10;

type ControlReceiver = watch::Receiver<Control>;

/// Carries the bytes of one connection until it ends or is cut.
pub(super) async fn carry(
    client: TcpStream,
    control: ControlReceiver,
    cuts: u64,
    registration: Registration,
) {
    // Moved here to drop it after the sockets: when it is gone, they are closed.
    let registration = registration;
    let mut client = client;
    let shared: &Shared = &registration.shared;
    let lost = AtomicBool::new(false);
    let mut server = tokio::select! {
        () = ended(control.clone(), cuts, &lost) => return reset(&client),
        server = connect(shared.target, control.clone(), registration.id) => match server {
            Some(server) => server,
            None => return reset(&client),
        },
    };
    // These calls fail only on a closed socket, which reading it will show.
    drop(client.set_nodelay(true));
    drop(server.set_nodelay(true));
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    let up = Pump::new(Direction::Up, control.clone(), &registration, &lost);
    let down = Pump::new(Direction::Down, control.clone(), &registration, &lost);
    let passed = tokio::select! {
        biased;
        () = ended(control, cuts, &lost) => false,
        result = async {
            tokio::try_join!(
                up.run(client_read, server_write),
                down.run(server_read, client_write),
            )
        } => result.is_ok(),
    };
    if !passed {
        reset(&client);
        reset(&server);
    }
}

/// Makes the peer see a reset instead of an orderly end when the socket is dropped.
pub(super) fn reset(stream: &TcpStream) {
    // It fails only on a closed socket.
    drop(stream.set_zero_linger());
}

/// Connects to the target. While replies vanish or are held, a refusal by the target stays hidden.
async fn connect(target: u16, mut control: ControlReceiver, id: u64) -> Option<TcpStream> {
    if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await {
        return Some(stream);
    }
    let passes = |control: &Control| control.mode(Direction::Down, id) == Mode::Pass;
    // An error means that the proxy is gone, and this connection with it.
    drop(control.wait_for(passes).await);
    None
}

/// Waits until the test ends the connection: by a cut, or by healing if it has lost bytes.
async fn ended(mut control: ControlReceiver, cuts: u64, lost: &AtomicBool) {
    let mut heals = control.borrow().heals;
    let over = |control: &Control| {
        let healed = control.heals != heals;
        heals = control.heals;
        control.cuts != cuts || (healed && lost.load(Ordering::SeqCst))
    };
    // An error means that the proxy is gone, and this connection with it.
    drop(control.wait_for(over).await);
}

enum Item {
    Bytes(VecDeque<u8>),
    End,
    Reset,
}

/// One direction of a connection.
struct Pump<'a> {
    direction: Direction,
    id: u64,
    control: ControlReceiver,
    shared: &'a Shared,
    lost: &'a AtomicBool,
    queue: VecDeque<(Instant, Item)>,
    queued: usize,
    /// True if this direction has lost bytes: it loses all that follows.
    broken: bool,
    /// True if the sender's end was read.
    ended: bool,
}

impl<'a> Pump<'a> {
    fn new(
        direction: Direction,
        control: ControlReceiver,
        registration: &'a Registration,
        lost: &'a AtomicBool,
    ) -> Self {
        let queue = VecDeque::new();
        Self {
            direction,
            id: registration.id,
            control,
            shared: &registration.shared,
            lost,
            queue,
            queued: 0,
            broken: false,
            ended: false,
        }
    }

    /// Passes bytes on until the sender's end has been passed on too.
    async fn run(mut self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
        let mut buffer = vec![0; READ_SIZE];
        loop {
            // A change of the control ends the wait below, so this is always the present one.
            let control = *self.control.borrow_and_update();
            let mode = control.mode(self.direction, self.id);
            if self.broken || (mode == Mode::BlackHole && !self.queue.is_empty()) {
                self.lose();
            }
            let delivers = mode == Mode::Pass && !self.queue.is_empty();
            let reads = !self.ended && (mode != Mode::Pass || self.queued < PASS_LIMIT);
            tokio::select! {
                biased;
                changed = self.control.changed() => {
                    changed.map_err(io::Error::other)?;
                }
                written = deliver(&self.queue, &mut to), if delivers => match written? {
                    Some(written) => self.written(written),
                    None => return Ok(()),
                },
                read = from.read(&mut buffer), if reads => {
                    self.arrived(&read.map(|read| &buffer[..read]), control.latency)?;
                }
            }
        }
    }

    fn arrived(&mut self, read: &io::Result<&[u8]>, latency: Duration) -> io::Result<()> {
        let item = match read {
            Ok([]) => Item::End,
            Ok(bytes) => {
                let count = bytes.len();
                self.counter(&self.shared.bytes)
                    .fetch_add(count as u64, Ordering::SeqCst);
                self.counter(&self.shared.held)
                    .fetch_add(count as u64, Ordering::SeqCst);
                self.queued += count;
                Item::Bytes(bytes.to_vec().into())
            }
            Err(_) => Item::Reset,
        };
        self.ended = !matches!(item, Item::Bytes(_));
        self.queue.push_back((Instant::now() + latency, item));
        if self.queued > HOLD_LIMIT {
            let fault = format!(
                "a proxy holds more than {HOLD_LIMIT} bytes {:?}",
                self.direction
            );
            self.shared.fault.get_or_init(|| fault.clone());
            return Err(io::Error::other(fault));
        }
        Ok(())
    }

    fn written(&mut self, count: usize) {
        let Some((_, Item::Bytes(bytes))) = self.queue.front_mut() else {
            unreachable!("only bytes are written");
        };
        bytes.drain(..count);
        if bytes.is_empty() {
            self.queue.pop_front();
        }
        self.removed(count);
    }

    /// Drops the queued bytes. The connection has lost bytes then and cannot go on in this direction.
    fn lose(&mut self) {
        self.broken = true;
        self.lost.store(true, Ordering::SeqCst);
        self.queue.clear();
        self.removed(self.queued);
    }

    fn removed(&mut self, count: usize) {
        self.queued -= count;
        self.counter(&self.shared.held)
            .fetch_sub(count as u64, Ordering::SeqCst);
    }

    fn counter<'b>(&self, counters: &'b [AtomicU64; 2]) -> &'b AtomicU64 {
        &counters[self.direction as usize]
    }
}

impl Drop for Pump<'_> {
    fn drop(&mut self) {
        self.removed(self.queued);
    }
}

/// Writes some of the first item when its time has come. Returns how many bytes, or `None` for the end.
/// Dropping the future early has no effect.
async fn deliver(
    queue: &VecDeque<(Instant, Item)>,
    to: &mut WriteHalf<'_>,
) -> io::Result<Option<usize>> {
    let (due, item) = queue.front().expect("the queue has items");
    sleep_until(*due).await;
    match item {
        Item::Bytes(bytes) => to.write(bytes.as_slices().0).await.map(Some),
        Item::End => to.shutdown().await.map(|()| None),
        Item::Reset => Err(io::ErrorKind::ConnectionReset.into()),
    }
}

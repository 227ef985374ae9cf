//! Free ports for servers that bind by themselves.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// The ports lie below the ephemeral range of Linux and macOS. So no outgoing connection and no bind to port
/// 0 takes the port of a server that is down for a moment, and a client that keeps dialing a dead port never
/// connects to itself.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Returns a loopback port that no process listens on now and that this process did not return recently.
///
/// Another process may still take it first: the caller has to notice that and ask again.
pub(crate) fn free_port() -> u16 {
    // Parallel processes start at different places.
    let start = process::id().wrapping_mul(7_919) % COUNT;
    for _ in 0..COUNT {
        let offset = (start + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
        let port = u16::try_from(FIRST + offset).expect("the range of ports ends below 65536");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!(
        "no free loopback port from {FIRST} to {}",
        FIRST + COUNT - 1
    );
}

use leasehold_engine::MemoryServer;
use leasehold_engine::protocol::{ClientId, Push};
use leasehold_engine::time::ServerTime;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::text;

/// An in-memory store for the engines of any number of other instances. It executes the script calls that
/// they make of their batches.
#[wasm_bindgen]
pub struct MemoryStore {
    server: MemoryServer,
    /// The wall clock's milliseconds at the origin of the host's monotonic clock.
    origin: f64,
    last: ServerTime,
    /// Pending pushes, the latest first.
    pushes: Vec<(ClientId, Push)>,
}

/// From this time on, a clock in microseconds has 16 digits.
const LEAST_WALL: f64 = 1e12;

#[wasm_bindgen]
impl MemoryStore {
    /// Makes an empty store. Its clock starts at the wall clock's time and then follows the host's monotonic
    /// clock.
    ///
    /// A wall clock before September 2001, which must be faked, counts as September 2001: tokens have as many
    /// digits as the clock, and the time 0 stands for none.
    #[wasm_bindgen(constructor)]
    pub fn new(now: f64, wall: f64) -> Self {
        Self {
            server: MemoryServer::new(),
            origin: wall.max(LEAST_WALL) - now,
            last: ServerTime::from_micros(0),
            pushes: Vec::new(),
        }
    }

    /// Executes a script call. `keys` and `args` are lists joined to one string: each item is its length in
    /// UTF-16 units, a colon and its text. Returns the script's result in the same form, or only the server's
    /// time if that is the whole result; `None` if this is not a valid call.
    pub fn execute(&mut self, now: f64, keys: &str, args: &str) -> Option<String> {
        // A time of the host, which is far below 2^53 microseconds.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let time = ServerTime::from_micros(((self.origin + now) * 1e3) as u64);
        self.last = self.last.max(time);
        let (keys, args) = (text::split(keys)?, text::split(args)?);
        let returned = self
            .server
            .call(self.last, keys.into_iter(), args.into_iter())?;
        for push in self.server.take_pushes() {
            self.pushes.insert(0, push);
        }
        if let [time] = &*returned {
            return Some(time.clone());
        }
        let fields = returned.iter();
        Some(fields.fold(String::new(), |list, field| text::with(list, field)))
    }

    /// Deletes all data and pending pushes. Subscriptions stay.
    pub fn clear(&mut self) {
        self.server.flush();
        self.pushes.clear();
    }

    /// Keeps pushes for a client from now on. Its id is in hexadecimal.
    pub fn subscribe(&mut self, client: &str) {
        self.server.subscribe(client_id(client));
    }

    /// Stops keeping pushes for a client.
    pub fn unsubscribe(&mut self, client: &str) {
        self.server.unsubscribe(client_id(client));
    }

    /// Takes the next push: the receiver's id of 16 digits, and its text.
    #[wasm_bindgen(js_name = takePush)]
    pub fn take_push(&mut self) -> Option<String> {
        let (client, push) = self.pushes.pop()?;
        Some(format!("{client}{push}"))
    }
}

/// Parses a client's id. An invalid one becomes 0, which is no client's id.
fn client_id(client: &str) -> ClientId {
    ClientId(u64::from_str_radix(client, 16).unwrap_or(0))
}

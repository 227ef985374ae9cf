use leasehold_engine::MemoryServer;
use leasehold_engine::protocol::{ClientId, Push};
use leasehold_engine::time::ServerTime;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::text;

/// A store in this process, for the engines of any number of other instances: it executes the calls
/// that they make of their batches.
#[wasm_bindgen]
pub struct MemoryStore {
    server: MemoryServer,
    /// The wall clock's milliseconds at the origin of the host's monotonic clock.
    origin: f64,
    last: ServerTime,
    /// The latest first.
    pushes: Vec<(ClientId, Push)>,
}

/// From then on a clock in microseconds has 16 digits.
const LEAST_WALL: f64 = 1e12;

#[wasm_bindgen]
impl MemoryStore {
    /// An empty store. Its clock starts at the wall's and then counts as the host's monotonic one. A wall
    /// clock before September 2001, which is faked, is taken for that: tokens have as many digits as the
    /// clock, and a time of 0 is none.
    #[wasm_bindgen(constructor)]
    pub fn new(now: f64, wall: f64) -> Self {
        Self {
            server: MemoryServer::new(),
            origin: wall.max(LEAST_WALL) - now,
            last: ServerTime::from_micros(0),
            pushes: Vec::new(),
        }
    }

    /// Executes a call, whose keys and arguments are each a string's length in UTF-16 units, a colon and
    /// itself, all in one. Returns what the script returns in the same form, but the server's time alone
    /// as it is; nothing if this is no call.
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

    /// Forgets all that is stored, but not for whom there are pushes.
    pub fn clear(&mut self) {
        self.server.flush();
        self.pushes.clear();
    }

    /// From now on there are pushes for a client, whose id this is in hexadecimal.
    pub fn subscribe(&mut self, client: &str) {
        self.server.subscribe(client_id(client));
    }

    /// There are no pushes for a client any more.
    pub fn unsubscribe(&mut self, client: &str) {
        self.server.unsubscribe(client_id(client));
    }

    /// Takes the next push: the id of the client that it is for, of 16 digits, and its text.
    #[wasm_bindgen(js_name = takePush)]
    pub fn take_push(&mut self) -> Option<String> {
        let (client, push) = self.pushes.pop()?;
        Some(format!("{client}{push}"))
    }
}

/// What is no id is that of no client.
fn client_id(client: &str) -> ClientId {
    ClientId(u64::from_str_radix(client, 16).unwrap_or(0))
}

use std::collections::VecDeque;

use leasehold::MemoryServer;
use leasehold::protocol::{ClientId, Push};
use leasehold::time::ServerTime;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::convert::number;
use crate::engine::Engine;

/// A store in this process, for the engines of the same instance.
#[wasm_bindgen]
pub struct MemoryStore {
    server: MemoryServer,
    /// The wall clock's milliseconds at the origin of the host's monotonic clock.
    origin: f64,
    last: ServerTime,
    pushes: VecDeque<(ClientId, Push)>,
    /// Those who have subscribed, each with its channel.
    channels: Vec<(ClientId, String)>,
}

#[wasm_bindgen]
impl MemoryStore {
    /// An empty store. Its clock starts at the wall's and then counts as the host's monotonic one.
    #[wasm_bindgen(constructor)]
    pub fn new(now: f64, wall: f64) -> Self {
        Self {
            server: MemoryServer::new(),
            origin: wall - now,
            last: ServerTime::from_micros(0),
            pushes: VecDeque::new(),
            channels: Vec::new(),
        }
    }

    /// Executes the batch of a request, and feeds the reply back.
    pub fn execute(&mut self, engine: &mut Engine, now: f64, request: f64) {
        engine.execute(now, request, |batch| {
            let time = ServerTime::from_micros(number((self.origin + now) * 1e3));
            self.last = self.last.max(time);
            let reply = self.server.execute(self.last, batch);
            self.pushes.extend(self.server.take_pushes());
            reply
        });
    }

    /// From now on an engine hears the pushes that concern it.
    pub fn subscribe(&mut self, engine: &Engine) {
        self.server.subscribe(engine.client());
        self.channels.push((engine.client(), engine.channel()));
    }

    /// An engine hears no push any more.
    pub fn unsubscribe(&mut self, engine: &Engine) {
        self.server.unsubscribe(engine.client());
        let client = engine.client();
        self.channels.retain(|(other, _)| *other != client);
    }

    /// The channel of whom the next push is for.
    #[wasm_bindgen(js_name = nextPush)]
    pub fn next_push(&self) -> Option<String> {
        let (client, _) = self.pushes.front()?;
        let mut channels = self.channels.iter();
        let own = channels.find(|(other, _)| other == client);
        Some(own.map(|(_, channel)| channel.clone()).unwrap_or_default())
    }

    /// Tells the engine the next push, which has to be for it.
    pub fn deliver(&mut self, engine: &mut Engine, now: f64) {
        if let Some((_, push)) = self.pushes.pop_front() {
            engine.pushed(now, push);
        }
    }

    /// Drops the next push: nobody is there any more whom it is for.
    #[wasm_bindgen(js_name = dropPush)]
    pub fn drop_push(&mut self) {
        self.pushes.pop_front();
    }
}

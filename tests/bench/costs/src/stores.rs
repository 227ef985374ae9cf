//! The stores of a [`Host`](crate::host::Host).

use std::time::{Duration, Instant};

use leasehold_engine::MemoryServer;
use leasehold_engine::protocol::{self, BatchReply, Op, ScriptCall};
use leasehold_engine::time::{ServerTime, Timestamp};
use leasehold_tests::Resp;

use crate::Result;
use crate::client::Client;
use crate::host::Store;

/// A time in 2026, in microseconds.
const BEGIN: u64 = 1_780_000_000_000_000;
/// The time that passes at each reading of the clock.
const STEP: Duration = Duration::from_micros(10);

/// A store in this process, with a clock that advances at each reading: the same in each run.
pub(crate) struct Memory {
    server: MemoryServer,
    now: Timestamp,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            server: MemoryServer::new(),
            now: Timestamp::from_nanos(0),
        }
    }

    pub(crate) fn sleep_until(&mut self, at: Timestamp) {
        self.now = self.now.max(at);
    }
}

impl Store for Memory {
    fn now(&mut self) -> Timestamp {
        self.now = self.now + STEP;
        self.now
    }

    fn execute(&mut self, batch: &[Op]) -> Result<BatchReply> {
        let micros = Duration::from_nanos(self.now().as_nanos()).as_micros();
        let now = ServerTime::from_micros(BEGIN + u64::try_from(micros)?);
        Ok(self.server.execute(now, batch))
    }
}

/// A store on a server, with a connection that sends one call and waits for its reply.
pub(crate) struct Redis {
    pub(crate) client: Client,
    begin: Instant,
}

impl Redis {
    /// Makes the store and loads the script.
    pub(crate) fn new(mut client: Client) -> Result<Self> {
        client.command(&["SCRIPT", "LOAD", protocol::SCRIPT])?;
        Ok(Self {
            client,
            begin: Instant::now(),
        })
    }
}

impl Store for Redis {
    fn now(&mut self) -> Timestamp {
        Timestamp::from_nanos(0) + self.begin.elapsed()
    }

    fn execute(&mut self, batch: &[Op]) -> Result<BatchReply> {
        let call = counted_codec_encode(batch);
        let keys = call.keys().len().to_string();
        let mut command = vec!["EVALSHA", protocol::SCRIPT_SHA, &keys];
        command.extend(call.keys().chain(call.args()));
        let fields = fields(self.client.command(&command)?)?;
        counted_codec_decode(batch, &fields)
    }
}

/// Returns the texts of a reply of the script: of a list, or a single one.
fn fields(reply: Resp) -> Result<Vec<Vec<u8>>> {
    match reply {
        Resp::Array(items) => Ok(items
            .into_iter()
            .map(fields)
            .collect::<Result<Vec<_>>>()?
            .concat()),
        Resp::Bulk(Some(text)) => Ok(vec![text]),
        Resp::Simple(text) => Ok(vec![text.into_bytes()]),
        other => Err(format!("not a reply of the script: {other:?}").into()),
    }
}

// Valgrind finds these two by their names.

#[inline(never)]
fn counted_codec_encode(batch: &[Op]) -> ScriptCall {
    protocol::encode(batch)
}

#[inline(never)]
fn counted_codec_decode(batch: &[Op], fields: &[Vec<u8>]) -> Result<BatchReply> {
    Ok(protocol::decode(batch, fields)?)
}

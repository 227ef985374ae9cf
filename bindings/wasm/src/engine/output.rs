//! The engine's outputs for its host: numbers in one reused buffer, and texts in another.

use leasehold_engine::Error;
use leasehold_engine::engine::{Answer, LockId, Output, ReaderId, ServerId, Suspicion};
use leasehold_engine::protocol::{Durability, LeaseId, LockKey, Op, encode};
use leasehold_engine::time::Timestamp;
use leasehold_engine::{LeaseEvent, Ticket};
use wasm_bindgen::prelude::wasm_bindgen;

use super::{Engine, words};
use crate::convert::{id, millis};
use crate::server::json;
use crate::wire;

/// Tasks for the host.
#[wasm_bindgen]
impl Engine {
    /// Takes all outputs, and returns the address of the numbers that describe them. The numbers and bytes
    /// stay valid until the engine is used again.
    ///
    /// The first three numbers are a header: how many numbers there are, including these; when to come back
    /// if nothing happens before (infinity for never); and the address of the bytes. Then follow the tasks,
    /// each as its number and its fields:
    ///
    /// | `task` | what to do, or what happened | fields |
    /// |---|---|---|
    /// | `SEND` | execute a batch | request, place, keys, parts, begin, end; replicas to wait for, for how many milliseconds (0 for not at all), and whether for the disk; for texts: the end of each part |
    /// | `ACQUIRED` | a call acquired the lock | call, lease (4), token, deadline, began, waited |
    /// | `DONE` | a call ended | call |
    /// | `BUSY` | an acquisition did not get the lock | call |
    /// | `ANSWER` | a call has an answer in JSON | call, begin, end |
    /// | `FAILED` | a call failed with an error in JSON | call, begin, end |
    /// | `DEADLINE` | a tenure has another deadline, later or earlier | lock, lease (2), deadline |
    /// | `LOST` | a tenure was lost for a reason | lock, lease (2), begin, end |
    /// | `RELEASED` | a tenure was given up | lock, lease (2) |
    /// | `SUBSCRIBE` | subscribe to the channel, for the pushes of a server | server |
    /// | `WAKE` | a reader has an event | reader |
    /// | `SILENT` | the connection may be half-open | server |
    /// | `DEMOTED` | the server has become a replica | server |
    /// | `WATCH` | watch keys for changes | server, count, and begin and end of each key |
    /// | `ADMITTED` | the slots and the state of a shared name, in JSON; `ACQUIRED` follows | call, begin, end |
    ///
    /// A lease is its id in signed words of 32 bits, or the first two of them, which no two tenures of an
    /// engine share. `begin` to `end` are the bytes of a text; for a batch, of its texts or its command. A
    /// place is a slot on a cluster, and otherwise a server.
    pub fn drain(&mut self) -> *const f64 {
        self.outputs.clear();
        loop {
            while let Some(ReaderId(reader)) = self.awake.pop() {
                self.outputs.push(&[task::WAKE, id(reader)]);
            }
            match self.inner.poll() {
                Output::Wait { until } => return self.outputs.finish(until),
                output => self.put(output),
            }
        }
    }
}

/// Counters.
#[wasm_bindgen]
impl Engine {
    /// Returns the address of the engine's counters: one number for each, in the order of `Counts`. They stay
    /// valid until the engine is used again. Earlier outputs are gone.
    pub fn counts(&mut self) -> *const f64 {
        let numbers = &mut self.outputs.numbers;
        numbers.clear();
        let counts = self.inner.counts();
        numbers.extend(counts.numbers().iter().map(|number| id(*number)));
        numbers.as_ptr()
    }
}

/// The outputs of the last drain.
#[derive(Default)]
pub(super) struct Outputs {
    numbers: Vec<f64>,
    bytes: Vec<u8>,
}

/// Buffers above this capacity are freed after a burst.
const SMALL: usize = 16 * 1024;

impl Outputs {
    fn clear(&mut self) {
        if self.numbers.capacity() > SMALL {
            self.numbers = Vec::new();
        }
        if self.bytes.capacity() > SMALL * 8 {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.numbers.clear();
        self.push(&[0.0; 3]);
    }

    fn push(&mut self, numbers: &[f64]) {
        self.numbers.extend_from_slice(numbers);
    }

    /// Returns the number of bytes.
    fn end(&self) -> f64 {
        size(self.bytes.len())
    }

    fn push_text(&mut self, text: &str) {
        let begin = self.end();
        self.bytes.extend_from_slice(text.as_bytes());
        self.push(&[begin, self.end()]);
    }

    fn finish(&mut self, until: Option<Timestamp>) -> *const f64 {
        let deadline = until.map_or(f64::INFINITY, millis);
        let header = [
            size(self.numbers.len()),
            deadline,
            size(self.bytes.as_ptr().addr()),
        ];
        if let Some(place) = self.numbers.first_chunk_mut() {
            *place = header;
        }
        self.numbers.as_ptr()
    }
}

#[allow(clippy::cast_precision_loss)]
fn size(bytes: usize) -> f64 {
    bytes as f64
}

/// The numbers of the tasks. They are an interface: `bindings/node/src/host/task.ts` has the same.
mod task {
    pub(super) const SEND: f64 = 1.0;
    pub(super) const ACQUIRED: f64 = 2.0;
    pub(super) const DONE: f64 = 3.0;
    pub(super) const BUSY: f64 = 4.0;
    pub(super) const ANSWER: f64 = 5.0;
    pub(super) const FAILED: f64 = 6.0;
    pub(super) const DEADLINE: f64 = 7.0;
    pub(super) const LOST: f64 = 8.0;
    pub(super) const RELEASED: f64 = 9.0;
    pub(super) const SUBSCRIBE: f64 = 10.0;
    pub(super) const WAKE: f64 = 11.0;
    pub(super) const SILENT: f64 = 12.0;
    pub(super) const DEMOTED: f64 = 13.0;
    pub(super) const WATCH: f64 = 14.0;
    pub(super) const ADMITTED: f64 = 15.0;
}

impl Engine {
    fn put(&mut self, output: Output) {
        match output {
            Output::Send {
                server,
                request,
                batch,
                durability,
                give_up,
            } => {
                self.put_batch((server, id(request.0)), &batch, durability);
                let id = self.batch_id(server, request);
                self.batches.add(self.now, id, (batch, durability), give_up);
            }
            Output::Answer { call, answer } => {
                let call = id(call.0);
                if let Err(error) = self.answer(call, answer) {
                    self.outputs.push(&[task::FAILED, call]);
                    self.outputs.push_text(&json(&error));
                }
            }
            Output::Event {
                lock,
                lease,
                event,
                deadline,
            } => {
                let woken = self.hub.publish(lock, lease, &event);
                self.awake.extend(woken);
                self.changed(lock, lease, &event, deadline);
            }
            Output::Subscribe { server } => {
                self.outputs.push(&[task::SUBSCRIBE, f64::from(server.0)]);
            }
            Output::Suspect { server, why } => {
                let task = match why {
                    Suspicion::Silent => task::SILENT,
                    Suspicion::Demoted => task::DEMOTED,
                };
                self.outputs.push(&[task, f64::from(server.0)]);
            }
            Output::Notice { event } => {
                let woken = self.hub.notify(&event);
                self.awake.extend(woken);
            }
            Output::Watch { server, keys } => {
                let head = [task::WATCH, f64::from(server.0), size(keys.len())];
                self.outputs.push(&head);
                for key in keys {
                    self.outputs.push_text(key.lock());
                }
            }
            Output::Closed { .. } | Output::Wait { .. } => {}
        }
    }

    fn put_batch(
        &mut self,
        (server, request): (ServerId, f64),
        batch: &[Op],
        durability: Option<Durability>,
    ) {
        let call = encode(batch);
        let place = if self.clustered {
            let key = batch.first().and_then(|op| op.command.key());
            // A slot past the last one stands for no slot.
            u32::from(key.map_or(LockKey::SLOTS, LockKey::slot))
        } else {
            server.0
        };
        let (keys, parts) = (call.keys().len(), call.keys().len() + call.args().len());
        let Outputs { numbers, bytes } = &mut self.outputs;
        let begin = size(bytes.len());
        let head = [
            task::SEND,
            request,
            f64::from(place),
            size(keys),
            size(parts),
            begin,
        ];
        numbers.extend_from_slice(&head);
        let end = numbers.len();
        numbers.extend_from_slice(&[0.0; 4]);
        if let (Some(durability), Some([replicas, timeout, fsynced])) =
            (durability, numbers.last_chunk_mut())
        {
            *replicas = f64::from(durability.replicas);
            *timeout = f64::from(durability.timeout);
            *fsynced = f64::from(u8::from(durability.fsynced));
        }
        if self.command {
            wire::command(&call, bytes);
        } else {
            wire::texts(&call, bytes, numbers);
        }
        if let Some(end) = numbers.get_mut(end) {
            *end = size(bytes.len());
        }
    }

    fn answer(&mut self, call: f64, answer: Answer) -> Result<(), Error> {
        let json = match answer {
            Answer::Acquire(result) => {
                let Some(acquired) = result? else {
                    self.outputs.push(&[task::BUSY, call]);
                    return Ok(());
                };
                let [w0, w1, w2, w3] = words(acquired.lease);
                if let Some(admission) = &acquired.admission {
                    self.outputs.push(&[task::ADMITTED, call]);
                    self.outputs.push_text(&json(&**admission));
                }
                self.outputs.push(&[
                    task::ACQUIRED,
                    call,
                    w0,
                    w1,
                    w2,
                    w3,
                    id(acquired.token.get()),
                    millis(acquired.deadline),
                    millis(acquired.began),
                    acquired.waited.as_secs_f64() * 1_000.0,
                ]);
                return Ok(());
            }
            Answer::Renew(Ok(())) | Answer::Release(Ok(())) | Answer::Shutdown => {
                self.outputs.push(&[task::DONE, call]);
                return Ok(());
            }
            Answer::Renew(Err(error)) | Answer::Release(Err(error)) => return Err(error),
            Answer::Pass(result) => json(&Ticket::new(self.namespace.as_str(), *result?)),
            Answer::Inspect(result) => json(&result?),
            Answer::ForceRelease(result) | Answer::RequestYield(result) => json(&result?),
            Answer::Resize(result) => json(&result?),
            Answer::List(result) => {
                let listing = result?;
                json(&(
                    listing.cursor.map(|cursor| cursor.to_string()),
                    listing.names,
                ))
            }
        };
        self.outputs.push(&[task::ANSWER, call]);
        self.outputs.push_text(&json);
        Ok(())
    }

    fn changed(
        &mut self,
        lock: LockId,
        lease: LeaseId,
        event: &LeaseEvent,
        deadline: Option<Timestamp>,
    ) {
        let [w0, w1, ..] = words(lease);
        let about = |task| [task, id(lock.0), w0, w1];
        match event {
            LeaseEvent::Lost { reason, .. } => {
                self.outputs.push(&about(task::LOST));
                self.outputs.push_text(reason.code());
            }
            LeaseEvent::Released { .. } | LeaseEvent::Passed { .. } => {
                self.outputs.push(&about(task::RELEASED));
            }
            // The lease was renewed; or a server that it counts on took it away, so it ends earlier.
            LeaseEvent::Renewed { .. } | LeaseEvent::AtRisk { .. } => {
                if let Some(deadline) = deadline {
                    self.outputs.push(&about(task::DEADLINE));
                    self.outputs.push(&[millis(deadline)]);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    /// Reads names and numbers from lines that begin with `begin`: `const SEND: f64 = 1.0;` or `Send = 1,`.
    fn numbers(source: &str, begin: &str) -> BTreeMap<String, String> {
        let lines = source.lines().filter_map(|line| {
            let (name, number) = line.trim().strip_prefix(begin)?.split_once(" = ")?;
            let name = name.trim_end_matches(": f64").to_lowercase();
            let number = number.trim_end_matches([';', ',']).trim_end_matches(".0");
            number.parse::<u8>().ok().map(|_| (name, number.to_owned()))
        });
        lines.collect()
    }

    /// Catches a task that the host takes for another one.
    #[test]
    fn the_host_has_the_same_number_for_each_task() {
        let own = numbers(include_str!("output.rs"), "pub(super) const ");
        let host = include_str!("../../../node/src/host/task.ts");
        assert_eq!(own.len(), 15);
        assert_eq!(numbers(host, ""), own);
    }
}

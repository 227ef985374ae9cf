//! Sent batches, which are needed to decode their replies.

use leasehold_engine::engine::RequestId;
use leasehold_engine::protocol::{Durability, Op};
use leasehold_engine::time::Timestamp;

/// The batches that were sent and have no reply yet. There are only a few.
#[derive(Default)]
pub(super) struct Batches(Vec<Sent>);

struct Sent {
    request: RequestId,
    ops: Vec<Op>,
    durability: Option<Durability>,
    until: Timestamp,
}

impl Batches {
    /// Keeps a batch that is sent now, for twice as long as the engine waits for its reply. It replaces a
    /// batch that is over, so there are never many more than the engine has in flight.
    pub(super) fn add(
        &mut self,
        now: Timestamp,
        request: RequestId,
        (ops, durability): (Vec<Op>, Option<Durability>),
        give_up: Timestamp,
    ) {
        let sent = Sent {
            request,
            ops,
            durability,
            until: give_up + give_up.since(now),
        };
        match self.0.iter_mut().find(|sent| sent.until <= now) {
            Some(over) => *over = sent,
            None => self.0.push(sent),
        }
    }

    pub(super) fn take(&mut self, request: RequestId) -> Option<(Vec<Op>, Option<Durability>)> {
        let place = self.0.iter().position(|sent| sent.request == request)?;
        let sent = self.0.swap_remove(place);
        Some((sent.ops, sent.durability))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches batches that pile up at a server which never replies.
    #[test]
    fn a_batch_without_an_answer_is_dropped() {
        let mut batches = Batches::default();
        for number in 0..1_000 {
            let now = Timestamp::from_nanos(number);
            let give_up = Timestamp::from_nanos(number + 10);
            batches.add(now, RequestId(number), (Vec::new(), None), give_up);
        }
        assert_eq!(batches.0.len(), 20);
        assert!(batches.take(RequestId(980)).is_some());
        assert!(batches.take(RequestId(979)).is_none());
    }
}

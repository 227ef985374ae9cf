//! Batches of several slots: one call, if the asked node serves them all.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use leasehold_engine::engine::{RequestId, ServerId};
use leasehold_engine::protocol::{self, BatchReply, LockKey, Op};
use leasehold_engine::time::Timestamp;
use leasehold_engine::{Error, ErrorKind};

use super::{Cluster, Member};
use crate::adapter::Way;
use crate::driver::Input;
use crate::rt;

/// How long a node is asked for each slot separately after it refused part of a call of several slots. Its
/// slots are being migrated, or it lets scripts use only the keys that are named.
const APART: Duration = Duration::from_secs(1);

type Answer = (ServerId, Result<BatchReply, Error>);

impl Cluster {
    /// Executes a batch. Returns the server that answered last, and its reply.
    ///
    /// Earlier replies are fed to the engine as parts of the request, because other nodes, each with its own
    /// clock, may have answered them.
    pub(in crate::driver) async fn execute(
        &self,
        (asked, request): (ServerId, RequestId),
        batch: &[Op],
        give_up: Timestamp,
    ) -> Answer {
        if batch
            .windows(2)
            .all(|pair| slot(&pair[0]) == slot(&pair[1]))
        {
            return self.execute_in_slot(asked, (batch, None), give_up).await;
        }
        let mut left = Unanswered {
            cluster: self,
            request,
            places: (0..batch.len()).collect(),
        };
        let member = self.member(asked).filter(|member| !member.is_apart());
        if let Some(member) = member {
            match member.ask_for_all(batch, give_up).await {
                Some(Ok(reply)) if reply.replies.iter().any(is_refused) => {
                    member.keep_apart();
                    left.answer_done(asked, reply);
                }
                Some(answer) => return (asked, answer),
                None => member.keep_apart(),
            }
        }
        self.execute_apart(asked, batch, left, give_up).await
    }

    /// Executes the unanswered operations, each slot separately.
    async fn execute_apart(
        &self,
        asked: ServerId,
        batch: &[Op],
        mut left: Unanswered<'_>,
        give_up: Timestamp,
    ) -> Answer {
        let mut slots: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for place in &left.places {
            slots.entry(slot(&batch[*place])).or_default().push(*place);
        }
        let calls = slots.into_values().map(async |places| {
            let ops: Vec<Op> = places.iter().map(|place| batch[*place].clone()).collect();
            (
                places,
                self.execute_in_slot(asked, (&ops, None), give_up).await,
            )
        });
        let mut calls: FuturesUnordered<_> = calls.collect();
        let mut last = None;
        while let Some((places, answer)) = calls.next().await {
            if calls.is_empty() {
                last = Some(answer);
            } else {
                left.answer(&places, answer);
            }
        }
        last.unwrap_or_else(|| {
            let message = "the store cannot be reached: nothing was asked";
            (asked, Err(Error::new(ErrorKind::Unavailable, message)))
        })
    }
}

/// The operations of a request that are not answered yet.
struct Unanswered<'a> {
    cluster: &'a Cluster,
    request: RequestId,
    /// Their places in the batch, in order.
    places: Vec<usize>,
}

impl Unanswered<'_> {
    /// Feeds the operations that were carried out. Those that were refused remain.
    fn answer_done(&mut self, server: ServerId, reply: BatchReply) {
        let all = reply.replies.into_iter().enumerate();
        let done = all.filter(|(_, reply)| !is_refused(reply));
        let (places, replies): (Vec<_>, Vec<_>) = done.unzip();
        let time = reply.time;
        self.answer(&places, (server, Ok(BatchReply { time, replies })));
    }

    fn answer(&mut self, places: &[usize], (server, result): Answer) {
        let is_of = |(_, place): &(usize, &usize)| places.binary_search(*place).is_ok();
        let of_left = self.places.iter().enumerate().filter(is_of);
        let of_left: Vec<usize> = of_left.map(|(at, _)| at).collect();
        self.places
            .retain(|place| places.binary_search(place).is_err());
        if let Some(driver) = self.cluster.driver().filter(|_| !of_left.is_empty()) {
            driver.feed(Input::Part {
                server,
                request: self.request,
                places: of_left,
                result,
            });
        }
    }
}

impl Member {
    /// Executes a whole batch in one call. Returns `None` if the node refuses that.
    async fn ask_for_all(
        &self,
        batch: &[Op],
        give_up: Timestamp,
    ) -> Option<Result<BatchReply, Error>> {
        match self.remote.ask(batch, give_up, Way::OfNode).await {
            Ok(reply) => {
                self.listen_where_waiting(batch, &reply);
                Some(reply)
            }
            Err(error) if !error.said().is_empty() => None,
            Err(error) => Some(Err(error.into())),
        }
    }

    fn is_apart(&self) -> bool {
        *self.apart.lock().unwrap_or_else(PoisonError::into_inner) > rt::now()
    }

    fn keep_apart(&self) {
        *self.apart.lock().unwrap_or_else(PoisonError::into_inner) = rt::now() + APART;
    }
}

fn slot(op: &Op) -> Option<u16> {
    op.command.key().map(LockKey::slot)
}

/// Returns true if the operation is worth a separate call: the slot may be served then, or the node names the
/// one that serves it.
fn is_refused(reply: &Result<protocol::Reply, Error>) -> bool {
    let error = reply.as_ref().err();
    error.is_some_and(|error| error.kind() == ErrorKind::Unavailable)
}

//! Batches that count only once there are copies of what they did.

use ::fred::error::Error as FredError;
use ::fred::interfaces::{ClientLike, EventInterface};
use ::fred::types::{ClusterHash, CustomCommand};
use futures::future;
use tokio::sync::broadcast::error::TryRecvError;

use super::fred::options;
use super::link::{Link, Way};
use crate::error::{Error, ErrorKind};
use crate::protocol::{self, BatchReply, Durability, Op};
use crate::rt;
use crate::time::Timestamp;

impl Link {
    /// Executes a batch, and weighs its reply by the copies that there are of what it did.
    pub(super) async fn execute_durably(
        &self,
        batch: &[Op],
        durability: &Durability,
        give_up: Timestamp,
    ) -> Result<BatchReply, Error> {
        let asked = self.ask_durably(batch, durability, give_up, Way::Plain);
        asked.await.map_err(|error| self.secrets.convert(&error))?
    }

    /// The same; the server's refusal of the batch is as it came.
    pub(super) async fn ask_durably(
        &self,
        batch: &[Op],
        durability: &Durability,
        give_up: Timestamp,
        way: Way,
    ) -> Result<Result<BatchReply, Error>, FredError> {
        let mut reconnects = self.client.reconnect_rx();
        let evalsha = self.run(("EVALSHA", protocol::SCRIPT_SHA), batch, give_up, way);
        // Both leave when this is first polled, the script first.
        let (mut answer, mut said) = future::join(evalsha, self.wait(durability, give_up)).await;
        if let Err(error) = &answer
            && protocol::script_is_missing(error.details())
        {
            let eval = self.run(("EVAL", protocol::SCRIPT), batch, give_up, way);
            (answer, said) = future::join(eval, self.wait(durability, give_up)).await;
        }
        let reply = match protocol::decode(batch, &answer?) {
            Ok(reply) => reply,
            Err(error) => return Ok(Err(error)),
        };
        // A new connection has written nothing that a server would wait for.
        if !matches!(reconnects.try_recv(), Err(TryRecvError::Empty)) {
            let message = "the connection was replaced before it was known who has the lock";
            return Ok(Err(Error::new(ErrorKind::Unavailable, message)));
        }
        let copies = said
            .map_err(|error| self.secrets.convert(&error))
            .and_then(|said| durability.copies(&said));
        Ok(durability.weigh(reply, copies))
    }

    async fn wait(
        &self,
        durability: &Durability,
        give_up: Timestamp,
    ) -> Result<Vec<u64>, FredError> {
        let mut words = durability.command().into_iter();
        let name = words.next().unwrap_or_default();
        let command = CustomCommand::new(name, ClusterHash::FirstKey, false);
        let client = self.client.with_options(&options(give_up.since(rt::now())));
        client.custom(command, words.collect()).await
    }
}

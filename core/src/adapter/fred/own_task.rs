//! The task that drives the connection of a client that this crate made.

use std::pin::pin;
use std::task::Poll;

use ::fred::clients::Client;
use ::fred::error::Error as FredError;
use ::fred::interfaces::ClientLike;
use tokio::task::AbortHandle;

/// The connection task of a client that this crate made. Dropping it ends the connection.
pub(super) struct OwnTask(AbortHandle);

impl OwnTask {
    /// Connects like fred's `init`, which leaves its task behind if the future is dropped.
    pub(super) async fn connect(client: &Client) -> Result<Self, FredError> {
        let mut connected = pin!(client.wait_for_connect());
        // The first poll subscribes to the outcome, before connecting begins.
        let early = futures::poll!(&mut connected);
        let task = Self::start(client);
        match early {
            Poll::Ready(result) => result?,
            Poll::Pending => connected.await?,
        }
        Ok(task)
    }

    /// Starts connecting, in the background.
    pub(super) fn start(client: &Client) -> Self {
        Self(client.connect().abort_handle())
    }

    pub(super) fn abort(&self) {
        self.0.abort();
    }
}

impl Drop for OwnTask {
    fn drop(&mut self) {
        self.abort();
    }
}

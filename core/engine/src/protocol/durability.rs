//! What has to have a lock besides the server that gives it, so that a failover does not lose it.

use std::time::Duration;

use super::reply::{BatchReply, Reply};
use super::wire::unexpected;
use crate::error::{Error, ErrorKind};

/// Which copies of a lock there have to be before it counts: an acquisition or renewal that has too few
/// is not one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Durability {
    /// How many replicas have to have it.
    pub replicas: u32,
    /// Whether the server has to have it on its disk; so have the replicas then.
    pub fsynced: bool,
    /// How many milliseconds to wait for that. Meanwhile the connection serves nothing else.
    pub timeout: u32,
}

impl Durability {
    /// No copies, to be waited for up to a second: to begin with.
    pub const NONE: Self = Self {
        replicas: 0,
        fsynced: false,
        timeout: 1_000,
    };

    /// [`ErrorKind::Config`] if it asks for nothing, or the time is out of bounds: 1 ms to 1 min.
    pub fn check(&self) -> Result<(), Error> {
        if self.replicas == 0 && !self.fsynced {
            return Err(Error::bad_option("replicas", "must be at least 1; got 0"));
        }
        if !(1..=60_000).contains(&self.timeout) {
            let rule = format!("must be from 1 ms to 1 min; got {} ms", self.timeout);
            return Err(Error::bad_option("replicas_timeout", rule));
        }
        Ok(())
    }

    /// How long to wait, of nothing that is to be waited for as well.
    pub(crate) fn time(this: Option<Self>) -> Duration {
        Duration::from_millis(this.map_or(0, |durability| durability.timeout.into()))
    }

    /// The same with this much time at the most.
    #[must_use]
    pub fn within(self, most: Duration) -> Self {
        let most = u32::try_from(most.as_millis()).unwrap_or(u32::MAX);
        // A server takes 0 for ever.
        let timeout = self.timeout.min(most).max(1);
        Self { timeout, ..self }
    }

    /// The command that waits for it, to be sent right behind the script's call and on the same
    /// connection: a server waits for what that has written.
    ///
    /// ```
    /// use leasehold_engine::protocol::Durability;
    ///
    /// let durability = Durability { replicas: 2, ..Durability::NONE };
    /// assert_eq!(durability.command(), ["WAIT", "2", "1000"]);
    /// let durability = Durability { fsynced: true, ..durability };
    /// assert_eq!(durability.command(), ["WAITAOF", "1", "2", "1000"]);
    /// ```
    pub fn command(&self) -> Vec<String> {
        let timeout = self.timeout.to_string();
        let replicas = self.replicas.to_string();
        if self.fsynced {
            vec!["WAITAOF".into(), "1".into(), replicas, timeout]
        } else {
            vec!["WAIT".into(), replicas, timeout]
        }
    }

    /// What the server replied to the command: whether it has it on its disk, and how many replicas
    /// acknowledged it. `WAIT` does not tell the first, which nobody asked then.
    pub fn copies(&self, reply: &[u64]) -> Result<[u64; 2], Error> {
        match (self.fsynced, reply) {
            (false, [replicas]) => Ok([1, *replicas]),
            (true, [on_disk, replicas]) => Ok([*on_disk, *replicas]),
            _ => Err(unexpected()),
        }
    }

    /// What the script's reply is worth with these [copies](Self::copies). If it is not known how many
    /// there are, because the connection broke, nobody knows.
    pub fn weigh(
        &self,
        mut reply: BatchReply,
        copies: Result<[u64; 2], Error>,
    ) -> Result<BatchReply, Error> {
        let wanted = self.replicas;
        let (kind, what) = match copies {
            Ok([_, replicas]) if replicas < wanted.into() => {
                let what = format!("{replicas} of {wanted} replicas acknowledged it in time");
                (ErrorKind::NotReplicated, what)
            }
            Ok([0, _]) => (
                ErrorKind::NotReplicated,
                "it was not on the disk in time".into(),
            ),
            Ok(_) => return Ok(reply),
            Err(error) if error.is_transient() => return Err(error),
            // Before 7.2 there is no `WAITAOF`, and without an append-only file it is refused.
            Err(error) if error.kind() == ErrorKind::Store => {
                (ErrorKind::Unsupported, error.to_string())
            }
            Err(error) => (error.kind(), error.to_string()),
        };
        let error = Error::new(kind, format!("the lock does not count: {what}"));
        for reply in &mut reply.replies {
            if let Ok(Reply::Held(_) | Reply::Renewed { .. }) = reply {
                *reply = Ok(Reply::NotDurable(error.clone()));
            }
        }
        Ok(reply)
    }
}

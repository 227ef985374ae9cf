//! Durability of a lock: which copies must exist before it counts, so that a failover does not lose it.

use std::time::Duration;

use super::reply::{BatchReply, Reply};
use super::wire::unexpected;
use crate::error::{Error, ErrorKind};

/// The copies that an acquisition or renewal needs: with fewer, it fails.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Durability {
    /// How many replicas must have acknowledged the lock.
    pub replicas: u32,
    /// True if the server must have fsynced the lock to disk. In that case, the replicas must have, too.
    pub fsynced: bool,
    /// How long to wait for the copies, in milliseconds. The connection serves nothing else meanwhile.
    pub timeout: u32,
}

impl Durability {
    /// A durability that requires no copies and waits up to a second: a base for struct updates.
    pub const NONE: Self = Self {
        replicas: 0,
        fsynced: false,
        timeout: 1_000,
    };

    /// Returns [`ErrorKind::Config`] if no copies are required, or the timeout is not from 1 ms to 1 min.
    pub fn check(&self) -> Result<(), Error> {
        if self.replicas == 0 && !self.fsynced {
            return Err(Error::bad_option("replicas", "must be at least 1; got 0"));
        }
        if !(1..=60_000).contains(&self.timeout) {
            let got = match self.timeout {
                0 => "less".to_owned(),
                u32::MAX => "more".to_owned(),
                millis => format!("{millis} ms"),
            };
            let rule = format!("must be from 1 ms to 1 min; got {got}");
            return Err(Error::bad_option("replicas_timeout", rule));
        }
        Ok(())
    }

    /// Returns the timeout, or zero for `None`.
    pub(crate) fn time(this: Option<Self>) -> Duration {
        Duration::from_millis(this.map_or(0, |durability| durability.timeout.into()))
    }

    /// Returns the same requirement with a timeout of at most `most`.
    #[must_use]
    pub fn within(self, most: Duration) -> Self {
        let most = u32::try_from(most.as_millis()).unwrap_or(u32::MAX);
        // A server reads 0 as "forever".
        let timeout = self.timeout.min(most).max(1);
        Self { timeout, ..self }
    }

    /// Returns the command that waits for the copies. Send it right after the script's call and on the same
    /// connection, because a server waits for the writes of the connection that asks.
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

    /// Reads the server's reply to [`command`](Self::command): how many copies are on the server's own disk
    /// (0 or 1), and how many replicas acknowledged. `WAIT` does not report the disk, which reads as 1.
    pub fn copies(&self, reply: &[u64]) -> Result<[u64; 2], Error> {
        match (self.fsynced, reply) {
            (false, [replicas]) => Ok([1, *replicas]),
            (true, [on_disk, replicas]) => Ok([*on_disk, *replicas]),
            _ => Err(unexpected()),
        }
    }

    /// Replaces grants and renewals in the script's reply by [`Reply::NotDurable`] if there are too few
    /// [copies](Self::copies). Returns the error if the connection broke before the copies were known,
    /// because the outcome is unknown then.
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
                "the server did not write it to disk in time".into(),
            ),
            Ok(_) => return Ok(reply),
            Err(error) if error.is_transient() => return Err(error),
            // Redis before 7.2 has no `WAITAOF`, and a server without an append-only file refuses it.
            Err(error) if error.kind() == ErrorKind::Store => {
                let needs = if self.fsynced {
                    "; `fsynced` needs Redis 7.2 with its append-only file"
                } else {
                    ""
                };
                (ErrorKind::Unsupported, format!("{error}{needs}"))
            }
            Err(error) => (error.kind(), error.to_string()),
        };
        let error = Error::new(kind, format!("the lock is not durable: {what}"));
        for reply in &mut reply.replies {
            if let Ok(
                Reply::Held(_) | Reply::Admitted(..) | Reply::Renewed { .. } | Reply::Wanted { .. },
            ) = reply
            {
                *reply = Ok(Reply::NotDurable(error.clone()));
            }
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durability_requires_a_copy_and_bounds_the_wait() {
        let [one, disk] = [(1, false), (0, true)].map(|(replicas, fsynced)| Durability {
            replicas,
            fsynced,
            ..Durability::NONE
        });
        let waits = |timeout| Durability { timeout, ..one };
        for (durability, culprit) in [
            (one, None),
            (disk, None),
            (waits(1), None),
            (waits(60_000), None),
            (Durability::NONE, Some("replicas")),
            (waits(0), Some("replicas_timeout")),
            (waits(60_001), Some("replicas_timeout")),
        ] {
            let message = durability.check().err().map(|error| error.to_string());
            let named = message.as_deref().map(|message| {
                let name = message.trim_start_matches("invalid option ");
                name.split([' ', ':'])
                    .next()
                    .unwrap_or_default()
                    .trim_matches('`')
            });
            assert_eq!(named, culprit, "{message:?}");
        }
    }

    /// Catches an error of the connection that counts as a refusal of the server.
    #[test]
    fn what_may_pass_is_an_error_of_the_call() {
        let one = Durability {
            replicas: 1,
            ..Durability::NONE
        };
        let expires = crate::time::ServerTime::from_micros(1);
        let reply = || BatchReply {
            time: None,
            replies: vec![Ok(Reply::Renewed { expires })],
        };
        let error = Error::new(ErrorKind::Unavailable, "cut");
        assert_eq!(one.weigh(reply(), Err(error.clone())), Err(error));
        let error = Error::new(ErrorKind::Store, "ERR unknown command 'WAITAOF'");
        let weighed = one.weigh(reply(), Err(error)).map(|reply| reply.replies);
        let Ok([Ok(Reply::NotDurable(error))]) = weighed.as_deref() else {
            panic!("{weighed:?}");
        };
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

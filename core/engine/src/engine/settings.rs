//! What holds for the whole locker.

use std::time::Duration;

use super::clock::Margin;
use super::io::LockSpec;
use crate::error::Error;
use crate::limits;
use crate::protocol::ClientId;

/// What holds for the whole locker.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who this locker is: 64 random bits.
    pub client: ClientId,
    /// How long one attempt waits for the store's answer at the most.
    pub command_timeout: Duration,
    /// How long a call goes on trying while the store gives no answer.
    pub patience: Duration,
    /// How far the rates of the store's clock and of the host's may differ, in parts per million.
    pub drift_margin: u32,
    /// Whether the store is a cluster, of servers with a clock of their own each: only operations of
    /// one slot then leave together, unless it is `mixed`, and a lock that was handed over is asked for
    /// once more.
    pub clustered: bool,
    /// Whether the host of a cluster takes batches of several slots, as long as one server serves them.
    pub mixed: bool,
    /// Whether the host can send to each server of a cluster what has no key in it. Else one is only
    /// asked for its clock when something is to be sent there, by a key of that.
    pub addressed: bool,
    /// The longest time to live that a lease may have on a quorum of servers, and for as long a server that
    /// may have forgotten some does not vote: the same for all lockers of a quorum. One server alone ignores it.
    pub longest_ttl: Duration,
}

impl Settings {
    /// The greatest `longest_ttl`: a day. A server of a quorum that restarted does not vote for so long, and a lease
    /// is renewed as long as its holder lives, so a longer one only keeps a lock from those who come after a crash.
    pub(super) const MOST_LONGEST_TTL: Duration = Duration::from_secs(24 * 60 * 60);

    /// The defaults: 2 s for an attempt, 10 s of patience, a drift margin of 2,000 parts per million, and
    /// leases of up to 60 s on a quorum.
    pub fn new(client: ClientId) -> Self {
        Self {
            client,
            command_timeout: const { limits::time("commandTimeout") },
            patience: const { limits::time("patience") },
            drift_margin: Margin::DEFAULT.parts_per_million(),
            clustered: false,
            mixed: false,
            addressed: false,
            longest_ttl: const { limits::time("longestTtl") },
        }
    }

    /// The same, with a patience of one attempt at least.
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if one is out of bounds: 1 ms to 1 min for an
    /// attempt, up to 1 h of patience, 1,000 to 250,000 parts per million of drift, and 10 ms to a day for the longest
    /// time to live on a quorum.
    ///
    /// ```
    /// use leasehold_engine::{engine::Settings, protocol::ClientId};
    ///
    /// let mut settings = Settings::new(ClientId(1));
    /// assert!(settings.clone().checked().is_ok());
    /// settings.command_timeout = std::time::Duration::ZERO;
    /// assert!(settings.checked().unwrap_err().is_config());
    /// ```
    pub fn checked(mut self) -> Result<Self, Error> {
        let (least, minute) = (Duration::from_millis(1), Duration::from_secs(60));
        Error::check_range("command_timeout", self.command_timeout, least, minute)?;
        Error::check_range("patience", self.patience, Duration::ZERO, minute * 60)?;
        let (least, most) = (LockSpec::MIN_TTL, Self::MOST_LONGEST_TTL);
        Error::check_range("longest_ttl", self.longest_ttl, least, most)?;
        let margin = self.drift_margin;
        if Margin::new(margin).parts_per_million() != margin {
            let [least, most] = [Margin::LEAST, Margin::MOST].map(Margin::parts_per_million);
            let rule = format!("must be from {least} to {most} parts per million; got {margin}");
            return Err(Error::bad_option("drift_margin", rule));
        }
        self.patience = self.patience.max(self.command_timeout);
        Ok(self)
    }

    /// Whether only operations of one slot may leave together.
    pub(super) fn by_slots(&self) -> bool {
        self.clustered && !self.mixed
    }
}

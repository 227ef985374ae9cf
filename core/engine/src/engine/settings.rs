//! The settings of a locker.

use std::time::Duration;

use super::clock::Margin;
use super::spec::LockSpec;
use crate::error::Error;
use crate::limits;
use crate::protocol::ClientId;

/// The settings of a locker.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The identity of the locker: 64 random bits.
    pub client: ClientId,
    /// The longest time that one attempt waits for the store's answer.
    pub command_timeout: Duration,
    /// How long a call keeps trying while the store gives no answer.
    pub patience: Duration,
    /// The allowed difference between the rates of the store's clock and the host's, in parts per million.
    pub drift_margin: u32,
    /// True if the store is a cluster, whose servers each have their own clock. Then a batch has operations
    /// of one slot only, unless `mixed` is set, and a lock that was handed over is requested once more.
    pub clustered: bool,
    /// True if a cluster's host accepts batches with several slots, as long as one server serves them all.
    pub mixed: bool,
    /// True if the host can send operations without a key to each server of a cluster. If not, the engine
    /// asks a server for its clock only when an operation for that server is pending, and uses that
    /// operation's key.
    pub addressed: bool,
    /// The longest time to live of a lease on a quorum. A server that may have forgotten leases does not vote
    /// for this long. All lockers of a quorum need the same value. A store that is no quorum ignores it.
    pub longest_ttl: Duration,
}

impl Settings {
    /// The greatest `longest_ttl`: a day. A quorum's server that restarted does not vote for this long. A
    /// lease is renewed as long as its holder lives, so a longer one would only keep the lock blocked after a
    /// crash.
    pub(super) const MOST_LONGEST_TTL: Duration = Duration::from_secs(24 * 60 * 60);

    /// Returns the defaults: 2 s for an attempt, 10 s of patience, a drift margin of 2,000 parts per million,
    /// and leases of up to 60 s on a quorum.
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

    /// Returns the settings with `patience` raised to at least one attempt. Fails with
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if a setting is out of bounds: 1 ms to 1 min for an
    /// attempt, up to 1 h of patience, 1,000 to 250,000 parts per million of drift, and 10 ms to a day for
    /// `longest_ttl`.
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

    /// True if a batch may only have operations of one slot.
    pub(super) fn by_slots(&self) -> bool {
        self.clustered && !self.mixed
    }
}

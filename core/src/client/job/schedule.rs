//! When a job is due. Times are milliseconds since 1970 by the server's clock, and so are ticks.

use std::time::Duration;

use leasehold_engine::{Error, limits};

/// The shortest and the longest period.
const LEAST: Duration = limits::time("shortestPeriod");
const YEAR: Duration = limits::time("longestPeriod");

/// The longest wait for a tick that is due soon, in milliseconds.
const SOON: u64 = limits::number("longestSleep");

#[derive(Clone, Debug)]
pub(super) enum Schedule {
    /// The multiples of a period, in milliseconds.
    Every(u64),
    #[cfg(feature = "cron")]
    Cron(std::sync::Arc<cron::Cron>),
}

impl Schedule {
    pub(super) fn every(period: Duration) -> Result<Self, Error> {
        Error::check_range("a job's period", period, LEAST, YEAR)?;
        let millis = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
        Ok(Self::Every(millis))
    }

    #[cfg(feature = "cron")]
    pub(super) fn cron(text: &str, time_zone: &str) -> Result<Self, Error> {
        let cron = cron::Cron::new(text, time_zone)?;
        Ok(Self::Cron(std::sync::Arc::new(cron)))
    }

    /// Returns the first tick after this time.
    pub(super) fn next(&self, after: u64) -> Option<u64> {
        match self {
            Self::Every(period) => (after / period + 1).checked_mul(*period),
            #[cfg(feature = "cron")]
            Self::Cron(cron) => cron.next(after),
        }
    }

    /// Returns the last tick up to this time.
    pub(super) fn latest(&self, until: u64) -> Option<u64> {
        match self {
            Self::Every(period) => Some(until / period * period).filter(|tick| *tick > 0),
            #[cfg(feature = "cron")]
            Self::Cron(cron) => cron.latest(until),
        }
    }

    /// Returns how long it is until the next tick, if that is due within a tenth of the time since the latest
    /// one, and within a minute; otherwise zero.
    pub(super) fn soon(&self, now: u64, latest: Option<u64>) -> Duration {
        let Some((latest, next)) = latest.zip(self.next(now)) else {
            return Duration::ZERO;
        };
        let is_soon = next - now <= ((next - latest) / 10).min(SOON);
        Duration::from_millis(if is_soon { next - now } else { 0 })
    }

    /// Returns the number of ticks after `from` and before `to`. A cron text's are counted up to `most`.
    pub(super) fn between(&self, from: u64, to: u64, most: u32) -> u64 {
        match self {
            // The number costs nothing here, so it needs no limit.
            Self::Every(period) => {
                let _ = most;
                (to.saturating_sub(1) / period).saturating_sub(from / period)
            }
            #[cfg(feature = "cron")]
            Self::Cron(cron) => {
                let ticks = std::iter::successors(cron.next(from), |tick| cron.next(*tick));
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                let counted = ticks.take_while(|tick| *tick < to).take(most).count();
                u64::try_from(counted).unwrap_or(u64::MAX)
            }
        }
    }

    /// Returns how long a completed tick has to be remembered: for two periods, or for twice the longest pause
    /// among the next due times of a cron text.
    pub(super) fn retention(&self) -> Duration {
        let longest = match self {
            Self::Every(period) => *period,
            #[cfg(feature = "cron")]
            Self::Cron(cron) => cron.longest_pause,
        };
        Duration::from_millis(longest.saturating_mul(2))
    }
}

#[cfg(feature = "cron")]
mod cron {
    use jiff::tz::TimeZone;
    use jiff::{Timestamp, Zoned};
    use leasehold_engine::{Error, ErrorKind, limits};

    /// The number of due times whose pauses are compared.
    const COMPARED: usize = limits::count("comparedTicks") as usize;

    /// The greatest step of each field: seconds, minutes, hours, days, months and days of the week.
    const MOST_STEPS: [u64; 6] = [60, 60, 24, 31, 12, 7];

    /// A cron text in a time zone.
    #[derive(Debug)]
    pub(in crate::client) struct Cron {
        text: croner::Cron,
        zone: TimeZone,
        /// In milliseconds, among the next due times.
        pub(in crate::client) longest_pause: u64,
    }

    impl Cron {
        pub(super) fn new(text: &str, time_zone: &str) -> Result<Self, Error> {
            let bad = |what: String| Error::new(ErrorKind::Config, what);
            let invalid = |why: String| bad(format!("the cron text {text:?} is not valid: {why}"));
            check_fields(text).map_err(invalid)?;
            let parsed = text.parse::<croner::Cron>();
            let parsed = parsed.map_err(|error| invalid(error.to_string()))?;
            let unknown = |_| {
                bad(format!(
                    "the time zone {time_zone:?} is not known; give a name such as Europe/Berlin or UTC"
                ))
            };
            let zone = TimeZone::get(time_zone).map_err(unknown)?;
            let mut cron = Self {
                text: parsed,
                zone,
                longest_pause: 0,
            };
            let first = cron.next(millis_of(Timestamp::now()));
            let ticks = std::iter::successors(first, |tick| cron.next(*tick));
            let ticks: Vec<_> = ticks.take(COMPARED).collect();
            if ticks.is_empty() {
                return Err(bad(format!("the cron text {text:?} is never due")));
            }
            let pauses = ticks.windows(2).map(|two| two[1] - two[0]);
            cron.longest_pause = pauses.max().unwrap_or(0);
            Ok(cron)
        }

        pub(super) fn next(&self, after: u64) -> Option<u64> {
            let next = self.text.find_next_occurrence(&self.zoned(after)?, false);
            Some(millis_of(next.ok()?.timestamp())).filter(|tick| *tick > after)
        }

        pub(super) fn latest(&self, until: u64) -> Option<u64> {
            let latest = self
                .text
                .find_previous_occurrence(&self.zoned(until)?, true);
            Some(millis_of(latest.ok()?.timestamp())).filter(|tick| *tick <= until)
        }

        fn zoned(&self, millis: u64) -> Option<Zoned> {
            let millis = i64::try_from(millis).ok()?;
            let time = Timestamp::from_millisecond(millis).ok()?;
            Some(time.to_zoned(self.zone.clone()))
        }
    }

    /// Refuses what the package of one language reads and that of the other does not: the machines of a job may be of both.
    fn check_fields(text: &str) -> Result<(), String> {
        let fields: Vec<_> = text.split_whitespace().collect();
        if fields.first().is_some_and(|first| first.starts_with('@')) {
            return Ok(());
        }
        let without = MOST_STEPS.len().checked_sub(fields.len());
        let Some(without) = without.filter(|fields| *fields < 2) else {
            return Err(format!("it has {} fields, not five or six", fields.len()));
        };
        for (field, most) in fields.iter().zip(&MOST_STEPS[without..]) {
            for part in field.split(',') {
                if part.is_empty() || part.contains('?') {
                    return Err(format!("`{field}` has an empty place or a question mark"));
                }
                let step = part.split_once('/').and_then(|(_, step)| step.parse().ok());
                if step.is_some_and(|step: u64| step > *most) {
                    return Err(format!("the step of `{field}` is greater than {most}"));
                }
            }
        }
        Ok(())
    }

    fn millis_of(time: Timestamp) -> u64 {
        u64::try_from(time.as_millisecond()).unwrap_or(0)
    }
}

#[cfg(all(test, feature = "cron"))]
mod tests;

//! Claims on a part of a name: permits of semaphores and quotas, readers and writers.

use serde::Serialize;

use crate::digits;
use crate::error::{Error, ErrorKind};
use crate::protocol::limits::{MOST_SLOTS, MOST_SLOTS_AT_ONCE, MOST_UNITS, UNITS_LENGTH};

/// How a shared name gives its capacity to its holders.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// A semaphore: each unit is a slot with a number, and a slot has one holder at a time.
    Slots,
    /// A quota: units are only counted.
    Units,
    /// A lock for readers and writers: a reader takes one unit, and a writer takes all.
    Access,
}

/// The part of a shared name that one claim asks for.
///
/// A lock is not shared: it is all of its name. A permit of a semaphore of 3 is 1 of 3 slots.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Share {
    sharing: Sharing,
    weight: u32,
    capacity: u32,
}

impl Share {
    /// The most slots of a semaphore.
    pub const MAX_SLOTS: u32 = MOST_SLOTS;
    /// The most slots that one permit may have.
    pub const MAX_SLOTS_AT_ONCE: u32 = MOST_SLOTS_AT_ONCE;
    /// The most units of a quota.
    pub const MAX_UNITS: u32 = MOST_UNITS;

    /// Makes a claim on this many slots of a semaphore.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the capacity is not from 1 to [`MAX_SLOTS`](Self::MAX_SLOTS), or
    /// the weight not from 1 to the capacity or [`MAX_SLOTS_AT_ONCE`](Self::MAX_SLOTS_AT_ONCE).
    pub fn slots(weight: u32, capacity: u32) -> Result<Self, Error> {
        check("the semaphore's capacity", capacity, Self::MAX_SLOTS)?;
        check("the weight", weight, capacity.min(Self::MAX_SLOTS_AT_ONCE))?;
        Ok(Self::of(Sharing::Slots, weight, capacity))
    }

    /// Makes a claim on this many units of a quota.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the capacity is not from 1 to [`MAX_UNITS`](Self::MAX_UNITS), or
    /// the weight not from 1 to the capacity.
    pub fn units(weight: u32, capacity: u32) -> Result<Self, Error> {
        check("the quota's capacity", capacity, Self::MAX_UNITS)?;
        check("the weight", weight, capacity)?;
        Ok(Self::of(Sharing::Units, weight, capacity))
    }

    /// Makes the claim of a reader.
    pub fn reader() -> Self {
        Self::of(Sharing::Access, 1, Self::MAX_UNITS)
    }

    /// Makes the claim of a writer.
    pub fn writer() -> Self {
        Self::of(Sharing::Access, Self::MAX_UNITS, Self::MAX_UNITS)
    }

    fn of(sharing: Sharing, weight: u32, capacity: u32) -> Self {
        Self {
            sharing,
            weight,
            capacity,
        }
    }

    /// Returns a claim on this many units of the same name.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the weight is not from 1 to the capacity, or above
    /// [`MAX_SLOTS_AT_ONCE`](Self::MAX_SLOTS_AT_ONCE) for slots.
    pub fn with_weight(self, weight: u32) -> Result<Self, Error> {
        match self.sharing {
            Sharing::Slots => Self::slots(weight, self.capacity),
            Sharing::Units => Self::units(weight, self.capacity),
            Sharing::Access => {
                check("the weight", weight, self.capacity)?;
                Ok(Self { weight, ..self })
            }
        }
    }

    /// Returns how the name is shared.
    pub fn sharing(self) -> Sharing {
        self.sharing
    }

    /// Returns how many units the claim asks for.
    pub fn weight(self) -> u32 {
        self.weight
    }

    /// Returns the capacity that the name gets if the store has none for it.
    pub fn capacity(self) -> u32 {
        self.capacity
    }

    /// Returns true if the claim is a writer's.
    pub fn is_writer(self) -> bool {
        self.sharing == Sharing::Access && self.weight == self.capacity
    }

    /// Reads a share as it is stored: its kind, and a text that begins with its numbers. Returns also the rest
    /// of the text.
    pub(crate) fn of_stored<'a>(kind: &str, text: &'a str) -> Option<(Self, &'a str)> {
        let (weight, text) = text.split_at_checked(UNITS_LENGTH)?;
        let (capacity, rest) = text.split_at_checked(UNITS_LENGTH)?;
        let number = |digits| u32::try_from(digits::plain(digits)?).ok();
        let (weight, capacity) = (number(weight)?, number(capacity)?);
        let share = match Sharing::of_kind(kind)? {
            Sharing::Slots => Self::slots(weight, capacity),
            Sharing::Units => Self::units(weight, capacity),
            sharing @ Sharing::Access => Ok(Self::of(sharing, weight, capacity)),
        };
        Some((share.ok()?, rest))
    }

    /// Returns the numbers as they are stored.
    pub(crate) fn stored(self) -> String {
        format!(
            "{:0UNITS_LENGTH$}{:0UNITS_LENGTH$}",
            self.weight, self.capacity
        )
    }
}

impl Sharing {
    /// Returns the kind of an owner that shares its name, as it is stored.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Slots => "s",
            Self::Units => "u",
            Self::Access => "m",
        }
    }

    /// Checks the capacity of a name.
    pub(crate) fn check(self, capacity: u32) -> Result<(), Error> {
        match self {
            Self::Slots => Share::slots(1, capacity).map(drop),
            Self::Units => Share::units(1, capacity).map(drop),
            Self::Access => {
                let rule = "cannot be changed: any number of readers may hold the name";
                Err(Error::bad_option("capacity", rule))
            }
        }
    }

    pub(crate) fn of_kind(kind: &str) -> Option<Self> {
        let all = [Self::Slots, Self::Units, Self::Access];
        all.into_iter().find(|sharing| sharing.kind() == kind)
    }
}

/// Returns an error if the number is not from 1 to the bound.
fn check(what: &str, number: u32, most: u32) -> Result<(), Error> {
    if (1..=most).contains(&number) {
        return Ok(());
    }
    let message = format!("{what} is {number}; it must be from 1 to {most}");
    Err(Error::new(ErrorKind::Config, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_bounds_that_its_error_names() {
        let text = |share: Result<Share, Error>| share.expect_err("out of bounds").to_string();
        assert!(text(Share::slots(1, 0)).contains("capacity is 0; it must be from 1 to 10000"));
        assert!(text(Share::slots(0, 3)).contains("weight is 0; it must be from 1 to 3"));
        assert!(text(Share::slots(4, 3)).contains("weight is 4; it must be from 1 to 3"));
        assert!(text(Share::slots(65, 100)).contains("from 1 to 64"));
        assert!(text(Share::slots(1, 10_001)).contains("10001"));
        assert!(text(Share::units(5, 4)).contains("weight is 5"));
        assert!(Share::units(1_000_000_000, 1_000_000_000).is_ok());
    }

    #[test]
    fn a_share_is_read_as_it_is_stored() {
        let all = [
            Share::slots(2, 3).expect("within the bounds"),
            Share::units(5, 70).expect("within the bounds"),
            Share::reader(),
            Share::writer(),
        ];
        for share in all {
            let text = share.stored() + "label";
            let read = Share::of_stored(share.sharing().kind(), &text);
            assert_eq!(read, Some((share, "label")));
        }
        for bad in [
            "",
            "0000000001",
            "0000000004000000000x",
            "00000000040000000003",
        ] {
            assert_eq!(Share::of_stored("s", bad), None, "{bad:?}");
        }
        assert_eq!(Share::of_stored("l", "00000000010000000003"), None);
    }
}

//! Names of locks, and the owner that a lock shows to others.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::digits;
use crate::error::{Error, ErrorKind};
use crate::limits;
use crate::protocol::limits::TICK_LENGTH;
use crate::share::Share;
use crate::tick::Tick;

/// The name of a lock: 1 to 512 bytes of UTF-8, any characters.
///
/// ```
/// # use leasehold_engine as leasehold;
/// use leasehold::Name;
///
/// let name = Name::new("orders/42")?;
/// assert_eq!(name.as_str(), "orders/42");
/// assert!(Name::new("").is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Name {
    /// The name after a colon, as in `:orders/42`, or the lock's whole key that contains it, as in
    /// `{app:orders/42}`. So a held lock has one text, not two.
    text: Arc<str>,
}

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = limits::count("nameBytes") as usize;

    /// Makes a name.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if it is empty or too long.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        Self::check(name)?;
        Ok(Self {
            text: format!(":{name}").into(),
        })
    }

    pub(crate) fn check(name: &str) -> Result<(), Error> {
        Error::check_length("a lock's name", name, Self::MAX_BYTES)
    }

    /// Returns the name within a lock's key.
    pub(crate) fn within(key: &Arc<str>) -> Self {
        Self { text: key.clone() }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        // Colons in a key's namespace are escaped.
        let (before, name) = self.text.split_once(':').unwrap_or_default();
        if before.is_empty() {
            name
        } else {
            name.strip_suffix('}').unwrap_or(name)
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl TryFrom<String> for Name {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        Self::new(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The holder of a lock, as others see it.
///
/// ```
/// # use leasehold_engine as leasehold;
/// use leasehold::Owner;
///
/// let job = Owner::reclaimable("job-7")?;
/// assert!(job.is_reclaimable());
/// assert_eq!(job.label(), "job-7");
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Owner {
    label: Arc<str>,
    reclaimable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tick: Option<Tick>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<Share>,
}

impl Owner {
    /// The longest label, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Makes an owner that outlives the process.
    ///
    /// Another locker that acquires under the same label takes the lock over, with a new token, instead of
    /// waiting for it.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the label is empty or too long.
    pub fn reclaimable(label: impl AsRef<str>) -> Result<Self, Error> {
        Self::checked(label.as_ref(), true)
    }

    /// Makes an owner whose label is for people who look at the lock. The label gives no right to the lock.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the label is empty or too long.
    pub fn labelled(label: impl AsRef<str>) -> Result<Self, Error> {
        Self::checked(label.as_ref(), false)
    }

    /// Makes the owner of a turn: a runner of a job, with the tick that it runs.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the label is empty or too long.
    #[doc(hidden)]
    pub fn runner(label: impl AsRef<str>, tick: Tick) -> Result<Self, Error> {
        let owner = Self::checked(label.as_ref(), false)?;
        Ok(Self {
            tick: Some(tick),
            ..owner
        })
    }

    /// Makes the owner of a part of a shared name.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the label is empty or too long.
    #[doc(hidden)]
    pub fn sharing(label: impl AsRef<str>, share: Share) -> Result<Self, Error> {
        Ok(Self::checked(label.as_ref(), false)?.with_share(share))
    }

    /// Returns an owner of a part of a shared name, with the same label.
    #[doc(hidden)]
    #[must_use]
    pub fn with_share(&self, share: Share) -> Self {
        Self {
            share: Some(share),
            ..self.as_label()
        }
    }

    /// Returns the label.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns true if another locker with the same label may take the lock over.
    pub fn is_reclaimable(&self) -> bool {
        self.reclaimable
    }

    /// Returns the tick that the owner runs, if it is a runner of a job.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// # use leasehold::Owner;
    /// assert_eq!(Owner::labelled("web-1")?.tick(), None);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn tick(&self) -> Option<u64> {
        self.running().map(Tick::get)
    }

    pub(crate) fn running(&self) -> Option<Tick> {
        self.tick
    }

    /// Returns the part of a shared name that the owner has or asks for, if the name is shared.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// # use leasehold::Owner;
    /// assert_eq!(Owner::labelled("web-1")?.share(), None);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn share(&self) -> Option<Share> {
        self.share
    }

    /// Returns the owner as a label, which gives no right to the lock.
    pub(crate) fn as_label(&self) -> Self {
        Self {
            label: self.label.clone(),
            reclaimable: false,
            tick: None,
            share: None,
        }
    }

    /// Returns the kind of owner as stored: `j` for a runner of a job, a letter of its own for each way to share
    /// a name, `r` if it is reclaimable, otherwise `l`.
    pub(crate) fn kind(&self) -> &'static str {
        match (self.tick, self.share) {
            (Some(_), _) => "j",
            (None, Some(share)) => share.sharing().kind(),
            (None, None) if self.reclaimable => "r",
            (None, None) => "l",
        }
    }

    /// Returns what is stored after the kind: the label, and before it the tick of a runner or the numbers of a
    /// share.
    pub(crate) fn stored(&self) -> String {
        let tick = self.tick().map(|tick| format!("{tick:0TICK_LENGTH$}"));
        let share = self.share.map(Share::stored);
        tick.or(share).unwrap_or_default() + &self.label
    }

    /// Reads an owner as it is stored: its kind and what follows.
    pub(crate) fn of_stored(kind: &str, text: &str) -> Result<Self, Error> {
        match kind {
            "r" => Self::reclaimable(text),
            "l" => Self::labelled(text),
            "j" => {
                let tick = text.split_at_checked(TICK_LENGTH);
                let tick = tick.and_then(|(tick, label)| Some((digits::plain(tick)?, label)));
                let (tick, label) = tick.ok_or_else(not_an_owner)?;
                Self::runner(label, Tick::new(tick)?)
            }
            _ => {
                let share = Share::of_stored(kind, text);
                let (share, label) = share.ok_or_else(not_an_owner)?;
                Self::sharing(label, share)
            }
        }
    }

    fn checked(label: &str, reclaimable: bool) -> Result<Self, Error> {
        Error::check_length("an owner", label, Self::MAX_BYTES)?;
        Ok(Self {
            label: label.into(),
            reclaimable,
            tick: None,
            share: None,
        })
    }
}

fn not_an_owner() -> Error {
    Error::new(
        ErrorKind::Store,
        "the store holds an owner that cannot be read",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_512_bytes_of_anything() {
        assert!(Name::new("").is_err());
        assert!(Name::new("x".repeat(512)).is_ok());
        assert!(Name::new("x".repeat(513)).is_err());
        assert!(
            Name::new("€".repeat(171)).is_err(),
            "513 bytes in 171 characters"
        );
        assert!(Name::new("{a}\n\0 🔒").is_ok());
    }

    #[test]
    fn a_bad_name_is_told_its_length() {
        let error = Name::new("x".repeat(600)).expect_err("600 bytes are too many");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("512") && error.to_string().contains("600"));
    }
}

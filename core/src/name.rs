//! Names of locks, and the owner that a lock shows to others.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::limits;

/// The name of what is locked: 1 to 512 bytes of UTF-8, any characters.
///
/// ```
/// use leasehold::Name;
///
/// let name = Name::new("orders/42")?;
/// assert_eq!(name.as_str(), "orders/42");
/// assert!(Name::new("").is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = limits::count("nameBytes") as usize;

    /// Checks a name. Fails with [`Config`](crate::ErrorKind::Config) if it is empty or too long.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        Error::check_length("a lock's name", name, Self::MAX_BYTES)?;
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
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
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Who holds a lock, as others see it.
///
/// ```
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
}

impl Owner {
    /// The longest label, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// An identity that outlives the process: another locker that acquires under the same label
    /// takes the lock over, with a new token, instead of waiting for it. Fails with
    /// [`Config`](crate::ErrorKind::Config) if the label is empty or too long.
    pub fn reclaimable(label: impl AsRef<str>) -> Result<Self, Error> {
        Self::checked(label.as_ref(), true)
    }

    /// A label for people who look at the lock; it gives no right to it. Fails as
    /// [`reclaimable`](Self::reclaimable) does.
    pub fn labelled(label: impl AsRef<str>) -> Result<Self, Error> {
        Self::checked(label.as_ref(), false)
    }

    /// The label.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Whether another locker with the same label may take the lock over.
    pub fn is_reclaimable(&self) -> bool {
        self.reclaimable
    }

    /// Its form in the store: `r` if it is reclaimable, `l` if not.
    pub(crate) fn kind(&self) -> &'static str {
        if self.reclaimable { "r" } else { "l" }
    }

    fn checked(label: &str, reclaimable: bool) -> Result<Self, Error> {
        Error::check_length("an owner", label, Self::MAX_BYTES)?;
        Ok(Self {
            label: label.into(),
            reclaimable,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

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
